//! `belljar permission`: what becomes of code that is sent to a workspace.

use super::Failure;
use super::remote::RemoteArgs;
use crate::client::Call;
use serde_json::json;
use std::process::ExitCode;
use types::Permission;

const PATH: &str = "/v1/permissions/execute_python";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show it
    Show,
    /// Let code run, ask a person about every run or about the first of each session, or deny all
    Set {
        #[arg(value_name = "allow | ask | ask_once | deny", value_parser = permission)]
        permission: Permission,
    },
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    args.remote.run(async |remote| match args.verb {
        Verb::Show => remote.show(Call::get(PATH)).await,
        Verb::Set { permission } => {
            remote.show(Call::put(PATH).json(&json!({"permission": permission}))).await
        }
    })
}

pub(super) fn permission(word: &str) -> Result<Permission, String> {
    let found = Permission::ALL.into_iter().find(|permission| permission.name() == word);
    found
        .ok_or_else(|| format!("it is one of {}", Permission::ALL.map(Permission::name).join(", ")))
}
