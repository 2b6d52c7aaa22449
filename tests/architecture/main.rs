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
    ("volume", &["keyfile", "types"]),
    ("vault", &["keyfile", "types"]),
    ("engine", &["contract", "environment", "jail", "sandbox", "types"]),
    ("service", &["contract", "egress", "engine", "keyfile", "policy", "volume", "types", "vault"]),
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

/// The features of serde_json in what is built with these options, read from the lock file alone.
fn features_of_serde_json(options: &[&str]) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--invert", "serde_json", "--depth", "1", "--prefix", "none"])
        .args(["--locked", "--offline"])
        .args(options)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8_lossy(&tree.stdout).into_owned();
    let feature =
        |line: &str| Some(line.split_once("serde_json feature \"")?.1.split_once('"')?.0.into());
    tree.lines().filter_map(feature).collect()
}

/// A dependency of tests alone turns features on that a program that people build does not have.
#[test]
fn numbers_are_read_exactly_in_what_people_build() {
    let built = ["--package", "belljar-cli", "--edges", "no-dev,features"];
    let features = features_of_serde_json(&built);
    assert!(features.contains("float_roundtrip"), "{features:?}");
}

/// Each of these makes JSON of others mean something else, or lets it be as deep as it wants, in every
/// crate of the program as soon as one crate asks for it. With `raw_value` an object that begins with one
/// name is parsed past every bound; with `arbitrary_precision` another one is read as a number.
#[test]
fn t129_no_crate_switches_a_feature_of_serde_json_on_that_changes_what_json_means() {
    let workspace = ["--workspace", "--edges", "features"];
    let features = features_of_serde_json(&workspace);
    assert!(features.contains("preserve_order"), "{features:?}");
    for feature in ["raw_value", "arbitrary_precision", "unbounded_depth"] {
        assert!(!features.contains(feature), "see docs/decisions/0039: {feature} is on");
    }
}

/// What code is given inside the walls is tested by itself too, with every Python there is.
#[test]
fn the_kernel_keeps_its_promises_without_walls() {
    let pythons = engine::discover(&engine::HostSettings::from_env()).found;
    assert!(!pythons.is_empty(), "there is no CPython to test with");
    for python in pythons {
        let output = Command::new(&python.executable)
            .args(["-m", "unittest", "discover", "-s", "runner/tests", "-t", "kernel"])
            .current_dir(root())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", python.executable.display());
    }
}
