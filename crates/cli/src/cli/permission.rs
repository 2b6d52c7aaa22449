//! `belljar permission`: gets or sets the approval policy for submitted code.

use super::CliError;
use super::remote::RemoteArgs;
use crate::client::ApiRequest;
use serde_json::json;
use std::process::ExitCode;
use types::Permission;

const PATH: &str = "/v1/permissions/execute_python";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the approval policy
    ///
    /// Use it to find out whether submitted code needs an approval.
    #[command(after_help = "Examples:\n  \
        belljar permission show")]
    Show,
    /// Set the approval policy
    ///
    /// Use it to run submitted code at once (allow), to require an approval for every run (ask) or
    /// for the first run of each session (ask_once), or to deny all code (deny).
    #[command(after_help = "Examples:\n  \
        belljar permission set ask")]
    Set {
        /// Approval policy
        #[arg(value_name = "allow | ask | ask_once | deny", value_parser = parse_permission)]
        permission: Permission,
    },
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::Show => remote.show(ApiRequest::get(PATH)).await,
        Command::Set { permission } => {
            remote.show(ApiRequest::put(PATH).json(&json!({"permission": permission}))).await
        }
    })
}

pub(super) fn parse_permission(name: &str) -> Result<Permission, String> {
    let found = Permission::ALL.into_iter().find(|permission| permission.name() == name);
    found.ok_or_else(|| {
        format!("must be one of {}", Permission::ALL.map(Permission::name).join(", "))
    })
}
