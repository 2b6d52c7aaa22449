//! Shared by tests of the whole system: the real binary, a real engine, and one data directory in which environments
//! are built once.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of this")]
#![allow(clippy::unwrap_used, reason = "a harness that cannot set up a test has to fail it")]
#![allow(unreachable_pub, reason = "a test binary has no outside")]

pub mod browser;
pub mod wait;
pub mod wait_blocking;

pub use wait_blocking::soon;

use contract::{AnnotationMode, CodeTool, PythonSource};
use engine::{
    Code, Command, Config, EgressGuard, EgressHandler, Engine, EntryPoint, FinishedExecution,
    NewSession, Preload, SandboxGrants,
};
use redact::OutputRedactor;
use std::fmt;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Output};
use std::sync::Arc;
use types::{
    Error, Execution, ExecutionId, LimitsRequest, NetworkAttempt, OperatorCaps, OutputStream,
    SandboxId,
};

/// The binary under test.
pub fn binary() -> PathBuf {
    env!("CARGO_BIN_EXE_belljar").into()
}

/// Grants of environment variables.
pub fn variables<const N: usize>(variables: [(&str, &str); N]) -> SandboxGrants {
    let owned = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    SandboxGrants { variables: owned.into(), ..SandboxGrants::default() }
}

/// Grants of egress, by a proxy of the test that logs nothing.
pub fn egress(serve: impl Fn(TcpListener) -> EgressGuard + Send + Sync + 'static) -> SandboxGrants {
    let egress: Arc<dyn EgressHandler> = Arc::new(TestProxy(serve));
    SandboxGrants { egress: Some(egress), ..SandboxGrants::default() }
}

struct TestProxy<F>(F);

impl<F> fmt::Debug for TestProxy<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestProxy")
    }
}

impl<F: Fn(TcpListener) -> EgressGuard + Send + Sync> EgressHandler for TestProxy<F> {
    fn serve(&self, listener: TcpListener) -> EgressGuard {
        (self.0)(listener)
    }

    fn begin_execution(&self, _: SandboxId, _: ExecutionId, _: &OutputRedactor) {}

    fn end_execution(&self, _: ExecutionId) -> Vec<NetworkAttempt> {
        Vec::new()
    }
}

/// Copies the binary, by a program that has ended when this returns: a descriptor of our own on
/// the copy could be in a child that another test is just forking, and it could not be started.
pub fn copy_binary_to(path: &Path) {
    assert!(process::Command::new("cp").arg(binary()).arg(path).status().unwrap().success());
}

/// Kept between runs below the target directory, as the build itself is. `BELLJAR_TEST_DATA`
/// names another one.
pub fn data() -> PathBuf {
    let named = std::env::var_os("BELLJAR_TEST_DATA").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("data"))
}

/// A data directory with environments of its own, and the uv and the wheels of the shared one.
pub fn own_data() -> tempfile::TempDir {
    let own = tempfile::TempDir::new_in(data()).unwrap();
    std::fs::set_permissions(own.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for shared in ["tools", "cache"] {
        let there = data().join(shared);
        std::fs::create_dir_all(&there).unwrap();
        std::os::unix::fs::symlink(there, own.path().join(shared)).unwrap();
    }
    own
}

/// The command line, with nothing of the caller's own configuration.
pub fn belljar(args: &[&str]) -> process::Command {
    let mut command = process::Command::new(binary());
    command.args(args).env("BELLJAR_DATA", data());
    for variable in ["BELLJAR_PYTHON", "BELLJAR_URL", "BELLJAR_API_KEY"] {
        command.env_remove(variable);
    }
    command
}

pub fn exec(args: &[&str]) -> Output {
    belljar(&[&["exec"], args].concat()).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// An engine that starts quickly: nothing preloaded, nothing waiting.
pub fn config() -> Config {
    // Tests ask for more cores than a small machine has.
    let caps = OperatorCaps(OperatorCaps::HIGHEST);
    Config { jails_ready: 2, caps, ..Config::for_command_line(data(), binary()) }
}

/// An engine as a server has it, with numpy, pandas and matplotlib loaded in the zygote.
pub fn warm_config() -> Config {
    Config { preload: Preload::Modules, ..Config::for_server(data(), binary()) }
}

pub fn command(environment: &str, code: &str) -> Command {
    Command::new(environment, EntryPoint::Cell(Code::new(code.into()).unwrap()))
}

/// A tool in Python, which has to be one.
pub fn tool(code: &str) -> CodeTool {
    let source = PythonSource::new(code).unwrap();
    CodeTool::from_python("tool", source, AnnotationMode::Strict).result.unwrap()
}

/// The call of a tool, in a fresh sandbox.
pub fn call(environment: &str, call: contract::ValidatedCall) -> Command {
    Command { entry: EntryPoint::Call(Box::new(call)), ..command(environment, "pass") }
}

/// A script called `s.py`, in a fresh sandbox.
pub fn script(environment: &str, code: &str) -> Command {
    let code = Code::new(code.into()).unwrap();
    let entry = EntryPoint::Script { code, argv: vec!["s.py".into()] };
    Command { entry, ..command(environment, "pass") }
}

/// Runs code in a fresh sandbox of the `bare` environment.
pub async fn run(engine: &Arc<Engine>, code: &str) -> Execution {
    run_with(engine, command("bare", code)).await.execution
}

pub async fn run_with(engine: &Arc<Engine>, command: Command) -> FinishedExecution {
    engine.run(command, &mut |_| {}).await.unwrap()
}

pub fn printed(execution: &Execution, stream: OutputStream) -> String {
    let pieces = execution.output.iter().filter(|piece| piece.stream == stream);
    pieces.map(|piece| piece.text.as_str()).collect()
}

/// A session of that environment with the usual limits.
pub async fn open(engine: &Arc<Engine>, environment: &str) -> SandboxId {
    open_with(engine, environment, LimitsRequest::default()).await
}

pub async fn open_with(
    engine: &Arc<Engine>,
    environment: &str,
    limits: LimitsRequest,
) -> SandboxId {
    let request = NewSession { limits, ..NewSession::new(environment) };
    engine.open(request).await.unwrap().id
}

/// Runs code in a session.
pub async fn run_in(engine: &Arc<Engine>, session: SandboxId, code: &str) -> Execution {
    let command = Command { session: Some(session), ..command("bare", code) };
    run_with(engine, command).await.execution
}

/// The content of a file of a session.
pub async fn read_file(
    engine: &Arc<Engine>,
    session: SandboxId,
    name: &str,
) -> Result<Vec<u8>, Error> {
    let (mut file, _) = engine.open_file(session, name.into()).await?;
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    Ok(content)
}

/// The stable code of what went wrong; empty when nothing did.
pub fn error_code(execution: &Execution) -> String {
    execution.error.as_ref().map_or_else(String::new, |error| error.code.to_string())
}

/// Runs an ignored test of this very program in a process of its own, for promises about what a
/// whole process holds. It also has a directory for temporary files to itself.
pub fn in_a_process_of_its_own(test: &str) {
    let temporary = tempfile::tempdir().unwrap();
    let output = process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    let said = stdout(&output);
    assert!(output.status.success(), "{said}\n{}", stderr(&output));
    assert!(said.contains("1 passed"), "no test is called {test}: {said}");
}

/// The cgroup directories that a supervisor with this pid has made, in every hierarchy.
pub fn cgroups_of(pid: u32) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = mounts.lines().filter(|line| line.contains(" - cgroup"));
    let roots = points.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = roots.collect();
    while let Some(directory) = left.pop() {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()).filter(|path| path.is_dir()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(&format!("belljar-{pid}-")) {
                found.push(path.clone());
            }
            left.push(path);
        }
    }
    found
}

/// Every process below this one, whatever has become of those between.
pub fn descendants_of(pid: u32) -> Vec<u32> {
    let processes: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect();
    let mut found = vec![pid];
    for index in 0.. {
        let Some(parent) = found.get(index).copied() else {
            break;
        };
        found.extend(processes.iter().filter(|(_, of)| *of == parent).map(|(child, _)| child));
    }
    found.split_off(1)
}

pub fn parent_of(pid: u32) -> Option<u32> {
    stat_of(pid, 1)?.try_into().ok()
}

/// When a process began, in ticks since the machine did.
pub fn start_of(pid: u32) -> Option<u64> {
    stat_of(pid, 19)
}

/// The processor time that every process below this one has used, in ticks.
pub fn cpu_ticks_below(pid: u32) -> u64 {
    descendants_of(pid).into_iter().map(cpu_ticks).sum()
}

/// The processor time that a process has used, in ticks; none if there is no such process.
pub fn cpu_ticks(pid: u32) -> u64 {
    [11, 12].into_iter().filter_map(|field| stat_of(pid, field)).sum()
}

/// Whether a process runs no more. When its parent takes note of it is the parent's affair: an
/// orphan's is the machine's own init, and some of them look every two seconds only.
pub fn has_ended(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists() || is_zombie(pid)
}

/// Whether it has ended, and its parent has not taken note.
pub fn is_zombie(pid: u32) -> bool {
    state_of(pid).is_some_and(|fields| fields.starts_with(" Z"))
}

/// A number of `/proc/PID/stat`, counted from the state on.
fn stat_of(pid: u32, field: usize) -> Option<u64> {
    state_of(pid)?.split_whitespace().nth(field)?.parse().ok()
}

/// What follows the name, which may have anything in it.
fn state_of(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.to_owned())
}
