//! `belljar skill rm`: deletes a skill of a server.

use super::add::skill_path;
use crate::cli::CliError;
use crate::cli::remote::RemoteArgs;
use crate::client::ApiRequest;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    /// Name or id of the skill
    #[arg(value_name = "NAME | ID")]
    skill: String,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| {
        let path = skill_path(remote, &args.skill).await?;
        remote.send_and_report(ApiRequest::delete(path), &format!("{} deleted", args.skill)).await
    })
}
