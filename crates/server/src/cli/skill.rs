//! `belljar skill`: folders that tell an agent how to do something, those that ship and those of a
//! project.

mod find;
mod install;
mod ls;
mod run;
mod show;
mod validate;

use super::Failure;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Say everything that is wrong with a skill
    Validate(validate::Args),
    /// List the skills that ship, and those of this project
    Ls(ls::Args),
    /// Print the instructions of a skill
    Show(show::Args),
    /// Put a skill where agents of this project find it
    Install(install::Args),
    /// Run a Python script of a skill in a fresh sandbox, where the files of the skill are read-only
    Run(run::Args),
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.verb {
        Verb::Validate(args) => validate::main(&args),
        Verb::Ls(args) => ls::main(&args),
        Verb::Show(args) => show::main(&args),
        Verb::Install(args) => install::main(&args),
        Verb::Run(args) => run::main(&args),
    }
}
