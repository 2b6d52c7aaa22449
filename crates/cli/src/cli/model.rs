//! `belljar model`: the models that a server offers.

use super::CliError;
use super::display::Column;
use super::remote::RemoteArgs;
use std::process::ExitCode;

const MODELS: &str = "/v1/models";
const COLUMNS: &[Column] = &[
    ("name", "/name"),
    ("default", "/default"),
    ("usable", "/usable"),
    ("api", "/api"),
    ("supports", "/supports"),
    ("reason", "/reason"),
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the models that can be chosen
    ///
    /// Use it to find a name for the specification of an agent, or for the preference code_model. In
    /// `PROVIDER/*`, any model of the provider can stand for the `*`.
    #[command(after_help = "Examples:\n  \
        belljar model ls")]
    Ls,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::Ls => {
            let (items, _) = remote.client.list(MODELS, &[], usize::MAX).await?;
            remote.table(items, COLUMNS)
        }
    })
}
