//! The hazards of `docs/threat-model.md` and the tests that show their layers. Every test that a row names
//! exists, and every test with the number of a hazard is named in a row with this number.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::{files_below, root, sources, words};

/// One row of a table of hazards: its numbers, and the names of its tests.
struct HazardRow {
    line: usize,
    hazards: BTreeSet<u32>,
    tests: Vec<String>,
}

fn hazard_rows(page: &str) -> Vec<HazardRow> {
    let mut rows = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [numbers, _, _, tests] = cells[..] else { continue };
        let numbers = numbers.trim_start_matches('|').trim();
        if !numbers.starts_with(|first: char| first.is_ascii_digit() || first == '–') {
            continue;
        }
        rows.push(HazardRow {
            line: index + 1,
            hazards: numbers.split(", ").filter_map(|number| number.parse().ok()).collect(),
            // Every second piece is between backticks.
            tests: tests.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        });
    }
    rows
}

/// 13 for `t13_fd_table_is_exact`.
fn hazard_of(test: &str) -> Option<u32> {
    test.strip_prefix('t')?.split_once('_')?.0.parse().ok()
}

/// The names of all functions and files of tests and sources. A name in Python is without its `test_`.
fn names_of_tests() -> BTreeSet<String> {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let mut directories: Vec<PathBuf> =
        crates.map(|entry| entry.unwrap().path().join("tests")).collect();
    directories.push(root().join("tests"));
    let mut files = files_below(directories, "rs");
    files.extend(files_below([root().join("runner/tests")], "py"));
    files.extend(sources());
    let mut names = BTreeSet::new();
    for (path, text) in files {
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        for line in text.lines() {
            let mut words = words(line).skip_while(|word| ["pub", "crate", "async"].contains(word));
            if let (Some("fn" | "def"), Some(name)) = (words.next(), words.next()) {
                names.insert(name.strip_prefix("test_").unwrap_or(name).to_owned());
            }
        }
    }
    names
}

fn is_named(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

#[test]
fn the_threat_model_and_its_tests_agree() {
    let page = fs::read_to_string(root().join("docs/threat-model.md")).unwrap();
    let (rows, names) = (hazard_rows(&page), names_of_tests());
    assert!(rows.len() > 100, "the rows are not found: {}", rows.len());
    assert!(names.contains("t13_fd_table_is_exact"), "the tests are not found");
    let mut wrong = Vec::new();
    for row in &rows {
        let line = row.line;
        for test in &row.tests {
            if !names.iter().any(|name| is_named(name, test)) {
                wrong.push(format!("line {line}: there is no test {test}"));
            }
        }
        let shown: BTreeSet<u32> = row.tests.iter().filter_map(|test| hazard_of(test)).collect();
        if shown != row.hazards {
            let hazards = &row.hazards;
            wrong.push(format!("line {line}: has the numbers {hazards:?}, its tests {shown:?}"));
        }
    }
    for name in names.iter().filter(|name| hazard_of(name).is_some()) {
        if !rows.iter().any(|row| row.tests.iter().any(|test| is_named(name, test))) {
            wrong.push(format!("no row names {name}"));
        }
    }
    assert!(wrong.is_empty(), "docs/threat-model.md: {wrong:#?}");
}
