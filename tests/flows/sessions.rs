//! A session is a live interpreter with a working directory, and belongs to one conversation.

use crate::harness::{self, error_code, open, printed, run_in, wait};
use engine::{
    Clock, Command, Config, EndReason, Engine, Expiry, ExpiryRequest, InputFile, NewSession,
    SessionEnded,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{Event, Execution, ExecutionStatus, LimitsRequest, OutputStream, SandboxId};

async fn started() -> (Arc<Engine>, SandboxId) {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    (engine, session)
}

fn out(execution: &Execution) -> String {
    printed(execution, OutputStream::Stdout)
}

fn warned_of(execution: &Execution) -> Vec<&str> {
    execution.warnings.iter().map(|warning| warning.code.as_str()).collect()
}

/// Starts code that says when it has begun, and waits until it has said so.
async fn begin(
    engine: &Arc<Engine>,
    session: SandboxId,
    code: &str,
    limits: LimitsRequest,
) -> tokio::task::JoinHandle<Execution> {
    let code = format!("print('begun', flush=True)\n{code}");
    begin_until(engine, session, &code, limits, "begun").await
}

/// Starts code, and waits until it has said this.
async fn begin_until(
    engine: &Arc<Engine>,
    session: SandboxId,
    code: &str,
    limits: LimitsRequest,
    said: &'static str,
) -> tokio::task::JoinHandle<Execution> {
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let command = Command { session: Some(session), limits, ..harness::command("bare", code) };
    let engine = Arc::clone(engine);
    let running = tokio::spawn(async move {
        let mut hear = |event: &Event| {
            if let Event::Output(piece) = event
                && piece.text.contains(said)
            {
                _ = begun.send(());
            }
        };
        let finished = engine.run(command, &mut hear).await;
        finished.unwrap().execution
    });
    has_begun.recv().await.unwrap();
    running
}

// proves S-018, S-019
#[tokio::test(flavor = "multi_thread")]
async fn variables_imports_functions_and_classes_stay() {
    let (engine, session) = started().await;
    run_in(&engine, session, "import math\nx = 20\ndef f(y): return x + y\nclass C: z = 1").await;
    let next = run_in(&engine, session, "print(f(int(math.sqrt(4))) + C.z - 1)").await;
    assert_eq!(out(&next), "22\n");
}

// proves S-021
#[tokio::test(flavor = "multi_thread")]
async fn files_and_the_working_directory_stay() {
    let (engine, session) = started().await;
    run_in(&engine, session, "import os\nos.mkdir('d')\nos.chdir('d')\nopen('f', 'w').write('1')")
        .await;
    let next = run_in(&engine, session, "print(os.getcwd(), open('f').read())").await;
    assert_eq!(out(&next), "/workspace/d 1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_new_and_changed_files_are_reported() {
    let (engine, session) = started().await;
    let names = |execution: &Execution| -> Vec<String> {
        execution.files_out.iter().map(|file| file.name.clone()).collect()
    };
    let first = run_in(&engine, session, "for n in 'ab': open(n, 'w').write('1')").await;
    assert_eq!(names(&first), ["a", "b"]);
    let second = run_in(&engine, session, "open('b', 'a').write('2')").await;
    assert_eq!(names(&second), ["b"]);
    assert_eq!(names(&run_in(&engine, session, "open('a').read()").await), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_value_is_underscore_and_the_events_loop_goes_on() {
    let (engine, session) = started().await;
    run_in(
        &engine,
        session,
        "import asyncio\ntask = asyncio.create_task(asyncio.sleep(0, 7))\n\
                              await asyncio.sleep(0)\n40",
    )
    .await;
    let next = run_in(&engine, session, "print(_ + 2, await task)").await;
    assert_eq!(out(&next), "42 7\n");
}

// proves S-022, U-053
#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_share_nothing() {
    let (engine, one) = started().await;
    let other = open(&engine, "bare").await;
    run_in(&engine, one, "secret = 1\nopen('/tmp/f', 'w'); open('f', 'w')").await;
    let code = "import os\nprint('secret' in globals(), os.path.exists('/tmp/f'), os.listdir())";
    assert_eq!(out(&run_in(&engine, other, code).await), "False False []\n");
    assert_eq!(error_code(&run_in(&engine, other, "secret").await), "python.NameError");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_the_execution_and_keeps_the_state() {
    let (engine, session) = started().await;
    run_in(&engine, session, "kept = 42").await;
    let running =
        begin(&engine, session, "import time\ntime.sleep(60)", LimitsRequest::default()).await;
    assert!(engine.interrupt(session).unwrap());
    let execution = running.await.unwrap();
    assert_eq!((execution.status, execution.exit_code), (ExecutionStatus::Cancelled, Some(130)));
    assert_eq!(error_code(&execution), "execution.cancelled");
    let next = run_in(&engine, session, "print(kept)").await;
    assert_eq!((out(&next).as_str(), next.generation), ("42\n", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_lets_the_code_tidy_up() {
    let (engine, session) = started().await;
    let code = "import time\ntry:\n    print('inside', flush=True)\n    time.sleep(60)\n\
                finally:\n    print('tidied')";
    let none = LimitsRequest::default();
    let running = begin_until(&engine, session, code, none, "inside").await;
    engine.interrupt(session).unwrap();
    assert_eq!(out(&running.await.unwrap()), "inside\ntidied\n");
}

/// The interrupt falls into the printing itself, where Python has written a line and does not
/// know it yet.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_prints_no_line_twice() {
    let (engine, session) = started().await;
    for _ in 0..30 {
        let code = "for n in range(10**6): print(n, flush=True)";
        let running = begin(&engine, session, code, LimitsRequest::default()).await;
        engine.interrupt(session).unwrap();
        let execution = running.await.unwrap();
        let printed = out(&execution);
        let lines: Vec<&str> = printed.lines().skip(1).collect();
        let expected: Vec<String> = (0..lines.len()).map(|n| n.to_string()).collect();
        assert_eq!(lines, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_when_nothing_runs_says_so_and_harms_nothing() {
    let (engine, session) = started().await;
    run_in(&engine, session, "x = 1").await;
    assert!(!engine.interrupt(session).unwrap());
    let next = run_in(&engine, session, "import time\ntime.sleep(0.2)\nprint(x)").await;
    assert_eq!(out(&next), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_that_comes_too_late_does_not_hit_the_next_execution() {
    let (engine, session) = started().await;
    for _ in 0..20 {
        // Large files keep the end of an execution busy after its code has ended.
        let code = "import os, time\nwith open('f', 'wb') as f: f.truncate(16 << 20)";
        let running = begin(&engine, session, code, LimitsRequest::default()).await;
        while !running.is_finished() {
            engine.interrupt(session).unwrap();
            tokio::task::yield_now().await;
        }
        running.await.unwrap();
        let next = run_in(&engine, session, "import time\ntime.sleep(0.01)\nprint(1)").await;
        assert_eq!((next.status, out(&next).as_str()), (ExecutionStatus::Succeeded, "1\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deaf_code_is_killed_after_an_interrupt_and_the_session_says_that_it_lost_its_memory() {
    let (engine, session) = started().await;
    run_in(&engine, session, "kept = 42").await;
    let code = "while True:\n    try:\n        print('inside', flush=True)\n        while True: pass\n    \
         except KeyboardInterrupt: pass";
    let none = LimitsRequest::default();
    let running = begin_until(&engine, session, code, none, "inside").await;
    let asked = Instant::now();
    engine.interrupt(session).unwrap();
    let execution = running.await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!((execution.status, execution.generation), (ExecutionStatus::Cancelled, 2));
    assert_eq!(warned_of(&execution), ["session.lost"]);
    let next = run_in(&engine, session, "print('kept' in globals())").await;
    assert_eq!((out(&next).as_str(), next.generation), ("False\n", 2));
    assert_eq!(warned_of(&next), [""; 0]);
}

// proves C-136
#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_keeps_the_state_of_code_that_listens() {
    let (engine, session) = started().await;
    run_in(&engine, session, "kept = 42").await;
    let limits = LimitsRequest { wall_ms: Some(200), ..LimitsRequest::default() };
    let execution = begin(&engine, session, "while True: pass", limits).await.await.unwrap();
    assert_eq!((execution.status, execution.exit_code), (ExecutionStatus::TimedOut, Some(124)));
    assert_eq!(execution.error.unwrap().message, "exceeded the wall-clock time limit of 200 ms");
    let next = run_in(&engine, session, "print(kept)").await;
    assert_eq!((out(&next).as_str(), next.generation), ("42\n", 1));
}

// proves U-055
#[tokio::test(flavor = "multi_thread")]
async fn a_second_execution_at_the_same_time_is_told_that_the_session_is_busy() {
    let (engine, session) = started().await;
    let running =
        begin(&engine, session, "import time\ntime.sleep(60)", LimitsRequest::default()).await;
    let command = Command { session: Some(session), ..harness::command("bare", "1") };
    let error = engine.run(command, &mut |_| {}).await.unwrap_err();
    assert_eq!((error.code.to_string().as_str(), error.retryable), ("session.busy", true));
    assert_eq!(engine.reset(session).await.unwrap_err().code.to_string(), "session.busy");
    assert!(engine.list()[0].busy);
    engine.interrupt(session).unwrap();
    running.await.unwrap();
    assert_eq!(out(&run_in(&engine, session, "print(2)").await), "2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_session_is_not_found() {
    let (engine, session) = started().await;
    engine.close(session).await.unwrap();
    let command = Command { session: Some(session), ..harness::command("bare", "1") };
    let error = engine.run(command, &mut |_| {}).await.unwrap_err();
    assert_eq!(error.code.to_string(), "session.not_found");
    assert_eq!(engine.close(session).await.unwrap_err().code.to_string(), "session.not_found");
    assert!(engine.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_a_session_ends_what_it_is_running() {
    let (engine, session) = started().await;
    let code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)";
    let running = begin(&engine, session, code, LimitsRequest::default()).await;
    let asked = Instant::now();
    engine.close(session).await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(running.await.unwrap().status, ExecutionStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_gives_a_new_interpreter_and_an_empty_directory() {
    let (engine, session) = started().await;
    run_in(&engine, session, "x = 1\nopen('f', 'w')\nopen('/tmp/f', 'w')").await;
    assert_eq!(engine.reset(session).await.unwrap(), 2);
    let code = "import os\nprint('x' in globals(), os.listdir(), os.path.exists('/tmp/f'))";
    let next = run_in(&engine, session, code).await;
    assert_eq!((out(&next).as_str(), next.generation), ("False [] False\n", 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_refused_leaves_the_session_as_it_was() {
    let (engine, session) = started().await;
    run_in(&engine, session, "kept = 1").await;
    let files = vec![InputFile { name: "../out".into(), content: Vec::new().into() }];
    let command = Command { session: Some(session), files, ..harness::command("bare", "1") };
    let error = engine.run(command, &mut |_| {}).await.unwrap_err();
    assert_eq!(error.code.to_string(), "file.unsupported");
    assert_eq!(out(&run_in(&engine, session, "print(kept)").await), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_goes_away_ends_the_sandbox_and_the_next_one_is_told() {
    let (engine, session) = started().await;
    run_in(&engine, session, "kept = 1").await;
    let running =
        begin(&engine, session, "import time\ntime.sleep(600.31)", LimitsRequest::default()).await;
    running.abort();
    let _ = running.await;
    let next = run_in(&engine, session, "print('kept' in globals())").await;
    assert_eq!((out(&next).as_str(), next.generation), ("False\n", 2));
    assert_eq!(warned_of(&next), ["session.lost"]);
    assert!(!engine.list()[0].busy);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_caller_went_away_is_not_busy() {
    let (engine, session) = started().await;
    let running =
        begin(&engine, session, "import time\ntime.sleep(60)", LimitsRequest::default()).await;
    running.abort();
    let _ = running.await;
    assert!(!engine.list()[0].busy);
    assert!(!engine.interrupt(session).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_was_never_run_is_no_success() {
    let (engine, session) = started().await;
    // Its child ends when no process can write to it any more.
    let code = "import os, subprocess, threading\n\
                subprocess.Popen(['cat', '-', 'ends-with-its-parent'], stdin=subprocess.PIPE)\n\
                threading.Timer(0.1, os._exit, (0,)).start()";
    assert_eq!(run_in(&engine, session, code).await.status, ExecutionStatus::Succeeded);
    let has_ended = async || lines_with("ends-with-its-parent") == 0;
    wait::until("the interpreter has ended", has_ended).await;
    let lost = run_in(&engine, session, "print('never')").await;
    assert_eq!((lost.status, lost.generation), (ExecutionStatus::Failed, 2));
    assert_eq!(harness::error_code(&lost), "sandbox.crashed");
    assert_eq!(out(&run_in(&engine, session, "print('again')").await), "again\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_in_a_session_leaves_it_alive() {
    let (engine, session) = started().await;
    let script = Command { session: Some(session), ..harness::script("bare", "x = 41") };
    assert_eq!(
        engine.run(script, &mut |_| {}).await.unwrap().execution.status,
        ExecutionStatus::Succeeded
    );
    let after = run_in(&engine, session, "print(x + 1)").await;
    assert_eq!((out(&after).as_str(), after.generation), ("42\n", 1));
}

/// A session with a manual clock, whose child can be found from outside by its argument.
async fn expiring(expiry: Expiry, argument: &str) -> (Arc<Engine>, SandboxId, Clock) {
    let clock = Clock::manual();
    let engine = Engine::start(Config { expiry, clock: clock.clone(), ..harness::config() });
    let session = open(&engine, "bare").await;
    let code = format!("import subprocess\nsubprocess.Popen(['sleep', '{argument}'])");
    run_in(&engine, session, &code).await;
    // A look at all of /proc may miss a process when others come and go.
    wait::until("its child is there", async || sleepers(argument) == 1).await;
    (engine, session, clock)
}

/// Processes of this machine with this in their command line.
fn lines_with(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes
        .filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(text)).count()
}

fn sleepers(argument: &str) -> usize {
    harness::descendants_of(std::process::id())
        .into_iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok())
        .filter(|line| *line == format!("sleep\0{argument}\0"))
        .count()
}

const IDLE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_session_expires_with_all_its_processes() {
    let expiry = Expiry { idle: IDLE, absolute: LONG };
    let (engine, session, clock) = expiring(expiry, "600.41").await;
    clock.advance(IDLE + Duration::from_secs(1));
    let is_gone = async || engine.list().is_empty() && sleepers("600.41") == 0;
    wait::until("the session expires with its child", is_gone).await;
    let command = Command { session: Some(session), ..harness::command("bare", "1") };
    let error = engine.run(command, &mut |_| {}).await.unwrap_err();
    assert_eq!(error.code.to_string(), "session.expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_use_does_not_expire_for_being_idle() {
    let expiry = Expiry { idle: IDLE, absolute: LONG };
    let (engine, session, clock) = expiring(expiry, "600.42").await;
    let code = "import time\ntime.sleep(1)\nprint(1)";
    let running = begin(&engine, session, code, LimitsRequest::default()).await;
    clock.advance(IDLE * 2);
    assert_eq!(out(&running.await.unwrap()), "begun\n1\n");
    assert_eq!(out(&run_in(&engine, session, "print(2)").await), "2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_expires_in_the_end_however_busy_it_is() {
    let expiry = Expiry { idle: LONG, absolute: LONG };
    let (engine, session, clock) = expiring(expiry, "600.43").await;
    let running = begin(&engine, session, "while True: pass", LimitsRequest::default()).await;
    clock.advance(LONG + Duration::from_secs(1));
    assert_eq!(running.await.unwrap().status, ExecutionStatus::Cancelled);
    let is_gone = async || engine.list().is_empty() && sleepers("600.43") == 0;
    wait::until("the session expires with its child", is_gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_session_more_than_there_is_room_for_is_refused_at_once() {
    let engine = Engine::start(Config { sandboxes_max: 2, ..harness::config() });
    let first = open(&engine, "bare").await;
    open(&engine, "bare").await;
    let error = engine.run(harness::command("bare", "1"), &mut |_| {}).await.unwrap_err();
    assert_eq!(error.code.to_string(), "capacity.exhausted");
    engine.close(first).await.unwrap();
    assert_eq!(out(&harness::run(&engine, "print(1)").await), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_the_id_and_the_expiry_that_its_owner_asks_for() {
    let expiry = Expiry { idle: Duration::from_secs(60), absolute: LONG };
    let engine = Engine::start(Config { expiry, ..harness::config() });
    let short = ExpiryRequest { idle: Some(Duration::from_secs(10)), absolute: None };
    let request = NewSession { expiry: short, ..NewSession::new("bare") };
    let opened = engine.open(request.clone()).await.unwrap();
    assert_eq!((opened.id, opened.generation, opened.executions), (request.id, 1, 0));
    assert_eq!((opened.expires_at.unwrap() - opened.opened_at).num_seconds(), 10);
    run_in(&engine, opened.id, "1").await;
    let used = engine.info(opened.id).unwrap();
    assert_eq!(used.executions, 1);
    assert!(used.last_used_at > opened.last_used_at && used.expires_at > opened.expires_at);
    let longer = ExpiryRequest { idle: Some(Duration::from_secs(60)), absolute: None };
    let longer = engine.set_expiry(opened.id, longer).unwrap();
    assert_eq!((longer.expires_at.unwrap() - longer.last_used_at).num_seconds(), 60);
    let too_long = ExpiryRequest { idle: Some(Duration::from_secs(61)), absolute: None };
    for error in [
        engine.set_expiry(opened.id, too_long).unwrap_err(),
        engine.open(NewSession { expiry: too_long, ..NewSession::new("bare") }).await.unwrap_err(),
        engine.open(request).await.unwrap_err(),
    ] {
        assert_eq!(error.code.to_string(), "args.invalid");
    }
    assert_eq!(engine.list().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_opened_again_says_that_its_memory_was_lost() {
    let engine = Engine::start(harness::config());
    let request = NewSession { generation: 3, ..NewSession::new("bare") };
    let session = engine.open(request).await.unwrap().id;
    let first = run_in(&engine, session, "print(1)").await;
    assert_eq!((out(&first).as_str(), first.generation), ("1\n", 3));
    assert_eq!(warned_of(&first), ["session.lost"]);
    assert_eq!(warned_of(&run_in(&engine, session, "1").await), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_is_notified_of_expired_sessions_and_of_no_others() {
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let expiry = Expiry { idle: LONG, absolute: LONG };
    let engine = Engine::start(Config { expiry, session_ended: Some(sender), ..harness::config() });
    let closed = open(&engine, "bare").await;
    engine.close(closed).await.unwrap();
    let soon = Some(Duration::from_millis(100));
    for (reason, expiry) in [
        (EndReason::Idle, ExpiryRequest { idle: soon, absolute: None }),
        (EndReason::Age, ExpiryRequest { idle: None, absolute: soon }),
    ] {
        let session = open(&engine, "bare").await;
        engine.set_expiry(session, expiry).unwrap();
        let expired = tokio::time::timeout(Duration::from_secs(5), ended.recv()).await.unwrap();
        assert_eq!(expired, Some(SessionEnded { id: session, reason }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_at_its_files_keeps_a_session_alive() {
    let (idle, clock) = (Duration::from_secs(60), Clock::manual());
    let expiry = Expiry { idle, absolute: Duration::from_secs(3600) };
    let config = Config { expiry, clock: clock.clone(), ..harness::config() };
    let engine = Engine::start(config);
    let session = open(&engine, "bare").await;
    for _ in 0..10 {
        clock.advance(idle / 2);
        engine.list_files(session).await.unwrap();
    }
    assert_eq!(out(&run_in(&engine, session, "print(1)").await), "1\n");
    // The twin: an idle one ends.
    clock.advance(idle + Duration::from_secs(1));
    wait::until("it expires", async || engine.list().is_empty()).await;
}
