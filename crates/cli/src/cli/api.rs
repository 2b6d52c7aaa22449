//! `belljar api`: any operation of a server, by the name that it has in the OpenAPI document.
//!
//! The document is that of this program, so that operations can be listed and described without a
//! server, and what cannot be right is refused before anything is sent.

mod call;
mod describe;
mod document;
mod ls;
mod request;
mod schema;

use super::CliError;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the operations
    Ls(ls::Args),
    /// Tell what an operation takes and answers
    Describe(describe::Args),
    /// Call an operation, and print its answer
    Call(call::Args),
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    match args.verb {
        Command::Ls(args) => ls::main(&args),
        Command::Describe(args) => describe::main(&args),
        Command::Call(args) => call::main(args),
    }
}
