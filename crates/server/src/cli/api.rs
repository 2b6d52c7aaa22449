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

use super::Failure;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the operations
    Ls(ls::Args),
    /// Tell what an operation takes and answers
    Describe(describe::Args),
    /// Call an operation, and print its answer
    Call(call::Args),
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.verb {
        Verb::Ls(args) => ls::main(&args),
        Verb::Describe(args) => describe::main(&args),
        Verb::Call(args) => call::main(args),
    }
}
