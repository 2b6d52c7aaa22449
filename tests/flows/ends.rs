//! T28: every abnormal end has its own status, exit code and error code, keeps the output so far, and leaves the
//! session usable. T27: at the moment of the reply no process of the run is left.

use crate::harness::{self, cgroups_of, descendants_of, error_code, open, printed, run_in, wait};
use engine::Engine;
use std::time::Duration;
use types::{ExecutionStatus, LimitsRequest, OutputStream};

#[derive(Debug, PartialEq)]
struct End {
    status: ExecutionStatus,
    exit_code: i32,
    error_code: &'static str,
    /// Whether the interpreter, with its variables, is still there for the next execution.
    state_kept: bool,
}

/// Runs the code in a session after printing a line, and asserts the end, the line, and that the
/// session serves the next execution.
#[track_caller]
fn ends(code: &str, expected: End) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let engine = Engine::start(harness::config());
        let limits = LimitsRequest { memory_bytes: Some(96 << 20), ..LimitsRequest::default() };
        let session = harness::open_with(&engine, "bare", limits).await;
        run_in(&engine, session, "kept = 1").await;
        let code = format!("print('before', flush=True)\n{code}");
        let execution = run_in(&engine, session, &code).await;
        let error_code = error_code(&execution);
        let next = run_in(&engine, session, "print('kept' in globals())").await;
        let state_kept = printed(&next, OutputStream::Stdout) == "True\n";
        assert_eq!(next.status, ExecutionStatus::Succeeded, "{next:?}");
        assert_eq!(next.generation, if state_kept { 1 } else { 2 });
        assert_eq!(
            (execution.status, execution.exit_code, error_code.as_str(), state_kept),
            (expected.status, Some(expected.exit_code), expected.error_code, expected.state_kept),
            "{execution:?}"
        );
        assert_eq!(printed(&execution, OutputStream::Stdout), "before\n");
    });
}

fn failed(exit_code: i32, error_code: &'static str) -> End {
    End { status: ExecutionStatus::Failed, exit_code, error_code, state_kept: false }
}

fn raised(exit_code: i32, error_code: &'static str) -> End {
    End { state_kept: true, ..failed(exit_code, error_code) }
}

#[test]
fn t28_a_segmentation_fault() {
    ends("import ctypes\nctypes.string_at(0)", failed(139, "sandbox.crashed"));
}

#[test]
fn t28_an_abort() {
    ends("import os\nos.abort()", failed(134, "sandbox.crashed"));
}

#[test]
fn t28_a_kill_by_the_code_itself() {
    ends("import os\nos.kill(os.getpid(), 9)", failed(137, "sandbox.crashed"));
}

#[test]
fn t28_a_bus_error() {
    let code = "
import mmap, os
with open('f', 'w+b') as f:
    f.truncate(4096)
    m = mmap.mmap(f.fileno(), 4096)
    f.truncate(0)
    m[0]";
    ends(code, failed(135, "sandbox.crashed"));
}

#[test]
fn t28_leaving_at_once_with_zero() {
    let left =
        End { status: ExecutionStatus::Succeeded, exit_code: 0, error_code: "", state_kept: false };
    ends("import os\nos._exit(0)", left);
}

#[test]
fn t28_leaving_at_once_with_seven() {
    ends("import os\nos._exit(7)", failed(7, "sandbox.crashed"));
}

#[test]
fn t28_sys_exit_ends_the_execution_and_not_the_session() {
    ends("import sys\nsys.exit(3)", raised(3, "python.SystemExit"));
}

#[test]
fn t28_sys_exit_with_zero_is_a_success() {
    let left =
        End { status: ExecutionStatus::Succeeded, exit_code: 0, error_code: "", state_kept: true };
    ends("import sys\nsys.exit(0)", left);
}

// proves S-024
#[test]
fn t28_an_uncaught_exception() {
    ends("{}['k']", raised(1, "python.KeyError"));
}

#[test]
fn t28_an_exception_of_the_users_own_module() {
    ends("import json\njson.loads('x')", raised(1, "python.json.decoder.JSONDecodeError"));
}

#[test]
fn t28_a_keyboard_interrupt_that_the_code_raises() {
    ends("raise KeyboardInterrupt", raised(1, "python.KeyboardInterrupt"));
}

#[test]
fn t28_endless_recursion_in_python() {
    ends("def f(): f()\nf()", raised(1, "python.RecursionError"));
}

#[test]
fn t28_a_stack_overflow_in_native_code() {
    let code = "
import ctypes
callback = ctypes.CFUNCTYPE(None)
def again(): c()
c = callback(again)
import sys
sys.setrecursionlimit(10**9)
libc = ctypes.CDLL(None)
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
pair = (ctypes.c_int * 2)(2, 1)
def deeper(a, b):
    libc.qsort(pair, 2, 4, c)
    return 0
c = compare(deeper)
libc.qsort(pair, 2, 4, c)";
    ends(code, failed(139, "sandbox.crashed"));
}

#[test]
fn t28_out_of_memory() {
    let code = "blocks = []\nwhile True: blocks.append(bytearray(1 << 20))";
    ends(code, failed(137, "memory.exceeded"));
}

#[test]
fn t28_one_allocation_that_can_never_succeed() {
    ends("bytearray(1 << 40)", raised(137, "memory.exceeded"));
}

#[test]
fn t28_code_that_does_not_compile() {
    // Nothing of it is run, the line before it too.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let execution = runtime.block_on(async {
        let engine = Engine::start(harness::config());
        harness::run(&engine, "print('before')\nfor").await
    });
    assert_eq!((execution.exit_code, error_code(&execution).as_str()), (Some(1), "code.syntax"));
    assert_eq!(printed(&execution, OutputStream::Stdout), "");
}

#[test]
fn t28_closing_the_control_channel() {
    ends("import os\nos.close(3)", failed(72, "sandbox.crashed"));
}

/// Code that leaves something behind, each in another way.
const LEFTOVERS: [(&str, &str); 5] = [
    (
        "daemon thread",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    ),
    ("child", "import subprocess\nsubprocess.Popen(['sleep', '600'])"),
    (
        "double fork",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\nos.wait()",
    ),
    ("zombies", "import os\nfor _ in range(20):\n    if os.fork() == 0: os._exit(0)"),
    (
        "stopped child",
        "import os, signal, subprocess\np = subprocess.Popen(['sleep', '600'])\np.send_signal(signal.SIGSTOP)",
    ),
];

// proves U-051
#[test]
fn t27_nothing_outlives_the_reply() {
    harness::in_a_process_of_its_own("ends::alone_nothing_outlives_the_reply");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "counts the processes of the whole program; t27_nothing_outlives_the_reply runs it"]
async fn alone_nothing_outlives_the_reply() {
    let engine = Engine::start(engine::Config { jails_ready: 0, ..harness::config() });
    harness::run(&engine, "1").await;
    let own = std::process::id();
    assert!(harness::soon(Duration::from_secs(2), || alive(own).len() == descendants_of(own).len()));
    let at_rest = alive(own);
    for (name, code) in LEFTOVERS {
        for command in [harness::command("bare", code), harness::script("bare", code)] {
            let execution = harness::run_with(&engine, command).await.execution;
            // Counted at once: nothing is waited for after the reply.
            let left = alive(own);
            assert_eq!(left, at_rest, "{name}: {}", names(&left));
            assert_eq!(error_code(&execution), "", "{name}");
            for group in cgroups_of(own) {
                let inside = std::fs::read_dir(&group).unwrap().flatten();
                let runs = inside.filter(|entry| entry.path().is_dir());
                let held: Vec<_> = runs
                    .filter_map(|run| std::fs::read_to_string(run.path().join("cgroup.procs")).ok())
                    .filter(|processes| !processes.is_empty())
                    .collect();
                assert!(held.is_empty(), "{name}: {held:?} in {}", group.display());
            }
        }
    }
}

/// A process that has ended, and waits for its parent to take note, holds nothing any more.
fn alive(pid: u32) -> Vec<u32> {
    descendants_of(pid).into_iter().filter(|pid| !harness::has_ended(*pid)).collect()
}

fn names(pids: &[u32]) -> String {
    let command = |pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    pids.iter().map(|pid| format!("{pid} {}; ", command(*pid).replace('\0', " "))).collect()
}

#[test]
fn a_zygote_or_warden_that_dies_is_replaced() {
    harness::in_a_process_of_its_own("ends::alone_a_zygote_or_warden_that_dies");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "kills what this program started; a_zygote_or_warden_that_dies_is_replaced runs it"]
async fn alone_a_zygote_or_warden_that_dies() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    run_in(&engine, session, "kept = 1").await;
    let killed = kill_first_called("zygote.py");
    wait::until("the zygote has ended", async || harness::has_ended(killed)).await;
    let kept = run_in(&engine, session, "print(kept)").await;
    assert_eq!(printed(&kept, OutputStream::Stdout), "1\n", "sandboxes outlive their zygote");
    assert_eq!(printed(&harness::run(&engine, "print(2)").await, OutputStream::Stdout), "2\n");
    // An end after that of the zygote is still told as what it was.
    let code = "import os\nos._exit(7)";
    assert_eq!(run_in(&engine, session, code).await.exit_code, Some(7));
    let code = "kept = 1";
    run_in(&engine, session, code).await;
    // The session is of the second warden by now, as the run above; the first ends by itself.
    assert!(harness::soon(Duration::from_secs(5), || originals("__warden").len() == 1));
    let killed = kill_first_called("__warden");
    wait::until("the warden has ended", async || harness::has_ended(killed)).await;
    let lost = run_in(&engine, session, "print(kept)").await;
    assert_eq!((error_code(&lost).as_str(), lost.generation), ("sandbox.crashed", 3), "{lost:?}");
    let next = run_in(&engine, session, "print(3)").await;
    assert_eq!(printed(&next, OutputStream::Stdout), "3\n", "{next:?}");
    assert_eq!(printed(&harness::run(&engine, "print(4)").await, OutputStream::Stdout), "4\n");
}

/// The processes with this name that were not forked from another one with it.
fn originals(name: &str) -> Vec<u32> {
    let line = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
    let below = descendants_of(std::process::id()).into_iter();
    let named: Vec<u32> =
        below.filter(|pid| line(pid).is_ok_and(|line| line.contains(name))).collect();
    let is_forked = |pid: &u32| harness::parent_of(*pid).is_some_and(|of| named.contains(&of));
    named.iter().copied().filter(|pid| !is_forked(pid)).collect()
}

/// The number of a process says nothing: numbers start again when they have run out.
fn kill_first_called(name: &str) -> u32 {
    let first = originals(name).into_iter().min_by_key(|pid| harness::start_of(*pid)).unwrap();
    let pid = rustix::process::Pid::from_raw(first.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    first
}

/// A background process of a session lives on between executions, and ends with the session.
#[test]
fn t27_closing_a_session_ends_its_processes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let engine = Engine::start(harness::config());
        let session = open(&engine, "bare").await;
        let code = "import subprocess\nchild = subprocess.Popen(['sleep', '600.27'])";
        run_in(&engine, session, code).await;
        let alive = run_in(&engine, session, "print(child.poll())").await;
        assert_eq!(printed(&alive, OutputStream::Stdout), "None\n");
        assert_eq!(sleepers("600.27"), 1);
        engine.close(session).await.unwrap();
        assert_eq!(sleepers("600.27"), 0);
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
}

fn sleepers(argument: &str) -> usize {
    harness::descendants_of(std::process::id())
        .into_iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok())
        .filter(|line| *line == format!("sleep\0{argument}\0"))
        .count()
}
