//! Node and MCP programs of the npm registry, installed for these tests.

#![allow(unreachable_pub, reason = "a test binary has no outside")]

use crate::harness;
use rustix::process::{Pid, Signal, kill_process_group};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// Says, while the tests are built, that those which need npm or its registry are to be ignored.
const WITHOUT: &str = "BELLJAR_WITHOUT_NPM";
/// A Node and the programs are 500 MB on the disk.
const INSTALL_TIME: Duration = Duration::from_secs(300);

/// Where the programs are, and a Node that can run them. They are installed once, as the build is.
#[derive(Clone)]
pub struct Node(PathBuf);

impl Node {
    pub async fn installed() -> Self {
        static NODE: OnceCell<Node> = OnceCell::const_new();
        NODE.get_or_init(install).await.clone()
    }

    /// A program by its path among the modules.
    pub fn program(&self, path: &str) -> Command {
        let modules = self.0.join("node_modules");
        let mut command = Command::new(modules.join(".bin/node"));
        command.arg(modules.join(path));
        command
    }
}

async fn install() -> Node {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-suite");
    let wanted = include_str!("suite/package.json");
    let done = home.join("done");
    if std::fs::read_to_string(&done).is_ok_and(|has| has == wanted) {
        return Node(home);
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
    Node(home)
}

/// The output of a program, which is ended with all its children if it takes too long.
pub async fn bounded(mut command: Command, time: Duration) -> Result<Output, String> {
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
