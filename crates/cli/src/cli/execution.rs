//! `belljar execution`: lists, shows and cancels executions of a server.

use super::CliError;
use super::display::Column;
use super::remote::{ListArgs, RemoteArgs};
use super::resource_names::ResourceKind;
use crate::client::ApiRequest;
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
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List executions
    ///
    /// Use it to find an execution by status, tool or session, newest first.
    #[command(after_help = "Examples:\n  \
        belljar execution ls\n  \
        belljar execution ls --status failed --tool media_probe")]
    Ls(ListExecutionsArgs),
    /// Show the record of an execution
    ///
    /// Use it to see the status, output, files, warnings and resource usage of a run.
    #[command(after_help = "Examples:\n  \
        belljar execution show 0198c0de-0000-7000-8000-000000000000")]
    Show {
        /// Id of the execution
        #[arg(value_name = "ID")]
        id: ExecutionId,
    },
    /// Cancel an execution
    ///
    /// Use it to stop a run that takes too long. The record stays.
    #[command(after_help = "Examples:\n  \
        belljar execution cancel 0198c0de-0000-7000-8000-000000000000")]
    Cancel {
        /// Id of the execution
        #[arg(value_name = "ID")]
        id: ExecutionId,
    },
}

#[derive(Debug, clap::Args)]
struct ListExecutionsArgs {
    /// List only executions with this status, such as `running` or `failed`
    #[arg(long)]
    status: Option<String>,

    /// List only calls of this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,

    /// List only executions of this session
    #[arg(long, value_name = "KEY | ID")]
    session: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::Ls(ListExecutionsArgs { status, tool, session, list }) => {
            let mut call =
                ApiRequest::get("/v1/executions").query("status", status).query("tool", tool);
            if let Some(session) = session {
                let id = remote.client.resolve_id(ResourceKind::Session, &session).await?;
                call = call.query("sandbox_id", Some(id));
            }
            remote.list(call, list, COLUMNS).await
        }
        Command::Show { id } => remote.show(ApiRequest::get(format!("/v1/executions/{id}"))).await,
        Command::Cancel { id } => {
            remote.show(ApiRequest::post(format!("/v1/executions/{id}/cancel"))).await
        }
    })
}
