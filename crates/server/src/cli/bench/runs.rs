//! What a run of a model costs when the model costs nothing: the same code in a session, execution
//! by execution, and as the rounds of one run, in turns, both over a real server.

use super::super::Failure;
use super::report::Figure;
use super::server::{Served, failed};
use super::tools::against;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("../../../../../bench/run.yaml");
const ROUNDS: usize = 4;
/// A run takes some hundred times what an execution takes.
const SAMPLES_PER_RUN: usize = 10;

pub(super) async fn measure(
    environment: &str,
    data: &Path,
    samples: usize,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<Vec<Figure>, Failure> {
    tell("agent_run");
    let directory = tempfile::tempdir_in(data).map_err(|error| failed(&error))?;
    let path = directory.path().join("run.yaml");
    std::fs::write(&path, SCRIPT).map_err(|error| failed(&error))?;
    let model = format!("script:{}", path.display());
    let served = Served::start(data, environment, &["--model", &model], &[]).await?;
    let codes = codes()?;
    let (mut runs, mut alone) = (Vec::new(), Vec::new());
    // The first of each warms what is only made once.
    run(&served).await?;
    execute(&served, &codes).await?;
    for _ in 0..(samples / SAMPLES_PER_RUN).max(5) {
        runs.push(run(&served).await?);
        alone.push(execute(&served, &codes).await?);
    }
    Ok(vec![against("agent_run", &runs, &alone, "x alone", 2.0)])
}

/// The code of the script, round by round.
fn codes() -> Result<Vec<String>, Failure> {
    let script = agent::Script::parse(SCRIPT).map_err(|error| failed(&error))?;
    let calls = script.turns().iter().flat_map(|turn| &turn.calls);
    let codes = calls.filter_map(|call| call.arguments["code"].as_str().map(str::to_owned));
    let codes: Vec<String> = codes.collect();
    if codes.len() == ROUNDS { Ok(codes) } else { Err(Failure::belljar("another script")) }
}

async fn run(served: &Served) -> Result<Duration, Failure> {
    let began = Instant::now();
    let asked = json!({"request": "the totals by region, the best month, and a chart"});
    let (_, result) = served.post("/v1/code_execution", &asked).await?;
    let took = began.elapsed();
    let whole = result["total_rounds"] == ROUNDS && result["artifacts"][0]["url"].is_string();
    if !whole || result["status"] != "succeeded" {
        return Err(Failure::belljar(format!("a wrong run: {result}")));
    }
    served.close(result["sandbox_id"].as_str().unwrap_or_default()).await?;
    Ok(took)
}

async fn execute(served: &Served, codes: &[String]) -> Result<Duration, Failure> {
    let began = Instant::now();
    let session = served.open(&json!({})).await?;
    for code in codes {
        let path = format!("/v1/sessions/{session}/execute");
        let (_, record) = served.post(&path, &json!({"code": code})).await?;
        if record["status"] != "succeeded" {
            return Err(Failure::belljar(format!("a wrong record: {record}")));
        }
    }
    let took = began.elapsed();
    served.close(&session).await?;
    Ok(took)
}
