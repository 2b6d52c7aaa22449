//! The command line: one file a verb, and this one that tells them apart.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what a command line is for; nothing else in the workspace does"
)]

mod bench;
mod exec;
mod progress;
mod setup;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Something in the request itself is wrong; as for most commands.
const EXIT_USAGE: u8 = 2;
/// Belljar, and not the code, has failed; as for container runtimes.
const EXIT_BELLJAR: u8 = 125;

/// A real Python for AI agents, that they can use and cannot break out of.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run code in a fresh sandbox
    Exec(exec::Args),
    /// Measure what the walls cost
    Bench(bench::Args),
}

pub(crate) fn main() -> ExitCode {
    let failed = match Cli::parse().verb {
        Verb::Exec(args) => exec::main(args),
        Verb::Bench(args) => bench::main(args),
    };
    match failed {
        Ok(code) => code,
        Err(error) => {
            eprintln!("belljar: {error}");
            ExitCode::from(error.exit)
        }
    }
}

/// A failure of the command itself, in one line.
#[derive(Debug)]
struct Failure {
    message: String,
    exit: u8,
}

impl Failure {
    fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit: EXIT_USAGE }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message.replace('\n', " "))
    }
}

impl From<types::Fault> for Failure {
    fn from(fault: types::Fault) -> Self {
        let asked_wrongly = matches!(
            fault.code,
            types::Code::ArgsInvalid | types::Code::FileUnsupported | types::Code::FileNotFound
        );
        let exit = if asked_wrongly { EXIT_USAGE } else { EXIT_BELLJAR };
        Self { message: fault.to_string(), exit }
    }
}
