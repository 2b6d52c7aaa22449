//! The sessions of a server.

use crate::cli::CliError;
use crate::cli::display::Column;
use crate::cli::remote::{ListArgs, RemoteArgs};
use crate::cli::resource_names::ResourceKind;
use crate::client::ApiRequest;
use serde_json::json;
use std::process::ExitCode;

const COLUMNS: &[Column] = &[
    ("id", "/sandbox_id"),
    ("status", "/status"),
    ("name", "/name"),
    ("key", "/key"),
    ("environment", "/environment"),
    ("used", "/updated_at"),
];

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Open a session on a server
    ///
    /// Use it to keep variables and files between runs of `belljar exec --session`.
    #[command(after_help = "Examples:\n  \
        belljar session new --key talk\n  \
        belljar session new --agent helper --key talk")]
    New(NewSessionArgs),
    /// List sessions of a server
    ///
    /// Use it to find open sessions, or those that expired or were lost.
    #[command(after_help = "Examples:\n  \
        belljar session ls --status ready")]
    Ls(ListSessionsArgs),
    /// Show a session of a server
    ///
    /// Use it to check the status, the environment and the expiry of a session.
    #[command(after_help = "Examples:\n  \
        belljar session show talk")]
    Show(SessionArgs),
    /// Reset a session of a server
    ///
    /// Use it to continue a session with an empty state, also after it was lost. Its variables and
    /// files are deleted.
    #[command(after_help = "Examples:\n  \
        belljar session reset talk")]
    Reset(SessionArgs),
    /// Close a session of a server
    ///
    /// Use it to free the memory of a session that you no longer need.
    #[command(after_help = "Examples:\n  \
        belljar session close talk")]
    Close(SessionArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct NewSessionArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Reuse the open session with this key, or create one
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// Agent whose specification applies to the session
    #[arg(long, value_name = "NAME | ID", conflicts_with = "integrations")]
    agent: Option<String>,

    /// Allow network access through this integration; repeatable
    #[arg(long = "integration", value_name = "NAME")]
    integrations: Vec<String>,

    /// Environment [default: that of the agent, or that of the server]
    #[arg(long = "env", value_name = "NAME")]
    environment: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListSessionsArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// List only sessions with this status: `ready`, `busy`, `closed`, `expired` or `lost`
    #[arg(long)]
    status: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct SessionArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Key or id of the session
    #[arg(value_name = "KEY | ID")]
    session: String,
}

pub(super) fn main(verb: Command) -> Result<ExitCode, CliError> {
    match verb {
        Command::New(NewSessionArgs { remote, key, agent, integrations, environment }) => remote
            .run(async |remote| {
                let agent = match agent {
                    Some(agent) => {
                        Some(remote.client.resolve_id(ResourceKind::Agent, &agent).await?)
                    }
                    None => None,
                };
                let body = json!({
                    "agent_id": agent,
                    "key": key,
                    "integrations": integrations,
                    "environment": environment,
                });
                remote.show(ApiRequest::post(ResourceKind::Session.path()).json(&body)).await
            }),
        Command::Ls(ListSessionsArgs { remote, status, list }) => remote.run(async |remote| {
            remote
                .list(
                    ApiRequest::get(ResourceKind::Session.path()).query("status", status),
                    list,
                    COLUMNS,
                )
                .await
        }),
        Command::Show(SessionArgs { remote, session }) => remote.run(async |remote| {
            remote
                .show(ApiRequest::get(
                    remote.client.resolve_path(ResourceKind::Session, &session).await?,
                ))
                .await
        }),
        Command::Reset(SessionArgs { remote, session }) => remote.run(async |remote| {
            let path = remote.client.resolve_path(ResourceKind::Session, &session).await?;
            remote.show(ApiRequest::post(format!("{path}/reset"))).await
        }),
        Command::Close(SessionArgs { remote, session }) => remote.run(async |remote| {
            let call = ApiRequest::delete(
                remote.client.resolve_path(ResourceKind::Session, &session).await?,
            );
            remote.send_and_report(call, &format!("session {session} closed")).await
        }),
    }
}
