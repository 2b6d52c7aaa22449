//! `belljar tool`, as its users run it.

use crate::harness::{belljar, stderr, stdout};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use tempfile::TempDir;

/// A directory with these files.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    directory
}

fn tool(directory: &Path, args: &[&str]) -> Output {
    belljar(&[&["tool"], args].concat()).current_dir(directory).output().unwrap()
}

fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {output:?}")).unwrap()
}

const GREET: &str = "def handle(name: str, times: int = 1) -> str:\n    \"\"\"Greet.\n\n    Args:\n        \
                     name: Whom.\n        times: How often.\n    \"\"\"\n    print('greeting', name)\n    \
                     return ' '.join(['hello', name] * times)\n";

#[test]
fn check_prints_the_contract_and_nothing_else() {
    let here = directory(&[("greet.py", GREET)]);
    let output = tool(here.path(), &["check", "greet.py"]);
    assert!(output.status.success());
    assert_eq!(stderr(&output), "");
    let expected = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Whom."},
            "times": {"type": "integer", "description": "How often.", "default": 1},
        },
        "required": ["name"],
    });
    assert_eq!(parsed(&output), expected);
}

#[test]
fn check_shows_errors_as_a_compiler_does() {
    let here = directory(&[("bad.py", "import os\n\ndef handle(a, b: set):\n    '''B.'''\n")]);
    let output = tool(here.path(), &["check", "bad.py"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "");
    let expected = "\
error[code.type]: Unsupported type for parameter 'b': set
 --> bad.py:3:18
  |
3 | def handle(a, b: set):
  |                  ^^^
  = hint: use str, int, float, bool, datetime.datetime, NodeId, or a list of one of them
";
    assert!(stderr(&output).ends_with(expected), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("Missing type annotation for parameter(s): a\n --> bad.py:3:12")
    );
}

#[test]
fn check_as_json_has_a_contract_or_errors_and_never_both() {
    let here = directory(&[("greet.py", GREET), ("bad.py", "def handle(x: set): pass")]);
    let good = parsed(&tool(here.path(), &["check", "greet.py", "--json"]));
    assert_eq!(good["contract"]["input_schema"]["required"], json!(["name"]));
    assert!(good.get("errors").is_none());
    let bad = tool(here.path(), &["check", "bad.py", "--json"]);
    assert_eq!(bad.status.code(), Some(1));
    let bad = parsed(&bad);
    assert!(bad.get("contract").is_none());
    let error = &bad["errors"][0];
    assert_eq!(error["code"], "code.type");
    assert_eq!((&error["line"], &error["column"]), (&json!(1), &json!(15)));
    assert_eq!(error["source_line"], "def handle(x: set): pass");
    assert_eq!(bad["warnings"][0]["code"], "code.docstring");
}

#[test]
fn extended_annotations_are_for_those_who_ask() {
    let code = "from typing import Literal, Optional\n\
                def handle(a: Optional[int] = None, b: Literal['x', 'y'] = 'x'):\n    return [a, b]";
    let here = directory(&[("t.py", code)]);
    let strict = tool(here.path(), &["check", "t.py"]);
    assert_eq!(strict.status.code(), Some(1));
    assert!(stderr(&strict).contains("`--extended` allows this type"), "{}", stderr(&strict));
    let extended = parsed(&tool(here.path(), &["check", "t.py", "--extended"]));
    assert_eq!(extended["properties"]["a"]["type"], json!(["integer", "null"]));
    let args = ["call", "t.py", "--extended", "--env", "bare", "--args", r#"{"a": 5, "b": "y"}"#];
    assert_eq!(stdout(&tool(here.path(), &args)), "[5,\"y\"]\n");
}

#[test]
fn what_cannot_be_read_as_a_tool_is_said_in_one_line() {
    let here = directory(&[
        ("text.txt", "x"),
        ("broken.json", "{"),
        ("list.json", "[]"),
        (
            "lower.json",
            r#"{"name":"t","tool_type":"code_runner","configuration":{"type":"CodeRunner",
            "code":"def run(input): pass","input_schema":[{"name":"a","field_type":"string"}]}}"#,
        ),
    ]);
    std::fs::write(here.path().join("latin.py"), b"def handle():\n    return '\xe9'\n").unwrap();
    for (file, exit, said) in [
        ("absent.py", 2, "absent.py: No such file or directory"),
        ("text.txt", 2, "the file name must end in .py or .json"),
        (
            "broken.json",
            1,
            "tool is not valid JSON: EOF while parsing an object at line 1 column 1",
        ),
        ("list.json", 1, "a tool must be a JSON object"),
        ("latin.py", 1, "source is not valid UTF-8 in line 2"),
        ("lower.json", 1, "field_type 'string' must be written 'STRING'"),
    ] {
        let output = tool(here.path(), &["check", file]);
        assert_eq!(output.status.code(), Some(exit), "{file}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{file}: {}", stderr(&output));
    }
    let lower = tool(here.path(), &["check", "lower.json"]);
    assert!(stderr(&lower).contains("$.configuration.input_schema[0].field_type"));
}

#[test]
fn call_prints_the_value_on_stdout_and_the_logs_on_stderr() {
    let here = directory(&[("greet.py", GREET), ("args.json", r#"{"name": "file"}"#)]);
    let given = ["call", "greet.py", "--env", "bare", "--args"];
    let output = tool(here.path(), &[&given[..], &[r#"{"name": "you", "times": 2}"#]].concat());
    assert_eq!(stdout(&output), "\"hello you hello you\"\n");
    assert_eq!(stderr(&output), "greeting you\n");
    let output = tool(here.path(), &[&given[..], &["@args.json"]].concat());
    assert_eq!(stdout(&output), "\"hello file\"\n");
    let mut piped = belljar(&[&["tool"], &given[..], &["-"]].concat())
        .current_dir(here.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    piped.stdin.take().unwrap().write_all(br#"{"name": "pipe"}"#).unwrap();
    assert_eq!(stdout(&piped.wait_with_output().unwrap()), "\"hello pipe\"\n");
}

#[test]
fn call_as_json_is_the_record() {
    let here = directory(&[("greet.py", GREET)]);
    let args = ["call", "greet.py", "--env", "bare", "--json", "--args", r#"{"name": "you"}"#];
    let record = parsed(&tool(here.path(), &args));
    assert_eq!(record["value"], "hello you");
    assert_eq!(record["tool"], "greet");
    assert_eq!(record["entry"], "handle");
    assert_eq!(record["arguments"], json!({"name": "you"}));
    assert_eq!(record["output"][0]["text"], "greeting you\n");
}

#[test]
fn arguments_that_do_not_fit_are_refused_before_anything_runs() {
    let here =
        directory(&[("t.py", "def handle(n: int):\n    print('has started')\n    return n")]);
    for (arguments, said) in [
        ("[1]", "args.invalid: Arguments must be a JSON object, got array"),
        ("{}", "args.missing: Missing required argument 'n'"),
        (r#"{"n": 1, "m": 2, "o": 3}"#, "args.unknown: Unknown argument(s): m, o"),
        (r#"{"n": "1"}"#, "args.invalid: Invalid argument 'n': expected integer, got string \"1\""),
        ("{n: 1}", "--args: invalid JSON: key must be a string at line 1 column 2"),
        ("t.py", "to read a file, use @t.py"),
        ("@absent.json", "--args @absent.json: No such file or directory"),
    ] {
        let output = tool(here.path(), &["call", "t.py", "--env", "bare", "--args", arguments]);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(stderr(&output).contains(said), "{arguments}: {}", stderr(&output));
        assert_eq!(stdout(&output), "");
        assert!(!stderr(&output).contains("has started"));
    }
}

#[test]
fn a_tool_takes_files_and_makes_files() {
    let code = "def handle(path: str):\n    text = open(path).read().upper()\n    \
                open('out.txt', 'w').write(text)\n    return len(text)";
    let here = directory(&[("t.py", code), ("in.txt", "abc")]);
    let arguments = r#"{"path": "in.txt"}"#;
    let args =
        ["call", "t.py", "--env", "bare", "--file", "in.txt", "--out", "made", "--args", arguments];
    let output = tool(here.path(), &args);
    assert_eq!(stdout(&output), "3\n", "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(here.path().join("made/out.txt")).unwrap(), "ABC");
}

const TESTED: &str = "def handle(n: int): return n\n\
                      def test():\n    print('trying')\n    assert handle(1) == 1\n    return handle(5)\n";
const FAILING: &str = "def handle(n: int): return n + 1\n\
                       def test():\n    print('a < b & \\x1b[31mred')\n    got = handle(41)\n    \
                       assert got == 41, 'Expected 41, got 42'\n";
const ENDLESS: &str = "def handle(): pass\ndef test():\n    while True: pass\n";

// proves C-099, C-100, C-103, C-104, C-107, C-110, C-095
#[test]
fn test_tells_passed_failed_and_timed_out_apart() {
    let here = directory(&[
        ("good.py", TESTED),
        ("bad.py", FAILING),
        ("endless.py", ENDLESS),
        ("untested.py", "def handle(): pass"),
        ("raising.py", "def handle(): pass\ndef test(): {}['k']"),
        ("bare.py", "def handle(): pass\ndef test():\n    assert 1 + 1 == 3"),
    ]);
    let files =
        ["good.py", "absent.py", "bad.py", "endless.py", "untested.py", "raising.py", "bare.py"];
    let args = [&["test", "--env", "bare", "--timeout", "0.5"], &files[..]].concat();
    let output = tool(here.path(), &args);
    assert_eq!(output.status.code(), Some(1));
    let said = stdout(&output);
    assert!(said.contains("    trying\n    returned 5\n"), "{said}");
    for (file, outcome) in [
        ("good.py", "passed"),
        ("bad.py", "failed"),
        ("endless.py", "timed out"),
        ("untested.py", "failed"),
        ("raising.py", "failed"),
        ("bare.py", "failed"),
        ("absent.py", "failed"),
    ] {
        let line = said.lines().find(|line| line.starts_with(file)).unwrap();
        assert!(
            line.starts_with(&format!("{file}: {outcome} in ")) && line.ends_with(" ms"),
            "{line}"
        );
    }
    for detail in [
        "File \"bad.py\", line 5, in test",
        "assert got == 41, 'Expected 41, got 42'",
        "AssertionError: Expected 41, got 42",
        "where got is 42",
        "time.exceeded: exceeded the wall-clock time limit of 500 ms",
        "Function 'test' not found.",
        "KeyError: 'k'",
        "failed: 1 + 1 == 3",
        "absent.py: No such file or directory",
    ] {
        assert!(said.contains(detail), "{detail}: {said}");
    }
    assert_eq!(said.lines().last(), Some("1 passed, 6 failed"));
    assert!(tool(here.path(), &["test", "--env", "bare", "good.py"]).status.success());
}

#[test]
fn test_reports_for_machines() {
    let here = directory(&[("good.py", TESTED), ("bad.py", FAILING)]);
    let args = ["test", "--env", "bare", "--json", "--junit", "junit.xml", "good.py", "bad.py"];
    let report = parsed(&tool(here.path(), &args));
    assert_eq!((&report["passed"], &report["failed"]), (&json!(1), &json!(1)));
    let [good, bad] = [&report["tests"][0], &report["tests"][1]];
    assert_eq!((&good["outcome"], &good["value"]), (&json!("passed"), &json!(5)));
    assert_eq!(
        (&bad["outcome"], &bad["error"]["code"]),
        (&json!("failed"), &json!("python.AssertionError"))
    );
    assert_eq!(bad["error"]["assertion"]["values"], json!([["got", "42"]]));
    // Whether it is XML is for a parser to say.
    let read = "import sys, xml.etree.ElementTree as E\n\
                suite = E.parse('junit.xml').getroot()[0]\n\
                print(suite.get('tests'), suite.get('failures'), suite[1].get('classname'),\n      \
                suite[1][0].get('message'), suite[1][1].text.strip(), sep='|')";
    let parsed = std::process::Command::new("python3")
        .args(["-c", read])
        .current_dir(here.path())
        .output()
        .unwrap();
    assert_eq!(
        stdout(&parsed),
        "2|1|bad.py|Expected 41, got 42|a < b & \u{fffd}[31mred\n",
        "{}",
        stderr(&parsed)
    );
}

// proves W-046
#[test]
fn the_timeout_of_a_tool_ends_it_and_names_itself() {
    let json = r#"{"name":"t","tool_type":"code_runner","configuration":{"type":"CodeRunner",
        "timeout_seconds":1,"code":"def run(input):\n    while input: pass\n    return 1"}}"#;
    let here = directory(&[("t.json", json)]);
    let output = tool(here.path(), &["call", "t.json", "--env", "bare", "--args", r#"{"a": 1}"#]);
    assert_eq!(output.status.code(), Some(124));
    let said = stderr(&output);
    assert!(
        said.contains("time.exceeded: exceeded the wall-clock time limit of 1000 ms"),
        "{said}"
    );
    assert_eq!(stdout(&tool(here.path(), &["call", "t.json", "--env", "bare"])), "1\n");
}

#[test]
fn a_refused_call_is_json_for_machines_too() {
    let here =
        directory(&[("t.py", "def handle(n: int): return n"), ("bad.py", "def handle(x): 0")]);
    let output = tool(here.path(), &["call", "t.py", "--env", "bare", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(parsed(&output)["error"]["code"], "args.missing");
    let output = tool(here.path(), &["call", "bad.py", "--env", "bare", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(parsed(&output)["errors"][0]["code"], "code.annotation");
}

#[test]
fn what_a_test_returns_is_shown_and_need_not_be_json() {
    let code = "def handle(): pass\ndef test(): return {1, 2}";
    let here = directory(&[("t.py", code)]);
    let output = tool(here.path(), &["test", "--env", "bare", "t.py"]);
    assert!(output.status.success());
    assert!(stdout(&output).contains("warning: the returned value is not JSON: a set is not JSON"));
}

#[test]
fn a_new_tool_passes_check_and_test() {
    let here = directory(&[]);
    for (style, name, file) in [("handle", "greet", "greet.py"), ("run", "probe", "probe.json")] {
        assert!(tool(here.path(), &["new", name, "--style", style]).status.success());
        let check = tool(here.path(), &["check", file]);
        assert!(check.status.success() && stderr(&check).is_empty(), "{}", stderr(&check));
        let test = tool(here.path(), &["test", "--env", "bare", file]);
        assert!(test.status.success(), "{}", stdout(&test));
    }
    let again = tool(here.path(), &["new", "greet"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("greet.py: File exists"), "{}", stderr(&again));
    for name in ["../up", "a/b", "1st", "", "a b"] {
        assert_eq!(tool(here.path(), &["new", name]).status.code(), Some(2), "{name}");
    }
}

#[test]
fn the_source_of_a_json_tool_may_stand_beside_it() {
    let json = r#"{"name":"t","tool_type":"code_runner",
        "configuration":{"type":"CodeRunner","code":"@t_code.py"}}"#;
    let here = directory(&[("t.json", json), ("t_code.py", "def run(input):\n    return 1 / 0\n")]);
    let output = tool(here.path(), &["call", "t.json", "--env", "bare"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("File \"t_code.py\", line 2, in run"), "{}", stderr(&output));
}

// proves W-045
#[test]
fn check_says_what_the_tool_will_miss_in_an_environment() {
    let code = "import numpy\nimport json\ndef handle(a: int):\n    '''A.\n\n    Args:\n        a: A.\n    '''\n    import cognite.client\n";
    let here = directory(&[("far.py", code)]);
    let check = |args: &[&str]| {
        let output = tool(here.path(), &[&["check"], args, &["far.py"]].concat());
        assert!(output.status.success(), "a warning is no error: {}", stderr(&output));
        stderr(&output)
    };
    let output = check(&["--env", "default"]);
    assert_eq!(check(&[]), check(&["--env", "atlas"]), "that of its kind, if no other is named");
    let expected = "\
warning[python.ModuleNotFoundError]: import cognite: the environment default has no cognite; atlas has
 --> far.py:9:5
  |
9 |     import cognite.client
  |     ^^^^^^^^^^^^^^^^^^^^^
";
    assert!(output.starts_with(expected) && output.contains("belljar tool deploy"), "{output}");
    assert_eq!(output.matches("warning").count(), 1, "{output}");
    let listed = check(&["--env", "default", "--imports", "pandas"]);
    assert!(listed.contains("warning[import.denied]: import numpy"), "{listed}");
    let unbuilt = belljar(&["tool", "check", "--env", "default", "far.py"])
        .current_dir(here.path())
        .env("BELLJAR_DATA", here.path().join("data"))
        .output()
        .unwrap();
    let unbuilt = stderr(&unbuilt);
    assert!(unbuilt.contains("import cognite") && !unbuilt.contains("import numpy"), "{unbuilt}");
    assert!(unbuilt.contains("not built yet"), "{unbuilt}");
    let unknown = tool(here.path(), &["check", "--env", "none", "far.py"]);
    assert_eq!(unknown.status.code(), Some(2));

    let probe = json!({
        "name": "probe", "tool_type": "code_runner",
        "configuration": {"code": "def run(input): ...", "requires_binaries": ["sh", "no-such-program"]},
    });
    let here = directory(&[("probe.json", &probe.to_string())]);
    let output = stderr(&tool(here.path(), &["check", "--env", "bare", "probe.json"]));
    assert!(
        output.contains("warning[tool.unavailable]") && output.contains("no-such-program"),
        "{output}"
    );
    let atlas = stderr(&tool(here.path(), &["check", "--env", "atlas", "probe.json"]));
    assert!(atlas.contains("sh, no-such-program"), "it starts no programs: {atlas}");
    for verb in ["call", "test"] {
        let output = tool(here.path(), &[verb, "--env", "bare", "probe.json"]);
        assert!(!output.status.success(), "{verb}");
        let said = stderr(&output) + &stdout(&output);
        assert!(said.contains("needs no-such-program"), "{verb}: {said}");
    }
}
