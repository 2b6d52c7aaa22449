//! The floor, and other Python that runs outside of any wall to compare with.

use super::super::Failure;
use engine::Outside;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const FLOOR: &str = include_str!("../../../../../bench/floor.py");
pub(super) const NATIVE: &str = include_str!("../../../../../bench/native.py");

/// The Python of an environment without walls, ready for `-c`.
fn python(outside: &Outside) -> Command {
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

fn failed(what: &str, error: &std::io::Error) -> Failure {
    Failure::belljar(format!("{what}: {error}"))
}

/// How long it takes to start an interpreter that does nothing.
pub(super) fn nothing(outside: &Outside) -> Result<Duration, Failure> {
    let started = Instant::now();
    let status = Command::new(&outside.interpreter).args(["-c", "pass"]).status();
    let status = status.map_err(|error| failed("python3 -c pass", &error))?;
    let took = started.elapsed();
    if status.success() { Ok(took) } else { Err(Failure::usage("python3 -c pass has failed")) }
}

/// A warm interpreter that forks when it is asked.
#[derive(Debug)]
pub(super) struct Floor {
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Floor {
    pub(super) fn start(outside: &Outside) -> Result<Self, Failure> {
        let mut process = python(outside)
            .arg(FLOOR)
            .arg(&outside.kernel)
            .args(&outside.preload)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed("the floor could not be started", &error))?;
        let (Some(ask), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Failure::usage("the floor has no pipes"));
        };
        let mut floor = Self { process, ask, answers: BufReader::new(answers) };
        floor.answer()?;
        Ok(floor)
    }

    /// One fork and a pipe round trip.
    pub(super) fn sample(&mut self) -> Result<Duration, Failure> {
        self.ask.write_all(b"\n").map_err(|error| failed("the floor has ended", &error))?;
        let nanos = self.answer()?.trim().parse().map_err(|_| Failure::usage("no floor"))?;
        Ok(Duration::from_nanos(nanos))
    }

    fn answer(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err(Failure::usage("the floor has ended")),
            Ok(_) => Ok(line),
            Err(error) => Err(failed("the floor has ended", &error)),
        }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The two times that `native.py` prints.
pub(super) fn native(outside: &Outside) -> Result<(u64, u64), Failure> {
    let output = python(outside).arg(NATIVE).output();
    let output = output.map_err(|error| failed("Python could not be started", &error))?;
    two_numbers(&String::from_utf8_lossy(&output.stdout))
}

pub(super) fn two_numbers(text: &str) -> Result<(u64, u64), Failure> {
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => Err(Failure::usage(format!("native.py printed {text:?}"))),
    }
}
