//! The baseline, and other Python code that runs without isolation for comparison.

use super::super::CliError;
use engine::UnsandboxedPython;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const FLOOR: &str = include_str!("../../../../../bench/floor.py");
pub(super) const NATIVE: &str = include_str!("../../../../../bench/native.py");

/// Returns the command of the Python of an environment without isolation, ready for `-c`.
fn python_command(outside: &UnsandboxedPython) -> Command {
    let mut command = Command::new(&outside.interpreter);
    command
        .env_clear()
        .env("PYTHONPATH", &outside.site_packages)
        .env("PATH", "/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .env("MPLBACKEND", "agg")
        .envs(outside.variables.iter().filter(|(name, _)| name != "LD_LIBRARY_PATH").cloned())
        .args(["-B", "-c"]);
    command
}

fn io_failure(what: &str, error: &std::io::Error) -> CliError {
    CliError::internal(format!("{what}: {error}"))
}

/// Returns the time it takes to start an interpreter that does nothing.
pub(super) fn start_interpreter(outside: &UnsandboxedPython) -> Result<Duration, CliError> {
    let started = Instant::now();
    let status = Command::new(&outside.interpreter).args(["-c", "pass"]).status();
    let status = status.map_err(|error| io_failure("python3 -c pass", &error))?;
    let elapsed = started.elapsed();
    if status.success() { Ok(elapsed) } else { Err(CliError::usage("`python3 -c pass` failed")) }
}

/// A warm interpreter that forks on request.
#[derive(Debug)]
pub(super) struct BaselineInterpreter {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl BaselineInterpreter {
    pub(super) fn start(outside: &UnsandboxedPython) -> Result<Self, CliError> {
        let mut process = python_command(outside)
            .arg(FLOOR)
            .arg(&outside.runner)
            .args(&outside.preload)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| io_failure("cannot start the baseline process", &error))?;
        let (Some(ask), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(CliError::usage("the baseline process has no pipes"));
        };
        let mut floor = Self { process, input: ask, output: BufReader::new(answers) };
        floor.read_line()?;
        Ok(floor)
    }

    /// One fork and a pipe round trip.
    pub(super) fn sample(&mut self) -> Result<Duration, CliError> {
        self.input
            .write_all(b"\n")
            .map_err(|error| io_failure("the baseline process exited", &error))?;
        let nanos = self
            .read_line()?
            .trim()
            .parse()
            .map_err(|_| CliError::usage("the baseline process printed no time"))?;
        Ok(Duration::from_nanos(nanos))
    }

    fn read_line(&mut self) -> Result<String, CliError> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err(CliError::usage("the baseline process exited")),
            Ok(_) => Ok(line),
            Err(error) => Err(io_failure("the baseline process exited", &error)),
        }
    }
}

impl Drop for BaselineInterpreter {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The two times that `native.py` prints.
pub(super) fn run_native(outside: &UnsandboxedPython) -> Result<(u64, u64), CliError> {
    let output = python_command(outside).arg(NATIVE).output();
    let output = output.map_err(|error| io_failure("cannot start Python", &error))?;
    parse_two_numbers(&String::from_utf8_lossy(&output.stdout))
}

pub(super) fn parse_two_numbers(text: &str) -> Result<(u64, u64), CliError> {
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => Err(CliError::usage(format!("native.py printed {text:?}"))),
    }
}
