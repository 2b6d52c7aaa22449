//! `belljar api`: calls any operation of a server by its name in the OpenAPI document.
//!
//! The document is embedded in this program. Therefore operations can be listed and described
//! without a server, and invalid requests are rejected before they are sent.

mod call;
mod describe;
mod document;
mod ls;
mod request;
mod schema;

pub(super) use request::encode_path_segment;

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
    ///
    /// Use it to find an operation by a word of its name, path or description. It needs no server.
    #[command(after_help = "Examples:\n  \
        belljar api ls\n  \
        belljar api ls --search tool")]
    Ls(ls::Args),
    /// Show the parameters, the body and the responses of an operation
    ///
    /// Use it before `belljar api call`. It needs no server.
    #[command(after_help = "Examples:\n  \
        belljar api describe createAiTool\n  \
        belljar api describe execute --json")]
    Describe(describe::Args),
    /// Call an operation and print its response
    ///
    /// Use it to send a request that has no command of its own. It rejects requests that do not
    /// match the OpenAPI document.
    #[command(after_help = "Examples:\n  \
        belljar api call createAiTool --body @tool.json\n  \
        belljar api call execute --field 'code=6 * 7'\n  \
        belljar api call createDocuments --file sales.csv")]
    Call(call::Args),
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    match args.verb {
        Command::Ls(args) => ls::main(&args),
        Command::Describe(args) => describe::main(&args),
        Command::Call(args) => call::main(args),
    }
}
