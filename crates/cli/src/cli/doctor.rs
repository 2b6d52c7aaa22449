//! `belljar doctor`: which walls and tools this machine has, what each gives, and what to do about
//! those that are missing.
//!
//! Two questions are asked. What does the host offer: each wall is raised once in a copy of this
//! process. And do the walls hold: a real sandbox is started and code in it tries what each of them
//! forbids. Code can be run safely here when both have the right answer everywhere.

mod fixes;
mod layers;
mod proofs;
mod report;
mod tools;

use super::CliError;
use super::engine_args::{self, LocalDataArgs};
use engine::{Config, HostSupport};
use report::DoctorReport;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Environment in which the isolation layers are tested
    #[arg(long = "env", value_name = "NAME", default_value = "bare")]
    environment: String,

    #[command(flatten)]
    place: LocalDataArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    // Before the runtime has threads.
    let host = HostSupport::probe();
    let config = args.place.single_config()?;
    let tools = tools::tool_checks(&config);
    // Whatever is missing, the other walls are tried all the same.
    let config = Config { allowed_missing_layers: host.missing_layers(), ..config };
    let trial =
        engine_args::build_runtime()?.block_on(proofs::prove_layers(config, &args.environment));
    let report = DoctorReport::new(layers::layer_checks(&host), tools, trial);
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table());
    }
    Ok(if report.safe { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
