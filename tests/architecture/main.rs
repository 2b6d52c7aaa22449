//! The structure of the workspace, enforced by tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod texts;
mod threat_model;

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
    ("statements", &["types"]),
    ("egress", &["keyfile", "policy", "redact", "types"]),
    ("mcp-client", &["egress", "types"]),
    ("sandbox", &["boxed", "jail", "types"]),
    ("db", &["keyfile", "types"]),
    ("vault", &["keyfile", "types"]),
    ("engine", &["boxed", "contract", "environment", "jail", "redact", "sandbox", "types"]),
    (
        "service",
        &[
            "boxed",
            "contract",
            "db",
            "egress",
            "engine",
            "keyfile",
            "mcp-client",
            "policy",
            "redact",
            "skill",
            "statements",
            "types",
            "vault",
        ],
    ),
    ("agent", &["boxed", "service", "skill", "types"]),
    ("mcp", &["agent", "contract", "service", "skill", "types"]),
    ("api", &["agent", "mcp", "service", "skill", "types"]),
    (
        "cli",
        &["agent", "api", "contract", "engine", "mcp", "service", "skill", "statements", "types"],
    ),
];

/// A type name that is defined more than once makes a reader ask which one is meant. Modules may share the
/// well-known nouns (`Error`, `Config`, and `Args` and `Command` of each CLI command).
const REPEATED_TYPE_NAMES_MAX: usize = 40;

/// Type names that were figures of speech and have been replaced. None may come back.
const REPLACED_TYPE_NAMES: &[&str] = &[
    "Asker",
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
    "OpenQuestion",
    "Passage",
    "Remains",
    "Shelf",
    "SignedAnew",
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
    let sources = files_below(crates.map(|entry| entry.unwrap().path().join("src")), "rs");
    assert!(!sources.is_empty(), "there are no sources below crates/*/src");
    sources
}

/// Every file with this extension below these directories, with its text.
fn files_below(
    directories: impl IntoIterator<Item = PathBuf>,
    extension: &str,
) -> Vec<(PathBuf, String)> {
    let mut directories: Vec<PathBuf> = directories.into_iter().collect();
    let mut files = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    files
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

/// The Rust of all tests, without comments and literals, so that code which a sandbox runs is not taken for code
/// of a test: the files of `tests/` and `crates/*/tests/`, and the test modules at the ends of source files.
fn rust_of_tests() -> Vec<(PathBuf, String)> {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let mut directories: Vec<PathBuf> =
        crates.map(|entry| entry.unwrap().path().join("tests")).collect();
    directories.push(root().join("tests"));
    let mut tests = files_below(directories, "rs");
    for (path, text) in sources() {
        if let Some(begin) = text.find("#[cfg(test)]\nmod ") {
            let (before, tests_of_file) = text.split_at(begin);
            // Keeps the numbers of the lines.
            tests.push((path, "\n".repeat(before.matches('\n').count()) + tests_of_file));
        }
    }
    tests.into_iter().map(|(path, text)| (path, without_literals(&text))).collect()
}

/// Rust with blanks instead of comments, strings and characters. Lines keep their numbers.
fn without_literals(rust: &str) -> String {
    let (mut code, mut rest) = (String::with_capacity(rust.len()), rust);
    while let Some(first) = rest.chars().next() {
        let is_in_word = code.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let raw = rest.strip_prefix('r').map(|raw| raw.trim_start_matches('#'));
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if raw.is_some_and(|raw| raw.starts_with('"')) && !is_in_word {
            let hashes = "#".repeat(rest.len() - 1 - raw.unwrap_or_default().len());
            let begin = 2 + hashes.len();
            let end = format!("\"{hashes}");
            rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len())
        } else if first == '"' {
            end_of_quoted(rest, '"')
        } else if first == '\'' && (rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'')) {
            end_of_quoted(rest, '\'')
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let (literal, after) = rest.split_at(length);
        code.extend(literal.chars().filter(|char| *char == '\n'));
        code.push(' ');
        rest = after;
    }
    code
}

/// The length of a literal that begins here and ends with this mark.
fn end_of_quoted(text: &str, mark: char) -> usize {
    let mut is_escaped = false;
    for (index, char) in text.char_indices().skip(1) {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if char == mark => return index + 1,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn literals_and_comments_are_no_code() {
    let rust = "a('x', \"b\\\"b\", r#\"c\"c\"#) // d\ne('\\'', &'static f, '\"')";
    let code = without_literals(rust);
    let words: Vec<&str> = words(&code).collect();
    assert_eq!(words, ["a", "e", "static", "f"], "{code}");
    assert_eq!(code.lines().count(), 2);
}

/// The crates in which `engine::Clock` is the only source of the time of day.
const CLOCKED_CRATES: [&str; 5] = ["engine", "service", "agent", "mcp", "api"];
const CLOCK_FILE: &str = "crates/engine/src/clock.rs";

/// With another source, a record of a server with a manual clock would have a time at which it has expired, or does
/// not expire for years.
#[test]
fn the_time_of_day_comes_from_the_clock() {
    let (mut found, mut is_in_clock) = (Vec::new(), false);
    for (path, text) in sources() {
        let path = path.strip_prefix(root()).unwrap_or(&path).to_owned();
        let is_clocked =
            CLOCKED_CRATES.iter().any(|name| path.starts_with(format!("crates/{name}/src")));
        let code = without_literals(text.split("#[cfg(test)]\nmod ").next().unwrap_or_default());
        for (index, line) in code.lines().enumerate() {
            let reads = ["Utc::now", "Local::now", "SystemTime::now", "UNIX_EPOCH.elapsed"];
            if is_clocked && reads.iter().any(|read| line.contains(read)) {
                is_in_clock |= path.ends_with(CLOCK_FILE);
                found.push((path.clone(), format!("{}:{}", path.display(), index + 1)));
            }
        }
    }
    assert!(is_in_clock, "the clock is not found");
    found.retain(|(path, _)| !path.ends_with(CLOCK_FILE));
    assert!(found.is_empty(), "use the `Clock`: {found:#?}");
}

/// Where tests may sleep: between two looks at a condition.
const WAITING_HELPERS: [&str; 2] = ["tests/harness/wait.rs", "tests/harness/wait_blocking.rs"];

/// How often tests use the pauses of these helpers that wait for nothing: peers that are slow on purpose, and
/// events that may come at any moment. One more needs a reason.
const PAUSES_MAX: usize = 21;

/// A wait for a time passes on one machine and fails on another. Code that a sandbox runs is in a literal, and
/// may sleep as long as it likes.
#[test]
fn tests_wait_for_conditions_and_never_for_a_time() {
    let (mut sleeps, mut pauses) = (Vec::new(), Vec::new());
    for (path, code) in rust_of_tests() {
        let path = path.strip_prefix(root()).unwrap_or(&path).to_owned();
        if WAITING_HELPERS.iter().any(|helper| path.ends_with(helper)) {
            continue;
        }
        for (index, line) in code.lines().enumerate() {
            let place = format!("{}:{}: {}", path.display(), index + 1, line.trim());
            let has = |names: &[&str]| words(line).any(|word| names.contains(&word));
            if has(&["sleep", "sleep_until", "sleep_ms", "park_timeout", "interval"]) {
                sleeps.push(place);
            } else if has(&["slow_peer", "any_moment", "tick"]) {
                pauses.push(place);
            }
        }
    }
    assert!(sleeps.is_empty(), "use tests/harness/wait.rs: {sleeps:#?}");
    assert!(!pauses.is_empty(), "the tests are not found");
    assert!(pauses.len() <= PAUSES_MAX, "{}: {pauses:#?}", pauses.len());
}

/// Prints where a file of tests calls something named `sleep`. Code that a runner executes is in a literal.
const PYTHON_SLEEPS: &str = r"
import ast, sys
for path in sys.argv[1:]:
    for node in ast.walk(ast.parse(open(path, encoding='utf-8').read())):
        if isinstance(node, ast.Call) and getattr(node.func, 'attr', getattr(node.func, 'id', '')) == 'sleep':
            print(f'{path}:{node.lineno}')
";

#[test]
fn tests_in_python_wait_for_conditions_too() {
    let directories = ["runner/tests", "clients/python/tests"].map(|path| root().join(path));
    let files = files_below(directories, "py").into_iter().map(|(path, _)| path);
    let files: Vec<PathBuf> = files.filter(|path| !path.ends_with("waiting.py")).collect();
    assert!(files.len() > 10, "the tests are not found: {files:?}");
    let pythons = engine::discover(&engine::HostSettings::from_env()).found;
    let python = &pythons.first().unwrap().executable;
    let output = Command::new(python).args(["-c", PYTHON_SLEEPS]).args(files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sleeps = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(sleeps, "", "use the waiting.py beside them");
}

/// A test that returns because the machine lacks something counts as passed and shows nothing. One that cannot
/// run somewhere is ignored there (`crates/cli/build.rs`), which its result says.
#[test]
fn no_test_passes_by_returning_early() {
    let mut found = Vec::new();
    for (path, code) in rust_of_tests() {
        let lines: Vec<&str> = code.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            if line.trim_start().starts_with("#[test]") || line.contains("#[tokio::test") {
                let body = lines[index..].iter().enumerate().skip(1);
                let body = body.take_while(|(_, line)| **line != "}" && **line != "    }");
                // Of the function itself, and not of a closure or a loop that is further in.
                let returns =
                    |line: &str| line.contains("else { return }") || is_early_return(line);
                for (offset, line) in body.filter(|(_, line)| returns(line)) {
                    found.push(format!(
                        "{}:{}: {}",
                        path.display(),
                        index + offset + 1,
                        line.trim()
                    ));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Whether the line returns without a value from a block right inside of a function.
fn is_early_return(line: &str) -> bool {
    let depth = line.len() - line.trim_start().len();
    depth <= 12 && ["return;", "return Ok(());"].contains(&line.trim())
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

/// Runs the tests of the runner, which need no sandbox, with one Python; tells what was said.
fn run_tests_of_runner(python: &Path, packages: Option<&Path>) -> String {
    let mut tests = Command::new(python);
    tests
        .args(["-m", "unittest", "discover", "-s", "runner/tests", "-t", "runner"])
        .current_dir(root())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("PYTHONPATH");
    if let Some(packages) = packages {
        tests.env("PYTHONPATH", packages);
    }
    let output = tests.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", python.display());
    said
}

#[test]
fn the_runner_keeps_its_promises_without_a_sandbox() {
    let pythons = engine::discover(&engine::HostSettings::from_env()).found;
    assert!(!pythons.is_empty(), "there is no CPython to test with");
    for python in pythons {
        run_tests_of_runner(&python.executable, None);
    }
}

/// Tests about tables and figures are skipped by a plain Python. Here nothing is.
#[tokio::test]
async fn the_runner_keeps_all_of_its_promises_with_the_packages_of_an_environment() {
    let data = std::env::var_os("BELLJAR_TEST_DATA").map(PathBuf::from);
    let data = data.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("data"));
    let config = engine::Config::for_command_line(data, env!("CARGO_BIN_EXE_belljar").into());
    let engine = engine::Engine::start(config);
    let python = engine.unsandboxed_python("default").await.unwrap();
    let said = run_tests_of_runner(&python.interpreter, Some(&python.site_packages));
    assert!(said.ends_with("\nOK\n"), "some were skipped: {said}");
}
