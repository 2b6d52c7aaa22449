//! Shared parts of the attacks: run code and read its answer, start modified runners, and inspect a
//! sandbox from outside.

use crate::harness;
use engine::{Config, Engine, Preload, RunnerSource};
use environment::{Definition, Environments, INSIDE_INTERPRETER};
use sandbox::{
    ExitCause, ExitReport, ProcessPolicy, RunnerFiles, RunnerRequest, Sandbox, SandboxSpec,
    StopHandle, ValueBudget, ZygoteHost, ZygoteHostConfig,
};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, process};
use tempfile::TempDir;
use types::{Event, Execution, ExecutionStatus, Limits, OutputStream};

/// Functions that every attack from inside uses: see `inside/prelude.py`.
const PRELUDE: &str = include_str!("inside/prelude.py");

pub(crate) fn engine() -> Arc<Engine> {
    Engine::start(harness::config())
}

pub(crate) fn with_prelude(code: &str) -> String {
    format!("{PRELUDE}\n{code}")
}

/// What code prints in a fresh sandbox. It may be refused whatever it tries, but has to end well.
pub(crate) async fn answer(engine: &Arc<Engine>, code: &str) -> String {
    let execution = harness::run(engine, &with_prelude(code)).await;
    said(&execution)
}

pub(crate) fn said(execution: &Execution) -> String {
    let stderr = harness::printed(execution, OutputStream::Stderr);
    assert_eq!(execution.status, ExecutionStatus::Succeeded, "{:?}\n{stderr}", execution.error);
    harness::printed(execution, OutputStream::Stdout).trim_end().to_owned()
}

/// The engine must serve the next caller, whatever the last one did.
pub(crate) async fn still_serves(engine: &Arc<Engine>) {
    assert_eq!(answer(engine, "print(6 * 7)").await, "42");
}

/// Tries Python expressions one after the other in one sandbox and compares the result of each:
/// `ok`, or the name of an errno, or the type of another exception.
pub(crate) async fn attempts(engine: &Arc<Engine>, table: &[(&str, &str)]) {
    let expressions: Vec<&str> = table.iter().map(|(expression, _)| *expression).collect();
    let listed = serde_json::to_string(&expressions).unwrap();
    let seen = answer(engine, &format!("report({listed})")).await;
    let seen: Vec<String> = serde_json::from_str(&seen).unwrap();
    let differ: Vec<String> = table
        .iter()
        .zip(&seen)
        .filter(|((_, expected), seen)| !expected.split('|').any(|one| one == *seen))
        .map(|((expression, expected), seen)| format!("{expression}: {seen}, not {expected}"))
        .collect();
    assert!(differ.is_empty(), "{differ:#?}");
    assert_eq!(seen.len(), table.len());
}

/// The modified sources of a runner, and the files installed from them in the data directory. Both are
/// removed when this is dropped.
pub(crate) struct ModifiedRunner {
    source: TempDir,
}

impl ModifiedRunner {
    fn runner(&self) -> RunnerSource {
        RunnerSource::Directory(self.source.path().to_path_buf())
    }
}

impl Drop for ModifiedRunner {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(runtime(&self.runner()).path());
    }
}

/// A copy of the runner in which texts are replaced. Each of them must exist.
pub(crate) fn modified_runner(edits: &[(&str, &str, &str)]) -> (ModifiedRunner, RunnerSource) {
    let directory = tempfile::tempdir().unwrap();
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runner");
    copy_sources(&original, directory.path());
    for (file, from, to) in edits {
        let path = directory.path().join(file);
        let source = fs::read_to_string(&path).unwrap();
        assert!(source.contains(from), "{file} no longer has {from:?}");
        fs::write(path, source.replacen(from, to, 1)).unwrap();
    }
    let modified_runner = ModifiedRunner { source: directory };
    let runner = modified_runner.runner();
    (modified_runner, runner)
}

/// A runner that reseeds and sends `ready` as it should, and then runs `code` with the control channel as
/// `channel`, a socket.
pub(crate) fn malicious(code: &str) -> (ModifiedRunner, RunnerSource) {
    let body: String = code.lines().map(|line| format!("        {line}\n")).collect();
    let turned = format!("import socket, time\n        channel = socket.socket(fileno=3)\n{body}");
    modified_runner(&[("belljar_runner/session.py", "runner.loop()", &turned)])
}

fn copy_sources(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            fs::create_dir(&target).unwrap();
            copy_sources(&path, &target);
        } else if path.extension().is_some_and(|extension| extension == "py") {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Everything that is mounted for an environment: inside and outside.
pub(crate) fn mounts(name: &str) -> Vec<(PathBuf, PathBuf)> {
    let mounts = built(name).mounts().into_iter();
    mounts.map(|mount| (mount.host, mount.inside)).collect()
}

pub(crate) fn built(name: &str) -> environment::EnvironmentLease {
    let definition = Definition::built_in(name).unwrap();
    let environments = Environments::open(&harness::data()).unwrap();
    environments.ensure(&definition, None, &mut |_| {}).unwrap()
}

pub(crate) fn runtime(runner: &RunnerSource) -> RunnerFiles {
    RunnerFiles::install(&harness::data(), runner).unwrap()
}

/// For tests that need the sandbox itself, which the engine does not return.
pub(crate) fn zygote_host_config(runner: &RunnerSource) -> ZygoteHostConfig {
    of_environment("bare", runner, Preload::Nothing)
}

/// With numpy, pandas and matplotlib loaded in the zygote.
pub(crate) fn warm_zygote_host_config() -> ZygoteHostConfig {
    of_environment("default", &RunnerSource::Embedded, Preload::Modules)
}

fn of_environment(name: &str, runner: &RunnerSource, preload: Preload) -> ZygoteHostConfig {
    let environment = built(name);
    ZygoteHostConfig {
        warden_program: harness::binary(),
        runtime: runtime(runner),
        spec: SandboxSpec {
            environment: name.into(),
            binds: mounts(name),
            interpreter: INSIDE_INTERPRETER.into(),
            variables: environment.variables.clone().into_iter().collect(),
            preload: environment.preload.iter().map(|name| name.as_str().to_owned()).collect(),
            processes: ProcessPolicy::Allow,
            installs: false,
            imports: None,
            volumes: None,
        },
        preload,
        allowed_missing_layers: Vec::new(),
        jails_ready: 8,
    }
}

/// A sandbox that stays, as that of a session.
pub(crate) async fn spawn(zygote_host: &Arc<ZygoteHost>) -> Sandbox {
    let mut sandbox = spawn_for_one_execution(zygote_host).await;
    sandbox.keep_alive();
    sandbox
}

/// A sandbox for a single execution.
pub(crate) async fn spawn_for_one_execution(zygote_host: &Arc<ZygoteHost>) -> Sandbox {
    zygote_host.spawn(&Limits::DEFAULT, &[]).await.unwrap()
}

/// What code prints in this sandbox, with the prelude.
pub(crate) async fn printed_in(sandbox: &mut Sandbox, code: &str) -> String {
    let (ending, text) = run(sandbox, code).await;
    assert!(ending.alive, "{:?}\n{text}", ending.cause);
    text.trim_end().to_owned()
}

/// How code ends in this sandbox.
pub(crate) async fn ended(sandbox: &mut Sandbox, code: &str) -> ExitCause {
    run(sandbox, code).await.0.cause
}

async fn run(sandbox: &mut Sandbox, code: &str) -> (ExitReport, String) {
    let code = with_prelude(code);
    let request = RunnerRequest::Run {
        code: &code,
        name: "<attack>".into(),
        show_last: false,
        answer: None,
        argv: None,
        directory: None,
        variables: BTreeMap::new(),
        result_limit: Limits::DEFAULT.result_bytes,
        value_limit: Limits::DEFAULT.result_bytes,
        last: false,
    };
    let mut text = String::new();
    let hear = &mut |event| {
        if let Event::Output(piece) = event {
            text.push_str(&piece.text);
        }
    };
    let installs: sandbox::InstallCallback<'_> = &|_| Box::pin(std::future::pending());
    let (stopper, room) = (StopHandle::default(), ValueBudget::default());
    let ending = sandbox.run(&request, &Limits::DEFAULT, &stopper, hear, &room, installs).await;
    (ending, text)
}

/// A process as its host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// The interpreter of a sandbox.
    pub(crate) fn of(sandbox: &Sandbox) -> Self {
        let process = sandbox.process();
        let number = process.as_fd().as_raw_fd();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap();
        Self(pid.trim().parse().unwrap())
    }

    pub(crate) fn path(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    pub(crate) fn status(self) -> BTreeMap<String, String> {
        let text = fs::read_to_string(self.path("status")).unwrap_or_default();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
    }

    pub(crate) fn namespace(self, kind: &str) -> Option<PathBuf> {
        fs::read_link(self.path("ns").join(kind)).ok()
    }

    pub(crate) fn descriptors(self) -> BTreeSet<u32> {
        let entries = fs::read_dir(self.path("fd")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    pub(crate) fn command_line(self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("cmdline")).unwrap_or_default()).into_owned()
    }

    pub(crate) fn is_filtered(self) -> bool {
        self.status().get("Seccomp").is_some_and(|mode| mode == "2")
    }

    /// Whether this is a zygote: a sandbox has its command line too, and a filter besides.
    pub(crate) fn is_zygote(self) -> bool {
        self.command_line().contains("zygote.py") && !self.is_filtered()
    }

    pub(crate) fn everyone() -> Vec<Self> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Self).collect()
    }

    pub(crate) fn parent(self) -> Option<Self> {
        self.status().get("PPid")?.parse().ok().map(Self)
    }

    /// All that this process has started, and what those have.
    pub(crate) fn descendants(self) -> BTreeSet<Self> {
        let parents: BTreeMap<Self, Self> = Self::everyone()
            .into_iter()
            .filter_map(|process| Some((process, process.parent()?)))
            .collect();
        let comes_from_us = |mut process: Self| {
            while let Some(parent) = parents.get(&process) {
                if *parent == self {
                    return true;
                }
                process = *parent;
            }
            false
        };
        parents.keys().copied().filter(|process| comes_from_us(*process)).collect()
    }
}

/// The descriptors of this test process.
pub(crate) fn own_descriptors() -> usize {
    Process(process::id()).descriptors().len()
}

/// Whether each sandbox has a host user id of its own, which only root can give.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn config_with(runner: RunnerSource) -> Config {
    Config { runner, ..harness::config() }
}
