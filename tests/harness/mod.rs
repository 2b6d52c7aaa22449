//! What tests of the whole system share: the real binary, a real engine, and one data directory
//! in which environments are built once for all of them.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::unwrap_used, reason = "a harness that cannot set up a test has to fail it")]
#![allow(unreachable_pub, reason = "a test binary has no outside")]

use engine::{Code, Command, Config, Engine, Entry, Finished, Warmth};
use std::path::PathBuf;
use std::process::{self, Output};
use std::sync::Arc;
use types::{Execution, LimitsRequest, Stream};

/// The binary under test.
pub fn binary() -> PathBuf {
    env!("CARGO_BIN_EXE_belljar").into()
}

/// Kept between runs below the target directory, as the build itself is. `BELLJAR_TEST_DATA`
/// names another one.
pub fn data() -> PathBuf {
    let named = std::env::var_os("BELLJAR_TEST_DATA").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("data"))
}

/// The command line, with nothing of the caller's own configuration.
pub fn belljar(args: &[&str]) -> process::Command {
    let mut command = process::Command::new(binary());
    command.args(args).env("BELLJAR_DATA", data()).env_remove("BELLJAR_PYTHON");
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
    Config { jails_ready: 2, ..Config::single(data(), binary()) }
}

/// An engine as a server has it, with numpy, pandas and matplotlib loaded in the zygote.
pub fn warm_config() -> Config {
    Config { warmth: Warmth::Preloaded, ..Config::service(data(), binary()) }
}

pub fn command(environment: &str, code: &str) -> Command {
    Command {
        session: None,
        environment: environment.into(),
        entry: Entry::Cell,
        code: Code::new(code.into()).unwrap(),
        files: Vec::new(),
        limits: LimitsRequest::default(),
        bring_files: false,
    }
}

/// Runs code in a fresh sandbox of the `bare` environment.
pub async fn run(engine: &Arc<Engine>, code: &str) -> Execution {
    run_with(engine, command("bare", code)).await.execution
}

pub async fn run_with(engine: &Arc<Engine>, command: Command) -> Finished {
    engine.run(command, &mut |_| {}).await.unwrap()
}

pub fn printed(execution: &Execution, stream: Stream) -> String {
    let pieces = execution.output.iter().filter(|piece| piece.stream == stream);
    pieces.map(|piece| piece.text.as_str()).collect()
}
