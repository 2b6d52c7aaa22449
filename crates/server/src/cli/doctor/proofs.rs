//! A real sandbox, and code in it that tries what each wall forbids.

use super::super::{progress, terminal};
use super::report::{Outcome, Proof};
use engine::{Code, Command, Config, Engine, Entry, Environments, Processes};
use serde::Deserialize;
use serde_json::json;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};
use types::{Execution, Fault, LimitsRequest, Stream};

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
const INSIDE: [(&str, &str); 23] = [
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
        return INSIDE.into();
    }
    let others = INSIDE.into_iter().filter(|(name, _)| !WITH_PROCESSES.contains(name));
    others.chain([NO_PROCESSES]).collect()
}

/// An unknown environment is refused later, and by whoever knows them all.
fn has_processes(data: &Path, environment: &str) -> bool {
    let recipe = Environments::open(data).and_then(|known| known.find(environment));
    !recipe.is_ok_and(|it| it.definition.processes == Processes::Deny)
}

/// Code that never ends by itself, and the fault that has to end it.
struct Endless {
    name: &'static str,
    says: &'static str,
    code: &'static str,
    limits: LimitsRequest,
    fault: types::Code,
}

fn endless() -> [Endless; 2] {
    let limits = LimitsRequest::default();
    [
        Endless {
            name: "memory_limit",
            says: "memory ends at the limit",
            // Slowly enough for a watchdog that looks twenty times a second.
            code: "import time\nkept = []\nwhile True:\n    kept.append(b'x' * 2**20)\n    time.sleep(0.002)",
            limits: LimitsRequest { memory_bytes: Some(MEMORY_BYTES), ..limits },
            fault: types::Code::MemoryExceeded,
        },
        Endless {
            name: "time_limit",
            says: "time ends at the limit",
            code: "while True:\n    pass",
            limits: LimitsRequest { wall_ms: Some(SPIN_MS), ..limits },
            fault: types::Code::TimeExceeded,
        },
    ]
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) environment: String,
    pub(super) proofs: Vec<Proof>,
    /// Why there was no sandbox.
    pub(super) refused: Option<String>,
}

pub(super) async fn attempt(config: Config, environment: &str) -> Trial {
    let has_processes = has_processes(&config.data, environment);
    let proofs = try_all(config, environment, has_processes).await;
    let environment = environment.to_owned();
    match proofs {
        Ok(proofs) => Trial { environment, proofs, refused: None },
        Err(fault) => {
            let refused = Some(terminal::for_stdout(&fault.message.replace('\n', " ")));
            Trial { proofs: not_tried(has_processes), environment, refused }
        }
    }
}

fn not_tried(has_processes: bool) -> Vec<Proof> {
    let outcome = Outcome::NotTried;
    let inside = attempts(has_processes)
        .into_iter()
        .chain(endless().map(|endless| (endless.name, endless.says)));
    inside.map(|(name, says)| Proof { name, says, outcome, saw: String::new() }).collect()
}

async fn try_all(
    config: Config,
    environment: &str,
    has_processes: bool,
) -> Result<Vec<Proof>, Fault> {
    let bait = Bait::lay(&config.data).map_err(|error| {
        Fault::new(types::Code::SandboxUnreachable, format!("nothing to look for: {error}"))
    })?;
    let engine = Engine::start(config);
    engine.prepare(environment, progress::show()).await?;
    let limits = LimitsRequest {
        wall_ms: Some(ATTEMPTS_MS),
        processes: Some(PROCESSES),
        disk_bytes: Some(DISK_BYTES),
        disk_inodes: Some(DISK_INODES),
        ..LimitsRequest::default()
    };
    let code = format!("HOST = {}\n{ATTEMPTS}", bait.described(has_processes));
    let ran = run(&engine, environment, code, limits).await?;
    let mut proofs = judge(&ran, attempts(has_processes));
    for endless in endless() {
        let run = run(&engine, environment, endless.code.to_owned(), endless.limits).await?;
        proofs.push(judge_end(&endless, &run));
    }
    Ok(proofs)
}

async fn run(
    engine: &Arc<Engine>,
    environment: &str,
    code: String,
    limits: LimitsRequest,
) -> Result<Execution, Fault> {
    let code = Code::new(code.into_bytes())
        .map_err(|error| Fault::new(types::Code::ArgsInvalid, error.to_string()))?;
    let command = Command { limits, ..Command::new(environment, Entry::Cell(code)) };
    Ok(engine.run(command, &mut |_| {}).await?.execution)
}

/// One line that `attempts.py` prints.
#[derive(Deserialize)]
struct Answer {
    name: String,
    proved: bool,
    saw: String,
}

fn judge(execution: &Execution, attempts: Attempts) -> Vec<Proof> {
    let pieces = execution.output.iter().filter(|piece| piece.stream == Stream::Stdout);
    let printed: String = pieces.map(|piece| piece.text.as_str()).collect();
    let mut answers: Vec<Answer> =
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
            let outcome = if proved { Outcome::Proved } else { Outcome::NotProved };
            Proof { name, says, outcome, saw: terminal::for_stdout(&saw.replace('\n', " ")) }
        })
        .collect()
}

fn judge_end(endless: &Endless, execution: &Execution) -> Proof {
    let ended_by = execution.error.as_ref().map(|fault| &fault.code);
    let held = ended_by == Some(&endless.fault);
    Proof {
        name: endless.name,
        says: endless.says,
        outcome: if held { Outcome::Proved } else { Outcome::NotProved },
        saw: match ended_by {
            Some(code) => format!("{code} after {} ms", execution.usage.wall_ms),
            None => "it went on".into(),
        },
    }
}

/// What is there on the host for code to find, gone when this is dropped.
struct Bait {
    canary: PathBuf,
    port: TcpListener,
    socket: String,
    _listener: UnixListener,
}

impl Bait {
    fn lay(data: &Path) -> io::Result<Self> {
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
    fn described(&self, has_processes: bool) -> String {
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

impl Drop for Bait {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.canary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_proof_has_its_attempt() {
        for (name, _) in INSIDE.into_iter().chain([NO_PROCESSES]) {
            assert!(ATTEMPTS.contains(&format!("\ndef {name}():\n")), "{name}");
        }
    }
}
