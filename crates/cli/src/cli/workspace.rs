//! `belljar workspace`: manages the workspaces of a server, for its operator.

use super::CliError;
use super::display::Column;
use super::remote::{ListArgs, RemoteArgs};
use crate::client::ApiRequest;
use serde_json::json;
use std::process::ExitCode;

const COLUMNS: &[Column] = &[("id", "/id"), ("name", "/name"), ("created", "/created_at")];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a workspace and print the API key of its owner
    ///
    /// Use it for each team or customer. The key is printed once and cannot be shown again.
    #[command(after_help = "Examples:\n  \
        belljar workspace new guests")]
    New {
        /// Name of the workspace
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List workspaces
    ///
    /// Use it to see all workspaces of the server.
    #[command(after_help = "Examples:\n  \
        belljar workspace ls")]
    Ls(ListArgs),
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::New { name } => {
            let call = ApiRequest::post("/v1/workspaces").json(&json!({"name": name}));
            remote.print_secret(call, "/key/secret").await
        }
        Command::Ls(list) => remote.list(ApiRequest::get("/v1/workspaces"), list, COLUMNS).await,
    })
}
