//! Executions and sessions: an end is final, and a restart is recorded.

use crate::world::{ALL, World, execution, moment, purge, session};
use belljar_db::{
    DatabaseError, EventBatch, ExecutionFilter, ExecutionJson, FinishedExecutionRow, PageRequest,
    Retention, SessionFilter,
};
use chrono::TimeDelta;
use std::collections::BTreeMap;
use types::{
    DisplayData, ErrorCode, Event, Execution, ExecutionStatus, JsonMembers, OutputChunk,
    OutputStream, SessionStatus,
};

fn events() -> Vec<Event> {
    let text = |text: &str| OutputChunk { t: 3, stream: OutputStream::Stdout, text: text.into() };
    let result =
        DisplayData { data: BTreeMap::from([("text/plain".into(), "2".into())]), main: true };
    vec![Event::Output(text("hello\n")), Event::Result(result)]
}

async fn run(world: &World, execution: &Execution) {
    let (home, execution) = (world.home, execution.clone());
    world.write(move |tx| tx.insert_execution(home, &execution)).await;
}

async fn finish(world: &World, execution: &Execution) -> bool {
    let home = world.home;
    let finished = FinishedExecutionRow::new(execution, &events()).unwrap();
    world.write(move |tx| tx.finish_execution(home, &finished)).await
}

#[tokio::test]
async fn a_finished_execution_is_told_with_its_output_and_results() {
    let world = World::new().await;
    let begun = execution(world.alice, ExecutionStatus::Running);
    run(&world, &begun).await;
    let Event::Output(output) = events().remove(0) else { unreachable!() };
    let Event::Result(result) = events().remove(1) else { unreachable!() };
    let done = Execution {
        status: ExecutionStatus::Succeeded,
        output: vec![output],
        results: vec![result],
        ..begun.clone()
    };
    assert!(finish(&world, &done).await);
    let record = world.db.read(|reader| reader.execution(world.home, begun.id)).unwrap().unwrap();
    assert_eq!(record, done);
    let kept = world.db.read(|reader| reader.execution_events(world.home, begun.id)).unwrap();
    assert_eq!(kept, Some(events()));
    let summary = world.db.read(|r| r.execution_summary(world.home, begun.id)).unwrap().unwrap();
    assert_eq!(summary, Execution { status: ExecutionStatus::Succeeded, ..begun });
}

/// A line, which is so many events.
fn line(number: u64) -> Event {
    let text = format!("{number}\n");
    Event::Output(OutputChunk { t: number, stream: OutputStream::Stdout, text })
}

#[tokio::test]
async fn a_large_log_is_kept_in_batches_and_read_a_batch_at_a_time() {
    let world = World::new().await;
    let (home, begun) = (world.home, execution(world.alice, ExecutionStatus::Running));
    run(&world, &begun).await;
    let id = begun.id;
    let lines: Vec<Event> = (1..=9).map(line).collect();
    let batch =
        |from: usize, to: usize| EventBatch::new(from as u64, &lines[from - 1..to]).unwrap();
    for batch in [batch(1, 3), batch(4, 6), batch(4, 7)] {
        world.write(move |tx| tx.insert_events(home, id, &batch)).await;
    }
    let read = |number| world.db.read(|reader| reader.events_after(home, id, number)).unwrap();
    assert_eq!(read(0), None, "it has not ended");
    let done = Execution { status: ExecutionStatus::Succeeded, ..begun.clone() };
    let finished = FinishedExecutionRow::new(&done, &lines[7..]).unwrap().with_stored_events(7);
    assert!(world.write(move |tx| tx.finish_execution(home, &finished)).await);
    assert_eq!(read(0).unwrap(), lines[..3]);
    assert_eq!(read(2).unwrap(), lines[2..3]);
    assert_eq!(read(3).unwrap(), lines[3..7]);
    assert_eq!(read(7).unwrap(), lines[7..]);
    for after in [9, 10, u64::MAX] {
        assert_eq!(read(after).unwrap(), []);
    }
    let all = world.db.read(|reader| reader.execution_events(home, id)).unwrap();
    assert_eq!(all, Some(lines));
    let bytes = world.db.read(|reader| reader.event_bytes(home, id)).unwrap();
    assert!((400..2000).contains(&bytes), "{bytes}");
    // They go with their execution.
    let retention = Retention::all(TimeDelta::days(7));
    let purged = purge(&world, moment(0) + TimeDelta::days(30), retention).await;
    assert_eq!(purged.executions, 1);
    run(&world, &begun).await;
    let none = FinishedExecutionRow::new(&done, &[] as &[Event]).unwrap().with_stored_events(0);
    assert!(world.write(move |tx| tx.finish_execution(home, &none)).await);
    let bytes = world.db.read(|reader| reader.event_bytes(home, id)).unwrap();
    assert_eq!(bytes, 2);
}

#[tokio::test]
async fn batches_of_an_execution_that_was_interrupted_are_no_part_of_its_record() {
    let world = World::new().await;
    let (home, begun) = (world.home, execution(world.alice, ExecutionStatus::Running));
    run(&world, &begun).await;
    let (id, batch) = (begun.id, EventBatch::new(1, &[line(1), line(2)]).unwrap());
    world.write(move |tx| tx.insert_events(home, id, &batch)).await;
    world.write(|tx| tx.interrupt_all_executions(moment(60))).await;
    let record = world.db.read(|reader| reader.execution(home, id)).unwrap().unwrap();
    assert_eq!((record.status, record.output), (ExecutionStatus::Failed, Vec::new()));
    let events = world.db.read(|reader| reader.execution_events(home, id)).unwrap().unwrap();
    assert_eq!(events.last(), Some(&Event::End { status: ExecutionStatus::Failed }));
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn an_end_is_final() {
    let world = World::new().await;
    let begun = execution(world.alice, ExecutionStatus::Running);
    run(&world, &begun).await;
    assert!(
        finish(&world, &Execution { status: ExecutionStatus::Cancelled, ..begun.clone() }).await
    );
    assert!(
        !finish(&world, &Execution { status: ExecutionStatus::Succeeded, ..begun.clone() }).await
    );
    let home = world.home;
    assert!(
        !world
            .write(move |tx| tx.set_execution_status(home, begun.id, ExecutionStatus::Running))
            .await
    );
    let record = world.db.read(|reader| reader.execution(home, begun.id)).unwrap().unwrap();
    assert_eq!(record.status, ExecutionStatus::Cancelled);
}

#[tokio::test]
async fn what_ran_when_the_server_was_killed_is_interrupted_and_not_run_again() {
    let world = World::new().await;
    let home = world.home;
    let of = |status| execution(world.alice, status);
    let (running, queued, done) =
        (of(ExecutionStatus::Running), of(ExecutionStatus::Queued), of(ExecutionStatus::Succeeded));
    let waiting = of(ExecutionStatus::WaitingApproval);
    for execution in [&running, &queued, &done, &waiting] {
        run(&world, execution).await;
    }
    let world = world.restart();
    let mut ids = world.write(|tx| tx.interrupt_all_executions(moment(60))).await;
    ids.sort();
    assert_eq!(ids, [running.id, queued.id]);
    let record = world.db.read(|reader| reader.execution(home, running.id)).unwrap().unwrap();
    let error = record.error.unwrap();
    assert_eq!(
        (record.status, error.code),
        (ExecutionStatus::Failed, ErrorCode::ExecutionInterrupted)
    );
    assert_eq!(record.ended_at, Some(moment(60)));
    let events = world.db.read(|reader| reader.execution_events(home, running.id)).unwrap();
    assert_eq!(events.unwrap().last(), Some(&Event::End { status: ExecutionStatus::Failed }));
    for untouched in [done, waiting] {
        let kept = world.db.read(|reader| reader.execution(home, untouched.id)).unwrap();
        assert_eq!(kept, Some(untouched));
    }
    assert!(world.write(|tx| tx.interrupt_all_executions(moment(61))).await.is_empty());
}

fn parse(item: &ExecutionJson) -> Execution {
    serde_json::from_str(item.as_str()).unwrap()
}

#[tokio::test]
async fn t215_a_list_has_the_text_of_each_record_and_the_inputs_of_one_that_waits() {
    let world = World::new().await;
    let value = serde_json::json!({"a": [1, {"b": "\u{e9}\""}], "results": [], "code": null});
    let finished =
        |value| Execution { value, ..execution(world.alice, ExecutionStatus::Succeeded) };
    let done = [finished(Some(value.clone())), finished(None)];
    for execution in &done {
        run(&world, execution).await;
    }
    let home = world.home;
    let waiting = |code: &str, arguments| Execution {
        code: code.into(),
        arguments,
        ..execution(world.alice, ExecutionStatus::WaitingApproval)
    };
    let waits = [waiting("print(\"}\")", Some(value)), waiting("", None)];
    for execution in waits.clone() {
        world.write(move |tx| tx.insert_waiting_execution(home, &execution, b"{}")).await;
    }
    let any = ExecutionFilter::default();
    let listed = world.db.read(|reader| reader.executions(home, &any, ALL)).unwrap().items;
    let expected: Vec<_> = done.iter().chain(&waits).rev().cloned().collect();
    assert_eq!(listed.iter().map(parse).collect::<Vec<_>>(), expected);
    for item in &listed {
        let names: Vec<_> = JsonMembers::of(item.as_str()).map(|it| it.unwrap().0).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "no member is there twice: {names:?}");
    }
    // What is not changed is the stored text itself.
    assert_eq!(listed[2].as_str(), serde_json::to_string(&done[1]).unwrap());
}

#[tokio::test]
async fn executions_are_listed_by_what_is_asked_for() {
    let world = World::new().await;
    let plain = execution(world.alice, ExecutionStatus::Succeeded);
    let tool =
        Execution { tool: Some("add".into()), ..execution(world.alice, ExecutionStatus::Running) };
    run(&world, &plain).await;
    run(&world, &tool).await;
    let ids = |filter: ExecutionFilter| {
        let listed = world.db.read(|reader| reader.executions(world.home, &filter, ALL));
        let items = listed.unwrap().items;
        items.iter().map(|item| parse(item).id).collect::<Vec<_>>()
    };
    let any = ExecutionFilter::default;
    assert_eq!(ids(any()), [tool.id, plain.id]);
    assert_eq!(ids(ExecutionFilter { tool: Some("add".into()), ..any() }), [tool.id]);
    assert_eq!(
        ids(ExecutionFilter { status: Some(ExecutionStatus::Succeeded), ..any() }),
        [plain.id]
    );
    assert_eq!(ids(ExecutionFilter { sandbox_id: plain.sandbox_id, ..any() }), [plain.id]);
    assert_eq!(ids(ExecutionFilter { principal: Some(world.mallory), ..any() }), []);
    let of = world
        .db
        .read(|reader| reader.executions_in_session(world.home, tool.sandbox_id.unwrap()))
        .unwrap();
    assert_eq!(of, [tool.id]);
}

#[tokio::test]
async fn a_list_of_large_records_comes_in_pages_that_fit_into_memory() {
    const MIB: usize = 1024 * 1024;
    let world = World::new().await;
    let code = "x".repeat(4 * MIB);
    let large =
        |_| Execution { code: code.clone(), ..execution(world.alice, ExecutionStatus::Succeeded) };
    let runs: Vec<Execution> = (0..9).map(large).collect();
    for execution in &runs {
        run(&world, execution).await;
    }
    let (mut page, mut listed) = (PageRequest { after: None, limit: 200 }, Vec::new());
    loop {
        let any = ExecutionFilter::default();
        let part = world.db.read(|reader| reader.executions(world.home, &any, page)).unwrap();
        let bytes: usize = part.items.iter().map(|item| item.as_str().len()).sum();
        assert!((1..=13 * MIB).contains(&bytes), "{bytes}");
        listed.extend(part.items.iter().map(parse));
        page.after = part.next;
        if part.next.is_none() {
            break;
        }
    }
    listed.reverse();
    assert!(listed == runs, "each once, and nothing left out");
}

#[tokio::test]
async fn a_plan_is_kept_until_the_execution_has_ended() {
    let world = World::new().await;
    let home = world.home;
    let waiting = execution(world.alice, ExecutionStatus::WaitingApproval);
    let kept = waiting.clone();
    world.write(move |tx| tx.insert_waiting_execution(home, &kept, b"plan")).await;
    let plan = || world.db.read(|reader| reader.pending_call_json(home, waiting.id)).unwrap();
    assert_eq!(plan().as_deref(), Some(&b"plan"[..]));
    assert!(
        world
            .write(move |tx| tx.set_execution_status(home, waiting.id, ExecutionStatus::Running))
            .await
    );
    assert_eq!(plan().as_deref(), Some(&b"plan"[..]));
    assert!(
        finish(&world, &Execution { status: ExecutionStatus::Succeeded, ..waiting.clone() }).await
    );
    assert_eq!(plan(), None);
}

#[tokio::test]
async fn a_key_names_one_session_until_that_is_over() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let first = session(alice, Some("chat-1"));
    let (mut kept, second) = (first.clone(), session(alice, Some("chat-1")));
    world.write(move |tx| tx.insert_session(home, &kept, None)).await;
    let next = second.clone();
    let taken = world.db.write(move |tx| tx.insert_session(home, &next, None)).await;
    assert!(
        matches!(taken, Err(DatabaseError::NameTaken { kind: "session", name }) if name == "chat-1")
    );
    kept = first.clone();
    kept.status = SessionStatus::Closed;
    let next = second.clone();
    world.write(move |tx| tx.update_session(home, &kept)).await;
    world.write(move |tx| tx.insert_session(home, &next, None)).await;
    let found = world.db.read(|reader| reader.session_by_key(home, alice, "chat-1")).unwrap();
    assert_eq!(found, Some(second));
}

#[tokio::test]
async fn a_restart_loses_live_sessions_and_says_so() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let live = session(alice, Some("chat-1"));
    let mut closed = session(alice, None);
    closed.status = SessionStatus::Closed;
    let (one, two) = (live.clone(), closed.clone());
    world.write(move |tx| tx.insert_session(home, &one, None)).await;
    world.write(move |tx| tx.insert_session(home, &two, None)).await;
    let world = world.restart();
    assert_eq!(world.write(|tx| tx.mark_all_sessions_lost(moment(60))).await, 1);
    let stored = world.db.read(|reader| reader.session_by_key(home, alice, "chat-1")).unwrap();
    assert_eq!(stored.unwrap().status, SessionStatus::Lost);
    let stored = world.db.read(|reader| reader.session(home, closed.sandbox_id)).unwrap();
    assert_eq!(stored, Some(closed));
}

#[tokio::test]
async fn nothing_of_records_is_found_from_another_workspace() {
    let world = World::new().await;
    let (home, other, alice) = (world.home, world.other, world.alice);
    let done = execution(world.alice, ExecutionStatus::Running);
    let chat = session(alice, Some("chat-1"));
    run(&world, &done).await;
    let (id, sandbox) = (done.id, chat.sandbox_id);
    let kept = chat.clone();
    world.write(move |tx| tx.insert_session(home, &kept, None)).await;
    let foreign = FinishedExecutionRow::new(&done, &events()).unwrap();
    assert!(!world.write(move |tx| tx.finish_execution(other, &foreign)).await);
    assert!(
        !world.write(move |tx| tx.set_execution_status(other, id, ExecutionStatus::Failed)).await
    );
    assert!(!world.write(move |tx| tx.update_session(other, &chat)).await);
    assert!(finish(&world, &done).await);
    for (workspace, there) in [(home, true), (other, false)] {
        let db = &world.db;
        assert_eq!(db.read(|r| r.execution(workspace, id)).unwrap().is_some(), there);
        assert_eq!(db.read(|r| r.execution_events(workspace, id)).unwrap().is_some(), there);
        let any = ExecutionFilter::default();
        let listed = db.read(|r| r.executions(workspace, &any, ALL)).unwrap().items;
        assert_eq!(!listed.is_empty(), there);
        let of = db.read(|r| r.executions_in_session(workspace, done.sandbox_id.unwrap())).unwrap();
        assert_eq!(!of.is_empty(), there);
        assert_eq!(db.read(|r| r.session(workspace, sandbox)).unwrap().is_some(), there);
        let by_key = db.read(|r| r.session_by_key(workspace, alice, "chat-1")).unwrap();
        assert_eq!(by_key.is_some(), there);
        let any = SessionFilter::default();
        let listed = db.read(|r| r.sessions(workspace, &any, ALL)).unwrap().items;
        assert_eq!(!listed.is_empty(), there);
    }
}
