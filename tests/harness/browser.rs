//! Pages as a browser shows them: headless Chromium makes a picture, whose pixels the tests read.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test without its browser has failed")]
#![allow(unreachable_pub, reason = "a test binary has no outside")]

use super::wait_blocking;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use tempfile::TempDir;

/// Without a network of its own, without what a user would see, and with an empty profile.
const OPTIONS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
];

/// Installs Debian's Chromium where there is none; only root can.
const INSTALL: &str = "apt-get update && apt-get install -y --no-install-recommends chromium";
static INSTALLED: Once = Once::new();

/// A picture of a page.
pub struct Picture {
    _directory: TempDir,
    path: PathBuf,
}

/// An area of one colour: its first and last column, and its height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    pub first: u64,
    pub last: u64,
    pub height: u64,
}

impl Bar {
    pub fn width(self) -> u64 {
        self.last + 1 - self.first
    }
}

fn install_browser() {
    let found = Command::new("chromium").arg("--version").output();
    if found.is_ok_and(|found| found.status.success()) {
        return;
    }
    let _ = writeln!(std::io::stderr(), "Chromium is missing: {INSTALL}");
    let install = Command::new("sh").args(["-c", INSTALL]).output().unwrap();
    let errors = String::from_utf8_lossy(&install.stderr);
    assert!(
        install.status.success(),
        "Chromium is missing and was not installed (`sudo apt-get install chromium`): {errors}"
    );
}

/// Opens a page, waits until it has loaded, and takes a picture of 1000 by 700 pixels.
pub fn picture(url: &str) -> Picture {
    INSTALLED.call_once(install_browser);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page.png");
    let profile = format!("--user-data-dir={}", directory.path().join("profile").display());
    let log = std::fs::File::create(directory.path().join("log")).unwrap();
    let browser = Command::new("chromium")
        .args(OPTIONS)
        .args([
            &profile,
            "--window-size=1000,700",
            &format!("--screenshot={}", path.display()),
            url,
        ])
        .env("HOME", directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let mut browser = browser.unwrap_or_else(|error| {
        panic!("Chromium is needed, and `chromium` cannot be started: {error}. See CONTRIBUTING.md")
    });
    let mut status = None;
    let has_ended = wait_blocking::soon(wait_blocking::PATIENCE, || {
        status = browser.try_wait().unwrap();
        status.is_some()
    });
    if !has_ended {
        browser.kill().unwrap();
        browser.wait().unwrap();
    }
    let log = || std::fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    assert!(status.is_some_and(|status| status.success()), "{status:?}: {}", log());
    assert!(path.is_file(), "no picture of {url}: {}", log());
    Picture { _directory: directory, path }
}

/// Opens a page that is a file.
pub fn picture_of(page: &Path) -> Picture {
    picture(&format!("file://{}", page.canonicalize().unwrap().display()))
}

impl Picture {
    /// The areas of exactly this colour, such as `4c78a8`, from left to right.
    pub fn bars(&self, colour: &str) -> Vec<Bar> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/harness/pixels.py");
        let read =
            Command::new("python3").arg(script).arg(&self.path).arg(colour).output().unwrap();
        let text = String::from_utf8(read.stdout).unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        let bars: Vec<[u64; 3]> = serde_json::from_str(&text).unwrap();
        bars.into_iter().map(|[first, last, height]| Bar { first, last, height }).collect()
    }
}
