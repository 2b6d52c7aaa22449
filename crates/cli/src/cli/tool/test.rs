//! `belljar tool test`: runs `test()` of each tool, here or on a server, with output for people and
//! for CI.

use super::file::ToolFile;
use super::{AnnotationArgs, EXIT_INVALID, diagnostic, junit, remote_test};
use crate::cli::engine_args::{self, EngineArgs};
use crate::cli::one_shot::print_record;
use crate::cli::remote::ServerArgs;
use crate::cli::request_args::RequestArgs;
use crate::cli::{CliError, progress, terminal};
use contract::Diagnostic;
use engine::{Command, Engine, EntryPoint, InputFile};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use types::{Error, ErrorCode, Execution, OutputChunk, TestOutcome, Warning};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) engine: EngineArgs,

    #[command(flatten)]
    pub(super) server: ServerArgs,

    #[command(flatten)]
    pub(super) strictness: AnnotationArgs,

    #[command(flatten)]
    pub(super) request: RequestArgs,

    /// Test tools of this agent, as it calls them (requires --server and MODIFY on the agent)
    #[arg(long, value_name = "AGENT")]
    pub(super) agent: Option<String>,

    /// Print one JSON object with all results
    #[arg(long)]
    json: bool,

    /// Also write the results to this file as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    /// Python file with a function `handle`, JSON file of a tool, or name of a tool on the server
    #[arg(value_name = "FILE.py | FILE.json | NAME", required = true)]
    pub(super) tools: Vec<PathBuf>,
}

impl Args {
    /// Prints the report of one test, unless all are printed as one JSON object at the end.
    pub(super) fn print(&self, report: &TestReport) -> Result<(), CliError> {
        if self.json {
            return Ok(());
        }
        print_record(&terminal::for_stdout(report_text(report).trim_end()))
    }
}

/// The result of one test.
#[derive(Debug, Serialize)]
pub(super) struct TestReport {
    pub(super) file: String,
    pub(super) outcome: TestOutcome,
    /// The environment that it ran in; empty if it did not run.
    #[serde(skip_serializing_if = "String::is_empty")]
    environment: String,
    pub(super) duration_ms: u64,
    /// Return value of the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    /// Output of the test, in order.
    pub(super) output: Vec<OutputChunk>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Error>,
    /// Errors of an invalid tool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Diagnostic>,
    pub(super) warnings: Vec<Warning>,
    /// The errors as text for people.
    #[serde(skip)]
    pub(super) diagnostics: String,
}

fn label(outcome: TestOutcome) -> &'static str {
    match outcome {
        TestOutcome::Passed => "passed",
        TestOutcome::Failed => "failed",
        TestOutcome::TimedOut => "timed out",
    }
}

#[derive(Debug, Serialize)]
struct TestSummary<'a> {
    passed: usize,
    failed: usize,
    tests: &'a [TestReport],
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    // Report errors of the command itself before the first test.
    let files = args.request.files()?;
    args.request.limits()?;
    if args.agent.is_some() && !args.server.is_named() {
        return Err(CliError::usage("--agent requires a server: set --server or BELLJAR_URL"));
    }
    if args.server.is_named() && !files.is_empty() {
        return Err(CliError::usage("--file is for tests on this machine; unset --server"));
    }
    let runtime = engine_args::build_runtime()?;
    let reports = match args.server.is_named() {
        true => runtime.block_on(remote_test::run(&args))?,
        false => runtime.block_on(run(&args, &files))?,
    };
    let passed = reports.iter().filter(|report| report.outcome == TestOutcome::Passed).count();
    let failed = reports.len() - passed;
    if let Some(path) = &args.junit {
        std::fs::write(path, junit::render(&reports))
            .map_err(|error| CliError::usage(format!("--junit {}: {error}", path.display())))?;
    }
    if args.json {
        let summary = TestSummary { passed, failed, tests: &reports };
        let text = serde_json::to_string(&summary).unwrap_or_default();
        print_record(&terminal::for_stdout(&text))?;
    } else {
        print_record(&format!("{passed} passed, {failed} failed"))?;
    }
    Ok(ExitCode::from(if failed > 0 { EXIT_INVALID } else { 0 }))
}

async fn run(args: &Args, files: &[InputFile]) -> Result<Vec<TestReport>, CliError> {
    let engine = Engine::start(args.engine.single_config()?);
    let mut reports = Vec::new();
    for path in &args.tools {
        let report = match command(args, path, files) {
            Ok(command) => {
                // A failed build is not the failure of a test.
                engine.prepare(&command.environment, progress::progress_printer()).await?;
                match engine.run(command, &mut |_| {}).await {
                    Ok(finished) => TestReport::from_execution(path, finished.execution),
                    Err(error) => TestReport::from_error(path, error),
                }
            }
            Err(report) => *report,
        };
        args.print(&report)?;
        reports.push(report);
    }
    Ok(reports)
}

/// The call of the test, or the report of a tool that cannot be called.
fn command(args: &Args, path: &Path, files: &[InputFile]) -> Result<Command, Box<TestReport>> {
    let unusable = |failure: CliError| {
        let error = Error::new(ErrorCode::FileUnsupported, failure.to_string());
        Box::new(TestReport::from_error(path, error))
    };
    let file = ToolFile::read(path, args.strictness.mode()).map_err(unusable)?;
    let tool = match &file.check.result {
        Ok(tool) => tool,
        Err(problems) => return Err(Box::new(TestReport::from_diagnostics(&file, problems))),
    };
    let rejected = |error: Error| Box::new(TestReport::from_error(path, error));
    let missing = args.engine.missing_programs(tool).map_err(unusable)?;
    missing.map_or(Ok(()), |error| Err(rejected(error)))?;
    let call = tool.test_call().map_err(rejected)?;
    Ok(Command {
        files: files.to_vec(),
        limits: args.request.limits().map_err(unusable)?,
        ..Command::new(args.engine.tool_environment(tool), EntryPoint::Call(Box::new(call)))
    })
}

impl TestReport {
    pub(super) fn from_execution(path: &Path, execution: Execution) -> Self {
        Self {
            file: path.display().to_string(),
            outcome: TestOutcome::from_status(execution.status),
            environment: execution.environment,
            duration_ms: execution.usage.wall_ms,
            value: execution.value,
            output: execution.output,
            error: execution.error,
            errors: Vec::new(),
            warnings: execution.warnings,
            diagnostics: String::new(),
        }
    }

    /// The report of a test that did not run.
    fn from_error(path: &Path, error: Error) -> Self {
        Self { error: Some(error), ..Self::new_failed(path) }
    }

    /// The report of a test that the server refused.
    pub(super) fn from_refusal(path: &Path, refused: &CliError) -> Self {
        let error = Error::new(ErrorCode::ToolUnavailable, refused.message.clone());
        Self { diagnostics: refused.details.join("\n"), ..Self::from_error(path, error) }
    }

    fn from_diagnostics(file: &ToolFile, problems: &[Diagnostic]) -> Self {
        Self {
            errors: problems.to_vec(),
            diagnostics: diagnostic::render_errors(file, problems),
            ..Self::new_failed(&file.path)
        }
    }

    fn new_failed(path: &Path) -> Self {
        Self {
            file: path.display().to_string(),
            outcome: TestOutcome::Failed,
            environment: String::new(),
            duration_ms: 0,
            value: None,
            output: Vec::new(),
            error: None,
            errors: Vec::new(),
            warnings: Vec::new(),
            diagnostics: String::new(),
        }
    }
}

fn report_text(report: &TestReport) -> String {
    let TestReport { file, outcome, duration_ms, .. } = report;
    let mut text = format!("{file}: {} in {duration_ms} ms\n", label(*outcome));
    let printed: String = report.output.iter().map(|piece| piece.text.as_str()).collect();
    indent(&mut text, &printed);
    if let Some(value) = report.value.as_ref().filter(|value| !value.is_null()) {
        indent(&mut text, &format!("returned {value}"));
    }
    for warning in &report.warnings {
        indent(&mut text, &format!("warning: {}", warning.message));
    }
    indent(&mut text, &report.diagnostics);
    if let Some(error) = &report.error {
        indent(&mut text, &error_text(error));
    }
    text
}

fn indent(text: &mut String, lines: &str) {
    for line in lines.lines() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {line}");
    }
}

/// Shows a failed assert by its line and its values, any other error by its traceback.
pub(super) fn error_text(error: &Error) -> String {
    let mut text = error.traceback.clone().unwrap_or_default();
    if let Some(assertion) = &error.assertion {
        if text.trim_end().ends_with("AssertionError") {
            let _ = writeln!(text, "  failed: {}", error.message);
        }
        for (expression, value) in &assertion.values {
            // A table continues below its first line.
            let value = value.replace('\n', "\n    ");
            let _ = writeln!(text, "  where {expression} is {value}");
        }
    }
    if error.traceback.is_none() || error.code == ErrorCode::TimeExceeded {
        let _ = writeln!(text, "{}: {}", error.code, error.message);
    }
    if let Some(hint) = &error.hint {
        let _ = writeln!(text, "hint: {hint}");
    }
    text
}
