//! The audit log cannot be changed unnoticed, also by whoever has the disk.

use crate::harness;
use crate::world::World;
use serde_json::json;
use std::process::{Command, Output};

fn verify(world: &World) -> Output {
    let mut command = harness::belljar(&["audit", "verify"]);
    command.env_remove("BELLJAR_RECORDS").arg("--data").arg(world.data.path()).output().unwrap()
}

/// Writes to the records as somebody could who has the disk.
fn tamper(world: &World, sql: &str) {
    let script = "import sqlite3, sys\n\
                  with sqlite3.connect(sys.argv[1]) as records: records.execute(sys.argv[2])";
    let mut python = Command::new("python3");
    let done = python.args(["-c", script]).arg(world.database()).arg(sql).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

async fn world() -> World {
    let world = World::start().await;
    for name in ["a", "b", "c", "d"] {
        world.owner.post("/v1/keys", json!({"name": name})).await;
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_is_verified_beside_the_server_and_without_it() {
    let mut world = world().await;
    let whole = verify(&world);
    assert_eq!(harness::stdout(&whole), "5 entries, all as they were written\n");
    assert_eq!(whole.status.code(), Some(0));
    world.owner.post("/v1/keys", json!({"name": "e"})).await;
    assert!(harness::stdout(&verify(&world)).starts_with("6 entries"));
    assert_eq!(world.stop().await, Some(0));
    assert!(harness::stdout(&verify(&world)).starts_with("6 entries"));
    world.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_was_changed_removed_or_cut_off_is_named() {
    let changes = [
        (
            "UPDATE audit SET detail = 'nothing' WHERE sequence = 3",
            "entry 3 is not what was written",
        ),
        ("UPDATE audit SET principal = NULL WHERE sequence = 2", "entry 2 is not what was written"),
        ("DELETE FROM audit WHERE sequence = 4", "entry 4 is missing"),
        ("DELETE FROM audit WHERE sequence = 5", "entry 5 is missing"),
    ];
    for (sql, told) in changes {
        let world = world().await;
        assert_eq!(verify(&world).status.code(), Some(0));
        tamper(&world, sql);
        let broken = verify(&world);
        assert_eq!(broken.status.code(), Some(1));
        let said = harness::stderr(&broken);
        assert!(said.contains("the audit log is broken") && said.contains(told), "{said}");
    }
}

#[test]
fn where_there_is_no_audit_log_that_is_said() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = harness::belljar(&["audit", "verify", "--data"]);
    let output = command.env_remove("BELLJAR_RECORDS").arg(empty.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(harness::stderr(&output).contains("cannot be read"), "{}", harness::stderr(&output));
    assert!(std::fs::read_dir(empty.path()).unwrap().next().is_none(), "it made something");
}
