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

pub(super) use call::arguments;

use super::Failure;
use contract::Annotations;
use std::process::ExitCode;

/// The tool itself is wrong, or its test has failed.
const EXIT_WRONG: u8 = 1;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the contract of a tool as JSON Schema, or everything that is wrong with it
    Check(check::Args),
    /// Run the test() of each tool
    Test(test::Args),
    /// Call a tool with arguments, and print its value as JSON
    Call(call::Args),
    /// Write a tool to start from
    New(new::Args),
    /// Bring a tool to a server
    Add(remote::Add),
    /// Deploy a folder as a function of a server, with packages, memory and time of its own
    Deploy(deploy::Args),
    /// List the tools of a server
    Ls(remote::Ls),
    /// Show a tool of a server, with its code
    Show(remote::Named),
    /// Delete a tool of a server that no agent has
    Rm(remote::Named),
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.verb {
        Verb::Check(args) => check::main(&args),
        Verb::Test(args) => test::main(args),
        Verb::Call(args) => call::main(args),
        Verb::New(args) => new::main(&args),
        Verb::Add(args) => remote::add(&args),
        Verb::Deploy(args) => deploy::main(&args),
        Verb::Ls(args) => remote::ls(args),
        Verb::Show(args) => remote::show(&args),
        Verb::Rm(args) => remote::rm(&args),
    }
}

/// Which annotations a `handle` may have.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Strictness {
    /// Also take Optional, Literal, dict, TypedDict, dataclass, nested lists and their defaults
    #[arg(long)]
    extended: bool,
}

impl Strictness {
    fn annotations(self) -> Annotations {
        if self.extended { Annotations::Extended } else { Annotations::Strict }
    }
}
