//! The official MCP clients against the real server.

use crate::harness;
use crate::test_server::World;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mcp")
}

/// A Python with one version of the official SDK. It is made once, as the build is.
fn python(sdk: &str) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mcp-{sdk}"));
    let (python, done) = (home.join("bin/python"), home.join("done"));
    if done.exists() {
        return python;
    }
    let found = engine::discover(&engine::HostSettings::from_env()).found;
    let made = found.iter().find(|found| {
        let made =
            Command::new(&found.executable).args(["-m", "venv", "--clear"]).arg(&home).output();
        made.is_ok_and(|made| made.status.success())
    });
    assert!(
        made.is_some(),
        "no Python here can make a virtual environment (on Debian: apt install python3-venv)"
    );
    let pip = ["-m", "pip", "install", "--quiet", &format!("mcp=={sdk}")];
    let installed = Command::new(&python).args(pip).output().unwrap();
    assert!(installed.status.success(), "the package index is needed: {}", said(&installed));
    std::fs::write(done, sdk).unwrap();
    python
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// Runs a script with a server of its own; tells what it printed.
async fn driven(sdk: &'static str, script: &str) -> Vec<String> {
    let python = tokio::task::spawn_blocking(move || python(sdk)).await.unwrap();
    let world = World::start().await;
    let driven = tokio::process::Command::new(python)
        .arg(here().join(script))
        .arg(harness::binary())
        .args([world.address(), &world.owner.key])
        .arg(harness::data())
        .env_remove("BELLJAR_URL")
        .env_remove("BELLJAR_API_KEY")
        .output()
        .await
        .unwrap();
    assert!(driven.status.success(), "{}", said(&driven));
    String::from_utf8(driven.stdout).unwrap().lines().map(str::to_owned).collect()
}

// proves P-008
#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_of_the_current_revision_speaks_both_revisions_over_every_transport() {
    let ways = ["stdio", "bridge", "http"];
    let revisions = ["auto 2026-07-28", "legacy 2025-11-25", "2026-07-28 2026-07-28"];
    let expected =
        ways.iter().flat_map(|way| revisions.map(|revision| format!("{way} {revision}")));
    assert_eq!(driven("2.3.0", "modern_client.py").await, expected.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_of_the_legacy_revision_is_served_as_before() {
    let output = driven("1.30.0", "legacy_client.py").await;
    assert_eq!(output, ["stdio 2025-11-25", "http 2025-11-25"]);
}
