//! `belljar tool`: typed tools made of plain functions, here and on a server.

mod call;
mod check;
mod deploy;
mod diagnostic;
mod file;
mod junit;
mod new;
mod remote;
mod test;

pub(super) use call::read_arguments;

use super::CliError;
use contract::AnnotationMode;
use std::process::ExitCode;

/// The tool itself is wrong, or its test has failed.
const EXIT_INVALID: u8 = 1;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the contract of a tool as JSON Schema, or everything that is wrong with it
    Check(check::Args),
    /// Run the test() of each tool
    Test(test::Args),
    /// Call a tool with arguments, and print its value as JSON
    Call(call::Args),
    /// Write a tool to start from
    New(new::Args),
    /// Bring a tool to a server
    Add(remote::AddToolArgs),
    /// Deploy a folder as a function of a server, with packages, memory and time of its own
    Deploy(deploy::Args),
    /// List the tools of a server
    Ls(remote::ListToolsArgs),
    /// Show a tool of a server, with its code
    Show(remote::ToolNameArgs),
    /// Delete a tool of a server that no agent has
    Rm(remote::ToolNameArgs),
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    match args.verb {
        Command::Check(args) => check::main(&args),
        Command::Test(args) => test::main(args),
        Command::Call(args) => call::main(args),
        Command::New(args) => new::main(&args),
        Command::Add(args) => remote::add(&args),
        Command::Deploy(args) => deploy::main(&args),
        Command::Ls(args) => remote::ls(args),
        Command::Show(args) => remote::show(&args),
        Command::Rm(args) => remote::rm(&args),
    }
}

/// Which annotations a `handle` may have.
#[derive(Debug, Clone, Copy, clap::Args)]
struct AnnotationArgs {
    /// Also take Optional, Literal, dict, TypedDict, dataclass, nested lists and their defaults
    #[arg(long)]
    extended: bool,
}

impl AnnotationArgs {
    fn mode(self) -> AnnotationMode {
        if self.extended { AnnotationMode::Extended } else { AnnotationMode::Strict }
    }
}
