//! `belljar audit`: whether the audit log is still what was written.
//!
//! It only reads, so it can be asked beside a running server.

use super::Failure;
use super::setup::Place;
use service::{AuditError, Verified};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Check the whole audit log, and name the first entry that is not as it was written
    ///
    /// Prints the hash of the last entry. Keep it elsewhere, and give it to a later check with --head: a log
    /// that was written anew does not have it.
    Verify(Verify),
}

#[derive(Debug, clap::Args)]
struct Verify {
    /// The data directory of the server [default: the XDG data directory]
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA", hide_env_values = true)]
    data: Option<PathBuf>,

    /// Where its records are, if not in the data directory [default: the same]
    #[arg(long, value_name = "DIR", env = "BELLJAR_RECORDS", hide_env_values = true)]
    records: Option<PathBuf>,

    /// The hash of an entry, printed by an earlier check, that the log must have
    #[arg(long, value_name = "HASH")]
    head: Option<String>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let Verb::Verify(Verify { data, records, head }) = args.verb;
    let records = records.map_or_else(|| Place::new(data, None).data(), Ok)?;
    match service::verify_audit(&records, head.as_deref()) {
        Ok(Verified { entries, forgotten, head }) => {
            match entries {
                1 => println!("1 entry, as it was written"),
                entries => println!("{entries} entries, all as they were written"),
            }
            if forgotten > 0 {
                println!("{forgotten} earlier entries were forgotten after their retention");
            }
            println!("head: {head}");
        }
        Err(wrong @ AuditError::NotAHash(_)) => return Err(Failure::usage(wrong.to_string())),
        Err(broken @ (AuditError::Broken { .. } | AuditError::OtherHead { .. })) => {
            eprintln!("belljar: {broken}");
            return Ok(ExitCode::FAILURE);
        }
        Err(AuditError::Store(error)) => {
            let message = format!("the audit log in {} cannot be read: {error}", records.display());
            return Err(Failure::belljar(message));
        }
    }
    Ok(ExitCode::SUCCESS)
}
