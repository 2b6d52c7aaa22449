//! The sessions of a server.

use crate::cli::Failure;
use crate::cli::listing::Column;
use crate::cli::named::Noun;
use crate::cli::remote::{ListArgs, RemoteArgs};
use crate::client::Call;
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
    /// List the sessions of a server
    Ls(Ls),
    /// Show a session of a server
    Show(One),
    /// Close a session of a server
    Close(One),
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
        Verb::Ls(Ls { remote, status, list }) => remote.run(async |remote| {
            remote
                .list(Call::get(Noun::Session.path()).query("status", status), list, COLUMNS)
                .await
        }),
        Verb::Show(One { remote, session }) => remote.run(async |remote| {
            remote.show(Call::get(remote.client.path(Noun::Session, &session).await?)).await
        }),
        Verb::Close(One { remote, session }) => remote.run(async |remote| {
            let call = Call::delete(remote.client.path(Noun::Session, &session).await?);
            remote.done(call, "it is closed").await
        }),
    }
}
