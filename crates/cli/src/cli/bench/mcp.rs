//! Measures the overhead of MCP: `execute_python` over standard input and output against the same
//! run through an engine in this process, each in a fresh sandbox of the pool.

use super::super::CliError;
use super::measure::{BLOCK, Bench, run_to_end};
use super::report::Figure;
use super::tools::compare;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const CODE: &str = "40 + 2";

/// `belljar mcp`, started as a client starts it.
struct McpProcess {
    _process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    next: u64,
}

impl McpProcess {
    async fn start(data: &Path, environment: &str) -> Result<Self, CliError> {
        let mut process = Command::new("/proc/self/exe")
            .args(["mcp", "--env", environment, "--data"])
            .arg(data)
            .env_remove("BELLJAR_URL")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| CliError::internal(error.to_string()))?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(CliError::internal("the MCP server has no pipes"));
        };
        let output = BufReader::new(output).lines();
        let mut agent = Self { _process: process, input, output, next: 0 };
        let client = json!({"name": "bench", "version": "1"});
        let hello =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        agent.request("initialize", hello).await?;
        agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        Ok(agent)
    }

    async fn send(&mut self, message: &Value) -> Result<(), CliError> {
        let line = format!("{message}\n");
        let sent = self.input.write_all(line.as_bytes()).await;
        sent.map_err(|error| CliError::internal(error.to_string()))
    }

    async fn request(&mut self, method: &str, params: Value) -> Result<Value, CliError> {
        self.next += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.send(&request).await?;
        loop {
            let line = self.output.next_line().await;
            let line = line.map_err(|error| CliError::internal(error.to_string()))?;
            let line = line.ok_or_else(|| CliError::internal("the MCP server exited"))?;
            let message: Value = serde_json::from_str(&line).unwrap_or_default();
            if message["id"] == self.next {
                return Ok(message);
            }
        }
    }

    async fn execute(&mut self) -> Result<(), CliError> {
        let call = json!({"name": "execute_python", "arguments": {"code": CODE}});
        let answer = self.request("tools/call", call).await?;
        match answer["result"]["structuredContent"]["result"].as_u64() {
            Some(42) => Ok(()),
            _ => Err(CliError::internal(format!("unexpected response: {answer}"))),
        }
    }
}

impl Bench {
    pub(super) async fn mcp_execute(&mut self, data: &Path) -> Result<Figure, CliError> {
        let mut agent = McpProcess::start(data, &self.environment).await?;
        let (mut calls, mut executions) = (Vec::new(), Vec::new());
        for turn in 0..2 * self.samples {
            self.await_pool().await?;
            let is_call = (turn / BLOCK).is_multiple_of(2);
            let started = Instant::now();
            if is_call {
                agent.execute().await?;
            } else {
                run_to_end(&self.pooled, self.command(None, CODE)?).await?;
            }
            (if is_call { &mut calls } else { &mut executions }).push(started.elapsed());
        }
        Ok(compare("mcp_stdio", &calls, &executions, "x engine", 3.0))
    }
}
