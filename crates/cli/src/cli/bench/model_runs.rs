//! Measures the overhead of model runs, with a model that takes no time: the same code as single
//! executions in a session and as the rounds of one run, alternately, on a real server.

use super::super::CliError;
use super::report::Figure;
use super::server::{BenchServer, cli_error};
use super::tools::compare;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("../../../../../bench/run.yaml");
const ROUNDS: usize = 4;
/// A run takes some hundred times as long as an execution.
const SAMPLES_PER_RUN: usize = 10;

pub(super) async fn measure(
    environment: &str,
    data: &Path,
    samples: usize,
    report: &mut (dyn FnMut(&str) + Send),
) -> Result<Vec<Figure>, CliError> {
    report("agent_run");
    let directory = tempfile::tempdir_in(data).map_err(|error| cli_error(&error))?;
    let path = directory.path().join("run.yaml");
    std::fs::write(&path, SCRIPT).map_err(|error| cli_error(&error))?;
    let model = format!("script:{}", path.display());
    let served = BenchServer::start(data, environment, &["--model", &model], &[]).await?;
    let codes = script_codes()?;
    let (mut runs, mut alone) = (Vec::new(), Vec::new());
    // The first of each warms up caches.
    run_model(&served).await?;
    execute_codes(&served, &codes).await?;
    for _ in 0..(samples / SAMPLES_PER_RUN).max(5) {
        runs.push(run_model(&served).await?);
        alone.push(execute_codes(&served, &codes).await?);
    }
    Ok(vec![compare("agent_run", &runs, &alone, "x alone", 2.0)])
}

/// The code of the script, round by round.
fn script_codes() -> Result<Vec<String>, CliError> {
    let script = agent::ModelScript::parse(SCRIPT).map_err(|error| cli_error(&error))?;
    let calls = script.turns().iter().flat_map(|turn| &turn.calls);
    let codes = calls.filter_map(|call| call.arguments["code"].as_str().map(str::to_owned));
    let codes: Vec<String> = codes.collect();
    if codes.len() == ROUNDS {
        Ok(codes)
    } else {
        Err(CliError::internal("the demo script has an unexpected number of rounds"))
    }
}

async fn run_model(served: &BenchServer) -> Result<Duration, CliError> {
    let began = Instant::now();
    let request = json!({"request": "the totals by region, the best month, and a chart"});
    let (_, result) = served.post("/v1/code_execution", &request).await?;
    let elapsed = began.elapsed();
    let whole = result["total_rounds"] == ROUNDS && result["artifacts"][0]["url"].is_string();
    if !whole || result["status"] != "succeeded" {
        return Err(CliError::internal(format!("unexpected result: {result}")));
    }
    served.close_session(result["sandbox_id"].as_str().unwrap_or_default()).await?;
    Ok(elapsed)
}

async fn execute_codes(served: &BenchServer, codes: &[String]) -> Result<Duration, CliError> {
    let began = Instant::now();
    let session = served.open_session(&json!({})).await?;
    for code in codes {
        let path = format!("/v1/sessions/{session}/execute");
        let (_, record) = served.post(&path, &json!({"code": code})).await?;
        if record["status"] != "succeeded" {
            return Err(CliError::internal(format!("unexpected record: {record}")));
        }
    }
    let elapsed = began.elapsed();
    served.close_session(&session).await?;
    Ok(elapsed)
}
