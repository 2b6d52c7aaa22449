//! The one writer: many changes in one commit, each undone separately, and one server at a time.

use crate::world::{ALL, World, execution, id, moment, principal};
use belljar_db::{Database, DatabaseError, EventBatch, FinishedExecutionRow};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use tokio::task::{JoinSet, yield_now};
use types::{ApiKey, Event, ExecutionStatus, KeyId, PrincipalId};

/// The commits in the log, as they stand in the file.
fn commits(data: &Path) -> usize {
    const HEADER: usize = 32;
    const FRAME: usize = 24 + 4096;
    let log = fs::read(data.join("db/belljar.sqlite3-wal")).unwrap();
    let frames = log[HEADER..].chunks_exact(FRAME);
    frames.filter(|frame| frame[8..16] == log[16..24] && frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn concurrent_writes_share_one_commit_and_a_failing_one_affects_no_other() {
    let world = World::new().await;
    let home = world.home;
    let mut jobs = JoinSet::new();
    let release = hold_writer(&world, &mut jobs).await;
    for number in 0..100 {
        let db = world.db.clone();
        jobs.spawn(async move {
            let second = if number % 10 == 0 { "alice".into() } else { format!("q{number}") };
            let both = move |tx: &belljar_db::Tx<'_>| {
                tx.insert_principal(home, &principal(&format!("p{number}")))?;
                tx.insert_principal(home, &principal(&second))
            };
            db.write(both).await
        });
    }
    // On one thread, each of them gets as far as the queue before this goes on.
    for _ in 0..100 {
        yield_now().await;
    }
    let before = commits(world.data.path());
    release.send(()).unwrap();
    let answers = jobs.join_all().await;
    assert_eq!(commits(world.data.path()) - before, 1, "the first writes nothing");
    let refused = answers.iter().filter(|answer| {
        matches!(answer, Err(DatabaseError::NameTaken { kind: "principal", name }) if name == "alice")
    });
    assert_eq!(refused.count(), 10);
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1 + 90);
    let listed = world.db.read(|reader| reader.principals(home, ALL)).unwrap();
    assert_eq!(listed.items.len(), 1 + 90 * 2, "alice, and both rows of the ninety");
}

/// Keeps the writer busy until the returned sender is used or dropped.
async fn hold_writer(world: &World, jobs: &mut JoinSet<Result<(), DatabaseError>>) -> Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let db = world.db.clone();
    jobs.spawn(async move {
        let hold = move |_: &belljar_db::Tx<'_>| {
            begun.send(()).unwrap();
            // A sender that was dropped releases it, too.
            let _ = held.recv();
            Ok(())
        };
        db.write(hold).await
    });
    yield_now().await;
    begins.recv().unwrap();
    release
}

type Write = Pin<Box<dyn Future<Output = Result<(), DatabaseError>> + Send>>;

fn is_answered(write: &mut Write) -> bool {
    let answer = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    matches!(answer, Poll::Ready(Ok(())))
}

#[tokio::test]
async fn t217_a_record_is_answered_before_the_second_bulk_job_that_came_before_it() {
    let world = World::new().await;
    let mut jobs = JoinSet::new();
    let release = hold_writer(&world, &mut jobs).await;
    let record: Arc<OnceLock<Mutex<Write>>> = Arc::default();
    let (wrote, written) = mpsc::channel();
    for _ in 0..2 {
        let (db, record, wrote) = (world.db.clone(), Arc::clone(&record), wrote.clone());
        jobs.spawn(async move {
            let job = move |_: &belljar_db::Tx<'_>| {
                wrote.send(is_answered(&mut record.get().unwrap().lock().unwrap())).unwrap();
                Ok(())
            };
            db.write_bulk(None, job).await
        });
    }
    // On one thread, each of them gets as far as the queue before this goes on.
    for _ in 0..2 {
        yield_now().await;
    }
    let db = world.db.clone();
    let mut last: Write = Box::pin(async move { db.write(|_| Ok(())).await });
    assert!(!is_answered(&mut last), "the writer is held");
    assert!(record.set(Mutex::new(last)).is_ok());
    release.send(()).unwrap();
    assert!(jobs.join_all().await.iter().all(Result::is_ok));
    drop(wrote);
    // The first bulk job is in the transaction of the record, the second one in the next.
    assert_eq!(written.iter().collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn t217_callers_with_much_output_take_turns_and_the_output_of_each_keeps_its_order() {
    let world = World::new().await;
    let mut jobs = JoinSet::new();
    let release = hold_writer(&world, &mut jobs).await;
    let (many, few) = (PrincipalId::new(id()), PrincipalId::new(id()));
    let (wrote, written) = mpsc::channel();
    for (caller, count) in [(many, 100), (few, 2)] {
        for number in 0..count {
            let (db, wrote) = (world.db.clone(), wrote.clone());
            jobs.spawn(async move {
                let job = move |_: &belljar_db::Tx<'_>| {
                    wrote.send((caller, number)).unwrap();
                    Ok(())
                };
                db.write_bulk(Some(caller), job).await
            });
        }
    }
    for _ in 0..102 {
        yield_now().await;
    }
    release.send(()).unwrap();
    assert!(jobs.join_all().await.iter().all(Result::is_ok));
    drop(wrote);
    let order: Vec<_> = written.iter().collect();
    assert_eq!(order[..4], [(many, 0), (few, 0), (many, 1), (few, 1)]);
    assert_eq!(order[4..], (2..100).map(|number| (many, number)).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_job_that_panics_is_undone_and_the_next_one_is_kept() {
    let world = World::new().await;
    let home = world.home;
    let panics = world.db.write::<()>(move |tx| {
        tx.insert_principal(home, &principal("half"))?;
        panic!("a mistake in the server");
    });
    assert!(matches!(panics.await, Err(DatabaseError::Aborted)));
    world.write(move |tx| tx.insert_principal(home, &principal("whole"))).await;
    let named = |name: &'static str| {
        world.db.read(move |reader| reader.principal_by_name(home, name)).unwrap()
    };
    assert!(named("half").is_none());
    assert!(named("whole").is_some());
}

#[tokio::test]
async fn what_is_written_soon_is_seen_at_once_and_after_the_next_start() {
    let world = World::new().await;
    let home = world.home;
    let soon = world.db.write_unsynced(move |tx| tx.insert_principal(home, &principal("soon")));
    soon.await.unwrap();
    let seen = |db: &Database| {
        db.read(move |reader| reader.principal_by_name(home, "soon")).unwrap().is_some()
    };
    assert!(seen(&world.db));
    assert!(seen(&world.restart().db));
}

#[tokio::test]
async fn a_second_server_is_refused_and_may_come_when_the_first_has_ended() {
    let world = World::new().await;
    let Err(DatabaseError::Locked { path }) = Database::open(world.data.path()) else {
        panic!("two servers on one directory");
    };
    assert_eq!(path, world.data.path().join("db"));
    drop(world.db);
    Database::open(world.data.path()).unwrap();
}

#[tokio::test]
async fn no_other_user_of_the_machine_can_read_the_records() {
    let world = World::new().await;
    let mode = |name: &str| {
        let path = world.data.path().join("db").join(name);
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode("."), 0o700);
    for file in ["belljar.sqlite3", "belljar.sqlite3-wal", "belljar.sqlite3-shm"] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
}

#[tokio::test]
async fn records_of_an_older_belljar_are_taken_up_and_kept() {
    let world = World::new().await;
    let database = world.data.path().join("db/belljar.sqlite3");
    let (home, alice) = (world.home, world.alice);
    drop(world.db);
    let connection = rusqlite::Connection::open(&database).unwrap();
    let undone = "DROP INDEX principals_known_elsewhere;
        ALTER TABLE workspaces DROP COLUMN code_permission;
        ALTER TABLE workspaces DROP COLUMN package_policy;
        DROP TABLE volumes;
        DROP TABLE functions;
        DROP INDEX executions_of_function;
        ALTER TABLE executions DROP COLUMN function;
        DROP TABLE network_rules;
        DROP TABLE integrations;
        DROP TABLE network_log;
        DROP TABLE secrets;
        DROP TABLE sealed;
        DROP TABLE runs;
        DROP TABLE execution_events;
        ALTER TABLE executions DROP COLUMN events_before;
        DROP TABLE ownership_offers;
        DROP TABLE agent_uses;
        DROP TABLE server;
        ALTER TABLE audit_head DROP COLUMN floor_sequence;
        ALTER TABLE audit_head DROP COLUMN floor_hash;
        ALTER TABLE audit_head DROP COLUMN mac;
        DROP INDEX sessions_ended;
        ALTER TABLE sessions DROP COLUMN ended_at;
        DROP INDEX sessions_of_key;
        ALTER TABLE sessions DROP COLUMN opened_with;
        DROP INDEX keys_ended;
        ALTER TABLE keys DROP COLUMN ended_at;
        DROP INDEX remembered_by_age;
        DROP INDEX remembered_of_sandbox;
        DROP INDEX executions_by_status;
        DROP INDEX sessions_by_status;
        DROP TRIGGER questions_added;
        DROP TRIGGER questions_ended;
        DROP TRIGGER questions_removed;
        DROP INDEX approvals_pending;
        DROP INDEX approvals_of_key;
        ALTER TABLE workspaces DROP COLUMN question_bytes;
        ALTER TABLE approvals DROP COLUMN bytes;
        ALTER TABLE approvals DROP COLUMN key;
        ALTER TABLE approvals RENAME COLUMN mac TO seal;
        ALTER TABLE remembered RENAME COLUMN mac TO seal;
        DROP TABLE execution_inputs;
        DROP TABLE approval_arguments;
        DROP TABLE skills;";
    connection.execute_batch(undone).unwrap();
    connection.pragma_update(None, "user_version", 1).unwrap();
    // What an older one does not write beside its records.
    for name in ["db/audit.key", "db/audit.head", "db/files/.database", "volumes/all/.database"] {
        fs::remove_file(world.data.path().join(name)).unwrap();
    }
    let db = Database::open(world.data.path()).unwrap();
    assert!(db.read(|rows| rows.principal(home, alice)).unwrap().is_some());
    let index = "SELECT count(*) FROM sqlite_master WHERE name = 'principals_known_elsewhere'";
    let indexes: u64 = connection.query_row(index, [], |row| row.get(0)).unwrap();
    assert_eq!(indexes, 1);
}

/// Keys made with a stolen key are still revoked with it, a stream is still replayed, and text that
/// only looks like the name of an event stays as it is.
#[tokio::test]
async fn names_in_records_of_an_older_belljar_become_those_of_today() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let key = |created_with| ApiKey {
        id: KeyId::new(id()),
        name: "k".into(),
        principal: alice,
        created_with,
        counted_with: None,
        rate_per_second: None,
        concurrency: None,
        created_at: moment(0),
        expires_at: None,
        revoked_at: None,
    };
    let parent = key(None);
    let child = key(Some(parent.id));
    let ran = execution(alice, ExecutionStatus::Succeeded);
    let text = |text: &str| Event::Text { text: text.into() };
    let events = [text("one"), text(r#"{"event":"said","text":"two"}"#)];
    let (keys, batch) = ([parent.clone(), child.clone()], EventBatch::new(1, &events).unwrap());
    let row = FinishedExecutionRow::new(&ran, &events).unwrap().with_stored_events(2);
    world
        .write(move |tx| {
            keys.iter().try_for_each(|key| tx.insert_key(home, key, &[1; 32]))?;
            tx.insert_finished(home, &row)?;
            tx.insert_events(home, ran.id, &batch)
        })
        .await;
    let World { db, data, .. } = world;
    drop(db);
    let older = "ALTER TABLE approvals RENAME COLUMN mac TO seal;
        ALTER TABLE remembered RENAME COLUMN mac TO seal;
        UPDATE keys SET body = replace(body, 'created_with', 'made_with');
        UPDATE executions SET events = CAST(replace(CAST(events AS TEXT), '{\"event\":\"text\"',
            '{\"event\":\"said\"') AS BLOB);
        UPDATE execution_events SET body = CAST(replace(CAST(body AS TEXT), '{\"event\":\"text\"',
            '{\"event\":\"said\"') AS BLOB);
        DROP TABLE execution_inputs;
        DROP TABLE approval_arguments;
        DROP TABLE skills;
        PRAGMA user_version = 15;";
    let connection = rusqlite::Connection::open(data.path().join("db/belljar.sqlite3")).unwrap();
    connection.execute_batch(older).unwrap();
    drop(connection);
    let db = Database::open(data.path()).unwrap();
    let made = db.read(|rows| rows.keys_created_with(home, &parent)).unwrap();
    assert_eq!(made, [child.id]);
    let replayed = db.read(|rows| rows.execution_events(home, ran.id)).unwrap().unwrap();
    assert_eq!(replayed, [events.clone(), events].concat());
}

#[tokio::test]
async fn records_of_a_newer_belljar_are_refused_and_left_alone() {
    let world = World::new().await;
    let database = world.data.path().join("db/belljar.sqlite3");
    drop(world.db);
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let before = fs::read(&database).unwrap();
    let refused = Database::open(world.data.path());
    assert!(matches!(refused, Err(DatabaseError::NewerSchema { found: 99, .. })));
    assert_eq!(fs::read(&database).unwrap(), before);
}
