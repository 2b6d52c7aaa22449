//! `belljar skill validate`: checks a skill strictly against the format.

use crate::cli::one_shot::print_record;
use crate::cli::{CliError, EXIT_REJECTED, terminal};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object with the errors
    #[arg(long)]
    json: bool,

    /// Directory that contains the SKILL.md
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let problems: Vec<String> =
        skill::validate(&args.folder).iter().map(ToString::to_string).collect();
    let (folder, valid) = (args.folder.display().to_string(), problems.is_empty());
    if args.json {
        let report = json!({"folder": folder, "valid": valid, "errors": problems});
        print_record(&terminal::for_stdout(&report.to_string()))?;
        return Ok(ExitCode::from(if valid { 0 } else { EXIT_REJECTED }));
    }
    if valid {
        print_record(&terminal::for_stdout(&format!("{folder} is a valid skill")))?;
        return Ok(ExitCode::SUCCESS);
    }
    Err(CliError {
        details: problems,
        ..CliError::rejected(format!("{folder} is not a valid skill"))
    })
}
