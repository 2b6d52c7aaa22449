//! The shape of the workspace, held by tests and not by reviewers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which crate may use which. An arrow never goes up; a new one is a decision.
const EDGES: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("jail", &[]),
    ("keyfile", &[]),
    ("contract", &["types"]),
    ("policy", &["types"]),
    ("environment", &["jail"]),
    ("skill", &[]),
    ("egress", &["keyfile", "policy", "types"]),
    ("sandbox", &["jail", "types"]),
    ("store", &["keyfile", "types"]),
    ("vault", &["keyfile", "types"]),
    ("engine", &["contract", "environment", "jail", "sandbox", "types"]),
    ("service", &["contract", "egress", "engine", "keyfile", "policy", "store", "types", "vault"]),
    ("agent", &["service", "skill", "types"]),
    ("mcp", &["agent", "service", "skill", "types"]),
    ("server", &["agent", "contract", "engine", "mcp", "service", "skill", "types"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn crates_use_only_the_crates_below_them() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let own = |name: &str| name.strip_prefix("belljar-").map(str::to_owned);
        let dependencies = package["dependencies"].as_array().unwrap();
        let uses: BTreeSet<String> = dependencies
            .iter()
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| own(dependency["name"].as_str().unwrap()))
            .collect();
        found.insert(own(package["name"].as_str().unwrap()).unwrap(), uses);
    }
    let allowed: BTreeMap<String, BTreeSet<String>> = EDGES
        .iter()
        .map(|(name, uses)| ((*name).into(), uses.iter().map(|used| (*used).into()).collect()))
        .collect();
    assert_eq!(found, allowed);
}

#[test]
fn unsafe_code_is_forbidden_outside_jail() {
    for (name, _) in EDGES {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        let inherits = manifest.contains("[lints]\nworkspace = true");
        assert_eq!(inherits, *name != "jail", "{name} and the lints of the workspace");
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(workspace.contains("unsafe_code = \"forbid\""));
}

/// A dependency of tests alone turns features on that a program that people build does not have.
#[test]
fn numbers_are_read_exactly_in_what_people_build() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", "belljar-server", "--edges", "no-dev,features"])
        .args(["--invert", "serde_json", "--depth", "1", "--offline", "--prefix", "none"])
        .current_dir(root())
        .output()
        .unwrap();
    let tree = String::from_utf8_lossy(&tree.stdout);
    assert!(tree.contains("serde_json feature \"float_roundtrip\""), "{tree}");
}

/// What code is given inside the walls is tested by itself too, with every Python there is.
#[test]
fn the_kernel_keeps_its_promises_without_walls() {
    let pythons = engine::discover(&engine::Machine::from_env()).found;
    assert!(!pythons.is_empty(), "there is no CPython to test with");
    for python in pythons {
        let output = Command::new(&python.executable)
            .args(["-m", "unittest", "discover", "-s", "kernel/tests", "-t", "kernel"])
            .current_dir(root())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", python.executable.display());
    }
}
