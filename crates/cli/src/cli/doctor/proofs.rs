//! Starts a real sandbox and runs code in it that tries what each isolation layer forbids.

use super::super::{local_engine, terminal};
use super::report::{Proof, ProofOutcome};
use engine::{Code, Command, Config, Engine, EntryPoint, Environments, ProcessesSetting};
use serde::Deserialize;
use serde_json::json;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};
use types::{Error, Execution, LimitsRequest, OutputStream};

const ATTEMPTS: &str = include_str!("attempts.py");
const MIB: u64 = 1024 * 1024;

/// Small limits, so that code reaches them quickly.
const PROCESSES: u64 = 16;
const DISK_BYTES: u64 = 4 * MIB;
const DISK_INODES: u64 = 128;
const MEMORY_BYTES: u64 = 64 * MIB;
const SPIN_MS: u64 = 300;
/// For all attempts together, on a slow and busy machine.
const ATTEMPTS_MS: u64 = 25_000;

/// The functions of `attempts.py`, and what each proves.
const ATTEMPTS_IN_SANDBOX: [(&str, &str); 23] = [
    ("host_files", "cannot open files of the host"),
    ("read_only", "cannot write to system directories"),
    ("landlock", "Landlock denies access on its own"),
    ("mount", "cannot mount file systems"),
    ("user_namespace", "cannot create a user namespace"),
    ("other_namespace", "cannot enter another namespace"),
    ("processes", "cannot see processes of the host"),
    ("signals", "cannot kill init"),
    ("ptrace", "cannot trace processes"),
    ("socket_families", "cannot open kernel or hypervisor sockets"),
    ("network", "cannot reach the host or the network"),
    ("identity", "cannot become root"),
    ("capabilities", "has no capabilities"),
    ("seccomp", "the system call filter is active"),
    ("no_new_privs", "setuid programs gain no privileges"),
    ("rlimits", "cannot raise its limits"),
    ("process_limit", "a fork bomb stops at the process limit"),
    ("disk_limit", "a growing file stops at the disk limit"),
    ("inode_limit", "creating files stops at the inode limit"),
    ("workspace", "can write to its working directory"),
    ("loopback", "can use its own loopback interface"),
    ("child_process", "can start programs"),
    ("thread", "can start threads"),
];

/// Replaces the attempts that need processes, in an environment that denies them.
const NO_PROCESSES: (&str, &str) = ("no_processes", "cannot start processes");
const WITH_PROCESSES: [&str; 2] = ["process_limit", "child_process"];

type Attempts = Vec<(&'static str, &'static str)>;

fn attempts(has_processes: bool) -> Attempts {
    if has_processes {
        return ATTEMPTS_IN_SANDBOX.into();
    }
    let others = ATTEMPTS_IN_SANDBOX.into_iter().filter(|(name, _)| !WITH_PROCESSES.contains(name));
    others.chain([NO_PROCESSES]).collect()
}

/// Whether the environment allows processes. The engine rejects an unknown environment later.
fn has_processes(data: &Path, environment: &str) -> bool {
    let recipe = Environments::open(data).and_then(|known| known.find(environment));
    !recipe.is_ok_and(|it| it.definition.processes == ProcessesSetting::Deny)
}

/// Code that never ends by itself, and the error that must end it.
struct LimitAttempt {
    name: &'static str,
    claim: &'static str,
    code: &'static str,
    limits: LimitsRequest,
    error_code: types::ErrorCode,
}

fn limit_attempts() -> [LimitAttempt; 2] {
    let limits = LimitsRequest::default();
    [
        LimitAttempt {
            name: "memory_limit",
            claim: "memory use stops at the memory limit",
            // Slowly enough for a watchdog that looks twenty times a second.
            code: "import time\nkept = []\nwhile True:\n    kept.append(b'x' * 2**20)\n    time.sleep(0.002)",
            limits: LimitsRequest { memory_bytes: Some(MEMORY_BYTES), ..limits },
            error_code: types::ErrorCode::MemoryExceeded,
        },
        LimitAttempt {
            name: "time_limit",
            claim: "execution stops at the time limit",
            code: "while True:\n    pass",
            limits: LimitsRequest { wall_ms: Some(SPIN_MS), ..limits },
            error_code: types::ErrorCode::TimeExceeded,
        },
    ]
}

/// Results of the attempts.
#[derive(Debug)]
pub(super) struct SandboxTrial {
    pub(super) environment: String,
    pub(super) proofs: Vec<Proof>,
    /// Why no sandbox could be started.
    pub(super) error: Option<String>,
}

pub(super) async fn prove_layers(config: Config, environment: &str) -> SandboxTrial {
    let has_processes = has_processes(&config.data, environment);
    let proofs = run_attempts(config, environment, has_processes).await;
    let environment = environment.to_owned();
    match proofs {
        Ok(proofs) => SandboxTrial { environment, proofs, error: None },
        Err(error) => {
            let error = Some(terminal::for_stdout(&error.message.replace('\n', " ")));
            SandboxTrial { proofs: not_tried(has_processes), environment, error }
        }
    }
}

fn not_tried(has_processes: bool) -> Vec<Proof> {
    let outcome = ProofOutcome::NotTried;
    let inside = attempts(has_processes)
        .into_iter()
        .chain(limit_attempts().map(|endless| (endless.name, endless.claim)));
    inside.map(|(name, claim)| Proof { name, claim, outcome, evidence: String::new() }).collect()
}

async fn run_attempts(
    config: Config,
    environment: &str,
    has_processes: bool,
) -> Result<Vec<Proof>, Error> {
    let canaries = HostCanaries::create(&config.data).map_err(|error| {
        Error::new(
            types::ErrorCode::SandboxUnreachable,
            format!("cannot create the test files: {error}"),
        )
    })?;
    let (engine, _) = local_engine::start(config, environment).await?;
    let limits = LimitsRequest {
        wall_ms: Some(ATTEMPTS_MS),
        processes: Some(PROCESSES),
        disk_bytes: Some(DISK_BYTES),
        disk_inodes: Some(DISK_INODES),
        ..LimitsRequest::default()
    };
    let code = format!("HOST = {}\n{ATTEMPTS}", canaries.to_python_literal(has_processes));
    let ran = run(&engine, environment, code, limits).await?;
    let mut proofs = proofs_of(&ran, attempts(has_processes));
    for endless in limit_attempts() {
        let run = run(&engine, environment, endless.code.to_owned(), endless.limits).await?;
        proofs.push(limit_proof(&endless, &run));
    }
    Ok(proofs)
}

async fn run(
    engine: &Arc<Engine>,
    environment: &str,
    code: String,
    limits: LimitsRequest,
) -> Result<Execution, Error> {
    let code = Code::new(code.into_bytes())
        .map_err(|error| Error::new(types::ErrorCode::ArgsInvalid, error.to_string()))?;
    let command = Command { limits, ..Command::new(environment, EntryPoint::Cell(code)) };
    Ok(engine.run(command, &mut |_| {}).await?.execution)
}

/// One line that `attempts.py` prints.
#[derive(Deserialize)]
struct AttemptResult {
    name: String,
    proved: bool,
    evidence: String,
}

fn proofs_of(execution: &Execution, attempts: Attempts) -> Vec<Proof> {
    let pieces = execution.output.iter().filter(|piece| piece.stream == OutputStream::Stdout);
    let printed: String = pieces.map(|piece| piece.text.as_str()).collect();
    let mut answers: Vec<AttemptResult> =
        printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let silence =
        || execution.error.as_ref().map_or("no result".into(), |error| error.code.to_string());
    attempts
        .into_iter()
        .map(|(name, claim)| {
            let answer = answers.iter().position(|answer| answer.name == name);
            let (proved, evidence) = match answer.map(|index| answers.swap_remove(index)) {
                Some(answer) => (answer.proved, answer.evidence),
                None => (false, silence()),
            };
            let outcome = if proved { ProofOutcome::Proved } else { ProofOutcome::NotProved };
            Proof {
                name,
                claim,
                outcome,
                evidence: terminal::for_stdout(&evidence.replace('\n', " ")),
            }
        })
        .collect()
}

fn limit_proof(endless: &LimitAttempt, execution: &Execution) -> Proof {
    let ended_by = execution.error.as_ref().map(|error| &error.code);
    let proved = ended_by == Some(&endless.error_code);
    Proof {
        name: endless.name,
        claim: endless.claim,
        outcome: if proved { ProofOutcome::Proved } else { ProofOutcome::NotProved },
        evidence: match ended_by {
            Some(code) => format!("{code} after {} ms", execution.usage.wall_ms),
            None => "it was not stopped".into(),
        },
    }
}

/// A file, a port and a socket of the host that code must not reach. Drop removes the file.
struct HostCanaries {
    canary: PathBuf,
    port: TcpListener,
    socket: String,
    _listener: UnixListener,
}

impl HostCanaries {
    fn create(data: &Path) -> io::Result<Self> {
        let name = format!("belljar-doctor-{}", std::process::id());
        let canary = fs::canonicalize(data)?.join(format!(".{name}"));
        fs::write(&canary, "not for sandboxes\n")?;
        Ok(Self {
            canary,
            port: TcpListener::bind("127.0.0.1:0")?,
            _listener: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?,
            socket: name,
        })
    }

    /// The list as a Python literal, which this JSON is.
    fn to_python_literal(&self, has_processes: bool) -> String {
        let attempts: Vec<&str> = attempts(has_processes).iter().map(|(name, _)| *name).collect();
        json!({
            "attempts": attempts,
            "has_processes": u8::from(has_processes),
            "canary": self.canary.to_string_lossy(),
            "port": self.port.local_addr().map_or(0, |address| address.port()),
            "socket": self.socket,
            "processes": PROCESSES,
            "disk_bytes": DISK_BYTES,
            "disk_inodes": DISK_INODES,
        })
        .to_string()
    }
}

impl Drop for HostCanaries {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.canary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_proof_has_its_attempt() {
        for (name, _) in ATTEMPTS_IN_SANDBOX.into_iter().chain([NO_PROCESSES]) {
            assert!(ATTEMPTS.contains(&format!("\ndef {name}():\n")), "{name}");
        }
    }
}
