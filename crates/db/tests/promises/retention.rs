//! R10: ended records are deleted after their retention, and the files of the database shrink.

use crate::world::{ALL, World, execution, id, moment, purge, session};
use belljar_db::{ExecutionFilter, PageRequest, RememberedApproval, Retention};
use chrono::TimeDelta;
use std::fs;
use std::time::{Duration, Instant};
use types::{
    ApiKey, ApprovalId, ApprovalScope, Execution, ExecutionStatus, KeyId, Session, SessionStatus,
    ToolId,
};

fn remembered(world: &World, sandbox: Option<&Session>, days: i64) -> RememberedApproval {
    RememberedApproval {
        id: id(),
        requester: world.alice,
        tool: ToolId::new(id()),
        agent: None,
        sandbox_id: sandbox.map(|session| session.sandbox_id),
        scope: if sandbox.is_some() { ApprovalScope::Session } else { ApprovalScope::Always },
        mac: [7; 32],
        approval_id: ApprovalId::new(id()),
        created_at: moment(0) + TimeDelta::days(days),
    }
}

#[tokio::test]
async fn t120_sessions_keys_and_answers_are_forgotten_when_they_are_over() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let now = moment(0) + TimeDelta::days(100);
    let recent = now - TimeDelta::days(1);
    let over = Session { status: SessionStatus::Closed, ..session(alice, None) };
    let late = Session {
        updated_at: recent,
        ..Session { sandbox_id: session(alice, None).sandbox_id, ..over.clone() }
    };
    let open = session(alice, Some("chat"));
    let key = |ended: Option<i64>| ApiKey {
        id: KeyId::new(id()),
        name: "k".into(),
        principal: alice,
        created_with: None,
        counted_with: None,
        rate_per_second: None,
        concurrency: None,
        created_at: moment(0),
        expires_at: None,
        revoked_at: ended.map(|days| moment(0) + TimeDelta::days(days)),
    };
    let (revoked, lately, good) = (key(Some(1)), key(Some(99)), key(None));
    let parent = key(Some(1));
    let child = ApiKey { created_with: Some(parent.id), ..key(None) };
    let answers = [
        remembered(&world, Some(&over), 99),
        remembered(&world, None, 1),
        remembered(&world, None, 99),
    ];
    let (sessions, keys) = (
        [over.clone(), late.clone(), open.clone()],
        [revoked.clone(), lately.clone(), good.clone(), parent.clone(), child.clone()],
    );
    world
        .write(move |tx| {
            sessions.iter().try_for_each(|session| tx.insert_session(home, session, None))?;
            keys.iter().try_for_each(|key| tx.insert_key(home, key, &[1; 32]))?;
            answers.iter().try_for_each(|answer| tx.insert_remembered_approval(home, answer))
        })
        .await;
    let purged = purge(&world, now, Retention::all(TimeDelta::days(30))).await;
    assert_eq!((purged.sessions, purged.keys, purged.remembered_approvals), (1, 1, 1));
    let session_there = |id| world.db.read(|r| r.session(home, id)).unwrap().is_some();
    assert!(!session_there(over.sandbox_id));
    assert!(session_there(late.sandbox_id) && session_there(open.sandbox_id));
    let key_there = |id| world.db.read(|r| r.key(home, id)).unwrap().is_some();
    assert!(!key_there(revoked.id));
    let stay = [lately.id, good.id, child.id, parent.id];
    assert!(stay.into_iter().all(key_there), "a key that made one that is good is revoked with it");
    let database = rusqlite::Connection::open(world.data.path().join("db/belljar.sqlite3"));
    let left: i64 = database
        .unwrap()
        .query_row("SELECT count(*) FROM remembered", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 1, "that of the session went with it, and one by its age");
}

#[tokio::test]
async fn t120_the_database_and_its_log_become_smaller_again() {
    const MIB: u64 = 1024 * 1024;
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let size = |name: &str| fs::metadata(world.data.path().join("db").join(name)).unwrap().len();
    // In one transaction, so that the log must hold all of it.
    world
        .write(move |tx| {
            (0..32).try_for_each(|_| {
                let code = "#".repeat(1024 * 1024);
                let large = Execution { code, ..execution(alice, ExecutionStatus::Succeeded) };
                tx.insert_execution(home, &large)
            })
        })
        .await;
    assert!(size("belljar.sqlite3-wal") > 30 * MIB);
    let now = moment(0) + TimeDelta::days(30);
    let purged = purge(&world, now, Retention::all(TimeDelta::days(7))).await;
    assert_eq!(purged.executions, 32);
    // Each write is followed by what moves the log into the database.
    let began = Instant::now();
    while size("belljar.sqlite3") > 2 * MIB || size("belljar.sqlite3-wal") > 8 * MIB {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{} and {} bytes",
            size("belljar.sqlite3"),
            size("belljar.sqlite3-wal")
        );
        let run =
            Execution { code: "#".repeat(100_000), ..execution(alice, ExecutionStatus::Succeeded) };
        world.write(move |tx| tx.insert_execution(home, &run)).await;
        purge(&world, now, Retention::all(TimeDelta::days(7))).await;
    }
}

#[tokio::test]
async fn t120_a_list_by_status_does_not_read_what_has_another() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let failed = execution(alice, ExecutionStatus::Failed);
    let id = failed.id;
    world.write(move |tx| tx.insert_execution(home, &failed)).await;
    for _ in 0..40 {
        world
            .write(move |tx| {
                (0..500).try_for_each(|_| {
                    let run = Execution {
                        code: "#".repeat(2000),
                        ..execution(alice, ExecutionStatus::Succeeded)
                    };
                    tx.insert_execution(home, &run)
                })
            })
            .await;
    }
    let quickest = |status, limit| {
        let filter = ExecutionFilter { status: Some(status), ..ExecutionFilter::default() };
        (0..10)
            .map(|_| {
                let began = Instant::now();
                let page = PageRequest { after: None, limit };
                let listed = world.db.read(|r| r.executions(home, &filter, page)).unwrap();
                assert!(!listed.items.is_empty());
                began.elapsed()
            })
            .min()
            .unwrap()
    };
    // One row that is behind 20,000 others, beside the newest rows of those.
    let (rare, common) =
        (quickest(ExecutionStatus::Failed, 50), quickest(ExecutionStatus::Succeeded, 50));
    assert!(rare < common * 4, "{rare:?} beside {common:?}");
    let filter =
        ExecutionFilter { status: Some(ExecutionStatus::Failed), ..ExecutionFilter::default() };
    let listed = world.db.read(|r| r.executions(home, &filter, ALL)).unwrap().items;
    let ids = listed.iter().map(|run| serde_json::from_str::<Execution>(run.as_str()).unwrap().id);
    assert_eq!(ids.collect::<Vec<_>>(), [id]);
}
