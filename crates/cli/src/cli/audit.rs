//! `belljar audit`: verifies the audit log, and signs a log whose signature is lost.
//!
//! A verification only reads, so it can run beside the server.

use super::CliError;
use super::engine_args::LocalDataArgs;
use service::{AuditError, AuditSignOutcome, AuditVerification};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Verify the audit log and report the first modified entry
    ///
    /// Use it regularly, also while the server runs. It prints the hash of the last entry: store
    /// the hash on another machine and pass it to a later verification with --head, which detects a
    /// rewritten log.
    #[command(after_help = "Examples:\n  \
        belljar audit verify\n  \
        belljar audit verify --data /var/lib/belljar --audit-key /etc/belljar/audit.key")]
    Verify(VerifyAuditArgs),

    /// Sign the audit log in its current state
    ///
    /// Use it when the server does not start because the key or the signature of the log is lost.
    /// Stop the server first. It repairs nothing: `verify` still reports missing or modified
    /// entries, and a new entry records what was wrong.
    #[command(after_help = "Examples:\n  \
        belljar audit sign --data /var/lib/belljar")]
    Sign(Location),
}

/// Location of the audit log and of its key.
#[derive(Debug, clap::Args)]
struct Location {
    /// Data directory of the server [default: the XDG data directory]
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA", hide_env_values = true)]
    data: Option<PathBuf>,

    /// Directory of the records [default: the data directory]
    #[arg(long, value_name = "DIR", env = "BELLJAR_RECORDS", hide_env_values = true)]
    records: Option<PathBuf>,

    /// File with the key that signs the audit log [default: `db/audit.key` in the records]
    #[arg(long, value_name = "FILE", env = "BELLJAR_AUDIT_KEY", hide_env_values = true)]
    audit_key: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct VerifyAuditArgs {
    #[command(flatten)]
    location: Location,

    /// Hash that an earlier verification printed; the log must contain it
    #[arg(long, value_name = "HASH")]
    head: Option<String>,
}

impl Location {
    /// Returns the directory of the records, and the key file if one was passed.
    fn resolve(self) -> Result<(PathBuf, Option<PathBuf>), CliError> {
        let Self { data, records, audit_key } = self;
        let records = records.map_or_else(|| LocalDataArgs::new(data, None).data(), Ok)?;
        Ok((records, audit_key))
    }
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    match args.verb {
        Command::Verify(VerifyAuditArgs { location, head }) => verify(location, head.as_deref()),
        Command::Sign(location) => sign(location),
    }
}

fn verify(location: Location, head: Option<&str>) -> Result<ExitCode, CliError> {
    let (records, key) = location.resolve()?;
    match service::verify_audit(&records, key.as_deref(), head) {
        Ok(AuditVerification { entries, forgotten, head }) => {
            match entries {
                1 => println!("1 entry verified"),
                entries => println!("{entries} entries verified"),
            }
            if forgotten > 0 {
                println!("{forgotten} earlier entries were deleted after their retention");
            }
            println!("head: {head}");
        }
        Err(wrong @ AuditError::InvalidHash(_)) => return Err(CliError::usage(wrong.to_string())),
        Err(broken @ (AuditError::Broken { .. } | AuditError::HashNotFound { .. })) => {
            eprintln!("belljar: {broken}");
            return Ok(ExitCode::FAILURE);
        }
        Err(AuditError::Database(error)) => {
            let message = format!("cannot read the audit log in {}: {error}", records.display());
            return Err(CliError::internal(message));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn sign(location: Location) -> Result<ExitCode, CliError> {
    let (records, key) = location.resolve()?;
    match service::sign_audit(&records, key.as_deref()) {
        Ok(AuditSignOutcome::Unchanged) => {
            println!("the audit log is complete and signed; nothing was changed")
        }
        Ok(AuditSignOutcome::Signed { found, entry }) => {
            println!(
                "signed the audit log in its current state; entry {entry} records the findings:"
            );
            println!("{found}");
        }
        Err(error) => {
            let place = records.display();
            let message = format!("cannot sign the audit log in {place}: {error}");
            return Err(CliError::internal(message));
        }
    }
    Ok(ExitCode::SUCCESS)
}
