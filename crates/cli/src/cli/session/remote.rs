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
    /// Open a session of a server, for `belljar exec --session`
    New(NewSessionArgs),
    /// List the sessions of a server
    Ls(ListSessionsArgs),
    /// Show a session of a server
    Show(SessionArgs),
    /// Begin a session of a server anew, with nothing in it; also one that was lost
    Reset(SessionArgs),
    /// Close a session of a server
    Close(SessionArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct NewSessionArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Of a conversation: a session that has it already is given instead of a new one
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// The agent whose code will run in it, as its specification says
    #[arg(long, value_name = "NAME | ID", conflicts_with = "integrations")]
    agent: Option<String>,

    /// An integration that its code may leave by; can be given several times
    #[arg(long = "integration", value_name = "NAME")]
    integrations: Vec<String>,

    /// The environment [default: that of the agent, or the server's usual one]
    #[arg(long = "env", value_name = "NAME")]
    environment: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListSessionsArgs {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Only those that are `ready`, `busy`, `closed`, `expired` or `lost`
    #[arg(long)]
    status: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct SessionArgs {
    #[command(flatten)]
    remote: RemoteArgs,

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
            remote.send_and_report(call, "it is closed").await
        }),
    }
}
