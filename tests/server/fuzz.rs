//! Requests that a fuzzer generates from the OpenAPI document: none may crash the server, and every response is
//! as the document says.

use crate::test_server::World;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const REQUIREMENTS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/server/requirements.txt");

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/server/schemathesis.toml");

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// The fuzzer, in a virtual environment that is made once and kept below the target directory.
fn fuzzer() -> PathBuf {
    let wanted = std::fs::read_to_string(REQUIREMENTS).unwrap();
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzzer");
    let program = home.join("bin/schemathesis");
    let made = home.join("requirements.txt");
    if std::fs::read_to_string(&made).is_ok_and(|had| had == wanted) {
        return program;
    }
    let venv = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home).output().unwrap();
    assert!(venv.status.success(), "python3 -m venv does not work here: {}", text(&venv));
    let install = Command::new(home.join("bin/pip"))
        .args(["install", "--quiet", "--requirement", REQUIREMENTS])
        .output()
        .unwrap();
    assert!(
        install.status.success(),
        "the fuzzer cannot be installed; the package index must be reachable once: {}",
        text(&install)
    );
    std::fs::write(made, wanted).unwrap();
    program
}

/// Sends what it makes up, and says what was wrong with the answers.
async fn made_up(world: &World, operations: &[&str]) {
    let mut command = Command::new(fuzzer());
    command
        .args(["--config-file", CONFIG, "run"])
        .arg(format!("{}/openapi.json", world.address()))
        .arg(format!("--header=Authorization: Bearer {}", world.owner.key))
        .args(operations)
        .args(["--phases", "coverage,fuzzing", "--max-examples", "30", "--seed", "7"])
        .args(["--request-timeout", "30", "--no-shrink", "--continue-on-failure"])
        .env("NO_COLOR", "1")
        .env_remove("HTTP_PROXY")
        .env_remove("http_proxy")
        .current_dir(world.data.path());
    let ran = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(ran.status.success(), "{}", text(&ran));
    assert!(text(&ran).contains("Tested: "), "{}", text(&ran));
    assert!(!world.log().contains("\"status\":500"), "{}", world.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn t58_made_up_requests_break_nothing_and_are_answered_as_documented() {
    let world = World::with_own_environments().await;
    // A stream without an end, one whose events the document describes by their data, and what
    // would close the way to all that comes after it.
    let others = ["streamApprovals", "streamExecution", "setCodePermission"];
    made_up(&world, &others.map(|name| ["--exclude-operation-id", name]).concat()).await;
    assert_eq!(world.owner.execute("1").await["value"], 1);
    made_up(&world, &["--include-operation-id", "setCodePermission"]).await;
    let allow = serde_json::json!({"permission": "allow"});
    world.owner.call("PUT", "/v1/permissions/execute_python", Some(allow)).await;
    assert_eq!(world.owner.execute("1").await["value"], 1);
}
