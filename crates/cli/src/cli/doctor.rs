//! `belljar doctor`: reports which isolation layers and tools this machine has, what each provides,
//! and how to fix missing ones.
//!
//! It checks two things. What the host supports: each layer is applied once in a fork of this
//! process. Whether the layers work: code in a real sandbox tries what each of them forbids. Code
//! runs safely on this machine if both checks succeed for all layers.

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
    paths: LocalDataArgs,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    // Must run before the runtime starts threads.
    let host = HostSupport::probe();
    let config = args.paths.single_config()?;
    let tools = tools::tool_checks(&config);
    // The other layers are tested even if some are missing.
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
