//! T61: after a kill at any moment, all acknowledged records are there, once and whole.

use crate::wait_blocking;
use crate::world::{World, id, moment, principal};
use belljar_db::{Database, NewAuditEntry, verify_audit};
use rusqlite::Connection;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use types::{File, FileId, FileSource, Principal, PrincipalId, WorkspaceId};
use uuid::Uuid;

const KILLS: usize = 100;
const WRITERS: usize = 4;
/// Longer than a checkpoint, so that some kills fall into one.
const LONGEST_LIFE: Duration = Duration::from_millis(40);
/// Where the child finds the data and the workspace that it writes into.
const CHILD: &str = "BELLJAR_VOLUME_CHILD";

#[tokio::test]
async fn t61_what_was_acknowledged_before_a_kill_is_there_once() {
    let World { db, data, home, .. } = World::new().await;
    drop(db);
    let mut acknowledged = HashSet::new();
    for _ in 0..KILLS {
        let new = killed_after(data.path(), home, lifetime());
        assert!(new.iter().all(|id| acknowledged.insert(*id)), "acknowledged twice");
    }
    assert!(acknowledged.len() > KILLS, "the child wrote hardly anything");
    let db = Database::open(data.path()).unwrap();
    let entries = verify_audit(data.path(), None, None).unwrap().entries;
    let kept = kept(&db, data.path(), home);
    assert_eq!(acknowledged.difference(&kept).count(), 0, "acknowledged, and not there");
    assert_eq!(i64::try_from(kept.len()).unwrap(), entries, "a row and its entry come together");
}

fn lifetime() -> Duration {
    let [.., high, low] = *Uuid::now_v7().as_bytes();
    LONGEST_LIFE.mul_f64(f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX))
}

/// What the child had acknowledged when it was killed.
fn killed_after(data: &Path, home: WorkspaceId, life: Duration) -> Vec<Uuid> {
    let mut child = start(data, home);
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut acknowledged = |line: String| line.strip_prefix("kept ").map(|id| id.parse().unwrap());
    let first: Uuid = said.find_map(&mut acknowledged).unwrap();
    wait_blocking::any_moment(life);
    child.kill().unwrap();
    child.wait().unwrap();
    std::iter::once(first).chain(said.filter_map(&mut acknowledged)).collect()
}

fn start(data: &Path, home: WorkspaceId) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "power::writes_until_it_is_killed", "--ignored", "--nocapture"])
        .env(CHILD, format!("{home} {}", data.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The ids of the rows, all of them readable, and each file with its bytes.
fn kept(db: &Database, data: &Path, home: WorkspaceId) -> HashSet<Uuid> {
    let connection = Connection::open(data.join("db/belljar.sqlite3")).unwrap();
    let verdict: String =
        connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let ids = |sql: &str| {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([home.uuid()], |row| row.get::<_, Uuid>(0)).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>()
    };
    let mut kept = HashSet::new();
    for id in ids("SELECT id FROM principals WHERE workspace = ?1 AND name <> 'alice'") {
        let found = db.read(|r| r.principal(home, PrincipalId::new(id))).unwrap();
        assert!(found.is_some() && kept.insert(id));
    }
    for id in ids("SELECT id FROM files WHERE workspace = ?1") {
        let bytes = db.blobs().open_file(FileId::new(id)).unwrap().unwrap();
        assert_eq!(std::io::read_to_string(bytes).unwrap(), id.to_string());
        assert!(kept.insert(id));
    }
    kept
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "is the process that t61 kills"]
async fn writes_until_it_is_killed() {
    let given = std::env::var(CHILD).unwrap();
    let (home, data) = given.split_once(' ').unwrap();
    let (home, data): (WorkspaceId, PathBuf) = (home.parse().unwrap(), data.into());
    let db = Database::open(&data).unwrap();
    let writers = (0..WRITERS).map(|_| tokio::spawn(write_on(Arc::clone(&db), home)));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// By turns with and without waiting for the disk, and a file with its bytes.
async fn write_on(db: Arc<Database>, home: WorkspaceId) {
    loop {
        let (soon, full) = (principal(&id().to_string()), principal(&id().to_string()));
        let (first, second) = (soon.id.uuid(), full.id.uuid());
        let file = file(soon.id);
        let third = file.id.uuid();
        db.write_unsynced(move |tx| insert(tx, home, &soon)).await.unwrap();
        acknowledge(first);
        db.write(move |tx| insert(tx, home, &full)).await.unwrap();
        acknowledge(second);
        let staged = db.blobs().staging_path();
        std::fs::write(&staged, third.to_string()).unwrap();
        db.persist_blob(staged, file.id).await.unwrap();
        let written = db.write(move |tx| {
            tx.insert_file(home, &file)?;
            tx.append_audit_entry(&line(home)).map(drop)
        });
        written.await.unwrap();
        acknowledge(third);
    }
}

fn insert(
    tx: &belljar_db::Tx<'_>,
    home: WorkspaceId,
    principal: &Principal,
) -> Result<(), belljar_db::DatabaseError> {
    tx.insert_principal(home, principal)?;
    tx.append_audit_entry(&line(home)).map(drop)
}

fn line(home: WorkspaceId) -> NewAuditEntry {
    NewAuditEntry {
        at: moment(0),
        workspace: home,
        principal: None,
        key: None,
        action: "test.write".into(),
        object: String::new(),
        detail: String::new(),
    }
}

fn file(owner: PrincipalId) -> File {
    File {
        id: FileId::new(id()),
        name: "a.txt".into(),
        owner,
        mime: "text/plain".into(),
        size: 36,
        sha256: String::new(),
        source: FileSource::Upload,
        url: None,
        source_url: None,
        sandbox_id: None,
        execution_id: None,
        created_at: moment(0),
        expires_at: None,
    }
}

/// One write of one line: a kill leaves it whole or not at all.
fn acknowledge(id: Uuid) {
    std::io::stdout().write_all(format!("\nkept {id}\n").as_bytes()).unwrap();
}
