//! `belljar env`: environments of this machine, or of a server if one is named.

mod display;
mod file;
mod local;
mod remote;

pub(super) use local::build_error;

use super::CliError;
use super::engine_args::LocalDataArgs;
use super::remote::RemoteArgs;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List environments
    ///
    /// Use it to see the built-in environments and your own, and which of them are built.
    #[command(after_help = "Examples:\n  \
        belljar env ls\n  \
        belljar env ls --server http://127.0.0.1:7117")]
    Ls(ListEnvironmentsArgs),
    /// Show the definition and the exact packages of an environment
    ///
    /// Use it to check which version of a package code will import.
    #[command(after_help = "Examples:\n  \
        belljar env show default")]
    Show(EnvironmentNameArgs),
    /// Build an environment from a definition, a requirements file or a script
    ///
    /// Use it to make packages available to code. Building again replaces the environment of that
    /// name.
    #[command(after_help = "Examples:\n  \
        belljar env build mine.toml\n  \
        belljar env build requirements.txt --name mine")]
    Build(BuildEnvironmentArgs),
    /// Lock the exact package versions of an environment
    ///
    /// Use it to get the same packages on every machine: commit the lock beside the definition.
    #[command(after_help = "Examples:\n  \
        belljar env lock mine.toml\n  \
        belljar env lock requirements.txt --out mine.lock")]
    Lock(LockEnvironmentArgs),
    /// Remove an environment
    ///
    /// Use it to free disk space. A built-in environment loses only its built files and is rebuilt
    /// when it is next used.
    #[command(after_help = "Examples:\n  \
        belljar env rm mine")]
    Rm(EnvironmentNameArgs),
}

#[derive(Debug, clap::Args)]
struct ListEnvironmentsArgs {
    #[command(flatten)]
    paths: LocalDataArgs,
}

#[derive(Debug, clap::Args)]
struct EnvironmentNameArgs {
    /// Name of the environment
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    paths: LocalDataArgs,
}

#[derive(Debug, clap::Args)]
struct BuildEnvironmentArgs {
    /// Definition (.toml), script with a `# /// script` block (.py), or requirements file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Name of the environment [default: `name` in the definition, or the file name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    packages: PackageSourceArgs,

    #[command(flatten)]
    paths: LocalDataArgs,
}

#[derive(Debug, clap::Args)]
struct LockEnvironmentArgs {
    /// Definition (.toml), script with a `# /// script` block (.py), or requirements file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Path of the lock file [default: beside the file, with the extension .lock]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    packages: PackageSourceArgs,

    #[command(flatten)]
    paths: LocalDataArgs,
}

/// Where packages come from.
#[derive(Debug, clap::Args)]
struct PackageSourceArgs {
    /// Directory of wheels, used in addition to the package index, or alone if the index is
    /// unreachable
    #[arg(long, value_name = "DIR", env = "BELLJAR_WHEELS", hide_env_values = true)]
    wheels: Option<PathBuf>,

    /// Do not access the network
    #[arg(long)]
    offline: bool,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    let Args { remote, verb } = args;
    if let Command::Lock(lock) = verb {
        return local::lock(&lock);
    }
    if remote.is_named() {
        return remote.run(async |remote| match verb {
            Command::Ls(_) => remote::list(remote).await,
            Command::Show(named) => remote::show(remote, &named.name).await,
            Command::Build(build) => remote::build(remote, &build).await,
            Command::Rm(named) => remote::remove(remote, &named.name).await,
            Command::Lock(_) => Ok(()),
        });
    }
    let json = remote.json;
    match verb {
        Command::Ls(ListEnvironmentsArgs { paths }) => local::list(&paths, json),
        Command::Show(named) => local::show(&named, json),
        Command::Build(build) => local::build(&build, json),
        Command::Lock(lock) => local::lock(&lock),
        Command::Rm(named) => local::remove(&named),
    }
}
