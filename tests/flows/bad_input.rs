//! A request that cannot be served is refused in one line, with exit code 2, before anything is
//! started.

use crate::harness::{self, belljar, stderr, stdout};
use std::process::Output;

/// Asserts that it was refused and returns the line that says why.
#[track_caller]
fn refused(output: &Output) -> String {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(stdout(output), "");
    assert_eq!(said.lines().count(), 1, "{said}");
    let line = said.trim_end().strip_prefix("belljar: ");
    line.unwrap_or_else(|| panic!("who says {said:?}?")).to_owned()
}

fn bare(args: &[&str]) -> Output {
    harness::exec(&[&["--env", "bare"], args].concat())
}

#[test]
fn empty_code() {
    assert_eq!(refused(&bare(&[""])), "there is no code to run");
    assert_eq!(refused(&bare(&[" \n\t"])), "there is no code to run");
}

#[test]
fn code_that_is_not_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let argument = std::ffi::OsStr::from_bytes(b"print('\xff')");
    let output = belljar(&["exec", "--env", "bare"]).arg(argument).output().unwrap();
    assert!(refused(&output).contains("UTF-8"));
    let script = script(b"print('\xff')");
    let path = script.path().to_str().unwrap();
    let expected = "the code is not valid UTF-8 (at byte 7)";
    assert_eq!(refused(&bare(&[path])), expected);
}

#[test]
fn code_with_a_nul() {
    let script = script(b"a = '\0'");
    let path = script.path().to_str().unwrap();
    assert_eq!(refused(&bare(&[path])), "the code has a NUL character at byte 5");
}

fn script(content: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".py").tempfile().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

#[test]
fn ten_megabytes_of_code() {
    let script = script(&[b'#'; 10_000_000]);
    let expected = "the code has 10000000 bytes; the maximum is 4194304";
    assert_eq!(refused(&bare(&[script.path().to_str().unwrap()])), expected);
    let stdin = std::fs::File::open(script.path()).unwrap();
    let output = belljar(&["exec", "--env", "bare", "-"]).stdin(stdin).output().unwrap();
    assert_eq!(refused(&output), expected);
}

#[test]
fn four_mebibytes_of_code_are_run() {
    let mut code = vec![b'#'; 4 * 1024 * 1024 - 10];
    code.extend(b"\nprint(1)");
    let output = bare(&[script(&code).path().to_str().unwrap()]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("1\n", Some(0)));
}

#[test]
fn an_unknown_environment() {
    let line = refused(&harness::exec(&["--env", "nowhere", "1"]));
    assert!(line.starts_with("args.invalid: environment `nowhere` not found"), "{line}");
}

#[test]
fn an_environment_that_is_a_path() {
    for name in ["../default", "/etc", "", "default\0x", "."] {
        if !name.contains('\0') {
            refused(&harness::exec(&["--env", name, "1"]));
        }
    }
}

#[test]
fn a_file_that_cannot_be_read() {
    let line = refused(&bare(&["--file", "/no/such/file", "1"]));
    assert_eq!(line, "--file /no/such/file: No such file or directory (os error 2)");
    assert_eq!(
        refused(&bare(&["--file", "/tmp", "1"])),
        "--file /tmp: Is a directory (os error 21)"
    );
    refused(&bare(&["--file", "/", "1"]));
    refused(&bare(&["--file", "..", "1"]));
}

#[test]
fn a_script_that_is_not_there() {
    let line = refused(&bare(&["no_such_script.py"]));
    assert_eq!(line, "no_such_script.py: No such file or directory (os error 2)");
}

#[test]
fn limits_of_zero_and_below() {
    for (option, value) in [
        ("--timeout", "0"),
        ("--timeout", "-1"),
        ("--timeout", "0.0000001"),
        ("--timeout", "NaN"),
        ("--timeout", "soon"),
        ("--memory", "0"),
        ("--memory", "-512"),
        ("--memory", "1.5"),
        ("--memory", "18446744073709551616"),
    ] {
        let line = refused(&bare(&[option, value, "1"]));
        assert!(line.contains(option) && line.contains(value), "{line}");
    }
}

#[test]
fn limits_below_what_python_needs_and_above_what_the_operator_allows() {
    let line = refused(&bare(&["--memory", "1", "1"]));
    assert_eq!(line, "args.invalid: limit memory_bytes is 1048576; it must be at least 33554432");
    let line = refused(&bare(&["--timeout", "3601", "1"]));
    assert_eq!(line, "args.invalid: limit wall_ms is 3601000; the operator allows at most 3600000");
}

#[test]
fn a_place_for_files_that_cannot_be_made() {
    let line = refused(&bare(&["--out", "/proc/nowhere", "1"]));
    assert!(line.starts_with("--out /proc/nowhere: "), "{line}");
}

#[test]
fn no_code_and_unknown_options_and_verbs() {
    refused(&harness::exec(&[]));
    refused(&harness::exec(&["--no-such-option", "1"]));
    refused(&belljar(&["no-such-verb"]).output().unwrap());
    refused(&harness::exec(&["--allow-missing-layer", "gravity", "1"]));
}

#[test]
fn nothing_is_left_behind() {
    let data = tempfile::tempdir().unwrap();
    let mut command = belljar(&["exec", "--env", "bare", "--memory", "0", "1"]);
    refused(&command.env("BELLJAR_DATA", data.path()).output().unwrap());
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0);
}
