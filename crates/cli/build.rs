//! Tells the tests of the whole system what this machine lacks, so that a test which needs it is ignored and does
//! not count as passed. The binary does not depend on it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Says that npm or its registry cannot be reached, and that the tests which need them are to be ignored.
const WITHOUT_NPM: &str = "BELLJAR_WITHOUT_NPM";
/// The freezer of cgroup v1, which also holds up a kill.
const FREEZER: &str = "/sys/fs/cgroup/freezer";

fn main() {
    println!("cargo::rerun-if-env-changed={WITHOUT_NPM}");
    println!("cargo::rerun-if-changed=build.rs");
    let has = |name: &str, is_there: bool| {
        println!("cargo::rustc-check-cfg=cfg({name})");
        if is_there {
            println!("cargo::rustc-cfg={name}");
        }
    };
    // A process without privileges sees itself as the owner of its own files in /proc.
    let is_root = Path::new("/proc/self").metadata().is_ok_and(|about| about.uid() == 0);
    has("test_as_root", is_root);
    has("test_freezer", is_root && Path::new(FREEZER).is_dir());
    has("test_npm", std::env::var_os(WITHOUT_NPM).is_none());
}
