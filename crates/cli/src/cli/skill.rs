//! `belljar skill`: folders that tell an agent how to do something, those that ship and those of a
//! project.

mod find;
mod install;
mod ls;
mod run;
mod show;
mod validate;

use super::CliError;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
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

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    match args.verb {
        Command::Validate(args) => validate::main(&args),
        Command::Ls(args) => ls::main(&args),
        Command::Show(args) => show::main(&args),
        Command::Install(args) => install::main(&args),
        Command::Run(args) => run::main(&args),
    }
}
