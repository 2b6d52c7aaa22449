//! What a user sees at a real terminal.

use crate::{harness, helper};
use harness::{binary, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const UP: &str = "\x1b[A";

/// Follows the steps, each a text to wait for and keys to type then.
fn type_at(data: &Path, steps: &[(&str, &str)], args: &[&str]) -> Output {
    let steps = serde_json::to_string(steps).unwrap();
    let mut typist = helper("typist.py");
    typist.arg(steps).arg(binary()).args(args).env("BELLJAR_DATA", data).output().unwrap()
}

/// Ends with exit code 0 once every step has seen what it waits for.
fn check_session(data: &Path, steps: &[(&str, &str)]) {
    let output = type_at(data, steps, &["session", "--env", "bare"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stderr(&output), stdout(&output));
}

#[test]
fn a_prompt_shows_results_and_leaves_with_ctrl_d() {
    let steps = [(">>> ", "6 * 7\r"), ("42\r\n", ""), (">>> ", CTRL_D)];
    check_session(&harness::data(), &steps);
}

#[test]
fn a_block_has_a_prompt_for_its_other_lines() {
    let steps = [
        (">>> ", "for i in range(2):\r"),
        ("... ", "\tprint('line', i)\r"),
        ("... ", "\r"),
        ("line 0\r\nline 1\r\n", ""),
        (">>> ", CTRL_D),
    ];
    check_session(&harness::data(), &steps);
}

#[test]
fn output_without_a_line_end_is_not_written_over_by_the_prompt() {
    let steps = [(">>> ", "print('no ' + 'end', end='')\r"), ("no end\r\n", ""), (">>> ", CTRL_D)];
    check_session(&harness::data(), &steps);
}

#[test]
fn ctrl_c_interrupts_the_code_and_keeps_the_state() {
    let steps = [
        (">>> ", "x = 41\r"),
        (">>> ", "import time; print('run' + 'ning'); time.sleep(60)\r"),
        ("running\r\n", CTRL_C),
        ("KeyboardInterrupt", ""),
        (">>> ", "x + 1\r"),
        ("42\r\n", ""),
        (">>> ", CTRL_D),
    ];
    check_session(&harness::data(), &steps);
}

#[test]
fn ctrl_c_at_the_prompt_clears_what_was_typed() {
    let steps = [
        (">>> ", "nonsense("),
        ("nonsense(", CTRL_C),
        (">>> ", "def f():\r"),
        ("... ", CTRL_C),
        (">>> ", "print('cl' + 'ean')\r"),
        ("clean\r\n", ""),
        (">>> ", CTRL_D),
    ];
    check_session(&harness::data(), &steps);
}

#[test]
fn the_history_outlives_the_session_and_is_its_owners() {
    let data = tempfile::tempdir().unwrap();
    check_session(
        data.path(),
        &[(">>> ", "print('re' + 'called')\r"), ("recalled\r\n", ""), (">>> ", CTRL_D)],
    );
    let history = data.path().join("history");
    let mode = history.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let steps = [(">>> ", UP), ("called')", "\r"), ("recalled\r\n", ""), (">>> ", CTRL_D)];
    check_session(data.path(), &steps);
}

/// Renames the window, moves the cursor, reverses the text, and is red.
const HOSTILE: &str = r"print('\x1b]0;owned\x07 \x1b[2J \u202e \x9b6n \x1b[31mred')";

#[test]
fn t49_escapes_of_the_code_are_shown_on_a_terminal_and_not_obeyed() {
    let output = type_at(&harness::data(), &[], &["exec", "--env", "bare", HOSTILE]);
    assert_eq!(
        stdout(&output),
        "\\x1b]0;owned\\x07 \\x1b[2J \\u202e \\u009b6n \x1b[31mred\r\n\x1b[0m"
    );
}

#[test]
fn t49_at_the_prompt_too_and_in_names_of_files() {
    let steps = [
        (">>> ", "'\\u202e' + chr(27); print(chr(27) + ']0;x')\r"),
        ("\\x1b]0;x\r\n", ""),
        (">>> ", "_ = open('a\\u202e', 'w')\r"),
        (">>> ", "%files\r"),
        ("0  a\\u202e\r\n", ""),
        (">>> ", "raise ValueError(chr(0x9b))\r"),
        ("ValueError: \\u009b\r\n", ""),
        (">>> ", CTRL_D),
    ];
    check_session(&harness::data(), &steps);
}

#[test]
fn t49_bytes_stay_as_they_are_without_a_terminal() {
    let output = harness::exec(&["--env", "bare", HOSTILE]);
    assert_eq!(stdout(&output), "\x1b]0;owned\x07 \x1b[2J \u{202e} \u{9b}6n \x1b[31mred\n");
}

#[test]
fn the_doctor_has_colours_on_a_terminal() {
    let output = type_at(&harness::data(), &[("\x1b[32mok", "")], &["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

/// A name that reads backwards, and one that would write a line of its own.
#[test]
fn t74_names_of_files_are_escaped_on_a_terminal_and_stay_as_they_are_in_a_record() {
    let code = "for name in ('safe\\u202etxt.exe', '\\u2066plain\\u2069', 'a\\nbelljar: file b', b'\\xff\\nbelljar: file c'): open(name, 'w')";
    let shown = stdout(&type_at(&harness::data(), &[], &["exec", "--env", "bare", code]));
    for line in
        ["belljar: file safe\\u202etxt.exe (0 bytes", "belljar: file \\u2066plain\\u2069 (0"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    for forged in ["\nbelljar: file b", "\nbelljar: file c"] {
        assert!(!shown.contains(forged), "{shown}");
    }
    assert!(shown.contains("belljar: skipped a\\nbelljar: file b"), "{shown}");
    let record = harness::exec(&["--env", "bare", "--json", code]);
    let record: serde_json::Value = serde_json::from_slice(&record.stdout).unwrap();
    let names: Vec<&str> = record["files_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"safe\u{202e}txt.exe"), "{names:?}");
}
