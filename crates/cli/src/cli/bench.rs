//! `belljar bench`: measures the overhead of isolation as ratios to a baseline of the same run.
//!
//! Absolute times depend on the machine and on its load. Blocks of each figure and of the baseline
//! alternate, so that both run under the same load.

mod baseline;
mod bubblewrap;
mod environments;
mod mcp;
mod measure;
mod model_runs;
mod network;
mod report;
mod server;
mod tools;

use super::engine_args::{self, EngineArgs};
use super::{CliError, local_engine};
use measure::Bench;
use report::Figure;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,

    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,

    /// Number of samples per figure
    #[arg(long, value_name = "N", default_value = "200")]
    samples: usize,

    /// Measure the server instead: overhead of HTTP and records, and concurrent clients
    #[arg(long)]
    server: bool,

    /// Measure environments instead: sessions in each built one, a build, and a long list
    #[arg(long, conflicts_with = "server")]
    environments: bool,

    /// Measure egress instead: requests, downloads and concurrent connections through the proxy
    #[arg(long, conflicts_with_all = ["server", "environments"])]
    network: bool,

    /// Measure agent runs instead: four rounds of code, compared to the executions alone
    #[arg(long, conflicts_with_all = ["server", "environments", "network"])]
    agent: bool,

    /// Duration of the test with concurrent clients, in seconds
    #[arg(long, value_name = "S", default_value = "60", requires = "server")]
    seconds: u64,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    let json = args.json;
    let runtime = engine_args::build_runtime()?;
    // As a task, as in a server: on the main thread, another thread would have to hand over every
    // response of a sandbox.
    let figures = runtime
        .block_on(runtime.spawn(measure(args)))
        .map_err(|error| CliError::internal(error.to_string()))??;
    if json {
        println!("{}", report::json(&figures));
    } else {
        println!("{}", report::table(&figures));
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(args: Args) -> Result<Vec<Figure>, CliError> {
    let environment = args.engine.environment().to_owned();
    // One engine keeps no sandboxes ready, to measure fresh starts; the other one does.
    let fresh = engine::Config { pool_ready: 0, ..args.engine.service_config()? };
    let pooled = engine::Config { pool_ready: measure::POOL, ..args.engine.service_config()? };
    let (fresh, _) = local_engine::start(fresh, &environment).await?;
    let mut report = |name: &str| {
        if !args.json {
            eprintln!("belljar: measuring {name}");
        }
    };
    if args.environments {
        let data = args.engine.service_config()?.data;
        return environments::measure(fresh, &environment, &data, args.samples, &mut report).await;
    }
    if args.network {
        let (outside, data) =
            (fresh.unsandboxed_python(&environment).await?, args.engine.service_config()?.data);
        return network::measure(&outside, &environment, &data, args.samples, &mut report).await;
    }
    if args.agent {
        let data = args.engine.service_config()?.data;
        return model_runs::measure(&environment, &data, args.samples, &mut report).await;
    }
    let (pooled, _) = local_engine::start(pooled, &environment).await?;
    let mut bench = Bench::start(fresh, pooled, environment, args.samples.max(10)).await?;
    if args.server {
        let data = args.engine.service_config()?.data;
        return bench.server(&data, args.seconds, &mut report).await;
    }
    bench.run(&mut report).await
}
