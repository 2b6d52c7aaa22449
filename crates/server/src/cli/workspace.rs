//! `belljar workspace`: the tenants of a server, for whoever runs it.

use super::Failure;
use super::listing::Column;
use super::remote::{ListArgs, RemoteArgs};
use crate::client::Call;
use serde_json::json;
use std::process::ExitCode;

const COLUMNS: &[Column] = &[("id", "/id"), ("name", "/name"), ("created", "/created_at")];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a workspace, and print the key of its owner this once
    New {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List all workspaces
    Ls(ListArgs),
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| match args.verb {
        Verb::New { name } => {
            let call = Call::post("/v1/workspaces").json(&json!({"name": name}));
            remote.issue(call, "/key/secret").await
        }
        Verb::Ls(list) => remote.list(Call::get("/v1/workspaces"), list, COLUMNS).await,
    })
}
