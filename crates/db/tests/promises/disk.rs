//! T63: a full disk is reported and recovered from; a broken disk stops all writes.

use crate::world::{World, execution, principal};
use belljar_db::DatabaseError;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use types::{Execution, ExecutionId, ExecutionStatus};

/// Where the child finds the disk that it may fill.
const CHILD: &str = "BELLJAR_VOLUME_DISK";
/// Bytes of one record: some of them fill a disk of a few megabytes.
const LARGE: usize = 100_000;

/// Runs one of the ignored tests below behind `prelude`, a shell script that ends with its disk.
fn child(prelude: &str, test: &str) {
    let disk = tempfile::TempDir::new().unwrap();
    let script = format!("{prelude}; exec \"$0\" --exact disk::{test} --ignored --nocapture");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, disk.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn t63_a_full_disk_is_told_and_when_there_is_room_again_all_goes_on() {
    let mount = format!("mount -t tmpfs -o size=4m tmpfs \"${CHILD}\"");
    child(&mount, "fills_its_disk");
}

#[test]
fn t63_after_an_error_of_the_disk_nothing_is_written_and_everything_can_be_read() {
    // A write beyond the limit fails with EFBIG, which stands here for any error of the disk.
    child("trap '' XFSZ; ulimit -f 2048", "breaks_its_disk");
}

fn disk() -> PathBuf {
    std::env::var(CHILD).unwrap().into()
}

async fn write_large(world: &World) -> Result<ExecutionId, DatabaseError> {
    let home = world.home;
    let code = "#".repeat(LARGE);
    let large = Execution { code, ..execution(world.alice, ExecutionStatus::Succeeded) };
    let id = large.id;
    world.db.write(move |tx| tx.insert_execution(home, &large)).await?;
    Ok(id)
}

async fn fill(world: &World) -> (Vec<ExecutionId>, DatabaseError) {
    let mut kept = Vec::new();
    loop {
        match write_large(world).await {
            Ok(id) => kept.push(id),
            Err(error) => return (kept, error),
        }
    }
}

fn all_there(world: &World, kept: &[ExecutionId]) -> bool {
    let found = |id: &ExecutionId| world.db.read(|r| r.execution(world.home, *id)).unwrap();
    !kept.is_empty() && kept.iter().all(|id| found(id).is_some())
}

#[tokio::test]
#[ignore = "runs on a small disk"]
async fn fills_its_disk() {
    let world = World::on(&disk()).await;
    let ballast = disk().join("ballast");
    fs::write(&ballast, vec![0; 2 * 1024 * 1024]).unwrap();
    let (kept, error) = fill(&world).await;
    assert!(matches!(error, DatabaseError::DiskFull), "{error}");
    assert!(matches!(write_large(&world).await, Err(DatabaseError::DiskFull)));
    assert!(all_there(&world, &kept));
    fs::remove_file(ballast).unwrap();
    let after = write_large(&world).await.unwrap();
    let world = world.restart();
    assert!(all_there(&world, &kept) && all_there(&world, &[after]));
}

#[tokio::test]
#[ignore = "runs on a disk that breaks"]
async fn breaks_its_disk() {
    let world = World::on(&disk()).await;
    let (kept, error) = fill(&world).await;
    assert!(matches!(error, DatabaseError::Sqlite(_)), "{error}");
    assert!(all_there(&world, &kept));
    // This one would fit.
    let home = world.home;
    let small = world.db.write(move |tx| tx.insert_principal(home, &principal("small"))).await;
    assert!(matches!(small, Err(DatabaseError::Stopped { .. })), "{small:?}");
    let found = world.db.read(|r| r.principal_by_name(home, "small")).unwrap();
    assert_eq!(found, None);
    assert!(all_there(&world.restart(), &kept), "what was acknowledged outlives the server");
}
