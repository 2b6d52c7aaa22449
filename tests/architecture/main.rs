//! The shape of the workspace, held by tests and not by reviewers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The direct dependencies of each crate. A dependency points to a line above; a new one is a decision.
const EDGES: &[(&str, &[&str])] = &[
    ("boxed", &[]),
    ("types", &[]),
    ("jail", &[]),
    ("keyfile", &[]),
    ("contract", &["types"]),
    ("policy", &["types"]),
    ("environment", &["jail"]),
    ("skill", &[]),
    ("redact", &["types"]),
    ("egress", &["keyfile", "policy", "redact", "types"]),
    ("sandbox", &["boxed", "jail", "types"]),
    ("db", &["keyfile", "types"]),
    ("vault", &["keyfile", "types"]),
    ("engine", &["boxed", "contract", "environment", "jail", "redact", "sandbox", "types"]),
    (
        "service",
        &[
            "boxed", "contract", "db", "egress", "engine", "keyfile", "policy", "redact", "types",
            "vault",
        ],
    ),
    ("agent", &["boxed", "service", "skill", "types"]),
    ("mcp", &["agent", "service", "skill", "types"]),
    ("api", &["agent", "mcp", "service", "skill", "types"]),
    ("cli", &["agent", "api", "contract", "engine", "mcp", "service", "skill", "types"]),
];

/// A type name that is defined more than once makes a reader ask which one is meant. Modules may share the
/// well-known nouns (`Error`, `Config`, and `Args` and `Command` of each CLI command).
const REPEATED_TYPE_NAMES_MAX: usize = 40;

/// Type names that were figures of speech and have been replaced. None may come back.
const REPLACED_TYPE_NAMES: &[&str] = &[
    "Attached",
    "Borrower",
    "Callee",
    "Course",
    "Crib",
    "Desk",
    "Door",
    "Fault",
    "Gate",
    "Ground",
    "Hearing",
    "Lender",
    "Lending",
    "Lent",
    "Manner",
    "Manners",
    "Matter",
    "Newborn",
    "Nursery",
    "Passage",
    "Remains",
    "Shelf",
    "Spellings",
    "Stillborn",
    "Talk",
    "Ticket",
    "Trail",
    "Undertaker",
    "Walk",
    "Warmth",
    "Whose",
    "Wires",
    "Wiretap",
];

/// Module names that were replaced, besides those of the types above.
const REPLACED_MODULE_NAMES: &[&str] = &[
    "books", "claims", "grams", "hello", "leave", "made", "outlet", "refused", "rooms", "told",
    "walls", "written",
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

/// Every Rust file below `crates/*/src`, with its text.
fn sources() -> Vec<(PathBuf, String)> {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let mut directories: Vec<PathBuf> =
        crates.map(|entry| entry.unwrap().path().join("src")).collect();
    let mut sources = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path, text));
            }
        }
    }
    assert!(!sources.is_empty(), "there are no sources below crates/*/src");
    sources
}

/// The words of a line of Rust outside of comments: identifiers, keywords and numbers.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split(|char: char| !char.is_ascii_alphanumeric() && char != '_')
        .filter(|word| !word.is_empty())
}

/// The name of the type that a line defines, if it defines one.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = words(line)
        .skip_while(|word| ["pub", "crate", "super", "self", "in", "unsafe"].contains(word));
    let keyword = words.next()?;
    let name = words.next()?;
    let defines = ["struct", "enum", "trait", "union"].contains(&keyword);
    let is_type = name.starts_with(|first: char| first.is_ascii_uppercase());
    (defines && is_type).then_some(name)
}

/// `SandboxHandle` is `Sandbox` and `Handle`.
fn parts_of_name(name: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = name
        .char_indices()
        .filter(|(_, char)| char.is_ascii_uppercase())
        .map(|(index, _)| index)
        .collect();
    starts.push(name.len());
    starts.windows(2).map(|pair| &name[pair[0]..pair[1]]).collect()
}

#[test]
fn few_type_names_are_defined_more_than_once() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        for (index, line) in text.lines().enumerate() {
            if let Some(name) = defined_type(line) {
                let place = format!("{}:{}", path.display(), index + 1);
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    assert!(places.contains_key("Admitted"), "definitions are not found: {}", places.len());
    places.retain(|_, defined| defined.len() > 1);
    assert!(places.len() < REPEATED_TYPE_NAMES_MAX, "{} names: {places:#?}", places.len());
}

#[test]
fn replaced_names_do_not_come_back() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let module = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_replaced_type =
            REPLACED_TYPE_NAMES.iter().any(|name| name.to_ascii_lowercase() == module);
        if is_replaced_type || REPLACED_MODULE_NAMES.contains(&module.as_str()) {
            found.push(path.display().to_string());
        }
        for (index, line) in text.lines().enumerate() {
            let is_named = words(line).any(|word| REPLACED_TYPE_NAMES.contains(&word));
            let is_part_of_type = defined_type(line).is_some_and(|name| {
                parts_of_name(name).iter().any(|part| REPLACED_TYPE_NAMES.contains(part))
            });
            if is_named || is_part_of_type {
                found.push(format!("{}:{}: {}", path.display(), index + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "see CONTRIBUTING.md, \"Style\": {found:#?}");
}

/// `deny.toml`, which `cargo deny check` reads. The tests here need neither that tool nor the network.
fn deny_settings() -> toml::Table {
    toml::from_str(&fs::read_to_string(root().join("deny.toml")).unwrap()).unwrap()
}

fn strings(values: &toml::Value) -> Vec<String> {
    values.as_array().unwrap().iter().map(|value| value.as_str().unwrap().to_owned()).collect()
}

/// A package that is built for one of the targets in `deny.toml`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BuiltPackage {
    name: String,
    version: String,
    license: String,
}

/// Every package that the workspace builds with all features, with its tests and build scripts. `cargo tree` resolves features
/// as a build does; `cargo metadata` also lists optional packages that no build has.
fn built_packages(settings: &toml::Table) -> BTreeSet<BuiltPackage> {
    let mut packages = BTreeSet::new();
    for target in strings(&settings["graph"]["targets"]) {
        let tree = Command::new(env!("CARGO"))
            .args(["tree", "--workspace", "--all-features", "--locked", "--offline"])
            .args(["--target", target.as_str()])
            .args(["--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}|{l}"])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
        let tree = String::from_utf8_lossy(&tree.stdout).into_owned();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let (package, license) = line.split_once('|').unwrap();
            let mut words = package.split_whitespace();
            packages.insert(BuiltPackage {
                name: words.next().unwrap().to_owned(),
                version: words.next().unwrap().trim_start_matches('v').to_owned(),
                // A package that was listed before ends with `(*)`.
                license: license.trim_end_matches("(*)").trim().to_owned(),
            });
        }
    }
    packages
}

#[test]
fn duplicate_versions_are_those_that_deny_toml_names() {
    let settings = deny_settings();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in built_packages(&settings) {
        versions.entry(package.name).or_default().insert(package.version);
    }
    versions.retain(|_, found| found.len() > 1);
    let bans = &settings["bans"];
    assert_eq!(bans["multiple-versions"].as_str(), Some("deny"));
    for skipped in bans["skip"].as_array().unwrap() {
        let spec = skipped["crate"].as_str().unwrap();
        let (name, version) = spec.split_once('@').unwrap();
        let reason = skipped.get("reason").and_then(|reason| reason.as_str());
        assert!(reason.is_some_and(|reason| !reason.is_empty()), "{spec} has no reason");
        let prefix = format!("{version}.");
        let found = versions.get_mut(name);
        let before = found.as_ref().map_or(0, |found| found.len());
        let after = found.map_or(0, |found| {
            found.retain(|version| !version.starts_with(&prefix));
            found.len()
        });
        assert!(after < before, "{spec} is not a duplicate any more: remove it from deny.toml");
    }
    versions.retain(|_, found| found.len() > 1);
    assert!(versions.is_empty(), "deny.toml does not name these duplicates: {versions:#?}");
}

/// Whether an SPDX expression is satisfied by these licences. `/` is the old spelling of `OR`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = tokens.as_slice();
    let result = any_of(&mut rest, allowed);
    assert!(rest.is_empty(), "{expression:?} cannot be read as a licence: {rest:?} is left");
    result
}

fn any_of(tokens: &mut &[&str], allowed: &[String]) -> bool {
    let mut result = all_of(tokens, allowed);
    while take_token(tokens, "OR") {
        // Not short-circuited: the rest of the expression has to be read.
        result |= all_of(tokens, allowed);
    }
    result
}

fn all_of(tokens: &mut &[&str], allowed: &[String]) -> bool {
    let mut result = one_license(tokens, allowed);
    while take_token(tokens, "AND") {
        result &= one_license(tokens, allowed);
    }
    result
}

fn one_license(tokens: &mut &[&str], allowed: &[String]) -> bool {
    if take_token(tokens, "(") {
        let result = any_of(tokens, allowed);
        return take_token(tokens, ")") && result;
    }
    let Some((first, rest)) = tokens.split_first() else { return false };
    let mut license = (*first).to_owned();
    *tokens = rest;
    if take_token(tokens, "WITH")
        && let Some((exception, rest)) = tokens.split_first()
    {
        license = format!("{license} WITH {exception}");
        *tokens = rest;
    }
    allowed.contains(&license)
}

fn take_token(tokens: &mut &[&str], expected: &str) -> bool {
    match tokens.split_first() {
        Some((first, rest)) if *first == expected => {
            *tokens = rest;
            true
        }
        _ => false,
    }
}

#[test]
fn licences_are_those_that_deny_toml_allows() {
    let settings = deny_settings();
    let allowed = strings(&settings["licenses"]["allow"]);
    let packages = built_packages(&settings);
    let refused: Vec<&BuiltPackage> =
        packages.iter().filter(|package| !is_allowed(&package.license, &allowed)).collect();
    assert!(refused.is_empty(), "deny.toml does not allow the licences of {refused:#?}");
    for license in &allowed {
        let others: Vec<String> = allowed.iter().filter(|one| *one != license).cloned().collect();
        let is_needed = packages.iter().any(|package| !is_allowed(&package.license, &others));
        assert!(is_needed, "no package needs {license}: remove it from deny.toml");
    }
}

#[test]
fn licence_expressions_are_read_as_spdx_defines_them() {
    let allowed = ["MIT".to_owned(), "ISC".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
    for expression in [
        "MIT",
        "Zlib OR MIT",
        "Zlib/MIT",
        "ISC AND (Zlib OR MIT)",
        "MIT AND ISC OR Zlib",
        "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
    ] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in ["", "Zlib", "MIT AND Zlib", "Apache-2.0", "Zlib OR (MIT AND Zlib)"] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
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

/// Runs the tests of the runner, which need no sandbox, with every Python of this machine.
#[test]
fn the_runner_keeps_its_promises_without_a_sandbox() {
    let pythons = engine::discover(&engine::HostSettings::from_env()).found;
    assert!(!pythons.is_empty(), "there is no CPython to test with");
    for python in pythons {
        let output = Command::new(&python.executable)
            .args(["-m", "unittest", "discover", "-s", "runner/tests", "-t", "runner"])
            .current_dir(root())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", python.executable.display());
    }
}
