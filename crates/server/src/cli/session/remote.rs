//! The sessions of a server.

use crate::cli::Failure;
use crate::cli::listing::Column;
use crate::cli::remote::{ListArgs, RemoteArgs};
use crate::client::Call;
use std::process::ExitCode;
use types::SandboxId;

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

    #[arg(value_name = "ID")]
    id: SandboxId,
}

pub(super) fn main(verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Ls(Ls { remote, status, list }) => remote.run(async |remote| {
            remote.list(Call::get("/v1/sessions").query("status", status), list, COLUMNS).await
        }),
        Verb::Show(One { remote, id }) => {
            remote.run(async |remote| remote.show(Call::get(path(id))).await)
        }
        Verb::Close(One { remote, id }) => {
            remote.run(async |remote| remote.done(Call::delete(path(id)), "it is closed").await)
        }
    }
}

fn path(id: SandboxId) -> String {
    format!("/v1/sessions/{id}")
}
