//! The audit log: a change of the file by other programs is detected.

use crate::world::{ALL, World, moment, principal, purge};
use belljar_db::{
    AuditError, AuditFilter, AuditSignOutcome, ChainBreak, Database, DatabaseError, KeyTrouble,
    NewAuditEntry, PageRequest, Retention, sign_audit, verify_audit,
};
use chrono::TimeDelta;
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use types::{PrincipalId, WorkspaceId};

fn line(workspace: WorkspaceId, principal: PrincipalId, action: &str) -> NewAuditEntry {
    NewAuditEntry {
        at: moment(0),
        workspace,
        principal: Some(principal),
        key: None,
        action: action.into(),
        object: "tool 1".into(),
        detail: "by hand".into(),
    }
}

/// Five entries.
async fn written() -> World {
    let world = World::new().await;
    let entry = line(world.home, world.alice, "tool.create");
    world.write(move |tx| (0..5).try_for_each(|_| tx.append_audit_entry(&entry).map(drop))).await;
    world
}

fn entries(world: &World) -> i64 {
    verify_audit(world.data.path(), None, None).unwrap().entries
}

/// The verdict after a change of the file with SQL.
async fn tampered(sql: &str) -> (i64, ChainBreak) {
    let world = written().await;
    Connection::open(world.data.path().join("db/belljar.sqlite3"))
        .unwrap()
        .execute_batch(sql)
        .unwrap();
    match verify_audit(world.data.path(), None, None) {
        Err(AuditError::Broken { sequence, what }) => (sequence, what),
        other => panic!("{sql}: {other:?}"),
    }
}

#[tokio::test]
async fn an_untouched_log_is_whole_also_beside_a_running_server() {
    let world = written().await;
    assert_eq!(entries(&world), 5);
    let world = world.restart();
    let entry = line(world.home, world.alice, "tool.delete");
    world.write(move |tx| tx.append_audit_entry(&entry)).await;
    assert_eq!(entries(&world), 6);
    let empty = World::new().await;
    assert_eq!(entries(&empty), 0);
}

#[tokio::test]
async fn a_changed_entry_is_found_whatever_was_changed() {
    for column in
        ["action = 'x'", "object = 'x'", "detail = 'x'", "at = at + 1", "key = zeroblob(16)"]
    {
        let sql = format!("UPDATE audit SET {column} WHERE sequence = 3");
        assert_eq!(tampered(&sql).await, (3, ChainBreak::Changed), "{column}");
    }
    let nobody = "UPDATE audit SET principal = NULL WHERE sequence = 3";
    assert_eq!(tampered(nobody).await, (3, ChainBreak::Changed));
    let torn = "UPDATE audit SET hash = x'00' WHERE sequence = 3";
    assert_eq!(tampered(torn).await, (3, ChainBreak::Changed));
    let moved = "UPDATE audit SET action = action || substr(object, 1, 1), \
                 object = substr(object, 2) WHERE sequence = 3";
    assert_eq!(
        tampered(moved).await,
        (3, ChainBreak::Changed),
        "a letter from one field to the next"
    );
}

#[tokio::test]
async fn a_deleted_entry_is_missed_also_at_the_end() {
    assert_eq!(tampered("DELETE FROM audit WHERE sequence = 1").await, (1, ChainBreak::Missing));
    assert_eq!(tampered("DELETE FROM audit WHERE sequence = 3").await, (3, ChainBreak::Missing));
    assert_eq!(tampered("DELETE FROM audit WHERE sequence = 5").await, (5, ChainBreak::Missing));
    assert_eq!(tampered("DELETE FROM audit").await, (1, ChainBreak::Missing));
}

#[tokio::test]
async fn an_added_entry_is_found() {
    let copy = |sequence: i64| {
        format!(
            "INSERT INTO audit SELECT {sequence}, at, workspace, principal, key, action, object, \
             detail, previous_hash, hash FROM audit WHERE sequence = 5"
        )
    };
    assert_eq!(tampered(&copy(6)).await, (6, ChainBreak::Changed));
    assert_eq!(tampered(&copy(8)).await, (6, ChainBreak::Missing));
    let between = format!(
        "UPDATE audit SET sequence = sequence + 1 WHERE sequence = 5; \
         UPDATE audit SET sequence = 5 WHERE sequence = 4; {}",
        copy(4).replace("sequence = 5", "sequence = 3")
    );
    assert_eq!(tampered(&between).await, (4, ChainBreak::Changed));
}

#[tokio::test]
async fn an_entry_is_not_there_without_what_it_tells_of() {
    let world = written().await;
    let (home, alice) = (world.home, world.alice);
    let refused = world.db.write(move |tx| {
        tx.append_audit_entry(&line(home, alice, "principal.create"))?;
        tx.insert_principal(home, &principal("alice"))
    });
    assert!(matches!(refused.await, Err(DatabaseError::NameTaken { .. })));
    assert_eq!(entries(&world), 5);
}

#[tokio::test]
async fn entries_are_listed_newest_first_for_their_own_workspace() {
    let world = World::new().await;
    let (home, other, alice, mallory) = (world.home, world.other, world.alice, world.mallory);
    world
        .write(move |tx| {
            tx.append_audit_entry(&line(home, alice, "tool.create"))?;
            tx.append_audit_entry(&line(other, mallory, "tool.create"))?;
            tx.append_audit_entry(&line(home, alice, "tool.delete"))
        })
        .await;
    let list = |workspace, filter: AuditFilter, page: PageRequest| {
        world.db.read(move |r| r.audit_entries(workspace, &filter, page)).unwrap()
    };
    let sequences = |workspace, filter| {
        let items = list(workspace, filter, ALL).items;
        items.into_iter().map(|entry| entry.sequence).collect::<Vec<_>>()
    };
    assert_eq!(sequences(home, AuditFilter::default()), [3, 1]);
    assert_eq!(sequences(other, AuditFilter::default()), [2]);
    let created = AuditFilter { action: Some("tool.create".into()), principal: None };
    assert_eq!(sequences(home, created), [1]);
    let hers = AuditFilter { action: None, principal: Some(mallory) };
    assert_eq!(sequences(home, hers), [0; 0]);
    let first = list(home, AuditFilter::default(), PageRequest { after: None, limit: 1 });
    assert_eq!(first.items[0].sequence, 3);
    let second = list(home, AuditFilter::default(), PageRequest { after: first.next, limit: 1 });
    assert_eq!((second.items[0].sequence, second.next), (1, None));
    assert_eq!(second.items[0].previous_hash, "0".repeat(64));
    assert_eq!(second.items[0].hash.len(), 64);
}

/// Cuts the last entries off and sets the head back to the one before them, as an attacker with SQL can.
const CUT: &str = "DELETE FROM audit WHERE sequence > 3; UPDATE audit_head SET sequence = 3, \
                   hash = (SELECT hash FROM audit WHERE sequence = 3)";

#[tokio::test]
async fn t119_a_tail_that_was_cut_off_is_missed_though_the_head_was_set_back() {
    assert_eq!(tampered(CUT).await, (3, ChainBreak::UnsignedHead));
    assert_eq!(tampered("UPDATE audit_head SET mac = NULL").await, (5, ChainBreak::UnsignedHead));
    let floor = "DELETE FROM audit WHERE sequence <= 2; UPDATE audit_head SET floor_sequence = 2, \
                 floor_hash = (SELECT previous_hash FROM audit WHERE sequence = 3)";
    assert_eq!(
        tampered(floor).await,
        (5, ChainBreak::UnsignedHead),
        "the beginning is not forgotten by hand"
    );
    // The server does not go on from such a log, also where the signature alone tells that it is one,
    // and does go on from one that is whole.
    let without_mark = &["audit.head"][..];
    for (sql, files, starts) in [
        (CUT, &[][..], false),
        (CUT, without_mark, false),
        ("SELECT 1", &[][..], true),
        ("SELECT 1", without_mark, true),
    ] {
        let World { data, db, .. } = stripped(sql, files).await;
        drop(db);
        assert_eq!(Database::open(data.path()).is_ok(), starts, "{sql} {files:?}");
    }
}

#[tokio::test]
async fn t119_an_older_log_that_was_signed_is_behind_the_mark_beside_it() {
    let world = written().await;
    let database = world.data.path().join("db/belljar.sqlite3");
    let connection = Connection::open(&database).unwrap();
    let older: (Vec<u8>, Vec<u8>) = connection
        .query_row("SELECT hash, mac FROM audit_head", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let entry = line(world.home, world.alice, "tool.delete");
    world.write(move |tx| tx.append_audit_entry(&entry)).await;
    connection.execute("DELETE FROM audit WHERE sequence = 6", []).unwrap();
    let sql = "UPDATE audit_head SET sequence = 5, hash = ?1, mac = ?2";
    connection.execute(sql, older).unwrap();
    let found = verify_audit(world.data.path(), None, None);
    let Err(AuditError::Broken { sequence, what }) = found else { panic!("{found:?}") };
    assert_eq!((sequence, what), (6, ChainBreak::Truncated));
}

#[tokio::test]
async fn t119_a_hash_that_was_noted_must_be_in_the_log() {
    let world = written().await;
    let data = world.data.path();
    let head = verify_audit(data, None, None).unwrap().head;
    let entry = line(world.home, world.alice, "tool.delete");
    world.write(move |tx| tx.append_audit_entry(&entry)).await;
    let later = verify_audit(data, None, Some(&head)).unwrap();
    assert_eq!(later.entries, 6);
    assert_ne!(later.head, head);
    let other = "ab".repeat(32);
    assert!(matches!(verify_audit(data, None, Some(&other)), Err(AuditError::HashNotFound { .. })));
    for wrong in ["", "ab", &"zz".repeat(32), &"ab".repeat(33)] {
        assert!(
            matches!(verify_audit(data, None, Some(wrong)), Err(AuditError::InvalidHash(_))),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn t120_the_log_is_verified_after_its_old_part_was_forgotten() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    world
        .write(move |tx| {
            for day in 0..250 {
                let at = moment(0) + TimeDelta::days(day);
                tx.append_audit_entry(&NewAuditEntry { at, ..line(home, alice, "tool.create") })?;
            }
            Ok(())
        })
        .await;
    let retention =
        |days| Retention { audit: TimeDelta::days(days), ..Retention::all(TimeDelta::MAX) };
    let now = moment(0) + TimeDelta::days(250);
    assert_eq!(purge(&world, now, retention(400)).await.audit, 0, "nothing is that old");
    assert_eq!(purge(&world, now, retention(30)).await.audit, 221);
    let verified = verify_audit(world.data.path(), None, None).unwrap();
    assert_eq!((verified.entries, verified.forgotten), (29, 221));
    let world = world.restart();
    world.write(move |tx| tx.append_audit_entry(&line(home, alice, "tool.delete"))).await;
    assert_eq!(entries(&world), 30);
    let database = world.data.path().join("db/belljar.sqlite3");
    Connection::open(database)
        .unwrap()
        .execute("DELETE FROM audit WHERE sequence = 222", [])
        .unwrap();
    let found = verify_audit(world.data.path(), None, None);
    assert!(
        matches!(found, Err(AuditError::Broken { sequence: 222, what: ChainBreak::Missing })),
        "{found:?}"
    );
}

/// Removes every sign that a log was signed, as an attacker who can write to the data directory can.
const STRIPPED: &str = "DELETE FROM audit WHERE sequence > 3; UPDATE audit_head SET sequence = 3, mac = NULL, \
                        hash = (SELECT hash FROM audit WHERE sequence = 3)";

/// With a log that was changed by SQL, and without these files beside the records.
async fn stripped(sql: &str, files: &[&str]) -> World {
    let world = written().await;
    let database = world.data.path().join("db/belljar.sqlite3");
    Connection::open(database).unwrap().execute_batch(sql).unwrap();
    for name in files {
        fs::remove_file(world.data.path().join("db").join(name)).unwrap();
    }
    world
}

#[tokio::test]
async fn t159_a_log_that_was_stripped_of_its_key_and_signature_is_not_signed_again() {
    let both = ["audit.key", "audit.head"].as_slice();
    let emptied =
        "DELETE FROM audit; UPDATE audit_head SET sequence = 0, hash = zeroblob(32), mac = NULL";
    for (sql, files, expected) in [
        (STRIPPED, both, KeyTrouble::Missing),
        (emptied, both, KeyTrouble::Missing),
        ("SELECT 1", both, KeyTrouble::Missing),
        (STRIPPED, &["audit.head"], KeyTrouble::Unsigned),
        (emptied, &["audit.head"], KeyTrouble::Unsigned),
    ] {
        let World { data, db, .. } = stripped(sql, files).await;
        drop(db);
        for _ in 0..2 {
            let error = Database::open(data.path()).unwrap_err();
            let DatabaseError::AuditKey { what, .. } = &error else { panic!("{error}") };
            assert_eq!(*what, expected, "{sql}");
            assert!(error.to_string().contains("belljar audit sign"), "{error}");
        }
        assert_eq!(data.path().join("db/audit.key").exists(), files != both);
    }
}

#[tokio::test]
async fn t159_a_log_is_signed_again_on_request_with_an_entry_about_it() {
    for (sql, files) in [(STRIPPED, ["audit.key", "audit.head"].as_slice()), (CUT, &["audit.head"])]
    {
        let World { data, db, home, .. } = stripped(sql, files).await;
        let data = data.path();
        assert!(
            matches!(
                sign_audit(data, None),
                Err(AuditError::Database(DatabaseError::Locked { .. }))
            ),
            "a server has it"
        );
        drop(db);
        let AuditSignOutcome::Signed { found, entry } = sign_audit(data, None).unwrap() else {
            panic!("it was not whole")
        };
        assert!(
            entry == 4 && found.contains("the signature of the server is missing"),
            "{entry} {found}"
        );
        let db = Database::open(data).unwrap();
        let listed = db.read(|r| r.audit_entries(home, &AuditFilter::default(), ALL)).unwrap();
        let newest = &listed.items[0];
        assert_eq!((newest.action.as_str(), newest.sequence), ("audit.sign", 4));
        assert_eq!(newest.detail, found);
        assert_eq!(verify_audit(data, None, None).unwrap().entries, 4);
        drop(db);
        assert_eq!(sign_audit(data, None).unwrap(), AuditSignOutcome::Unchanged);
    }
}

#[tokio::test]
async fn t159_signing_again_hides_nothing() {
    let World { data, db, .. } = stripped("DELETE FROM audit WHERE sequence = 2", &[]).await;
    drop(db);
    assert!(matches!(sign_audit(data.path(), None), Ok(AuditSignOutcome::Signed { entry: 6, .. })));
    let found = verify_audit(data.path(), None, None);
    let what = ChainBreak::Missing;
    assert!(matches!(found, Err(AuditError::Broken { sequence: 2, what: it }) if it == what));
}

#[tokio::test]
async fn t159_with_its_key_elsewhere_the_data_directory_is_not_enough_to_sign() {
    let elsewhere = tempfile::tempdir().unwrap();
    let key = elsewhere.path().join("belljar.key");
    for sql in ["SELECT 1", STRIPPED] {
        let World { data, db, .. } = written().await;
        drop(db);
        let data = data.path();
        fs::rename(data.join("db/audit.key"), &key).unwrap();
        drop(Database::open_with(data, Some(&key)).unwrap());
        assert!(!data.join("db/audit.key").exists());
        Connection::open(data.join("db/belljar.sqlite3")).unwrap().execute_batch(sql).unwrap();
        // The attacker signs with a key of their own, which is all that they can have.
        if sql == STRIPPED {
            fs::remove_file(data.join("db/audit.head")).unwrap();
            assert!(matches!(sign_audit(data, None), Ok(AuditSignOutcome::Signed { .. })));
        }
        let opened = Database::open_with(data, Some(&key)).map(drop);
        let is_misfit = |error: &DatabaseError| {
            matches!(error, DatabaseError::AuditKey { what: KeyTrouble::Misfit, .. })
        };
        assert_eq!(opened.as_ref().is_err_and(is_misfit), sql == STRIPPED, "{opened:?}");
        assert_eq!(verify_audit(data, Some(&key), None).is_ok(), sql != STRIPPED);
        fs::remove_file(&key).unwrap();
    }
}

#[tokio::test]
async fn t169_a_start_that_is_refused_leaves_older_records_as_they_are() {
    let undone = "ALTER TABLE volumes RENAME TO stores; DROP INDEX sessions_of_key; ALTER TABLE sessions DROP COLUMN opened_with; \
                  ALTER TABLE approvals RENAME COLUMN mac TO seal; ALTER TABLE remembered RENAME COLUMN mac TO seal; \
                  DROP TABLE execution_inputs; DROP TABLE approval_arguments; DROP TABLE skills; \
                  PRAGMA user_version = 13;";
    let World { data, db, .. } = stripped(undone, &[]).await;
    drop(db);
    let data = data.path();
    let (key, away) = (data.join("db/audit.key"), data.join("away"));
    fs::rename(&key, &away).unwrap();
    let version = || -> usize {
        let records = Connection::open(data.join("db/belljar.sqlite3")).unwrap();
        records.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    };
    let error = Database::open(data).unwrap_err();
    assert!(matches!(error, DatabaseError::AuditKey { .. }), "{error}");
    assert_eq!((version(), key.exists()), (13, false));
    // The harmless twin: with its key it is opened, and is of today.
    fs::rename(&away, &key).unwrap();
    drop(Database::open(data).unwrap());
    assert!(version() > 13);
}

#[tokio::test]
async fn t170_signing_as_root_makes_a_key_for_the_user_of_the_records() {
    let World { data, db, .. } = stripped("SELECT 1", &["audit.key"]).await;
    drop(db);
    let data = data.path();
    let (key, database) = (data.join("db/audit.key"), data.join("db/belljar.sqlite3"));
    let full = "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END";
    Connection::open(&database).unwrap().execute_batch(full).unwrap();
    sign_audit(data, None).unwrap_err();
    assert!(!key.exists(), "a sign that fails leaves no key");
    Connection::open(&database).unwrap().execute_batch("DROP TRIGGER full").unwrap();
    // Only root can give a file away; other users have their own records, which is the twin.
    let _ = chown(&database, Some(12_345), None);
    sign_audit(data, None).unwrap();
    let owner = |path| fs::metadata(path).unwrap().uid();
    assert_eq!(owner(&key), owner(&database));
}
