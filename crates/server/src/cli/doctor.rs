//! `belljar doctor`: which walls and tools this machine has, what each gives, and what to do about
//! those that are missing.
//!
//! Two questions are asked. What does the host offer: each wall is raised once in a copy of this
//! process. And do the walls hold: a real sandbox is started and code in it tries what each of them
//! forbids. Code can be run safely here when both have the right answer everywhere.

mod fixes;
mod proofs;
mod report;
mod tools;
mod walls;

use super::Failure;
use super::setup::{self, Place};
use engine::{Config, Host};
use report::Report;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The environment in which the walls are tried
    #[arg(long = "env", value_name = "NAME", default_value = "bare")]
    environment: String,

    #[command(flatten)]
    place: Place,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    // Before the runtime has threads.
    let host = Host::look();
    let config = args.place.single()?;
    let tools = tools::look(&config);
    // Whatever is missing, the other walls are tried all the same.
    let config = Config { without: host.missing_walls(), ..config };
    let trial = setup::runtime()?.block_on(proofs::attempt(config, &args.environment));
    let report = Report::new(walls::rows(&host), tools, trial);
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table());
    }
    Ok(if report.safe { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
