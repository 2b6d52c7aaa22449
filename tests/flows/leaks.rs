//! T65, the part that concerns sandboxes: a thousand runs leave nothing behind. By hand,
//! `BELLJAR_LEAK_RUNS=10000`.

use crate::harness::{self, cgroups_of, descendants_of, printed, soon, wait};
use engine::{Command, Config, Engine};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use types::{LimitsRequest, OutputStream};

/// Everything that a run could leave, counted for this process and all below it.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    processes: usize,
    zombies: usize,
    descriptors: usize,
    cgroups: usize,
    mounts: usize,
    network_namespaces: usize,
    files: usize,
}

impl Held {
    fn now() -> Self {
        let own = std::process::id();
        let below = descendants_of(own);
        let network = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        Self {
            zombies: below.iter().filter(|pid| harness::is_zombie(**pid)).count(),
            network_namespaces: below.iter().filter_map(network).collect::<BTreeSet<_>>().len(),
            processes: below.len(),
            descriptors: count("/proc/self/fd"),
            cgroups: cgroups_of(own).iter().map(|group| 1 + groups_in(group)).sum(),
            mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
            files: files_below(&std::env::temp_dir()),
        }
    }
}

fn count(directory: impl AsRef<Path>) -> usize {
    std::fs::read_dir(directory).map_or(0, Iterator::count)
}

fn groups_in(group: &Path) -> usize {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).count()
}

fn files_below(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let below = |path: &Path| if path.is_dir() { files_below(path) } else { 0 };
    entries.map(|entry| 1 + below(&entry.path())).sum()
}

/// Its data is among the temporary files, which are counted.
fn config(data: &tempfile::TempDir) -> Config {
    Config { data: data.path().into(), ..harness::config() }
}

/// Waits for the stock of jails to be full again, and returns what is held then.
async fn at_rest(expected: Option<&Held>) -> Held {
    let held = async || Held::now();
    wait::at_rest(Duration::from_millis(300), "what the program holds", held).await;
    soon(Duration::from_secs(10), || match expected {
        Some(expected) => Held::now() == *expected,
        None => Held::now().zombies == 0,
    });
    Held::now()
}

#[test]
fn t65_a_thousand_runs_leave_nothing() {
    harness::in_a_process_of_its_own("leaks::alone_a_thousand_runs");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "counts what the whole program holds; t65_a_thousand_runs_leave_nothing runs it"]
async fn alone_a_thousand_runs() {
    let runs = std::env::var("BELLJAR_LEAK_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs: usize = runs.unwrap_or(1000);
    let data = tempfile::tempdir().unwrap();
    let engine = Engine::start(config(&data));
    for run in 0..50 {
        endings(&engine, run).await;
    }
    let before = at_rest(None).await;
    let mut clients = Vec::new();
    for client in 0..4 {
        let engine = Arc::clone(&engine);
        clients.push(tokio::spawn(async move {
            for run in 0..runs / 4 {
                endings(&engine, client + run).await;
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(at_rest(Some(&before)).await, before);
}

/// One run; every fiftieth ends in another way than by returning.
async fn endings(engine: &Arc<Engine>, run: usize) {
    match run % 50 {
        10..=12 => abandoned(engine, Duration::from_millis(run as u64 % 25)).await,
        20 => _ = harness::run(engine, "import os\nos.kill(os.getpid(), 9)").await,
        30 => {
            let limits = LimitsRequest { wall_ms: Some(50), ..LimitsRequest::default() };
            let command = Command { limits, ..harness::command("bare", "while True: pass") };
            harness::run_with(engine, command).await;
        }
        40 => {
            let code = "import subprocess\nfor _ in range(5): subprocess.Popen(['sleep', '600'])";
            harness::run(engine, code).await;
        }
        _ => {
            let execution = harness::run(engine, "open('f', 'w').write('x')\nprint(1)").await;
            assert_eq!(printed(&execution, OutputStream::Stdout), "1\n");
        }
    }
}

/// The caller disconnects: before there is a sandbox, while it is spawned, or while it runs.
async fn abandoned(engine: &Arc<Engine>, after: Duration) {
    let other = Arc::clone(engine);
    let running = tokio::spawn(async move { harness::run(&other, "while True: pass").await });
    wait::any_moment(after).await;
    running.abort();
    let _ = running.await;
}

#[test]
fn t65_an_engine_that_ends_leaves_nothing() {
    harness::in_a_process_of_its_own("leaks::alone_an_engine_that_ends");
}

#[test]
#[ignore = "counts what the whole program holds; t65_an_engine_that_ends_leaves_nothing runs it"]
fn alone_an_engine_that_ends() {
    let data = tempfile::tempdir().unwrap();
    let mut held = Vec::new();
    for _ in 0..6 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let engine = Engine::start(config(&data));
            let session = harness::open(&engine, "bare").await;
            harness::run_in(&engine, session, "print(1)").await;
        });
        drop(runtime);
        soon(Duration::from_secs(5), || alive(Held::now()).processes == 0);
        held.push(alive(Held::now()));
    }
    assert_eq!((held[0].processes, held[0].cgroups), (0, 0));
    assert_eq!(held[5], held[1]);
}

/// The runtime that would have taken note of the launcher's end is gone with the engine.
fn alive(held: Held) -> Held {
    Held { processes: held.processes - held.zombies, zombies: 0, ..held }
}
