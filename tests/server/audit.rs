//! The audit log cannot be changed unnoticed, also by a user with write access to the disk.

use crate::harness;
use crate::test_server::World;
use serde_json::json;
use std::process::{Command, Output};

fn verify(world: &World) -> Output {
    let mut command = harness::belljar(&["audit", "verify"]);
    command.env_remove("BELLJAR_RECORDS").arg("--data").arg(world.data.path()).output().unwrap()
}

/// Writes to the records as an attacker with the disk could.
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
    let said = harness::stdout(&whole);
    let head = said.strip_prefix("5 entries verified\nhead: ").unwrap();
    assert_eq!(head.trim_end().len(), 64);
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
            "entry 3 was changed after it was written",
        ),
        (
            "UPDATE audit SET principal = NULL WHERE sequence = 2",
            "entry 2 was changed after it was written",
        ),
        ("DELETE FROM audit WHERE sequence = 4", "entry 4 is missing"),
        ("DELETE FROM audit WHERE sequence = 5", "entry 5 is missing"),
    ];
    for (sql, expected) in changes {
        let world = world().await;
        assert_eq!(verify(&world).status.code(), Some(0));
        tamper(&world, sql);
        let broken = verify(&world);
        assert_eq!(broken.status.code(), Some(1));
        let said = harness::stderr(&broken);
        assert!(said.contains("the audit log is broken") && said.contains(expected), "{said}");
    }
}

#[test]
fn where_there_is_no_audit_log_that_is_said() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = harness::belljar(&["audit", "verify", "--data"]);
    let output = command.env_remove("BELLJAR_RECORDS").arg(empty.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(harness::stderr(&output).contains("cannot read"), "{}", harness::stderr(&output));
    assert!(std::fs::read_dir(empty.path()).unwrap().next().is_none(), "it made something");
}

#[tokio::test(flavor = "multi_thread")]
async fn t119_a_log_that_was_cut_and_whose_head_was_set_back_is_found_out() {
    let world = world().await;
    let head = |output: &Output| {
        let said = harness::stdout(output);
        said.lines().find_map(|line| line.strip_prefix("head: ")).unwrap().to_owned()
    };
    let noted = head(&verify(&world));
    let with_head = |hash: &str| {
        let mut command = harness::belljar(&["audit", "verify", "--head", hash]);
        command.env_remove("BELLJAR_RECORDS").arg("--data").arg(world.data.path()).output().unwrap()
    };
    world.owner.post("/v1/keys", json!({"name": "e"})).await;
    let later = with_head(&noted);
    assert_eq!(later.status.code(), Some(0), "{}", harness::stderr(&later));
    assert_ne!(head(&later), noted);
    let other = with_head(&"0".repeat(63).replace('0', "ab")[..64]);
    assert_eq!(other.status.code(), Some(1));
    assert!(harness::stderr(&other).contains("no entry has the hash"));
    assert_eq!(with_head("nonsense").status.code(), Some(2));
    tamper(&world, "DELETE FROM audit WHERE sequence > 4");
    let back =
        "UPDATE audit_head SET sequence = 4, hash = (SELECT hash FROM audit WHERE sequence = 4)";
    tamper(&world, back);
    let cut = verify(&world);
    assert_eq!(cut.status.code(), Some(1));
    let said = harness::stderr(&cut);
    assert!(said.contains("the audit log is broken: entry 4"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t159_a_server_does_not_sign_a_log_again_unless_its_operator_does() {
    let mut world = world().await;
    assert_eq!(world.stop().await, Some(0));
    tamper(&world, "UPDATE audit_head SET mac = NULL");
    for name in ["audit.key", "audit.head"] {
        std::fs::remove_file(world.data.path().join("db").join(name)).unwrap();
    }
    let (code, said) = world.refused_start();
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("audit.key") && said.contains("belljar audit sign"), "{said}");
    let sign = || {
        let mut command = harness::belljar(&["audit", "sign", "--data"]);
        command.env_remove("BELLJAR_RECORDS").arg(world.data.path()).output().unwrap()
    };
    let signed = sign();
    assert_eq!(signed.status.code(), Some(0), "{}", harness::stderr(&signed));
    assert!(harness::stdout(&signed).contains("entry 6 records"), "{}", harness::stdout(&signed));
    assert!(harness::stdout(&sign()).contains("nothing was changed"));
    world.again().await;
    let entries = world.owner.get("/v1/audit?action=audit.sign").await;
    assert_eq!(entries["items"].as_array().unwrap().len(), 1, "{entries}");
    assert!(harness::stdout(&verify(&world)).starts_with("6 entries"));
}
