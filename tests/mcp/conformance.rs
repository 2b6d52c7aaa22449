//! The official conformance suite, against the door and the transport that `/mcp` has.

use crate::harness;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// Says that a machine without npm or its registry is a reason not to test this.
const WITHOUT: &str = "BELLJAR_WITHOUT_NPM";
/// A Node and the suite are 240 MB on the disk.
const INSTALL_TIME: Duration = Duration::from_secs(300);
/// Ten times what it takes.
const SUITE_TIME: Duration = Duration::from_secs(120);
const START_TIME: Duration = Duration::from_secs(120);
const STOP_TIME: Duration = Duration::from_secs(20);

/// Where the suite and a Node that can run it are. They are installed once, as the build is.
async fn suite() -> PathBuf {
    static SUITE: OnceCell<PathBuf> = OnceCell::const_new();
    SUITE.get_or_init(install).await.clone()
}

async fn install() -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-suite");
    let wanted = include_str!("suite/package.json");
    let done = home.join("done");
    if std::fs::read_to_string(&done).is_ok_and(|has| has == wanted) {
        return home;
    }
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("package.json"), wanted).unwrap();
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix"]).arg(&home);
    npm.env("npm_config_cache", home.join("cache"));
    let installed = bounded(npm, INSTALL_TIME).await.unwrap_or_else(|problem| {
        panic!("npm and its registry are needed, or {WITHOUT}=1 to do without: {problem}")
    });
    assert!(
        installed.status.success(),
        "npm and its registry are needed, or {WITHOUT}=1 to do without: {}",
        harness::stderr(&installed)
    );
    std::fs::remove_dir_all(home.join("cache")).unwrap();
    std::fs::write(done, wanted).unwrap();
    home
}

/// The output of a program, which is ended with all its children if it takes too long.
async fn bounded(mut command: Command, time: Duration) -> Result<Output, String> {
    let name = format!("{:?}", command.as_std().get_program());
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).unwrap();
    match timeout(time, child.wait_with_output()).await {
        Ok(output) => output.map_err(|error| format!("{name}: {error}")),
        Err(_) => {
            let _ = kill_process_group(group, Signal::KILL);
            Err(format!("{name} has taken more than {} s", time.as_secs()))
        }
    }
}

struct Server {
    process: Child,
    address: String,
}

impl Server {
    async fn start() -> Self {
        let belljar = harness::belljar(&["mcp", "--conformance", "127.0.0.1:0", "--env", "bare"]);
        let mut command = Command::from(belljar);
        let mut process = command.kill_on_drop(true).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = timeout(START_TIME, lines.next_line()).await.unwrap().unwrap().unwrap();
        Self { process, address }
    }

    async fn stop(mut self) {
        let id = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed())).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        let ended = timeout(STOP_TIME, self.process.wait()).await.unwrap().unwrap();
        assert!(ended.success(), "{ended}");
    }
}

/// What the suite found, check by check.
struct Found {
    scenarios: usize,
    passed: usize,
    /// What was neither passed nor a mere remark, by its name.
    others: BTreeSet<String>,
}

impl Found {
    fn read(results: &Path) -> Self {
        let mut found = Self { scenarios: 0, passed: 0, others: BTreeSet::new() };
        for scenario in std::fs::read_dir(results).unwrap() {
            let checks = std::fs::read(scenario.unwrap().path().join("checks.json")).unwrap();
            let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
            found.scenarios += 1;
            for check in checks {
                match check["status"].as_str().unwrap() {
                    "SUCCESS" => found.passed += 1,
                    "INFO" => {}
                    status => {
                        let (id, why) = (&check["id"], &check["errorMessage"]);
                        found.others.insert(format!("{status} {id} {why}"));
                    }
                }
            }
        }
        found
    }
}

/// Runs all that the suite has for a revision, also what is not scored, such as the tasks extension.
async fn judged(revision: &str) -> Option<Found> {
    if std::env::var_os(WITHOUT).is_some() {
        // Not with a macro: what those print is shown only of tests that fail.
        let untested = format!("NOT TESTED, as {WITHOUT} is set: MCP conformance to {revision}\n");
        std::io::stderr().write_all(untested.as_bytes()).unwrap();
        return None;
    }
    let suite = suite().await;
    let server = Server::start().await;
    let results = tempfile::tempdir().unwrap();
    let mut conformance = Command::new(suite.join("node_modules/.bin/node"));
    conformance
        .arg(suite.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", &server.address, "--requirements", revision, "-o"])
        .arg(results.path());
    let judged = bounded(conformance, SUITE_TIME).await.unwrap();
    let said = harness::stdout(&judged);
    assert!(judged.status.success(), "{said}{}", harness::stderr(&judged));
    server.stop().await;
    Some(Found::read(results.path()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_suite_of_the_newer_revision_passes_with_tasks() {
    let Some(found) = judged("2026-07-28").await else { return };
    let skipped: Vec<_> = found.others.iter().map(String::as_str).collect();
    let [prompts, notifications] = skipped.as_slice() else { panic!("{skipped:#?}") };
    // The list of prompts never changes; and the suite cannot look at what tasks tell by themselves.
    assert!(
        prompts.starts_with("SKIPPED \"sep-2575-server-sends-prompts-list-changed"),
        "{prompts}"
    );
    assert!(notifications.starts_with("SKIPPED \"tasks-status-notifications"), "{notifications}");
    assert_eq!((found.scenarios, found.passed), (50, 196));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_suite_of_the_older_revision_passes() {
    let Some(found) = judged("2025-11-25").await else { return };
    assert_eq!(found.others, BTreeSet::new());
    assert_eq!((found.scenarios, found.passed), (33, 83));
}

#[test]
fn a_door_that_asks_for_no_key_is_for_this_machine_and_no_server_has_it() {
    let refused = harness::belljar(&["mcp", "--conformance", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(harness::stderr(&refused).contains("name a loopback address"));
    let server = harness::belljar(&["serve", "--conformance", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(server.status.code(), Some(2));
    assert!(harness::stderr(&server).contains("unexpected argument"));
}
