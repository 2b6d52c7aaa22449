//! What a server needs from the engine: a command is admitted before it runs, can be stopped by its id at any
//! time, waits for capacity, and ends with the server.

use crate::harness::{self, descendants_of, error_code, open, printed, run_in, soon, wait};
use engine::{Admitted, Command, Config, Engine, NewSession};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use types::{Error, Event, Execution, ExecutionId, ExecutionStatus, OutputStream, SandboxId};

fn out(execution: &Execution) -> String {
    printed(execution, OutputStream::Stdout)
}

fn in_session(session: SandboxId, code: &str) -> Command {
    Command { session: Some(session), ..harness::command("bare", code) }
}

async fn run(admitted: Admitted) -> Execution {
    admitted.run(&mut |_| {}).await.unwrap().execution
}

/// Runs in the background, and returns when the code has printed something.
async fn begin(engine: &Arc<Engine>, command: Command) -> JoinHandle<Result<Execution, Error>> {
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let engine = Arc::clone(engine);
    let running = tokio::spawn(async move {
        let mut hear = |event: &Event| {
            if let Event::Output(_) = event {
                _ = begun.send(());
            }
        };
        Ok(engine.run(command, &mut hear).await?.execution)
    });
    has_begun.recv().await.unwrap();
    running
}

const ENDLESS: &str = "import time\nprint('begun', flush=True)\ntime.sleep(60)";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_let_in_is_known_before_it_runs() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    for command in [harness::command("bare", "print(1)"), in_session(session, "print(1)")] {
        let principal = Some("ada".to_owned());
        let (id, asked_for) = (command.id, command.session);
        let admitted = engine.admit(Command { principal, ..command }).await.unwrap();
        let before = admitted.record().clone();
        assert_eq!((before.id, before.status), (id, ExecutionStatus::Queued));
        assert_eq!((before.started_at, before.exit_code), (None, None));
        assert!(asked_for.is_none() || asked_for == before.sandbox_id);
        let after = run(admitted).await;
        assert_eq!((after.status, out(&after).as_str()), (ExecutionStatus::Succeeded, "1\n"));
        let summary = |record: &Execution| {
            let place = (record.sandbox_id, record.generation, record.environment.clone());
            (record.id, place, record.limits, record.principal, record.created_at)
        };
        assert_eq!(summary(&before), summary(&after));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_let_in_and_dropped_has_taken_nothing() {
    let engine = Engine::start(Config { sandboxes_max: 2, ..harness::config() });
    let session = open(&engine, "bare").await;
    run_in(&engine, session, "kept = 1").await;
    let fresh = engine.admit(harness::command("bare", "1")).await.unwrap();
    let error = engine.admit(harness::command("bare", "1")).await.unwrap_err();
    assert_eq!(error.code.to_string(), "capacity.exhausted");
    let inside = engine.admit(in_session(session, "1")).await.unwrap();
    let error = engine.admit(in_session(session, "1")).await.unwrap_err();
    assert_eq!(error.code.to_string(), "session.busy");
    assert!(engine.info(session).unwrap().busy);
    drop((fresh, inside));
    assert!(!engine.info(session).unwrap().busy);
    assert_eq!(out(&harness::run(&engine, "print(2)").await), "2\n");
    let next = run_in(&engine, session, "print(kept)").await;
    assert_eq!((out(&next).as_str(), next.generation), ("1\n", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_environment_is_refused_before_anything_is_taken() {
    let engine = Engine::start(harness::config());
    let error = engine.admit(harness::command("nowhere", "1")).await.unwrap_err();
    assert_eq!((error.code.to_string().as_str(), error.retryable), ("args.invalid", false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_execution_is_cancelled_by_its_stop_handle_wherever_it_runs() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    run_in(&engine, session, "kept = 1").await;
    for command in [harness::command("bare", ENDLESS), in_session(session, ENDLESS)] {
        let stop = command.stop.clone();
        let running = begin(&engine, command).await;
        let asked = Instant::now();
        stop.stop();
        let execution = running.await.unwrap().unwrap();
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        assert_eq!(
            (execution.status, execution.exit_code),
            (ExecutionStatus::Cancelled, Some(130))
        );
        assert_eq!(error_code(&execution), "execution.cancelled");
        assert_eq!(out(&execution), "begun\n");
        assert!(execution.ended_at.is_some());
    }
    assert_eq!(out(&run_in(&engine, session, "print(kept)").await), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_the_first_byte_of_code_is_not_lost_and_costs_no_memory() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    run_in(&engine, session, "kept = 1").await;
    for command in [harness::command("bare", "print('ran')"), in_session(session, "kept = 2")] {
        let admitted = engine.admit(command).await.unwrap();
        admitted.stop_handle().stop();
        let execution = run(admitted).await;
        assert_eq!((execution.status, out(&execution).as_str()), (ExecutionStatus::Cancelled, ""));
        assert_eq!((execution.started_at, execution.exit_code), (None, Some(130)));
        assert!(execution.ended_at.is_some());
    }
    let next = run_in(&engine, session, "print(kept)").await;
    assert_eq!((out(&next).as_str(), next.generation), ("1\n", 1));
}

/// The runner may not have started the code yet, and then ignores an interrupt.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_in_the_moment_of_the_start_keeps_the_memory() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    run_in(&engine, session, "kept = 1").await;
    for _ in 0..10 {
        let command = in_session(session, "import time\ntime.sleep(60)");
        let stop = command.stop.clone();
        let mut cancel = |event: &Event| {
            if let Event::Status { status: ExecutionStatus::Running } = event {
                stop.stop();
            }
        };
        let execution = engine.run(command, &mut cancel).await.unwrap().execution;
        assert_eq!((execution.status, execution.generation), (ExecutionStatus::Cancelled, 1));
    }
    assert_eq!(out(&run_in(&engine, session, "print(kept)").await), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_a_session_ends_what_was_let_in_and_has_not_begun() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    let admitted = engine.admit(in_session(session, ENDLESS)).await.unwrap();
    let closer = Arc::clone(&engine);
    let closing = tokio::spawn(async move { closer.close(session).await });
    assert!(soon(Duration::from_secs(2), || engine.list().is_empty()));
    let began = Instant::now();
    assert_eq!(run(admitted).await.status, ExecutionStatus::Cancelled);
    closing.await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_whose_caller_goes_away_is_still_a_new_generation() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    run_in(&engine, session, "kept = 1").await;
    // It has begun, and no client waits for its end.
    tokio::select! {
        biased;
        _ = engine.reset(session) => {}
        () = std::future::ready(()) => {}
    }
    let next = run_in(&engine, session, "print('kept' in globals())").await;
    assert_eq!((out(&next).as_str(), next.generation), ("False\n", 2));
}

/// Room for one sandbox, and a queue.
fn narrow(queue_max: usize, queue_wait: Duration) -> Arc<Engine> {
    Engine::start(Config { sandboxes_max: 1, queue_max, queue_wait, ..harness::config() })
}

const LONG: Duration = Duration::from_secs(30);

/// Waits until so many are in the queue.
async fn queued(engine: &Engine, count: usize) {
    wait::until(&format!("{count} wait"), async || engine.load().waiting == count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_no_room_waits_and_is_served_in_the_order_of_coming() {
    let engine = narrow(8, LONG);
    let session = open(&engine, "bare").await;
    let (served, order) = mpsc::channel();
    let mut waiting = Vec::new();
    for number in 0..4 {
        let (waiter, served) = (Arc::clone(&engine), served.clone());
        waiting.push(tokio::spawn(async move {
            let execution = harness::run(&waiter, "print(1)").await;
            served.send(number).unwrap();
            out(&execution)
        }));
        // Each is in the queue before the next one comes.
        queued(&engine, number + 1).await;
    }
    assert!(waiting.iter().all(|one| !one.is_finished()));
    engine.close(session).await.unwrap();
    for one in waiting {
        assert_eq!(one.await.unwrap(), "1\n");
    }
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_waits_for_room_as_well() {
    let engine = narrow(1, LONG);
    let running = begin(&engine, harness::command("bare", "print(1)\nimport time\ntime.sleep(1)"));
    let running = running.await;
    let session = open(&engine, "bare").await;
    assert!(running.is_finished());
    assert_eq!(out(&run_in(&engine, session, "print(2)").await), "2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_said_at_once_and_a_place_in_it_is_given_back() {
    let engine = narrow(1, LONG);
    let session = open(&engine, "bare").await;
    let command = harness::command("bare", "1");
    let (stop, waiter) = (command.stop.clone(), Arc::clone(&engine));
    let waiting = tokio::spawn(async move { waiter.admit(command).await.map(drop) });
    queued(&engine, 1).await;
    let error = engine.admit(harness::command("bare", "1")).await.unwrap_err();
    assert!(!waiting.is_finished(), "one that has waited for longer still waits");
    assert_eq!((error.code.to_string().as_str(), error.retryable), ("capacity.exhausted", true));
    stop.stop();
    let cancelled = waiting.await.unwrap().unwrap_err();
    assert_eq!(cancelled.code.to_string(), "execution.cancelled");
    let waiter = Arc::clone(&engine);
    let waiting = tokio::spawn(async move { harness::run(&waiter, "print(1)").await });
    queued(&engine, 1).await;
    engine.close(session).await.unwrap();
    assert_eq!(out(&waiting.await.unwrap()), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_wait_is_longer_than_the_operator_allows() {
    let engine = narrow(8, Duration::from_millis(300));
    open(&engine, "bare").await;
    let asked = Instant::now();
    let error = engine.admit(harness::command("bare", "1")).await.unwrap_err();
    assert_eq!(error.code.to_string(), "capacity.exhausted");
    let waited = asked.elapsed();
    assert!(waited > Duration::from_millis(250) && waited < Duration::from_secs(2), "{waited:?}");
}

#[test]
fn nothing_is_left_of_a_server_that_has_stopped() {
    harness::in_a_process_of_its_own("serving::alone_nothing_is_left");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "counts the processes of the whole program; nothing_is_left_of_a_server runs it"]
async fn alone_nothing_is_left() {
    let config = Config { sandboxes_max: 4, queue_max: 1, queue_wait: LONG, ..harness::config() };
    let engine = Engine::start(config);
    let session = open(&engine, "bare").await;
    let idle = open(&engine, "bare").await;
    run_in(&engine, idle, "import subprocess\nsubprocess.Popen(['sleep', '600'])").await;
    let short = "import time\nprint('begun', flush=True)\ntime.sleep(2)\nprint('done')";
    let short = begin(&engine, harness::command("bare", short)).await;
    let endless = begin(&engine, harness::command("bare", ENDLESS)).await;
    let in_session = begin(&engine, in_session(session, ENDLESS)).await;
    let last = Arc::clone(&engine);
    let last = tokio::spawn(async move { last.admit(harness::command("bare", "1")).await });
    queued(&engine, 1).await;
    engine.shutdown(Duration::from_secs(5)).await;
    assert_eq!(out(&short.await.unwrap().unwrap()), "begun\ndone\n", "it had the time to end");
    // A stop that waited for them would have ended with their limit.
    for cancelled in [endless, in_session] {
        assert_eq!(cancelled.await.unwrap().unwrap().status, ExecutionStatus::Cancelled);
    }
    let waited = last.await.unwrap().unwrap_err();
    let late = engine.admit(harness::command("bare", "1")).await.unwrap_err();
    let opened = engine.open(NewSession::new("bare")).await.unwrap_err();
    for refused in [waited, late, opened] {
        assert_eq!(refused.code.to_string(), "capacity.exhausted");
        assert!(refused.message.contains("stopping") && refused.retryable);
    }
    assert!(engine.list().is_empty());
    let own = std::process::id();
    assert!(soon(Duration::from_secs(2), || descendants_of(own).is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_the_execution_in_its_order() {
    let engine = Engine::start(harness::config());
    let code = "print('a')\ndisplay(1)\nopen('f.txt', 'w').write('x')\n1 / 0";
    let mut names = Vec::new();
    let mut hear = |event: &Event| {
        names.push(serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned());
    };
    let finished = engine.run(harness::command("bare", code), &mut hear).await.unwrap();
    assert_eq!(names, ["status", "output", "result", "file", "error"]);
    assert_eq!(finished.execution.status, ExecutionStatus::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_record_follows_from_its_events() {
    let engine = Engine::start(harness::config());
    let mut events = Vec::new();
    let code = "import sys\nfor n in range(3000):\n    print(n, flush=True)\n    \
                if n % 500 == 0: print('!', file=sys.stderr, flush=True); display(n)";
    let command = harness::command("bare", code);
    let finished = engine.run(command, &mut |event| events.push(event.clone())).await.unwrap();
    let transcript: types::Transcript = events.into_iter().collect();
    assert_eq!(transcript.output, finished.execution.output);
    assert_eq!(transcript.results, finished.execution.results);
    assert_eq!(transcript.results.len(), 6);
}

// proves W-031
#[tokio::test(flavor = "multi_thread")]
async fn code_is_told_its_session_and_for_whom_it_runs() {
    let engine = Engine::start(harness::config());
    let session = open(&engine, "bare").await;
    let look =
        "[os.getcwd(), os.environ.get('BELLJAR_SESSION'), os.environ.get('BELLJAR_PRINCIPAL')]";
    let tool = harness::tool(&format!(
        "import os\ndef handle() -> list:\n    \"\"\"Looks.\"\"\"\n    return {look}"
    ));
    let call = || harness::call("bare", tool.validate_call(serde_json::json!({})).unwrap());
    let cell = || harness::command("bare", &format!("import os\n{look}"));
    for command in [call(), cell()] {
        let principal = Some("ada".to_owned());
        let command = Command { session: Some(session), principal, ..command };
        let value = harness::run_with(&engine, command).await.execution.value.unwrap();
        assert_eq!(value, serde_json::json!(["/workspace", session.to_string(), "ada"]));
    }
    for command in [call(), cell(), Command { session: Some(session), ..cell() }] {
        let asked = command.session.map(|id| id.to_string());
        let value = harness::run_with(&engine, command).await.execution.value.unwrap();
        assert_eq!(value, serde_json::json!(["/workspace", asked, null]), "of this run alone");
    }
    let script = format!("import os\nprint({look}[2])");
    let script = Command { principal: Some("bob".into()), ..harness::script("bare", &script) };
    assert_eq!(out(&harness::run_with(&engine, script).await.execution), "bob\n");
}

#[test]
fn ids_are_read_back_from_their_text() {
    let id = harness::command("bare", "1").id;
    assert_eq!(id.to_string().parse::<ExecutionId>().unwrap(), id);
    assert!("not an id".parse::<ExecutionId>().is_err());
}
