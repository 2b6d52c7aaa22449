//! `belljar skill`: manages skills, built-in and of a project.

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
    /// Check a skill and list all errors
    ///
    /// Use it while you write a skill, and in CI.
    #[command(after_help = "Examples:\n  \
        belljar skill validate ./my-skill")]
    Validate(validate::Args),
    /// List built-in skills and those of this project
    ///
    /// Use it to find the name of a skill.
    #[command(after_help = "Examples:\n  \
        belljar skill ls")]
    Ls(ls::Args),
    /// Print the instructions of a skill
    ///
    /// Use it to read what an agent reads.
    #[command(after_help = "Examples:\n  \
        belljar skill show code-interpreter")]
    Show(show::Args),
    /// Install a skill into this project
    ///
    /// Use it to make a skill available to agents of this project. It does not overwrite files that
    /// you changed.
    #[command(after_help = "Examples:\n  \
        belljar skill install code-interpreter\n  \
        belljar skill install ./my-skill --to .claude/skills")]
    Install(install::Args),
    /// Run a Python script of a skill in a fresh sandbox
    ///
    /// Use it to run a script that the instructions of a skill mention. The files of the skill are
    /// read-only in the sandbox.
    #[command(after_help = "Examples:\n  \
        belljar skill run dataviz --file totals.json --out . scripts/chart.py --out /workspace/chart.html /workspace/totals.json")]
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
