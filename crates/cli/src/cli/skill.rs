//! `belljar skill`: manages skills: built-in, of a project, and of a server.

mod add;
mod find;
mod install;
mod ls;
mod rm;
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
    /// List skills: those of a server if one is set, or else built-in ones and those of this project
    ///
    /// Use it to find the name of a skill.
    #[command(after_help = "Examples:\n  \
        belljar skill ls\n  \
        belljar skill ls --server http://127.0.0.1:7117")]
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
    /// Upload a skill to a server
    ///
    /// Use it to give a skill to the agents of a workspace, which name it in their specification.
    #[command(after_help = "Examples:\n  \
        belljar skill add ./my-skill\n  \
        belljar skill add --replace my-skill.zip")]
    Add(add::Args),
    /// Delete a skill of a server
    ///
    /// Use it when no agent names the skill any more.
    #[command(after_help = "Examples:\n  \
        belljar skill rm my-skill")]
    Rm(rm::Args),
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
        Command::Add(args) => add::main(&args),
        Command::Rm(args) => rm::main(&args),
        Command::Run(args) => run::main(&args),
    }
}
