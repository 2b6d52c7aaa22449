//! An isolation layer that cannot be applied: no code runs, unless the operator allows that this layer
//! is missing. A seccomp filter on the system calls that apply a layer makes it unavailable.

use crate::{harness, helper};
use harness::{binary, stderr, stdout};
use std::process::Output;

const MARK: &str = "print('it ran')";

fn without(layer: &str, args: &[&str]) -> Output {
    helper("without.py").arg(layer).arg(binary()).args(args).output().unwrap()
}

fn exec_without(layer: &str, options: &[&str]) -> Output {
    without(layer, &[&["exec", "--env", "bare"], options, &[MARK]].concat())
}

fn check_refused(layer: &str, step: &str) {
    // The environment is there already, so that nothing is said about building it.
    assert_eq!(stdout(&harness::exec(&["--env", "bare", MARK])), "it ran\n");
    let output = exec_without(layer, &[]);
    assert_eq!(stdout(&output), "");
    assert_eq!(
        stderr(&output),
        format!(
            "belljar: sandbox.unreachable: cannot start a sandbox: {step} (run `belljar \
             doctor`: it prints which isolation layer is missing and how to fix it)\n"
        )
    );
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn code_is_not_run_without_landlock() {
    check_refused("landlock", "applying Landlock: Function not implemented (os error 38)");
}

#[test]
fn code_is_not_run_without_seccomp() {
    check_refused("seccomp", "loading the seccomp filter: Operation not permitted (os error 1)");
}

#[test]
fn code_is_not_run_without_namespaces() {
    let step = if rustix::process::geteuid().is_root() {
        "creating namespaces: Function not implemented (os error 38)"
    } else {
        "creating a user namespace: Operation not permitted (os error 1)"
    };
    check_refused("namespaces", step);
}

fn check_allowed(layer: &str) {
    let warning = format!("this ran without the isolation layer {layer}, as the operator allowed");
    let allow = ["--allow-missing-layer", layer];
    let output = exec_without(layer, &allow);
    assert_eq!(stdout(&output), "it ran\n");
    assert_eq!(stderr(&output), format!("belljar: warning: {warning}\n"));
    assert_eq!(output.status.code(), Some(0));

    let output = exec_without(layer, &[&allow[..], &["--json"]].concat());
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!([{ "code": "layer.missing", "message": warning }]);
    assert_eq!(record["warnings"], expected);
}

#[test]
fn an_operator_can_agree_to_do_without_landlock() {
    check_allowed("landlock");
}

#[test]
fn an_operator_can_agree_to_do_without_seccomp() {
    check_allowed("seccomp");
}

#[test]
fn allowing_one_missing_layer_allows_no_other() {
    let output = exec_without("seccomp", &["--allow-missing-layer", "landlock"]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("", Some(125)));
}

#[test]
fn missing_namespaces_cannot_be_allowed() {
    let output = exec_without("namespaces", &["--allow-missing-layer", "namespaces"]);
    let refusal =
        "'--allow-missing-layer <NAME>': only these layers are optional: landlock, seccomp";
    assert!(stderr(&output).contains(refusal), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
}

/// The names of rows in a state, as the doctor has them.
fn doctor_without(layer: &str) -> (Vec<String>, Vec<String>, Option<i32>) {
    let output = without(layer, &["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["safe"], false);
    let names = |rows: &str, key: &str, value: &str| {
        let rows = report[rows].as_array().unwrap().iter().filter(|row| row[key] == value);
        rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    let missing = names("layers", "state", "missing");
    (missing, names("proofs", "outcome", "not_proved"), output.status.code())
}

#[test]
fn doctor_names_landlock_and_what_it_no_longer_holds() {
    let (missing, open, code) = doctor_without("landlock");
    assert_eq!((missing, open), (vec!["Landlock".into()], vec!["landlock".into()]));
    assert_eq!(code, Some(1));
}

#[test]
fn doctor_names_seccomp_and_what_it_no_longer_holds() {
    let (missing, open, code) = doctor_without("seccomp");
    assert_eq!(missing, ["seccomp"]);
    assert_eq!(open, ["ptrace", "socket_families"]);
    assert_eq!(code, Some(1));
}

#[test]
fn doctor_names_the_namespaces_and_what_stands_in_them() {
    let (missing, _, code) = doctor_without("namespaces");
    let kinds = ["user", "pid", "mount", "net", "ipc", "uts", "cgroup"];
    let mut expected = kinds.map(|kind| format!("{kind} namespace")).to_vec();
    expected.extend(["/proc mount".into(), "capabilities".into()]);
    assert_eq!(missing, expected);
    assert_eq!(code, Some(1));
}

#[test]
fn doctor_prints_how_to_get_the_layer_back() {
    let output = without("landlock", &["doctor"]);
    let report = stdout(&output);
    let fix = report.split_once("\nTO FIX\n  Landlock:\n      ").unwrap().1.lines().next().unwrap();
    let container = ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|mark| std::path::Path::new(mark).exists());
    let expected = if container { "--security-opt seccomp=unconfined" } else { "seccomp filter" };
    assert!(fix.contains(expected), "{fix}");
    assert!(report.ends_with("\nCode cannot be run safely on this machine.\n"), "{report}");
}

/// As root of a user namespace of its own, which is what one is in a rootless container, after
/// `settings` were made there.
fn in_container(settings: &str, args: &[&str]) -> Output {
    let script = format!("{settings}; exec \"$0\" \"$@\"");
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-ec", &script]);
    command.arg(binary()).args(args).env("BELLJAR_DATA", harness::data()).output().unwrap()
}

/// The first line of the fix that the doctor prints there for an isolation layer.
fn fix_in_container(settings: &str, layer: &str) -> String {
    let output = in_container(settings, &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = report["layers"].as_array().unwrap().iter().find(|row| row["name"] == layer).unwrap();
    assert_eq!(row["state"], "missing", "{row}");
    row["fix"].as_str().unwrap().lines().next().unwrap().to_owned()
}

#[test]
fn doctor_names_the_number_that_refuses_namespaces() {
    for (kind, layer) in [("user", "user namespace"), ("net", "net namespace")] {
        let setting = format!("echo 0 > /proc/sys/user/max_{kind}_namespaces");
        let fix = format!("sysctl -w user.max_{kind}_namespaces=15000");
        assert_eq!(fix_in_container(&setting, layer), fix);
    }
}

#[test]
fn doctor_names_the_covers_that_refuse_a_proc() {
    let fix = fix_in_container("mount --bind /dev/null /proc/meminfo", "/proc mount");
    assert!(fix.starts_with("docker run") || fix.starts_with("unmount what covers"), "{fix}");
}

#[test]
fn the_same_place_without_these_settings_is_good() {
    let output = in_container("true", &["exec", "--env", "bare", MARK]);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("it ran\n", ""));
    let output = in_container("true", &["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}
