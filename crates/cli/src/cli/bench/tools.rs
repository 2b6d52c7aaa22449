//! Measures the overhead of contracts: the check of a source, and a call compared to a plain
//! execution.

use super::super::CliError;
use super::baseline;
use super::measure::{BLOCK, Bench, percentile, run_to_end};
use super::report::{Figure, FigureTarget, format_ms};
use contract::{AnnotationMode, CodeTool, PythonSource};
use engine::{Command, EntryPoint};
use serde_json::json;
use std::time::{Duration, Instant};

/// 300 lines, as people write them.
const SOURCE: &str = include_str!("../../../../../bench/tool.py");
const SMALL: &str = "def handle(a: int, b: int) -> int:\n    return a + b\n";
/// Repetitions per sample of the check, so that a sample takes about as long as a start of Python,
/// its baseline.
const CHECKS_IN_A_SAMPLE: u32 = 20;

impl Bench {
    pub(super) fn check(&self) -> Result<Figure, CliError> {
        let (mut checks, mut starts) = (Vec::new(), Vec::new());
        for _ in 0..self.samples {
            let started = Instant::now();
            for _ in 0..CHECKS_IN_A_SAMPLE {
                parse_tool(SOURCE)?;
            }
            checks.push(started.elapsed() / CHECKS_IN_A_SAMPLE);
            starts.push(baseline::start_interpreter(&self.outside)?);
        }
        Ok(compare("check", &checks, &starts, "x python", 0.05))
    }

    /// Both in a fresh sandbox of the pool, from the request to the record.
    pub(super) async fn tool_call(&mut self) -> Result<Figure, CliError> {
        let tool = parse_tool(SMALL)?;
        let (mut calls, mut executions) = (Vec::new(), Vec::new());
        for turn in 0..2 * self.samples {
            self.await_pool().await?;
            let is_call = self.is_turn_of_calls(turn);
            let started = Instant::now();
            let command = if is_call { self.call(&tool)? } else { self.command(None, "40 + 2")? };
            run_to_end(&self.pooled, command).await?;
            (if is_call { &mut calls } else { &mut executions }).push(started.elapsed());
        }
        Ok(compare("tool_call", &calls, &executions, "x exec", 1.5))
    }

    /// The same in one open session, where neither waits for the end of a sandbox.
    pub(super) async fn tool_call_live(&mut self) -> Result<Figure, CliError> {
        let tool = parse_tool(SMALL)?;
        let session = self.pooled.open(self.new_session()).await?.id;
        let (mut calls, mut executions) = (Vec::new(), Vec::new());
        for turn in 0..2 * self.samples {
            let is_call = self.is_turn_of_calls(turn);
            let started = Instant::now();
            let command = if is_call { self.call(&tool)? } else { self.command(None, "40 + 2")? };
            run_to_end(&self.pooled, Command { session: Some(session), ..command }).await?;
            (if is_call { &mut calls } else { &mut executions }).push(started.elapsed());
        }
        self.pooled.close(session).await?;
        Ok(compare("tool_call_live", &calls, &executions, "x exec", 1.5))
    }

    /// Whether calls are sampled in this turn, and not executions. Few samples are one block of each.
    fn is_turn_of_calls(&self, turn: usize) -> bool {
        (turn / BLOCK.min(self.samples)).is_multiple_of(2)
    }

    fn call(&self, tool: &CodeTool) -> Result<Command, CliError> {
        let call = tool.validate_call(json!({"a": 40, "b": 2}))?;
        Ok(Command { entry: EntryPoint::Call(Box::new(call)), ..self.command(None, "pass")? })
    }
}

fn parse_tool(text: &str) -> Result<CodeTool, CliError> {
    let source = PythonSource::new(text).map_err(|problem| CliError::usage(problem.message))?;
    let checked = CodeTool::from_python("bench", source, AnnotationMode::Strict);
    checked.result.map_err(|problems| CliError::usage(format!("{problems:?}")))
}

pub(super) fn compare(
    name: &'static str,
    figure: &[Duration],
    base: &[Duration],
    unit: &'static str,
    most: f64,
) -> Figure {
    let (figure, base) = (percentile(figure, 50), percentile(base, 50));
    Figure {
        name,
        value: figure.as_secs_f64() / base.as_secs_f64(),
        unit,
        target: FigureTarget::AtMost(most),
        raw: format!("{} against {}", format_ms(figure), format_ms(base)),
    }
}
