//! Starts a real sandbox and runs code in it that tries what each isolation layer forbids.

use super::super::{progress, terminal};
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

/// Small, so that passing them takes a moment only.
const PROCESSES: u64 = 16;
const DISK_BYTES: u64 = 4 * MIB;
const DISK_INODES: u64 = 128;
const MEMORY_BYTES: u64 = 64 * MIB;
const SPIN_MS: u64 = 300;
/// For all attempts together, on a slow and busy machine.
const ATTEMPTS_MS: u64 = 25_000;

/// The functions of `attempts.py`, and what each proves.
const ATTEMPTS_IN_SANDBOX: [(&str, &str); 23] = [
    ("host_files", "files of the host cannot be opened"),
    ("read_only", "the system cannot be written to"),
    ("landlock", "Landlock refuses by itself"),
    ("mount", "nothing can be mounted"),
    ("user_namespace", "no second user namespace"),
    ("other_namespace", "no other namespace can be entered"),
    ("processes", "no process of the host is seen"),
    ("signals", "init cannot be killed"),
    ("ptrace", "no process can be traced"),
    ("socket_families", "no sockets to kernel or hypervisor"),
    ("network", "neither host nor network is reached"),
    ("identity", "nobody becomes root"),
    ("capabilities", "there are no capabilities"),
    ("seccomp", "the filter on system calls is on"),
    ("no_new_privs", "setuid programs give nothing"),
    ("rlimits", "limits cannot be raised"),
    ("process_limit", "a fork bomb ends at the limit"),
    ("disk_limit", "a growing file ends at the limit"),
    ("inode_limit", "too many files end at the limit"),
    ("workspace", "yet files can be written"),
    ("loopback", "yet its own loopback works"),
    ("child_process", "yet programs can be started"),
    ("thread", "yet threads can be started"),
];

/// Instead of those that count and start processes, where an environment has none.
const NO_PROCESSES: (&str, &str) = ("no_processes", "no process can be started");
const WITH_PROCESSES: [&str; 2] = ["process_limit", "child_process"];

type Attempts = Vec<(&'static str, &'static str)>;

fn attempts(has_processes: bool) -> Attempts {
    if has_processes {
        return ATTEMPTS_IN_SANDBOX.into();
    }
    let others = ATTEMPTS_IN_SANDBOX.into_iter().filter(|(name, _)| !WITH_PROCESSES.contains(name));
    others.chain([NO_PROCESSES]).collect()
}

/// The engine rejects an unknown environment later.
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
            claim: "memory ends at the limit",
            // Slowly enough for a watchdog that looks twenty times a second.
            code: "import time\nkept = []\nwhile True:\n    kept.append(b'x' * 2**20)\n    time.sleep(0.002)",
            limits: LimitsRequest { memory_bytes: Some(MEMORY_BYTES), ..limits },
            error_code: types::ErrorCode::MemoryExceeded,
        },
        LimitAttempt {
            name: "time_limit",
            claim: "time ends at the limit",
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
    /// Why there was no sandbox.
    pub(super) refused: Option<String>,
}

pub(super) async fn prove_layers(config: Config, environment: &str) -> SandboxTrial {
    let has_processes = has_processes(&config.data, environment);
    let proofs = run_attempts(config, environment, has_processes).await;
    let environment = environment.to_owned();
    match proofs {
        Ok(proofs) => SandboxTrial { environment, proofs, refused: None },
        Err(fault) => {
            let refused = Some(terminal::for_stdout(&fault.message.replace('\n', " ")));
            SandboxTrial { proofs: not_tried(has_processes), environment, refused }
        }
    }
}

fn not_tried(has_processes: bool) -> Vec<Proof> {
    let outcome = ProofOutcome::NotTried;
    let inside = attempts(has_processes)
        .into_iter()
        .chain(limit_attempts().map(|endless| (endless.name, endless.claim)));
    inside.map(|(name, says)| Proof { name, says, outcome, saw: String::new() }).collect()
}

async fn run_attempts(
    config: Config,
    environment: &str,
    has_processes: bool,
) -> Result<Vec<Proof>, Error> {
    let bait = HostCanaries::create(&config.data).map_err(|error| {
        Error::new(types::ErrorCode::SandboxUnreachable, format!("nothing to look for: {error}"))
    })?;
    let engine = Engine::start(config);
    engine.prepare(environment, progress::progress_printer()).await?;
    let limits = LimitsRequest {
        wall_ms: Some(ATTEMPTS_MS),
        processes: Some(PROCESSES),
        disk_bytes: Some(DISK_BYTES),
        disk_inodes: Some(DISK_INODES),
        ..LimitsRequest::default()
    };
    let code = format!("HOST = {}\n{ATTEMPTS}", bait.to_python_literal(has_processes));
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
    saw: String,
}

fn proofs_of(execution: &Execution, attempts: Attempts) -> Vec<Proof> {
    let pieces = execution.output.iter().filter(|piece| piece.stream == OutputStream::Stdout);
    let printed: String = pieces.map(|piece| piece.text.as_str()).collect();
    let mut answers: Vec<AttemptResult> =
        printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let silence =
        || execution.error.as_ref().map_or("no answer".into(), |error| error.code.to_string());
    attempts
        .into_iter()
        .map(|(name, says)| {
            let answer = answers.iter().position(|answer| answer.name == name);
            let (proved, saw) = match answer.map(|index| answers.swap_remove(index)) {
                Some(answer) => (answer.proved, answer.saw),
                None => (false, silence()),
            };
            let outcome = if proved { ProofOutcome::Proved } else { ProofOutcome::NotProved };
            Proof { name, says, outcome, saw: terminal::for_stdout(&saw.replace('\n', " ")) }
        })
        .collect()
}

fn limit_proof(endless: &LimitAttempt, execution: &Execution) -> Proof {
    let ended_by = execution.error.as_ref().map(|fault| &fault.code);
    let held = ended_by == Some(&endless.error_code);
    Proof {
        name: endless.name,
        says: endless.claim,
        outcome: if held { ProofOutcome::Proved } else { ProofOutcome::NotProved },
        saw: match ended_by {
            Some(code) => format!("{code} after {} ms", execution.usage.wall_ms),
            None => "it went on".into(),
        },
    }
}

/// What is there on the host for code to find, gone when this is dropped.
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

    /// As a Python literal, which this JSON is.
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
