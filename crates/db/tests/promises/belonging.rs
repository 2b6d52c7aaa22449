//! R2: a database that is missing, another one, or an older copy never costs the files.

use crate::world::{World, id, moment};
use belljar_db::{ClockReading, Database, DatabaseError, PurgeOutcome, Retention};
use chrono::{DateTime, TimeDelta, Utc};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use types::{File, FileId, FileSource};

/// With one document, whose path is told, and one volume.
async fn kept() -> (World, PathBuf) {
    let world = World::new().await;
    let file = File {
        id: FileId::new(id()),
        name: "a.csv".into(),
        owner: world.alice,
        mime: "text/csv".into(),
        size: 5,
        sha256: "00".into(),
        source: FileSource::Upload,
        url: None,
        source_url: None,
        sandbox_id: None,
        execution_id: None,
        created_at: moment(0),
        expires_at: None,
    };
    let staged = world.db.blobs().staging_path();
    fs::write(&staged, b"bytes").unwrap();
    world.db.persist_blob(staged, file.id).await.unwrap();
    let (home, row) = (world.home, file.clone());
    world.write(move |tx| tx.insert_file(home, &row)).await;
    audit(&world).await;
    let found = files(world.data.path());
    fs::create_dir_all(world.data.path().join("volumes/all/0198-volume")).unwrap();
    (world, found.into_iter().next().unwrap())
}

async fn audit(world: &World) {
    let line = belljar_db::NewAuditEntry {
        at: moment(0),
        workspace: world.home,
        principal: None,
        key: None,
        action: "test.write".into(),
        object: String::new(),
        detail: String::new(),
    };
    world.write(move |tx| tx.append_audit_entry(&line)).await;
}

fn files(data: &Path) -> Vec<PathBuf> {
    let directories = fs::read_dir(data.join("db/files")).unwrap().map(|it| it.unwrap().path());
    let files = directories
        .filter(|directory| directory.is_dir())
        .flat_map(|directory| fs::read_dir(directory).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

fn database(data: &Path) -> PathBuf {
    data.join("db/belljar.sqlite3")
}

#[tokio::test]
async fn t121_without_its_database_nothing_is_made_and_every_file_stays() {
    let (world, file) = kept().await;
    let data = world.data;
    drop(world.db);
    let moved = data.path().join("elsewhere");
    fs::rename(database(data.path()), &moved).unwrap();
    for empty in [false, true] {
        if empty {
            fs::write(database(data.path()), b"").unwrap();
        }
        let error = Database::open(data.path()).unwrap_err();
        let DatabaseError::DatabaseMissing { files, volumes, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*files, *volumes), (1, 1));
        assert!(error.to_string().contains("belljar.sqlite3"), "{error}");
        assert!(file.exists() && data.path().join("volumes/all/0198-volume").exists());
    }
    fs::rename(moved, database(data.path())).unwrap();
    Database::open(data.path()).unwrap();
    assert!(file.exists());
    // Where nothing is kept, a database is made.
    Database::open(tempfile::tempdir().unwrap().path()).unwrap();
}

#[tokio::test]
async fn t121_files_of_another_database_are_not_touched() {
    let (world, file) = kept().await;
    let other = World::new().await;
    let (data, others) = (world.data, other.data);
    drop((world.db, other.db));
    for left in ["db/belljar.sqlite3-wal", "db/belljar.sqlite3-shm"] {
        let _ = fs::remove_file(data.path().join(left));
    }
    fs::copy(database(others.path()), database(data.path())).unwrap();
    let error = Database::open(data.path()).unwrap_err();
    assert!(matches!(error, DatabaseError::DatabaseMismatch { .. }), "{error}");
    assert!(file.exists());
    // The operator says that they belong together: what no record knows is set aside, not removed.
    fs::remove_file(data.path().join("db/files/.database")).unwrap();
    fs::remove_file(data.path().join("volumes/all/.database")).unwrap();
    for name in ["audit.head", "audit.key"] {
        fs::remove_file(data.path().join("db").join(name)).unwrap();
    }
    fs::copy(others.path().join("db/audit.key"), data.path().join("db/audit.key")).unwrap();
    let db = Database::open(data.path()).unwrap();
    let aside = db.quarantined().unwrap();
    assert_eq!(aside.files, 1);
    let moved = aside.directory.join(file.file_name().unwrap());
    assert_eq!(fs::read(&moved).unwrap(), b"bytes");
    // They go after the retention, and not before.
    let began = Instant::now();
    let purge = |days: i64| {
        let later = Utc::now() + TimeDelta::days(days);
        let seconds = u64::try_from(days * 86_400).unwrap();
        let monotonic = began + std::time::Duration::from_secs(seconds);
        db.purge(ClockReading { wall: later, monotonic }, Retention::all(TimeDelta::days(30)))
    };
    for (days, stays) in [(0, true), (29, true), (31, false)] {
        assert!(matches!(purge(days).await.unwrap(), PurgeOutcome::Completed(_)));
        assert_eq!(moved.exists(), stays, "after {days} days");
    }
}

#[tokio::test]
async fn t121_a_database_without_its_last_commits_is_noticed() {
    let (world, file) = kept().await;
    // What a kill leaves: the database and its log as they are now.
    let copy = tempfile::tempdir().unwrap();
    let mut copying = std::process::Command::new("cp");
    copying.arg("-a").arg(world.data.path().join(".")).arg(copy.path());
    assert!(copying.status().unwrap().success());
    let data = copy.path();
    let log = data.join("db/belljar.sqlite3-wal");
    assert!(fs::metadata(&log).unwrap().len() > 0);
    let saved = data.join("saved");
    fs::rename(&log, &saved).unwrap();
    let _ = fs::remove_file(data.join("db/belljar.sqlite3-shm"));
    let error = Database::open(data).unwrap_err();
    assert!(matches!(error, DatabaseError::CommitsMissing { has: 0, had: 1, .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("-wal") && said.contains("audit.head"), "{said}");
    let name = file.file_name().unwrap();
    assert!(files(data).iter().any(|file| file.file_name() == Some(name)));
    // With its log it is whole.
    for left in ["db/belljar.sqlite3-wal", "db/belljar.sqlite3-shm"] {
        let _ = fs::remove_file(data.join(left));
    }
    fs::rename(saved, &log).unwrap();
    let db = Database::open(data).unwrap();
    assert_eq!(db.quarantined(), None);
}

#[tokio::test]
async fn t122_a_clock_that_is_ahead_for_a_while_costs_nothing() {
    let mut world = World::new().await;
    let (home, began) = (world.home, Instant::now());
    let run = crate::world::execution(world.alice, types::ExecutionStatus::Succeeded);
    let id = run.id;
    world.write(move |tx| tx.insert_execution(home, &run)).await;
    let there = |world: &World| world.db.read(|r| r.execution(home, id)).unwrap().is_some();
    let at = |seconds: u64, ahead: TimeDelta| -> ClockReading {
        let passed = std::time::Duration::from_secs(seconds);
        let wall: DateTime<Utc> = moment(60) + TimeDelta::from_std(passed).unwrap() + ahead;
        ClockReading { wall, monotonic: began + passed }
    };
    let retention = Retention::all(TimeDelta::days(30));
    let (right, ahead) = (TimeDelta::zero(), TimeDelta::days(40));
    let done = |found| matches!(found, PurgeOutcome::Completed(_));
    assert!(done(world.db.purge(at(0, right), retention).await.unwrap()));
    for (seconds, restart) in [(30, false), (60, false), (90, true), (120, true)] {
        if restart {
            world = world.restart();
        }
        let found = world.db.purge(at(seconds, ahead), retention).await.unwrap();
        assert_eq!(found, PurgeOutcome::ClockUnconfirmed, "{seconds}");
        assert!(there(&world), "{seconds}");
    }
    assert!(done(world.db.purge(at(150, right), retention).await.unwrap()));
    assert!(there(&world));
    // When the days have really passed, it goes.
    let days = 40 * 86_400;
    assert!(done(world.db.purge(at(days, right), retention).await.unwrap()));
    assert!(!there(&world));
}
