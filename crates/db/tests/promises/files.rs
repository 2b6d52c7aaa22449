//! Files: bytes are written before rows, rows are deleted before bytes, and both on time.

use crate::world::{ALL, World, execution, id, moment, purge};
use belljar_db::{ClaimOutcome, IdempotencyKey, PurgeCounts, Retention};
use chrono::TimeDelta;
use std::fs;
use std::io::Read;
use std::slice::from_ref;
use types::{Execution, ExecutionId, ExecutionStatus, File, FileId, FileSource, PrincipalId};

fn file(owner: PrincipalId, source: FileSource, execution: Option<ExecutionId>) -> File {
    File {
        id: FileId::new(id()),
        name: "a.csv".into(),
        owner,
        mime: "text/csv".into(),
        size: 5,
        sha256: "00".into(),
        source,
        url: None,
        source_url: None,
        sandbox_id: None,
        execution_id: execution,
        created_at: moment(0),
        expires_at: None,
    }
}

/// Bytes and row, as a server does it.
async fn keep(world: &World, file: &File) {
    keep_bytes(world, file.id).await;
    let (home, file) = (world.home, file.clone());
    world.write(move |tx| tx.insert_file(home, &file)).await;
}

async fn keep_bytes(world: &World, id: FileId) {
    let staged = world.db.blobs().staging_path();
    fs::write(&staged, b"bytes").unwrap();
    world.db.persist_blob(staged, id).await.unwrap();
}

fn bytes(world: &World, id: FileId) -> Option<Vec<u8>> {
    let mut file = world.db.blobs().open_file(id).unwrap()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    Some(bytes)
}

#[tokio::test]
async fn what_was_kept_is_there_after_a_restart_and_what_was_on_its_way_is_not() {
    let world = World::new().await;
    let document = file(world.alice, FileSource::Upload, None);
    keep(&world, &document).await;
    let half = world.db.blobs().staging_path();
    fs::write(&half, b"half").unwrap();
    let without_row = FileId::new(id());
    keep_bytes(&world, without_row).await;
    assert!(bytes(&world, without_row).is_some());
    let world = world.restart();
    assert_eq!(bytes(&world, document.id).as_deref(), Some(&b"bytes"[..]));
    let found = world.db.read(|r| r.file(world.home, document.id)).unwrap();
    assert_eq!(found, Some(document));
    assert!(!half.exists());
    assert_eq!(bytes(&world, without_row), None);
}

#[tokio::test]
async fn a_workspace_knows_the_sum_of_its_files() {
    let world = World::new().await;
    let (home, other) = (world.home, world.other);
    let sum = |workspace| world.db.read(move |r| r.file_bytes(workspace)).unwrap();
    let (one, two) =
        (file(world.alice, FileSource::Upload, None), file(world.alice, FileSource::Url, None));
    keep(&world, &one).await;
    keep(&world, &two).await;
    assert_eq!((sum(home), sum(other)), (10, 0));
    assert!(world.write(move |tx| tx.delete_file(home, one.id)).await);
    assert!(!world.write(move |tx| tx.delete_file(home, one.id)).await);
    assert_eq!(sum(home), 5);
}

#[tokio::test]
async fn what_code_made_is_with_its_execution_and_not_among_documents() {
    let world = World::new().await;
    let home = world.home;
    let run = execution(world.alice, ExecutionStatus::Running);
    let run_id = run.id;
    world.write(move |tx| tx.insert_execution(home, &run)).await;
    let made = file(world.alice, FileSource::Code, Some(run_id));
    let document = file(world.alice, FileSource::Upload, None);
    keep(&world, &made).await;
    keep(&world, &document).await;
    let listed = world.db.read(|r| r.files_of_execution(home, run_id)).unwrap();
    assert_eq!(listed, from_ref(&made));
    let found = world.db.read(|r| r.file_of_execution(home, run_id, "a.csv")).unwrap();
    assert_eq!(found, Some(made));
    assert_eq!(world.db.read(|r| r.file_of_execution(home, run_id, "b.csv")).unwrap(), None);
    let documents = |owner| world.db.read(move |r| r.documents(home, owner, ALL)).unwrap().items;
    assert_eq!(documents(None), from_ref(&document));
    assert_eq!(documents(Some(world.alice)), [document]);
    assert_eq!(documents(Some(world.mallory)), []);
}

#[tokio::test]
async fn nothing_of_files_is_found_from_another_workspace() {
    let world = World::new().await;
    let (home, other) = (world.home, world.other);
    let run = execution(world.alice, ExecutionStatus::Running);
    let run_id = run.id;
    world.write(move |tx| tx.insert_execution(home, &run)).await;
    let made = file(world.alice, FileSource::Code, Some(run_id));
    let document = file(world.alice, FileSource::Upload, None);
    keep(&world, &made).await;
    keep(&world, &document).await;
    for (workspace, there) in [(home, true), (other, false)] {
        let db = &world.db;
        assert_eq!(db.read(|r| r.file(workspace, document.id)).unwrap().is_some(), there);
        let by_name = db.read(|r| r.file_of_execution(workspace, run_id, "a.csv")).unwrap();
        assert_eq!(by_name.is_some(), there);
        let made = db.read(|r| r.files_of_execution(workspace, run_id)).unwrap();
        assert_eq!(!made.is_empty(), there);
        let documents = db.read(|r| r.documents(workspace, None, ALL)).unwrap().items;
        assert_eq!(!documents.is_empty(), there);
    }
    assert!(!world.write(move |tx| tx.delete_file(other, document.id)).await);
    let foreign = file(world.mallory, FileSource::Code, Some(run_id));
    let refused = world.db.write(move |tx| tx.insert_file(other, &foreign)).await;
    assert!(refused.is_err(), "a file of an execution of elsewhere");
}

#[tokio::test]
async fn what_is_over_is_forgotten_and_what_is_not_stays() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    let now = moment(0) + TimeDelta::days(30);
    let retention = Retention::all(TimeDelta::days(7));
    let old = execution(alice, ExecutionStatus::Succeeded);
    let waiting = execution(alice, ExecutionStatus::WaitingApproval);
    let recent = Execution {
        created_at: now - TimeDelta::days(1),
        ..execution(alice, ExecutionStatus::Succeeded)
    };
    let runs = [old.clone(), waiting.clone(), recent.clone()];
    let request = |key: &str| IdempotencyKey { workspace: home, principal: alice, key: key.into() };
    let (stale, fresh) = (request("stale"), request("fresh"));
    let (first, second) = (stale.clone(), fresh.clone());
    world
        .write(move |tx| {
            runs.iter().try_for_each(|run| tx.insert_execution(home, run))?;
            tx.claim_request(&first, &[1; 32], now - TimeDelta::hours(25))?;
            tx.claim_request(&second, &[1; 32], now - TimeDelta::hours(23))
        })
        .await;
    let of_old = file(alice, FileSource::Code, Some(old.id));
    let of_recent = file(alice, FileSource::Code, Some(recent.id));
    let expired = File { expires_at: Some(now), ..file(alice, FileSource::Upload, None) };
    let later = now + TimeDelta::seconds(1);
    let lasting = File { expires_at: Some(later), ..file(alice, FileSource::Upload, None) };
    for file in [&of_old, &of_recent, &expired, &lasting] {
        keep(&world, file).await;
    }
    let purged = purge(&world, now, retention).await;
    assert_eq!(
        purged,
        PurgeCounts { files: 2, executions: 1, requests: 1, ..PurgeCounts::default() }
    );
    for gone in [&of_old, &expired] {
        assert_eq!(world.db.read(|r| r.file(home, gone.id)).unwrap(), None);
        assert_eq!(bytes(&world, gone.id), None);
    }
    for stays in [&of_recent, &lasting] {
        assert!(world.db.read(|r| r.file(home, stays.id)).unwrap().is_some());
        assert!(bytes(&world, stays.id).is_some());
    }
    let there = |id| world.db.read(move |r| r.execution(home, id)).unwrap().is_some();
    assert_eq!((there(old.id), there(waiting.id), there(recent.id)), (false, true, true));
    let again = world.write(move |tx| tx.claim_request(&stale, &[1; 32], now)).await;
    assert_eq!(again, ClaimOutcome::Claimed);
    let again = world.write(move |tx| tx.claim_request(&fresh, &[1; 32], now)).await;
    assert_eq!(again, ClaimOutcome::Pending(None));
}

#[tokio::test]
async fn more_than_one_step_of_old_executions_goes_in_one_purge() {
    let world = World::new().await;
    let (home, alice) = (world.home, world.alice);
    world
        .write(move |tx| {
            (0..250).try_for_each(|_| {
                tx.insert_execution(home, &execution(alice, ExecutionStatus::Failed))
            })
        })
        .await;
    let retention = Retention::all(TimeDelta::days(7));
    let now = moment(0) + TimeDelta::days(30);
    let purged = purge(&world, now, retention).await;
    assert_eq!(purged, PurgeCounts { executions: 250, ..PurgeCounts::default() });
}

#[tokio::test]
async fn however_long_things_are_kept_nothing_goes_early() {
    let world = World::new().await;
    let (home, run) = (world.home, execution(world.alice, ExecutionStatus::Succeeded));
    world.write(move |tx| tx.insert_execution(home, &run)).await;
    let made = file(world.alice, FileSource::Code, None);
    let far = moment(0).checked_add_signed(TimeDelta::days(200_000));
    keep(&world, &File { expires_at: far, ..made }).await;
    let now = moment(0) + TimeDelta::days(30);
    let kept = [TimeDelta::days(200_000), TimeDelta::days(100_000_000), TimeDelta::MAX];
    for time in kept {
        let purged = purge(&world, now, Retention::all(time)).await;
        assert_eq!(purged, PurgeCounts::default(), "{time}");
    }
    let purged = purge(&world, now, Retention::all(TimeDelta::days(29))).await;
    assert_eq!(purged.executions, 1);
}
