//! T11 to T15: attacks through the zygote. All sandboxes are copies of it, and none may inherit a state that
//! another one has too, or data of the server.

use crate::fixtures::{
    ModifiedRunner, Process, answer, config_with, ended, is_root, malicious, modified_runner,
    own_descriptors, printed_in, said, spawn, still_serves, warm_zygote_host_config,
    zygote_host_config,
};
use crate::harness::{self, wait};
use engine::{Config, Engine, RunnerSource};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbox::{ExitCause, ZygoteHost, ZygoteHostConfig};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::Limits;

/// Every generator is used in the zygote as well, so that each has a state that could be copied.
const DRAW: &str = include_str!("inside/draw.py");
/// Known gaps: the runner does not renew these, and nothing that is preloaded draws from them.
/// libuuid keeps its node and clock, SQLite its generator (for databases in memory).
const NOT_RENEWED: [&str; 2] = ["sqlite", "uuid1"];
const AT_A_TIME: usize = 6;

/// A runner whose zygote has drawn from every generator before it forks, and what else is edited.
fn used_up(edits: &[(&str, &str, &str)]) -> (ModifiedRunner, RunnerSource) {
    let indented: String = DRAW.lines().map(|line| format!("    {line}\n")).collect();
    let drawn = format!("{}    draw()\n    _settle_memory()\n", indented.trim_start());
    let first = [("zygote.py", "_settle_memory()\n", drawn.as_str())];
    modified_runner(&[&first, edits].concat())
}

async fn draws(
    engine: &Arc<Engine>,
    environment: &str,
    count: usize,
) -> Vec<BTreeMap<String, Value>> {
    let mut all = Vec::new();
    let code = format!("{DRAW}\nimport json\nprint(json.dumps(draw()))");
    while all.len() < count {
        let batch = (0..AT_A_TIME.min(count - all.len())).map(|_| {
            let (engine, command) = (Arc::clone(engine), harness::command(environment, &code));
            tokio::spawn(async move { said(&harness::run_with(&engine, command).await.execution) })
        });
        for drawn in batch.collect::<Vec<_>>() {
            all.push(serde_json::from_str(&drawn.await.unwrap()).unwrap());
        }
    }
    all
}

/// The generators that have given the same value twice.
fn repeating(draws: &[BTreeMap<String, Value>]) -> BTreeSet<&str> {
    let mut seen = BTreeSet::new();
    let all = draws.iter().flatten();
    all.filter(|(name, value)| !seen.insert((name.as_str(), value.to_string())))
        .map(|(name, _)| name.as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t11_thousand_forks_no_collision() {
    let engine = Engine::start(harness::warm_config());
    let draws = draws(&engine, "default", 1_000).await;
    assert!(draws.iter().all(|drawn| drawn.len() >= 11), "{:?}", draws.first());
    assert_eq!(repeating(&draws), BTreeSet::new());
}

/// Modules of an environment might draw when they are imported. Then every generator has a state
/// that could be copied.
#[tokio::test(flavor = "multi_thread")]
async fn t11_no_collision_even_if_the_zygote_has_drawn() {
    let (_source, runner) = used_up(&[]);
    let engine = Engine::start(Config { runner, ..harness::warm_config() });
    let draws = draws(&engine, "default", 60).await;
    let repeating = repeating(&draws);
    let new: Vec<_> = repeating.iter().filter(|name| !NOT_RENEWED.contains(name)).collect();
    assert!(new.is_empty(), "{new:?}");
}

/// The control of the test above: with a runner that only says that it has reseeded, the sandboxes
/// do draw the same, and it is seen.
#[tokio::test(flavor = "multi_thread")]
async fn t11_a_lie_about_reseeding_would_be_seen() {
    let lie = "return ['random', 'tempfile', 'numpy', 'ssl', 'uuid', 'multiprocessing']
    random.seed()";
    let (_source, runner) = used_up(&[("belljar_runner/reseed.py", "random.seed()", lie)]);
    let engine = Engine::start(config_with(runner));
    let draws = draws(&engine, "bare", 2).await;
    let mut repeating = repeating(&draws);
    // It has the time in it, so that it repeats only for those who draw in the same moment.
    repeating.remove("uuid1");
    assert_eq!(repeating, BTreeSet::from(["authkey", "sqlite"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn t11_what_was_not_reseeded_does_not_serve() {
    let file = "belljar_runner/reseed.py";
    for edit in [
        (file, "random.seed()", "return []"),
        (file, "random.seed()", "return ['random']"),
        (file, "random.seed()", "raise OSError('no entropy')"),
        ("belljar_runner/session.py", "\"reseeded\": reseeded", "\"reseeded\": []"),
    ] {
        let (_source, runner) = modified_runner(&[edit]);
        let engine = Engine::start(config_with(runner));
        let refused = engine.run(harness::command("bare", "print(1)"), &mut |_| {}).await;
        let error = refused.expect_err("it must not have run");
        assert_eq!(error.code.to_string(), "sandbox.unreachable", "{edit:?}");
    }
    still_serves(&Engine::start(harness::config())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t12_zygote_rotates() {
    // Where libc lies: a Python that is not built to be moved lies always in the same place itself.
    const LOOK: &str = "print(hash('belljar'), ctypes.cast(_libc.lcong48, ctypes.c_void_p).value)";
    let engine = Engine::start(Config { rotate_after_spawns: 15, ..harness::config() });
    let (mut seeds, mut layouts, mut runs) = (BTreeSet::new(), BTreeSet::new(), 0);
    let start = Instant::now();
    while seeds.len() < 4 && start.elapsed() < Duration::from_secs(60) {
        let batch = (0..AT_A_TIME).map(|_| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move { answer(&engine, LOOK).await })
        });
        for seen in batch.collect::<Vec<_>>() {
            // Every one has to be answered, whether a zygote is being replaced or not.
            let seen = seen.await.unwrap();
            let (seed, layout) = seen.split_once(' ').unwrap();
            seeds.insert(seed.to_owned());
            layouts.insert(layout.to_owned());
            runs += 1;
        }
    }
    assert!(seeds.len() >= 4, "{} seeds after {runs} runs", seeds.len());
    assert_eq!(layouts.len(), seeds.len());
    // The twin: without rotation there is one zygote for all.
    let engine = Engine::start(harness::config());
    assert_eq!(answer(&engine, LOOK).await, answer(&engine, LOOK).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_fd_table_is_exact() {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    // Without the close-on-exec flag, as a careless library would open them.
    let leaked: Vec<_> = (0..1_000).map(|_| rustix::io::dup(std::io::stdin()).unwrap()).collect();
    assert!(own_descriptors() >= 1_000);

    let zygote_host = ZygoteHost::start(zygote_host_config(&RunnerSource::Embedded)).await.unwrap();
    let mut sandbox = spawn(&zygote_host).await;
    let interpreter = Process::of(&sandbox);
    // The runner keeps copies of the first three, to put them back if code has closed them.
    assert_eq!(interpreter.descriptors(), BTreeSet::from([0, 1, 2, 3, 100, 101, 102]));
    let target = |number: u32| fs::read_link(interpreter.path(&format!("fd/{number}"))).unwrap();
    for number in 0..3 {
        assert_eq!(target(number), target(100 + number));
    }
    let warden = interpreter.parent().unwrap();
    let others = warden.descendants().into_iter().filter(|process| *process != interpreter);
    // One without a filter is an init that is not at its end with its preparations.
    let (zygotes, inits): (Vec<_>, Vec<_>) = others.partition(|process| process.is_zygote());
    assert_eq!(zygotes.len(), 1);
    // It lets go of what it has handed on a moment after the sandbox speaks.
    let has_let_go = async || zygotes[0].descriptors().len() <= 4;
    wait::until("the zygote has let go", has_let_go).await;
    assert_eq!(zygotes[0].descriptors(), BTreeSet::from([0, 1, 2, 3]));
    let sealed = inits.into_iter().filter(|process| process.is_filtered()).collect::<Vec<_>>();
    assert!(!sealed.is_empty() && sealed.iter().all(|init| init.descriptors().is_empty()));
    drop(leaked);
    // The last low one in each is that of the listing itself. A program that is started has no
    // channel and no copies, and a child of a fork has no channel.
    let inside = "
import subprocess
look = 'import os; print(*sorted(os.listdir(\"/proc/self/fd\"), key=int), flush=True)'
exec(look)
subprocess.run([sys.executable, '-c', look])
if os.fork() == 0:
    exec(look)
    os._exit(0)
os.wait()";
    let base =
        printed_in(&mut sandbox, "print(*sorted(os.listdir('/proc/self/fd'), key=int))").await;
    assert_eq!(base, "0 1 2 3 4 100 101 102");
    assert_eq!(
        printed_in(&mut sandbox, inside).await,
        "0 1 2 3 4 100 101 102\n0 1 2 3\n0 1 2 3 100 101 102"
    );
}

/// Six secrets in six places of a process that starts a sandbox; none may reach anything below it
/// but the one that the code itself is.
#[test]
fn t14_zygote_has_no_secret() {
    // Put together here, so that no text of this program has them whole.
    let canary = |name: &str| format!("canary-{name}-{}", "5f2c9e".repeat(3));
    let places = tempfile::tempdir().unwrap();
    let key_file = places.path().join("key");
    fs::write(&key_file, canary("file")).unwrap();
    let code = format!(
        "import time; kept = {:?}; print('up', flush=True); time.sleep(30)",
        canary("code")
    );
    let mut supervisor = harness::belljar(&["exec", "--env", "bare", "--file"])
        .arg(&key_file)
        .arg("--out")
        .arg(places.path().join(canary("argument")))
        .arg(&code)
        .env("BELLJAR_MASTER_KEY", canary("master"))
        .env("DATABASE_URL", canary("database"))
        .env("AWS_SECRET_ACCESS_KEY", canary("cloud"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    supervisor.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();

    let names = ["master", "database", "cloud", "argument", "file", "code"];
    let found = |process: Process| -> BTreeSet<&str> {
        let memory = memory_of(process);
        let has = |name: &&str, at: &[u8]| at.starts_with(canary(name).as_bytes());
        let places = places_of(&memory, b"canary-");
        places.flat_map(|at| names.into_iter().filter(move |name| has(name, at))).collect()
    };
    let supervisor_process = Process(supervisor.id());
    let below = supervisor_process.descendants();
    let (inside, ours): (Vec<Process>, Vec<Process>) = below
        .into_iter()
        .partition(|process| process.command_line().contains("zygote.py") && !process.is_zygote());
    let zygotes = ours.iter().filter(|process| process.is_zygote()).count();
    let leaks: Vec<_> =
        ours.iter().map(|process| (process.command_line(), found(*process))).collect();
    // The twins: the same scan finds what is there.
    let known: Vec<_> =
        [supervisor_process].iter().chain(&inside).map(|process| found(*process)).collect();
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();

    assert_eq!((zygotes, inside.len()), (1, 1));
    assert!(ours.len() >= 3, "launcher, warden, zygote: {leaks:?}");
    assert!(leaks.iter().all(|(_, found)| found.is_empty()), "{leaks:?}");
    assert_eq!(known[0], BTreeSet::from(names));
    assert_eq!(known[1], BTreeSet::from(["code"]));
}

/// Environment, command line, and every mapping that can be read.
fn memory_of(process: Process) -> Vec<u8> {
    let mut memory = fs::read(process.path("environ")).unwrap_or_default();
    memory.extend(fs::read(process.path("cmdline")).unwrap_or_default());
    let opened = (fs::read_to_string(process.path("maps")), File::open(process.path("mem")));
    let (Ok(maps), Ok(mut source)) = opened else {
        // A process that has ended has no memory; any other can be read.
        let status = fs::read_to_string(process.path("status")).unwrap_or_default();
        assert!(status.is_empty() || status.contains("State:\tZ"), "{status}");
        return memory;
    };
    for line in maps.lines().filter(|line| line.contains(" r")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let parsed =
            range.map(|(from, to)| (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)));
        if let Some((Ok(from), Ok(to))) = parsed
            && !line.ends_with("[vvar]")
            && !line.ends_with("[vsyscall]")
            && source.seek(SeekFrom::Start(from)).is_ok()
        {
            let _ = source.by_ref().take(to - from).read_to_end(&mut memory);
        }
    }
    assert!(memory.len() > 100_000, "{} could not be read", process.command_line());
    memory
}

/// Looked for once: there are hundreds of megabytes, and the supervisor does not wait.
fn places_of<'a>(memory: &'a [u8], beginning: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let starts = memory.iter().enumerate().filter(|(_, byte)| **byte == beginning[0]);
    starts.map(|(index, _)| &memory[index..]).filter(|at| at.starts_with(beginning))
}

/// `BELLJAR_T15_FORKS=10000` is the whole of it; a tenth of the time finds most of what it finds.
#[tokio::test(flavor = "multi_thread")]
async fn t15_fork_under_load_no_deadlock() {
    const PATIENCE: Duration = Duration::from_secs(10);
    let asked = std::env::var("BELLJAR_T15_FORKS").ok();
    let forks: usize = asked.map_or(2_000, |asked| asked.parse().unwrap());
    let zygote_host = ZygoteHost::start(warm_zygote_host_config()).await.unwrap();
    let first = spawn(&zygote_host).await;
    let warden = Process::of(&first).parent().unwrap();
    let zygote = warden.descendants().into_iter().find(|process| process.is_zygote()).unwrap();
    for round in 0..forks / AT_A_TIME {
        let batch = (0..AT_A_TIME).map(|_| {
            let zygote_host = Arc::clone(&zygote_host);
            tokio::spawn(async move {
                let mut sandbox = zygote_host.spawn(&Limits::DEFAULT, &[]).await.unwrap();
                if round % 25 == 0 {
                    let code =
                        "import numpy, pandas, ssl; print(int(numpy.ones(9) @ numpy.ones(9)))";
                    assert_eq!(printed_in(&mut sandbox, code).await, "9");
                }
                sandbox.end().await;
            })
        });
        for birth in batch.collect::<Vec<_>>() {
            tokio::time::timeout(PATIENCE, birth).await.expect("a fork hangs").unwrap();
        }
        assert_eq!(zygote.status().get("Threads").map(String::as_str), Some("1"));
    }
    first.end().await;
}

/// The other half of T15: nothing of what a sandbox does comes back to the zygote.
// proves S-023
#[tokio::test(flavor = "multi_thread")]
async fn t15_children_never_change_the_zygote() {
    let engine = Engine::start(harness::config());
    let change = "
import builtins, decimal, locale, random
builtins.left = 1; sys.path.append('/left'); os.environ['LEFT'] = '1'; json.left = 1
random.seed(1); sys.setrecursionlimit(5000); os.chdir('/tmp'); os.umask(0); signal.alarm(1000)
print('changed')";
    let look = "
import builtins
print(hasattr(builtins, 'left'), '/left' in sys.path, 'LEFT' in os.environ, hasattr(json, 'left'),
      sys.getrecursionlimit(), os.getcwd(), os.umask(0), signal.alarm(0))";
    let pristine = answer(&engine, look).await;
    assert_eq!(pristine, "False False False False 1000 /workspace 18 0");
    assert_eq!(answer(&engine, change).await, "changed");
    assert_eq!(answer(&engine, look).await, pristine);
    // A runner that falls out of its own loop must not become a second zygote.
    let (_source, runner) = malicious("channel.close(); return");
    let engine = Engine::start(config_with(runner));
    let execution = harness::run(&engine, "print(1)").await;
    assert_eq!(execution.error.unwrap().code.to_string(), "sandbox.crashed");
}

/// Makes the next process of the pid namespace of `inside` have the number after this one.
fn set_last_pid(inside: Process, last: i32) {
    let write = format!("echo {last} > /proc/sys/kernel/ns_last_pid");
    let target = inside.0.to_string();
    // An ordinary user may do it as the owner of the user namespace that the other one belongs to.
    let as_owner: &[&str] = if is_root() { &[] } else { &["--user", "--preserve-credentials"] };
    let set = std::process::Command::new("nsenter")
        .args(["--target", &target, "--pid"])
        .args(as_owner)
        .args(["sh", "-c", &write])
        .output()
        .unwrap();
    assert!(set.status.success(), "{}", harness::stderr(&set));
}

/// T82: numbers of processes are used again, and code inside can bring that about by forking.
#[tokio::test(flavor = "multi_thread")]
async fn t82_an_execution_has_its_own_exit_status_when_pids_come_round() {
    let config = ZygoteHostConfig { jails_ready: 0, ..zygote_host_config(&RunnerSource::Embedded) };
    let zygote_host = ZygoteHost::start(config).await.unwrap();
    let mut reused = 0;
    for _ in 0..20 {
        // Killed, which is not how the next one ends.
        let first = spawn(&zygote_host).await;
        let (pid, warden) = (first.pid(), Process::of(&first).parent().unwrap());
        first.end().await;
        // The init of the next jail comes before its interpreter.
        set_last_pid(warden, pid - 2);
        let mut second = spawn(&zygote_host).await;
        reused += u32::from(second.pid() == pid);
        let ending = ended(&mut second, "import os\nos._exit(7)").await;
        let exit_code = 7 << 8;
        assert!(
            matches!(ending, ExitCause::Died { status: Some(status) } if status == exit_code),
            "{ending:?}"
        );
        second.end().await;
        // The twin: what ends by itself is told as what it was, whichever process had the pid before.
        let mut third = spawn(&zygote_host).await;
        assert_eq!(printed_in(&mut third, "print(6 * 7)").await, "42");
        third.end().await;
    }
    assert!(reused > 10, "the number came round {reused} times only");
}
