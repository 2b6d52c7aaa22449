//! `belljar doctor` on a machine that supports all isolation layers.

use crate::harness::{self, belljar, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

const NOBODY: u32 = 65534;
/// The widest terminal that can be expected.
const COLUMNS: usize = 100;

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn outcomes(report: &Value) -> Vec<(&str, &str)> {
    let proofs = report["proofs"].as_array().unwrap().iter();
    proofs
        .map(|proof| (proof["name"].as_str().unwrap(), proof["outcome"].as_str().unwrap()))
        .collect()
}

fn check_all_well(output: &Output) {
    let report = json(output);
    let failed: Vec<&Value> = report["proofs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|proof| proof["outcome"] != "proved")
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(outcomes(&report).len(), 25);
    assert_eq!(report["safe"], true);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn every_isolation_layer_is_proved() {
    check_all_well(&belljar(&["doctor", "--json"]).output().unwrap());
}

#[test]
fn an_environment_without_processes_is_proved_to_have_none() {
    let output = belljar(&["doctor", "--json", "--env", "atlas"]).output().unwrap();
    let report = json(&output);
    let seen = outcomes(&report);
    assert!(seen.iter().all(|(_, outcome)| *outcome == "proved"), "{seen:?}");
    assert!(seen.contains(&("no_processes", "proved")) && seen.contains(&("thread", "proved")));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
// For an ordinary user, the test above is about one.
#[cfg_attr(not(test_as_root), ignore = "only root can become one")]
fn every_isolation_layer_is_proved_for_an_ordinary_user() {
    let home = tempfile::tempdir().unwrap();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    // Where this is built may be closed to others.
    let program = home.path().join("belljar");
    harness::copy_binary_to(&program);
    let output = Command::new(&program)
        .args(["doctor", "--json"])
        .env_clear()
        .envs([("PATH", "/usr/local/bin:/usr/bin:/bin")])
        .env("BELLJAR_DATA", home.path().join("data"))
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    check_all_well(&output);
    let report = json(&output);
    let ids = report["layers"].as_array().unwrap().iter().find(|row| row["name"] == "host user id");
    assert_eq!(ids.unwrap()["state"], "optional");
}

#[test]
fn the_table_fits_a_terminal_and_has_no_colours_in_a_pipe() {
    let output = belljar(&["doctor"]).output().unwrap();
    let table = stdout(&output);
    assert!(!table.contains('\x1b'));
    // Lines with paths are as long as the paths are.
    let wide: Vec<&str> = table
        .lines()
        .filter(|line| line.chars().count() > COLUMNS && !line.contains(" /"))
        .collect();
    assert!(wide.is_empty(), "{wide:#?}");
    assert!(table.ends_with("\nCode can be run safely on this machine.\n"), "{table}");
}

#[test]
fn nothing_is_left_behind() {
    let data = tempfile::tempdir().unwrap();
    let output = belljar(&["doctor", "--data"]).arg(data.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let left: Vec<String> = fs::read_dir(data.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("doctor"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_data_directory_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let below = file.path().join("data");
    let output = belljar(&["doctor", "--json", "--data"]).arg(&below).output().unwrap();
    let report = json(&output);
    let row =
        report["tools"].as_array().unwrap().iter().find(|row| row["name"] == "data directory");
    assert_eq!(row.unwrap()["state"], "missing");
    assert!(outcomes(&report).iter().all(|(_, outcome)| *outcome == "not_tried"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_environment_that_is_not_known_is_refused() {
    let output = harness::belljar(&["doctor", "--json", "--env", "nonsense"]).output().unwrap();
    assert_eq!(json(&output)["safe"], false);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_machine_without_python_is_told_to_install_one_and_a_named_one_is_enough() {
    let data = tempfile::tempdir().unwrap();
    let doctor = |options: &[&str]| {
        let mut command = belljar(&[&["doctor", "--json"], options].concat());
        command
            .env("PATH", "/nonexistent")
            .env("HOME", data.path())
            .env("BELLJAR_DATA", data.path());
        command.env_remove("PYENV_ROOT").env_remove("UV_PYTHON_INSTALL_DIR").output().unwrap()
    };
    let output = doctor(&[]);
    let report = json(&output);
    let row = &report["tools"][0];
    assert_eq!((&row["name"], &row["state"]), (&"Python".into(), &"missing".into()));
    assert!(row["fix"].as_str().unwrap().starts_with("apt install python3\n"));
    assert_eq!(output.status.code(), Some(1));

    let found = engine::discover(&engine::HostSettings::from_env()).found;
    check_all_well(&doctor(&["--python", found[0].executable.to_str().unwrap()]));
}
