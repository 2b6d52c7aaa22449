//! `belljar execution`: what has run on a server, and what runs.

use super::Failure;
use super::listing::Column;
use super::named::Noun;
use super::remote::{ListArgs, RemoteArgs};
use crate::client::Call;
use std::process::ExitCode;
use types::ExecutionId;

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("status", "/status"),
    ("tool", "/tool"),
    ("environment", "/environment"),
    ("ms", "/usage/wall_ms"),
    ("created", "/created_at"),
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List executions
    Ls(Ls),
    /// Show the record of one
    Show {
        #[arg(value_name = "ID")]
        id: ExecutionId,
    },
    /// Stop one
    Cancel {
        #[arg(value_name = "ID")]
        id: ExecutionId,
    },
}

#[derive(Debug, clap::Args)]
struct Ls {
    /// Only those with this status, such as `running` or `failed`
    #[arg(long)]
    status: Option<String>,

    /// Only calls of the tool of this name
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,

    /// Only those of this session
    #[arg(long, value_name = "KEY | ID")]
    session: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| match args.verb {
        Verb::Ls(Ls { status, tool, session, list }) => {
            let mut call = Call::get("/v1/executions").query("status", status).query("tool", tool);
            if let Some(session) = session {
                let id = remote.client.id(Noun::Session, &session).await?;
                call = call.query("sandbox_id", Some(id));
            }
            remote.list(call, list, COLUMNS).await
        }
        Verb::Show { id } => remote.show(Call::get(format!("/v1/executions/{id}"))).await,
        Verb::Cancel { id } => remote.show(Call::post(format!("/v1/executions/{id}/cancel"))).await,
    })
}
