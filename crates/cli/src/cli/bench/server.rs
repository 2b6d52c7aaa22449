//! Measures the overhead of the server: the same work over HTTP and through an engine in this
//! process, alternately.
//!
//! The server is this binary, started as users start it, with its own temporary records. It writes
//! its records to disk before it responds, and an engine has no records; the figures include that
//! difference.

use super::super::CliError;
use super::measure::{BLOCK, Bench, percentile};
use super::report::{Figure, FigureTarget, format_ms};
use super::tools::compare;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

const SESSIONS: usize = 64;
const BURST: usize = 500;
const CODE: &str = "40 + 2";

/// A server that runs during the measurement.
pub(super) struct BenchServer {
    _process: Child,
    _records: TempDir,
    address: String,
    client: Client,
}

impl BenchServer {
    pub(super) async fn start(
        data: &Path,
        environment: &str,
        options: &[&str],
        variables: &[(&str, PathBuf)],
    ) -> Result<Self, CliError> {
        let records = tempfile::tempdir_in(data).map_err(|error| cli_error(&error))?;
        let mut process = Command::new("/proc/self/exe")
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--log",
                "error",
                "--environment",
                environment,
            ])
            .args(["--key-rate", "1000000", "--key-concurrency", "100000"])
            .arg("--data")
            .arg(data)
            .arg("--records")
            .arg(records.path())
            .args(options)
            .envs(variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| cli_error(&error))?;
        let (mut address, mut key) = (None, None);
        if let Some(stdout) = process.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(found) = line.strip_prefix("Belljar listens on ") {
                    address = Some(found.to_owned());
                } else if line.starts_with("bj_") {
                    key = Some(line);
                } else if line.contains("/docs") {
                    break;
                }
            }
        }
        let (Some(address), Some(key)) = (address, key) else {
            return Err(CliError::internal("the server did not start"));
        };
        Ok(Self { client: client(&key)?, _process: process, _records: records, address })
    }

    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<(StatusCode, Value), CliError> {
        post(&self.client, &format!("{}{path}", self.address), body).await
    }

    pub(super) async fn open_session(&self, request: &Value) -> Result<String, CliError> {
        let (_, session) = self.post("/v1/sessions", request).await?;
        match session["sandbox_id"].as_str() {
            Some(id) => Ok(id.to_owned()),
            None => Err(CliError::internal(format!("cannot open a session: {session}"))),
        }
    }

    async fn execute(&self, session: &str) -> Result<(), CliError> {
        let path = format!("/v1/sessions/{session}/execute");
        let (_, record) = self.post(&path, &json!({"code": CODE})).await?;
        match record["value"].as_u64() {
            Some(42) => Ok(()),
            _ => Err(CliError::internal(format!("unexpected record: {record}"))),
        }
    }

    pub(super) async fn close_session(&self, session: &str) -> Result<(), CliError> {
        let url = format!("{}/v1/sessions/{session}", self.address);
        let answer = self.client.delete(url).send().await.map_err(|error| cli_error(&error))?;
        answer.error_for_status().map(drop).map_err(|error| cli_error(&error))
    }
}

pub(super) fn cli_error(error: &dyn std::fmt::Display) -> CliError {
    CliError::internal(error.to_string())
}

fn client(key: &str) -> Result<Client, CliError> {
    let mut headers = reqwest::header::HeaderMap::new();
    let value = format!("Bearer {key}")
        .parse()
        .map_err(|_| CliError::internal("the server printed an invalid API key"))?;
    headers.insert("authorization", value);
    let json = reqwest::header::HeaderValue::from_static("application/json");
    headers.insert("content-type", json);
    let builder = Client::builder().default_headers(headers).no_proxy().tcp_nodelay(true);
    builder.build().map_err(|error| cli_error(&error))
}

async fn post(client: &Client, url: &str, body: &Value) -> Result<(StatusCode, Value), CliError> {
    let sent = client.post(url).body(body.to_string()).send().await;
    let answer = sent.map_err(|error| cli_error(&error))?;
    let status = answer.status();
    let bytes = answer.bytes().await.map_err(|error| cli_error(&error))?;
    Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
}

impl Bench {
    pub(super) async fn server(
        &mut self,
        data: &Path,
        seconds: u64,
        report: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Vec<Figure>, CliError> {
        let mut figures = Vec::new();
        let served = BenchServer::start(data, &self.environment, &[], &[]).await?;
        report("server_exec");
        figures.push(self.over_http(&served).await?);
        report("server_cycle");
        figures.push(self.cycle(&served).await?);
        report("mcp_stdio");
        figures.push(self.mcp_execute(data).await?);
        report("server_64");
        figures.extend(concurrent_sessions(served, seconds).await?);
        report("server_burst");
        let options = ["--sandboxes", "64", "--queue", "64"];
        let small = BenchServer::start(data, &self.environment, &options, &[]).await?;
        figures.extend(burst(&small).await?);
        Ok(figures)
    }

    /// An execution in an open session, on either side.
    async fn over_http(&mut self, served: &BenchServer) -> Result<Figure, CliError> {
        let outside = served.open_session(&json!({})).await?;
        let inside = self.pooled.open(self.new_session()).await?.id;
        let (mut http, mut engine) = (Vec::new(), Vec::new());
        for turn in 0..2 * self.samples {
            let over_http = (turn / BLOCK).is_multiple_of(2);
            let started = Instant::now();
            if over_http {
                served.execute(&outside).await?;
            } else {
                let command = self.command(Some(inside), CODE)?;
                super::measure::run_to_end(&self.pooled, command).await?;
            }
            (if over_http { &mut http } else { &mut engine }).push(started.elapsed());
        }
        self.pooled.close(inside).await?;
        served.close_session(&outside).await?;
        Ok(compare("server_exec", &http, &engine, "x engine", 3.0))
    }

    /// A session from start to end.
    async fn cycle(&mut self, served: &BenchServer) -> Result<Figure, CliError> {
        let (mut http, mut engine) = (Vec::new(), Vec::new());
        for turn in 0..self.samples {
            self.await_pool().await?;
            let over_http = (turn / BLOCK).is_multiple_of(2);
            let started = Instant::now();
            if over_http {
                let session = served.open_session(&json!({})).await?;
                served.execute(&session).await?;
                served.close_session(&session).await?;
            } else {
                let session = self.pooled.open(self.new_session()).await?.id;
                let command = self.command(Some(session), CODE)?;
                super::measure::run_to_end(&self.pooled, command).await?;
                self.pooled.close(session).await?;
            }
            (if over_http { &mut http } else { &mut engine }).push(started.elapsed());
        }
        Ok(compare("server_cycle", &http, &engine, "x engine", 2.0))
    }
}

/// Many sessions that work concurrently for a while.
async fn concurrent_sessions(served: BenchServer, seconds: u64) -> Result<Vec<Figure>, CliError> {
    let served = Arc::new(served);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut workers = JoinSet::new();
    for _ in 0..SESSIONS {
        let served = Arc::clone(&served);
        workers.spawn(async move {
            let (mut times, mut errors) = (Vec::new(), 0u64);
            let Ok(session) = served.open_session(&json!({})).await else { return (times, 1) };
            while Instant::now() < until {
                let started = Instant::now();
                match served.execute(&session).await {
                    Ok(()) => times.push(started.elapsed()),
                    Err(_) => errors += 1,
                }
            }
            errors += u64::from(served.close_session(&session).await.is_err());
            (times, errors)
        });
    }
    let (mut times, mut errors) = (Vec::new(), 0);
    while let Some(worked) = workers.join_next().await {
        let (more, failed) = worked.map_err(|error| cli_error(&error))?;
        times.extend(more);
        errors += failed;
    }
    let (p50, p99) = (percentile(&times, 50), percentile(&times, 99));
    let done = format!("{} executions in {seconds} s", times.len());
    Ok(vec![
        Figure {
            name: "server_64_errors",
            value: errors as f64,
            unit: "errors",
            target: FigureTarget::AtMost(0.0),
            raw: done,
        },
        Figure {
            name: "server_64_p99",
            value: p99.as_secs_f64() / p50.as_secs_f64(),
            unit: "x p50",
            target: FigureTarget::AtMost(10.0),
            raw: format!("{} against {}", format_ms(p99), format_ms(p50)),
        },
    ])
}

/// Sends more concurrent requests than there is capacity: each gets a result or an error.
async fn burst(served: &BenchServer) -> Result<Vec<Figure>, CliError> {
    let mut requests = JoinSet::new();
    let url = format!("{}/v1/execute", served.address);
    for _ in 0..BURST {
        let (client, url) = (served.client.clone(), url.clone());
        requests.spawn(async move { post(&client, &url, &json!({"code": CODE})).await });
    }
    let (mut results, mut rejected) = (0, 0);
    while let Some(answer) = requests.join_next().await {
        match answer.map_err(|error| cli_error(&error))? {
            Ok((StatusCode::OK, record)) if record["value"] == 42 => results += 1,
            Ok((StatusCode::TOO_MANY_REQUESTS, problem))
                if problem["code"] == "capacity.exhausted" =>
            {
                rejected += 1;
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(vec![Figure {
        name: "server_burst_500",
        value: f64::from(results + rejected),
        unit: "answered",
        target: FigureTarget::AtLeast(BURST as f64),
        raw: format!("{results} results, {rejected} rejected for lack of capacity"),
    }])
}
