//! `belljar env`: environments of this machine, or of a server if one is named.

mod file;
mod here;
mod shown;
mod there;

pub(super) use here::failed;

use super::Failure;
use super::remote::RemoteArgs;
use super::setup::Place;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List environments, those that ship and your own
    Ls(Listing),
    /// Show an environment: what it is, and the exact versions of what it has
    Show(Named),
    /// Make an environment of a definition, a requirements file or a script
    Build(Build),
    /// Write down the exact packages of a definition, a requirements file or a script
    Lock(Lock),
    /// Remove an environment; of one that ships, what was built
    Rm(Named),
}

#[derive(Debug, clap::Args)]
struct Listing {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct Named {
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct Build {
    /// A definition (.toml), a script with a block `# /// script` (.py), or a requirements file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// What it will be called [default: what the definition says, or the name of the file]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    packages: Packages,

    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct Lock {
    /// A definition (.toml), a script with a block `# /// script` (.py), or a requirements file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Where the lock goes [default: beside the file, with the ending .lock]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    packages: Packages,

    #[command(flatten)]
    place: Place,
}

/// Where packages come from.
#[derive(Debug, clap::Args)]
struct Packages {
    /// A directory of wheels, used beside the package index, and alone where that is out of reach
    #[arg(long, value_name = "DIR", env = "BELLJAR_WHEELS", hide_env_values = true)]
    wheels: Option<PathBuf>,

    /// Use only what is on this machine
    #[arg(long)]
    offline: bool,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let Args { remote, verb } = args;
    if let Verb::Lock(lock) = verb {
        return here::lock(&lock);
    }
    if remote.is_named() {
        return remote.run(async |remote| match verb {
            Verb::Ls(_) => there::list(remote).await,
            Verb::Show(named) => there::show(remote, &named.name).await,
            Verb::Build(build) => there::build(remote, &build).await,
            Verb::Rm(named) => there::remove(remote, &named.name).await,
            Verb::Lock(_) => Ok(()),
        });
    }
    let json = remote.json;
    match verb {
        Verb::Ls(Listing { place }) => here::list(&place, json),
        Verb::Show(named) => here::show(&named, json),
        Verb::Build(build) => here::build(&build, json),
        Verb::Lock(lock) => here::lock(&lock),
        Verb::Rm(named) => here::remove(&named),
    }
}
