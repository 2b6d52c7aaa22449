//! What a contract costs: the check of a source, and a call against plain execution.

use super::super::Failure;
use super::floor;
use super::measure::{BLOCK, Bench, finished, percentile};
use super::report::{Figure, Reach, ms};
use contract::{Annotations, Source, Tool};
use engine::{Command, Entry};
use serde_json::json;
use std::time::{Duration, Instant};

/// 300 lines, as people write them.
const SOURCE: &str = include_str!("../../../../../bench/tool.py");
const SMALL: &str = "def handle(a: int, b: int) -> int:\n    return a + b\n";
/// Each sample of the check is as long as a start of Python, which is what it is compared with.
const CHECKS_IN_A_SAMPLE: u32 = 20;

impl Bench {
    pub(super) fn check(&self) -> Result<Figure, Failure> {
        let (mut checks, mut starts) = (Vec::new(), Vec::new());
        for _ in 0..self.samples {
            let started = Instant::now();
            for _ in 0..CHECKS_IN_A_SAMPLE {
                tool(SOURCE)?;
            }
            checks.push(started.elapsed() / CHECKS_IN_A_SAMPLE);
            starts.push(floor::nothing(&self.outside)?);
        }
        Ok(against("check", &checks, &starts, "x python", 0.05))
    }

    /// Both in a sandbox of their own out of the pool, from the request to the record.
    pub(super) async fn tool_call(&mut self) -> Result<Figure, Failure> {
        let tool = tool(SMALL)?;
        let (mut calls, mut executions) = (Vec::new(), Vec::new());
        for turn in 0..2 * self.samples {
            self.await_waiting().await?;
            let is_call = (turn / BLOCK).is_multiple_of(2);
            let started = Instant::now();
            let command = if is_call { self.call(&tool)? } else { self.command(None, "40 + 2")? };
            finished(&self.pooled, command).await?;
            (if is_call { &mut calls } else { &mut executions }).push(started.elapsed());
        }
        Ok(against("tool_call", &calls, &executions, "x exec", 1.5))
    }

    /// The same in one live session, where neither waits for the end of a sandbox.
    pub(super) async fn tool_call_live(&mut self) -> Result<Figure, Failure> {
        let tool = tool(SMALL)?;
        let session = self.pooled.open(&self.new_session()).await?.id;
        let (mut calls, mut executions) = (Vec::new(), Vec::new());
        for turn in 0..2 * self.samples {
            let is_call = (turn / BLOCK).is_multiple_of(2);
            let started = Instant::now();
            let command = if is_call { self.call(&tool)? } else { self.command(None, "40 + 2")? };
            finished(&self.pooled, Command { session: Some(session), ..command }).await?;
            (if is_call { &mut calls } else { &mut executions }).push(started.elapsed());
        }
        self.pooled.close(session).await?;
        Ok(against("tool_call_live", &calls, &executions, "x exec", 1.5))
    }

    fn call(&self, tool: &Tool) -> Result<Command, Failure> {
        let call = tool.call(json!({"a": 40, "b": 2}))?;
        Ok(Command { entry: Entry::Call(Box::new(call)), ..self.command(None, "pass")? })
    }
}

fn tool(text: &str) -> Result<Tool, Failure> {
    let source = Source::new(text).map_err(|problem| Failure::usage(problem.message))?;
    let checked = Tool::from_python("bench", source, Annotations::Strict);
    checked.outcome.map_err(|problems| Failure::usage(format!("{problems:?}")))
}

pub(super) fn against(
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
        reach: Reach::AtMost(most),
        raw: format!("{} against {}", ms(figure), ms(base)),
    }
}
