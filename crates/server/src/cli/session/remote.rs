//! The sessions of a server.

use crate::cli::Failure;
use crate::cli::listing::Column;
use crate::cli::named::Noun;
use crate::cli::remote::{ListArgs, RemoteArgs};
use crate::client::Call;
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
pub(super) enum Verb {
    /// Open a session of a server, for `belljar exec --session`
    New(New),
    /// List the sessions of a server
    Ls(Ls),
    /// Show a session of a server
    Show(One),
    /// Begin a session of a server anew, with nothing in it; also one that was lost
    Reset(One),
    /// Close a session of a server
    Close(One),
}

#[derive(Debug, clap::Args)]
pub(super) struct New {
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
pub(super) struct Ls {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Only those that are `ready`, `busy`, `closed`, `expired` or `lost`
    #[arg(long)]
    status: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct One {
    #[command(flatten)]
    remote: RemoteArgs,

    #[arg(value_name = "KEY | ID")]
    session: String,
}

pub(super) fn main(verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::New(New { remote, key, agent, integrations, environment }) => {
            remote.run(async |remote| {
                let agent = match agent {
                    Some(agent) => Some(remote.client.id(Noun::Agent, &agent).await?),
                    None => None,
                };
                let body = json!({
                    "agent_id": agent,
                    "key": key,
                    "integrations": integrations,
                    "environment": environment,
                });
                remote.show(Call::post(Noun::Session.path()).json(&body)).await
            })
        }
        Verb::Ls(Ls { remote, status, list }) => remote.run(async |remote| {
            remote
                .list(Call::get(Noun::Session.path()).query("status", status), list, COLUMNS)
                .await
        }),
        Verb::Show(One { remote, session }) => remote.run(async |remote| {
            remote.show(Call::get(remote.client.path(Noun::Session, &session).await?)).await
        }),
        Verb::Reset(One { remote, session }) => remote.run(async |remote| {
            let path = remote.client.path(Noun::Session, &session).await?;
            remote.show(Call::post(format!("{path}/reset"))).await
        }),
        Verb::Close(One { remote, session }) => remote.run(async |remote| {
            let call = Call::delete(remote.client.path(Noun::Session, &session).await?);
            remote.done(call, "it is closed").await
        }),
    }
}
