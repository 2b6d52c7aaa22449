//! Runs other programs with empty stdin and a time limit, and keeps the end of their output for
//! errors.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum lines of kept output: enough for an error message and its causes, of which a conflict of
/// packages has many.
const LAST_LINES_MAX: usize = 80;

/// A gigabyte of wheels on a slow connection. The lock blocks other builds of the environment
/// meanwhile.
const RUN_MAX: Duration = Duration::from_secs(60 * 60);

const POLL: Duration = Duration::from_millis(5);

/// A program that ended, and its output.
pub(crate) struct ProgramOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) last_lines: Vec<String>,
}

/// A Python without user settings: no `PYTHON*` variables, no user packages, no current directory,
/// and no bytecode written beside other files.
pub(crate) fn isolated_python(executable: &Path) -> Command {
    let mut command = Command::new(executable);
    command.args(["-I", "-B"]);
    command
}

/// A process that is killed when this is dropped.
struct ChildGuard(Child);

impl ChildGuard {
    /// `None` if it still runs at the deadline.
    fn wait_until(&mut self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(Some(status)),
                None if Instant::now() >= deadline => return Ok(None),
                None => thread::sleep(POLL),
            }
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Both fail only if the process is gone already, which is the goal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program that should end quickly and print at most a few kilobytes.
///
/// On a timeout it kills the program and returns `None`.
pub(crate) fn run_with_timeout(
    command: &mut Command,
    time: Duration,
) -> io::Result<Option<ProgramOutput>> {
    let mut running = ChildGuard(spawn_child(command, Stdio::piped())?);
    let Some(status) = running.wait_until(Instant::now() + time)? else { return Ok(None) };
    let mut stdout = String::new();
    if let Some(pipe) = running.0.stdout.take() {
        pipe.take(PIPE_BYTES).read_to_string(&mut stdout)?;
    }
    let mut stderr = String::new();
    if let Some(pipe) = running.0.stderr.take() {
        pipe.take(PIPE_BYTES).read_to_string(&mut stderr)?;
    }
    let last_lines = stderr.lines().map(str::to_owned).collect();
    Ok(Some(ProgramOutput { status, stdout, last_lines }))
}

/// The capacity of a pipe: it is read only after the program ends, so there cannot be more.
const PIPE_BYTES: u64 = 64 * 1024;

/// Cancels a running program from another thread.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs a program that may take long, and passes each line of its stderr to `watch`. On a timeout
/// it kills the program and returns an error.
pub(crate) fn run_streaming(
    command: &mut Command,
    watch: impl FnMut(&str),
) -> io::Result<ProgramOutput> {
    run_streaming_until(command, &CancelFlag::default(), watch)
}

/// Like `run_streaming`, but also kills the program when it is cancelled.
pub(crate) fn run_streaming_until(
    command: &mut Command,
    cancel: &CancelFlag,
    watch: impl FnMut(&str),
) -> io::Result<ProgramOutput> {
    run_streaming_for(command, RUN_MAX, cancel, watch)
}

fn run_streaming_for(
    command: &mut Command,
    time: Duration,
    cancel: &CancelFlag,
    mut watch: impl FnMut(&str),
) -> io::Result<ProgramOutput> {
    let mut running = ChildGuard(spawn_child(command, Stdio::null())?);
    let deadline = Instant::now() + time;
    let timed_out = || {
        let message =
            format!("it did not finish within {} minutes and was killed", time.as_secs() / 60);
        io::Error::new(io::ErrorKind::TimedOut, message)
    };
    let stderr = running.0.stderr.take().map(spawn_line_reader);
    let mut last_lines = Vec::new();
    while let Some(stderr) = &stderr {
        let line = match stderr.recv_timeout(POLL) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                running.0.kill()?;
                break;
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => return Err(timed_out()),
            Err(RecvTimeoutError::Timeout) => continue,
        };
        watch(&line);
        if last_lines.len() == LAST_LINES_MAX {
            last_lines.remove(0);
        }
        last_lines.push(line);
    }
    let status = running.wait_until(deadline)?.ok_or_else(timed_out)?;
    Ok(ProgramOutput { status, stdout: String::new(), last_lines })
}

/// Reads the lines of a pipe on a separate thread, so that the receiver can time out.
fn spawn_line_reader(pipe: ChildStderr) -> mpsc::Receiver<io::Result<String>> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let text = |line: Vec<u8>| String::from_utf8_lossy(&line).trim_end().to_owned();
        let mut read = BufReader::new(pipe).split(b'\n');
        // An error means that the receiver is gone.
        read.try_for_each(|line| sender.send(line.map(text)))
    });
    lines
}

fn spawn_child(command: &mut Command, stdout: Stdio) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).spawn()
}

/// The first file of this name in the directories of a search path.
pub(crate) fn find_program<'a>(
    search_path: impl IntoIterator<Item = &'a Path>,
    name: impl AsRef<OsStr>,
) -> Option<std::path::PathBuf> {
    search_path
        .into_iter()
        .map(|directory| directory.join(name.as_ref()))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_is_returned_with_the_exit_status() {
        let ended =
            run_with_timeout(&mut shell("echo yes; echo no >&2; exit 3"), Duration::from_secs(10));
        let ended = ended.unwrap().unwrap();
        assert_eq!((ended.stdout.as_str(), ended.status.code()), ("yes\n", Some(3)));
        assert_eq!(ended.last_lines, ["no"]);
    }

    #[test]
    fn a_program_that_never_answers_is_given_up() {
        let started = Instant::now();
        let ended =
            run_with_timeout(&mut shell("exec sleep 60"), Duration::from_millis(100)).unwrap();
        assert!(ended.is_none());
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn the_end_of_long_output_is_kept() {
        let mut bytes = 0;
        let ended = run_streaming(&mut shell("seq 100 >&2; exit 1"), |_| bytes += 1).unwrap();
        assert_eq!(bytes, 100);
        assert_eq!(ended.last_lines.len(), LAST_LINES_MAX);
        assert_eq!(ended.last_lines.last().map(String::as_str), Some("100"));
    }

    #[test]
    fn a_program_that_never_ends_is_killed_whether_it_writes_or_not() {
        for script in [
            "exec sleep 60",
            "while :; do echo on >&2; sleep 0.01; done",
            "exec 2>&-; exec sleep 60",
        ] {
            let started = Instant::now();
            let ended = run_streaming_for(
                &mut shell(script),
                Duration::from_millis(100),
                &CancelFlag::default(),
                |_| (),
            );
            assert_eq!(ended.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
            assert!(started.elapsed() < Duration::from_secs(5), "{script}");
        }
    }
}
