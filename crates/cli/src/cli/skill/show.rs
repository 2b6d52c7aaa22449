//! `belljar skill show`: prints the instructions that an agent reads.

use super::find;
use crate::cli::one_shot::print_record;
use crate::cli::{CliError, terminal};
use serde_json::json;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object with name, description, body, and paths and sizes of the files
    #[arg(long)]
    json: bool,

    /// Name of a skill of this project or of a built-in one, or a directory
    #[arg(value_name = "NAME | DIR")]
    skill: String,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let found = find::find_skill(&args.skill)?;
    let failed = |problem: &dyn std::fmt::Display| {
        CliError::rejected(format!("{}: {problem}", found.location))
    };
    let body = found.skill.body().map_err(|problem| failed(&problem))?;
    if !args.json {
        print_record(&terminal::for_stdout(&body))?;
        return Ok(ExitCode::SUCCESS);
    }
    let listing = found.skill.files().map_err(|problem| failed(&problem))?;
    let report = json!({
        "name": found.skill.summary.name,
        "description": found.skill.summary.description,
        "location": found.location,
        "body": body,
        "files": listing.files,
        "skipped": listing.skipped,
    });
    print_record(&terminal::for_stdout(&report.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
