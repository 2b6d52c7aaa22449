//! T80, T83 and T84: a sandbox that ends slowly, a zygote that hangs and a warden that hangs delay their own
//! executions for a bounded time, and no others.

use crate::harness::{
    self, descendants_of, error_code, has_ended, open, parent_of, printed, run_in, wait,
};
use engine::{Command, Engine};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use types::{ExecutionStatus, LimitsRequest, OutputStream, SandboxId};

/// Longer than any answer takes here, and shorter than for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// A group of processes that do not run and cannot be killed until this is dropped: the one way to have
/// an end that is slow for as long as a test wants. Only cgroup v1 has it, and only for root.
struct Freezer(PathBuf);

impl Freezer {
    fn new() -> Self {
        let group = Path::new("/sys/fs/cgroup/freezer").join(format!("t80-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        Self(group)
    }

    fn freeze(&self, pids: &[u32]) {
        for pid in pids {
            fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        fs::write(self.0.join("freezer.state"), "FROZEN").unwrap();
    }

    fn thaw(&self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        harness::soon(Duration::from_secs(10), || fs::remove_dir(&self.0).is_ok());
    }
}

/// The processes below this one whose command line has this in it.
fn called(name: &str) -> Vec<u32> {
    let line = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    descendants_of(std::process::id()).into_iter().filter(|pid| line(pid).contains(name)).collect()
}

/// The warden is the child of a launcher of the same name, the zygote a child of the warden that has no
/// filter, unlike the sandboxes that were forked from it.
fn wardens() -> Vec<u32> {
    let named = called("__warden");
    let launchers = |pid: &u32| parent_of(*pid) == Some(std::process::id());
    let is_warden =
        |pid: &u32| parent_of(*pid).is_some_and(|of| launchers(&of) && named.contains(&of));
    named.iter().copied().filter(is_warden).collect()
}

fn zygotes() -> Vec<u32> {
    let filtered = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line == "Seccomp:\t2")
    };
    called("zygote.py").into_iter().filter(|pid| !filtered(pid) && !has_ended(*pid)).collect()
}

fn stop(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::STOP).unwrap();
}

async fn says(engine: &Arc<Engine>, session: SandboxId, code: &str) -> String {
    printed(&run_in(engine, session, code).await, OutputStream::Stdout)
}

/// A fresh run, which has to be answered.
async fn fresh(engine: &Arc<Engine>, code: &str) -> String {
    let answer = timeout(PATIENCE, harness::run(engine, code)).await;
    printed(&answer.unwrap_or_else(|_| panic!("no answer to {code}")), OutputStream::Stdout)
}

#[test]
#[cfg_attr(not(test_freezer), ignore = "needs the freezer of cgroup v1 and root")]
fn t80_the_slow_end_of_a_sandbox_delays_no_other_run() {
    harness::in_a_process_of_its_own("hangs::alone_slow_ends");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "freezes what this program started; t80_the_slow_end_of_a_sandbox_... runs it"]
async fn alone_slow_ends() {
    let freezer = Freezer::new();
    let engine = Engine::start(harness::config());
    let kept = open(&engine, "bare").await;
    run_in(&engine, kept, "kept = 1").await;
    let before = called("sleep");
    let mut slow = Vec::new();
    for _ in 0..8 {
        let session = open(&engine, "bare").await;
        run_in(&engine, session, "import subprocess\nsubprocess.Popen(['sleep', '600.8'])").await;
        slow.push(session);
    }
    let sleepers: Vec<u32> =
        called("sleep").into_iter().filter(|pid| !before.contains(pid)).collect();
    assert_eq!(sleepers.len(), slow.len());
    freezer.freeze(&sleepers);
    let closing = slow.into_iter().map(|session| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { engine.close(session).await })
    });
    let closing: Vec<_> = closing.collect();
    // Longer than a warden may be silent: one that answers is not taken for hung.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(14) {
        assert_eq!(fresh(&engine, "print(6 * 7)").await, "42\n");
    }
    assert!(closing.iter().all(|closing| !closing.is_finished()), "they are answered at their end");
    assert!(sleepers.iter().all(|pid| !has_ended(*pid)));
    freezer.thaw();
    for closed in closing {
        timeout(PATIENCE, closed).await.unwrap().unwrap().unwrap();
    }
    assert!(sleepers.iter().all(|pid| has_ended(*pid)), "nothing outlives the reply");
    assert_eq!(says(&engine, kept, "print(kept)").await, "1\n");
}

/// How long it takes to close a session with many processes and much memory, whose last execution had
/// this share of a core.
async fn closing(engine: &Arc<Engine>, cpu_percent: u64) -> Duration {
    let session = open(engine, "bare").await;
    let code = "import os, time\nx = bytearray(b'x') * (200 << 20)\nwait, go = os.pipe()\n\
                for _ in range(40):\n    if os.fork() == 0:\n        \
                os.close(go)\n        os.read(wait, 1)\n        time.sleep(0.5)\n        \
                open(f'spins-{os.getpid()}', 'w')\n        while True: pass\nprint('up')";
    let up = run_in(engine, session, code).await;
    assert_eq!(printed(&up, OutputStream::Stdout), "up\n", "{up:?}");
    let limits = LimitsRequest { cpu_percent: Some(cpu_percent), ..LimitsRequest::default() };
    let command =
        Command { session: Some(session), limits, ..harness::command("bare", "os.close(go)") };
    harness::run_with(engine, command).await;
    let spins = async || {
        let listed = engine.list_files(session).await.unwrap();
        listed.files.keys().filter(|name| name.starts_with("spins-")).count() == 40
    };
    wait::until("all of them want more than their share", spins).await;
    let began = Instant::now();
    engine.close(session).await.unwrap();
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn t80_what_is_killed_has_its_cpu_back() {
    let engine = Engine::start(harness::config());
    let usual = closing(&engine, 200).await;
    let starved = closing(&engine, 3).await;
    assert!(starved < 4 * usual + Duration::from_secs(10), "{starved:?}, {usual:?} with two cores");
}

#[test]
fn t83_a_zygote_that_hangs_is_replaced_at_its_first_silence() {
    harness::in_a_process_of_its_own("hangs::alone_a_zygote_that_hangs");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "stops what this program started; t83_a_zygote_that_hangs_... runs it"]
async fn alone_a_zygote_that_hangs() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    run_in(&engine, session, "kept = 1").await;
    let [hung] = zygotes()[..] else { panic!("{:?}", zygotes()) };
    stop(hung);
    // All who ask meanwhile are served by the next one.
    let asked = (0..4).map(|_| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { fresh(&engine, "print(6 * 7)").await })
    });
    for answer in asked.collect::<Vec<_>>() {
        assert_eq!(answer.await.unwrap(), "42\n");
    }
    assert!(harness::soon(PATIENCE, || has_ended(hung)), "it is still there");
    let began = Instant::now();
    assert_eq!(fresh(&engine, "print(1)").await, "1\n");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // The twin: what was forked from it lives on.
    assert_eq!(says(&engine, session, "print(kept)").await, "1\n");
}

#[test]
fn t202_a_session_run_that_waits_for_a_new_sandbox_ends_when_it_is_cancelled() {
    harness::in_a_process_of_its_own("hangs::alone_a_cancelled_wait");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "stops what this program started; t202_a_session_run_that_... runs it"]
async fn alone_a_cancelled_wait() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    // Its sandbox is gone: the next run needs a new one.
    assert_eq!(run_in(&engine, session, "import os\nos.kill(os.getpid(), 9)").await.generation, 2);
    let [hung] = zygotes()[..] else { panic!("{:?}", zygotes()) };
    stop(hung);
    let asked = (0..12).map(|_| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { fresh(&engine, "print(6 * 7)").await })
    });
    let asked: Vec<_> = asked.collect();
    let waiting = {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { run_in(&engine, session, "print(1)").await })
    };
    wait::until("the run is cancelled", async || engine.interrupt(session).unwrap()).await;
    let cancelled = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert_eq!(cancelled.status, ExecutionStatus::Cancelled, "{cancelled:?}");
    assert!(!has_ended(hung), "it ended only when the starts went on");
    assert!(asked.iter().any(|asked| !asked.is_finished()), "nobody had to wait");
    // The twin: who was not cancelled is served by the next zygote.
    for answer in asked {
        assert_eq!(answer.await.unwrap(), "42\n");
    }
    assert_eq!(says(&engine, session, "print(2)").await, "2\n");
}

#[test]
fn t84_a_warden_that_hangs_is_ended_and_its_sessions_are_told_to_be_lost() {
    harness::in_a_process_of_its_own("hangs::alone_a_warden_that_hangs");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "stops what this program started; t84_a_warden_that_hangs_... runs it"]
async fn alone_a_warden_that_hangs() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    run_in(&engine, session, "kept = 1").await;
    let [hung] = wardens()[..] else { panic!("{:?}", wardens()) };
    stop(hung);
    // The twin: a session needs no warden as long as its interpreter lives.
    assert_eq!(says(&engine, session, "print(kept)").await, "1\n");
    assert_eq!(fresh(&engine, "print(6 * 7)").await, "42\n");
    assert!(harness::soon(PATIENCE, || has_ended(hung)), "it is still there");
    let lost = run_in(&engine, session, "print(kept)").await;
    assert_eq!((error_code(&lost).as_str(), lost.generation), ("sandbox.crashed", 2), "{lost:?}");
    assert_eq!(says(&engine, session, "print(3)").await, "3\n");
    assert_eq!(fresh(&engine, "print(4)").await, "4\n");
    // One that hangs when no caller needs it any more does not stay either.
    let [other] = wardens()[..] else { panic!("{:?}", wardens()) };
    stop(other);
    timeout(PATIENCE, engine.shutdown(Duration::ZERO)).await.unwrap();
    drop(engine);
    assert!(harness::soon(PATIENCE, || descendants_of(std::process::id())
        .iter()
        .all(|pid| has_ended(*pid))));
}
