//! The JSON of a tool, in the form of either vendor document.

use crate::tool;
use belljar_contract::{
    AnnotationMode, CallArguments, CodeTool, Diagnostic, PythonSource, SOURCE_BYTES_MAX,
    SourceCheck, TestFunction, ToolEntryPoint,
};
use serde_json::{Value, json};

fn check(tool: &Value) -> SourceCheck<CodeTool> {
    CodeTool::from_json(&tool.to_string(), AnnotationMode::Strict)
}

fn accepted(tool: &Value) -> CodeTool {
    check(tool).result.unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn refused(tool: &Value) -> Vec<Diagnostic> {
    check(tool).result.unwrap_err()
}

/// The path and message of the one problem that there is.
fn problem(tool: &Value) -> (String, String) {
    let mut problems = refused(tool);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    let problem = problems.remove(0);
    (problem.path.unwrap(), problem.message)
}

fn runner(code: &str) -> Value {
    json!({
        "name": "tool",
        "tool_type": "code_runner",
        "configuration": {"type": "CodeRunner", "code": code},
    })
}

const RUN: &str = "def run(input): return {\"ok\": True}";

/// A CodeRunner tool with one key of its configuration set.
fn with(key: &str, value: Value) -> Value {
    let mut tool = runner(RUN);
    tool["configuration"][key] = value;
    tool
}

fn python_code(code: &str) -> Value {
    json!({
        "type": "runPythonCode",
        "name": "tool",
        "description": "Says what it is told.",
        "configuration": {"pythonCode": code},
    })
}

const MEDIA_PROBE: &str = r#"{
  "name": "media_probe",
  "description": "Inspect a media file in the sandbox.",
  "tool_type": "code_runner",
  "configuration": {
    "type": "CodeRunner",
    "runtime": "python",
    "timeout_seconds": 180,
    "allow_network": false,
    "input_schema": [
      {
        "name": "media_path",
        "field_type": "STRING",
        "required": true,
        "description": "Sandbox path to inspect."
      }
    ],
    "code": "def run(input):\n    return {\"media_path\": input[\"media_path\"]}\n"
  }
}"#;

// proves W-001
// the half of W-007 that needs no server: the seed's own tool is accepted as it stands
#[test]
fn the_tool_of_the_seed_is_accepted_verbatim() {
    let checked = CodeTool::from_json(MEDIA_PROBE, AnnotationMode::Strict);
    assert_eq!(checked.warnings, []);
    let tool = checked.result.unwrap();
    assert_eq!(tool.name, "media_probe");
    assert_eq!(tool.description.as_deref(), Some("Inspect a media file in the sandbox."));
    assert_eq!(tool.timeout_seconds, Some(180));
    assert!(!tool.allow_network);
    assert_eq!(tool.descriptor()["required"], json!(["media_path"]));
    let call = tool.validate_call(json!({"media_path": "/workspace/a.mp4"})).unwrap();
    assert_eq!(call.function(), "run");
    assert_eq!(call.arguments(), &CallArguments::Input(json!({"media_path": "/workspace/a.mp4"})));
}

// proves W-001, W-002
#[test]
fn every_key_of_a_code_runner_is_taken_and_no_other() {
    let mut full = runner(RUN);
    full["description"] = json!("What it is for.");
    full["configuration"] = json!({
        "type": "CodeRunner",
        "runtime": "python",
        "code": RUN,
        "input_schema": [{"name": "a", "field_type": "STRING"}],
        "output_schema": [{"name": "ok", "field_type": "BOOLEAN"}],
        "env_variables": [{"name": "REGION", "value": "eu"}],
        "timeout_seconds": 7,
        "allow_network": true,
    });
    let tool = accepted(&full);
    assert_eq!(tool.source.as_str(), RUN);
    assert_eq!(tool.timeout_seconds, Some(7));
    assert!(tool.allow_network);
    assert_eq!(tool.variables.0["REGION"], "eu");
    assert!(!format!("{tool:?}").contains("\"eu\""), "values do not get into logs");
    assert_eq!(tool.output_descriptor().unwrap()["properties"]["ok"], json!({"type": "boolean"}));
    let (path, message) = problem(&with("timeout", json!(5)));
    assert_eq!(path, "$.configuration.timeout");
    assert!(
        message.starts_with("unknown property 'timeout'; use one of type, runtime"),
        "{message}"
    );
}

#[test]
fn a_tool_of_another_kind_is_refused_by_its_name() {
    for (kind, message) in [
        (json!("api"), "tool_type 'api' is not supported; use 'code_runner'"),
        (json!("CodeRunner"), "tool_type 'CodeRunner' is not supported; use 'code_runner'"),
        (Value::Null, "tool_type must be 'code_runner'"),
    ] {
        let mut tool = runner(RUN);
        tool["tool_type"] = kind;
        assert_eq!(problem(&tool), ("$.tool_type".to_owned(), message.to_owned()));
    }
    let mut tool = runner(RUN);
    tool["configuration"] = json!([]);
    let paths: Vec<Option<String>> = refused(&tool).into_iter().map(|it| it.path).collect();
    assert_eq!(paths[0].as_deref(), Some("$.configuration"));
    for (text, message) in [
        ("", "tool is not valid JSON: EOF while parsing a value at line 1 column 0"),
        ("[]", "a tool must be a JSON object"),
    ] {
        let problems = CodeTool::from_json(text, AnnotationMode::Strict).result.unwrap_err();
        assert_eq!(problems[0].message, message);
    }
}

// proves W-003
#[test]
fn the_type_of_a_configuration_is_written_in_pascal_case() {
    for other in ["code_runner", "coderunner", "CODE_RUNNER", "Coderunner", ""] {
        let expected =
            ("$.configuration.type".to_owned(), format!("'{other}' must be written 'CodeRunner'"));
        assert_eq!(problem(&with("type", json!(other))), expected);
    }
    let expected = ("$.configuration.type".to_owned(), "'type' must be a string".to_owned());
    assert_eq!(problem(&with("type", json!(5))), expected);
}

// proves W-004
#[test]
fn the_only_runtime_is_python() {
    for other in ["javascript", "Python", "python3", ""] {
        let expected = (
            "$.configuration.runtime".to_owned(),
            format!("runtime '{other}' is not supported; use 'python'"),
        );
        assert_eq!(problem(&with("runtime", json!(other))), expected);
    }
    accepted(&with("runtime", json!("python")));
    accepted(&runner(RUN));
}

// proves W-005
#[test]
fn a_tool_has_a_name_and_a_source() {
    for name in [json!(""), json!("  "), Value::Null] {
        let mut tool = runner(RUN);
        tool["name"] = name;
        assert_eq!(problem(&tool), ("$.name".to_owned(), "Tool name is required".to_owned()));
    }
    for code in [json!(""), json!(" \n"), Value::Null] {
        let expected =
            ("$.configuration.code".to_owned(), "Code runner source is required".to_owned());
        assert_eq!(problem(&with("code", code)), expected);
    }
}

// proves W-006
#[test]
fn of_a_configuration_only_the_code_is_needed() {
    let mut tool = runner(RUN);
    tool["configuration"] = json!({ "code": RUN });
    let tool = accepted(&tool);
    assert_eq!(tool.timeout_seconds, Some(30));
    assert!(!tool.allow_network);
    assert_eq!(tool.entry, ToolEntryPoint::Run { input: None, output: None });
    for (key, value, message) in [
        ("timeout_seconds", json!(0), "'timeout_seconds' must be an integer of at least 1"),
        ("timeout_seconds", json!("5"), "'timeout_seconds' must be an integer of at least 1"),
        ("timeout_seconds", json!(1.5), "'timeout_seconds' must be an integer of at least 1"),
        ("allow_network", json!("no"), "'allow_network' must be true or false"),
    ] {
        let expected = (format!("$.configuration.{key}"), message.to_owned());
        assert_eq!(problem(&with(key, value)), expected);
    }
}

// proves W-015
#[test]
fn a_source_defines_run_with_one_argument() {
    for code in [
        "x = 1",
        "def Run(input): pass",
        "def handle(x: int): pass",
        "class A:\n    def run(self): pass",
        "def outer():\n    def run(input): pass",
        "def run(): pass",
        "def run(a, b): pass",
        "def run(*, input): pass",
    ] {
        let problems = refused(&runner(code));
        assert_eq!(problems.len(), 1, "{code}");
        assert_eq!(problems[0].code.to_string(), "code.no_entry");
        assert_eq!(
            problems[0].message,
            "CodeRunner script must define a callable run(input) function"
        );
        assert_eq!(problems[0].path.as_deref(), Some("$.configuration.code"));
    }
    for code in [
        "def run(input): pass",
        "async def run(input): pass",
        "def run(data, more=1, *rest, **others): pass",
        "def run(*inputs): pass",
        "def work(input): pass\nrun = work",
        "from tools import work as run",
        "try:\n    import fast\n    def run(input): pass\nexcept ImportError:\n    def run(input): pass",
    ] {
        accepted(&runner(code));
    }
    let call = accepted(&runner(RUN)).validate_call(json!({})).unwrap();
    let missing = call.missing_function_error();
    assert_eq!(missing.message, "CodeRunner script must define a callable run(input) function");
    assert_eq!(missing.code.to_string(), "code.no_entry");
}

#[test]
fn a_problem_of_the_source_has_its_line_and_its_place_in_the_json() {
    let problem = refused(&runner("def run(input):\n    return (")).remove(0);
    assert_eq!(problem.path.as_deref(), Some("$.configuration.code"));
    assert_eq!(problem.place.unwrap().line, 2);
    assert_eq!(
        problem.message,
        "Failed to parse Python code. Check that the code is valid Python code."
    );
}

// W-030, but that these bounds can be configured
#[test]
fn source_and_input_are_bounded_with_their_tool_named() {
    let code = format!("{RUN}\n#");
    let fits = format!("{code}{}", "x".repeat(SOURCE_BYTES_MAX - code.len()));
    let tool = accepted(&runner(&fits));
    let expected = (
        "$.configuration.code".to_owned(),
        "Code runner 'tool' source exceeds 1048576 bytes".to_owned(),
    );
    assert_eq!(problem(&runner(&format!("{fits}x"))), expected);
    let error = tool.validate_call(json!({ "x": "x".repeat(1024 * 1024) })).unwrap_err();
    assert_eq!(error.message, "Code runner 'tool' input exceeds 1048576 bytes");
}

// proves W-036
#[test]
fn variables_have_names_of_their_own() {
    let named = |name: &str| json!([{"name": name, "value": "v"}]);
    let mut cases = vec![
        (named(""), "Code runner environment variable name is required".to_owned()),
        (named("  "), "Code runner environment variable name is required".to_owned()),
        (json!([{"value": "v"}]), "Code runner environment variable name is required".to_owned()),
        (json!(["A=1"]), "Code runner environment variable name is required".to_owned()),
        (
            json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
            "Duplicate code runner environment variable 'A'".to_owned(),
        ),
        (json!([{"name": "A"}]), "the value of 'A' must be a string without NUL".to_owned()),
        (
            json!([{"name": "A", "value": "a\0b"}]),
            "the value of 'A' must be a string without NUL".to_owned(),
        ),
    ];
    for name in ["1A", "A-B", "A B", "Ä", "A=B", "A\0"] {
        let message = format!("Invalid code runner environment variable name '{name}'");
        cases.push((named(name), message));
    }
    for name in [
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "PATH",
        "LANG",
        "LC_ALL",
        "HOME",
        "TMPDIR",
    ] {
        let message = format!("Environment variable '{name}' is reserved and cannot be overridden");
        cases.push((named(name), message));
    }
    for (variables, message) in cases {
        let at = variables.as_array().unwrap().len() - 1;
        let expected = (format!("$.configuration.env_variables[{at}]"), message);
        assert_eq!(problem(&with("env_variables", variables)), expected);
    }
    let (_, message) = problem(&with("env_variables", json!({"A": "1"})));
    assert_eq!(message, "'env_variables' must be a list of {name, value}");
    let tool = accepted(&with("env_variables", json!([{"name": "_a1", "value": ""}])));
    assert_eq!(tool.variables.0["_a1"], "");
}

// the half of C-002 that needs no volume: the form, and that names are unique is the agent's
#[test]
fn a_run_python_code_tool_has_the_published_form() {
    let code = "def handle(name: str):\n    return name\n";
    let tool = accepted(&python_code(code));
    assert_eq!(tool.name, "tool");
    assert_eq!(tool.description.as_deref(), Some("Says what it is told."));
    assert_eq!(tool.descriptor()["required"], json!(["name"]));
    assert_eq!(tool.validate_call(json!({"name": "x"})).unwrap().function(), "handle");
    let name = "$.name";
    let name_text = "'name' must have 1 to 64 characters, none of them NUL";
    let about = "$.description";
    let about_text = "'description' must have 10 to 1024 characters";
    for (key, value, path, message) in [
        ("name", json!("é".repeat(64)), "", ""),
        ("name", json!(""), name, name_text),
        ("name", json!("é".repeat(65)), name, name_text),
        ("name", json!("a\0b"), name, name_text),
        ("description", json!("é".repeat(10)), "", ""),
        ("description", json!("x".repeat(1024)), "", ""),
        ("description", json!("x".repeat(9)), about, about_text),
        ("description", json!("x".repeat(1025)), about, about_text),
        ("description", Value::Null, about, about_text),
        (
            "configuration",
            json!({}),
            "$.configuration.pythonCode",
            "'pythonCode' must be the source of the tool",
        ),
        (
            "configuration",
            json!({"pythonCode": code, "timeout": 1}),
            "$.configuration.timeout",
            "unknown property 'timeout'; use one of pythonCode, requires_binaries, integrations",
        ),
        (
            "more",
            json!(1),
            "$.more",
            "unknown property 'more'; use one of type, name, description, configuration",
        ),
    ] {
        let mut tool = python_code(code);
        tool[key] = value;
        if path.is_empty() {
            accepted(&tool);
        } else {
            assert_eq!(problem(&tool), (path.to_owned(), message.to_owned()));
        }
    }
    let (path, message) = problem(&python_code("x = 1"));
    assert_eq!(path, "$.configuration.pythonCode");
    assert_eq!(message, "Function 'handle' not found.");
}

// the half of C-001 that is here: what was written is still there, byte for byte
#[test]
fn a_source_is_kept_byte_for_byte() {
    for code in [
        "def handle(): pass",
        "\u{feff}def handle(): pass\n",
        "# coding: utf-8\r\n\r\ndef handle():\r\n\tpass\r\n\r\n",
        "def handle(): pass\r# é\u{2028}☃\u{c}\n\n\n   ",
    ] {
        assert_eq!(tool(code).source.original_text(), code);
        assert_eq!(accepted(&python_code(code)).source.original_text(), code);
        let source = PythonSource::from_bytes(code.as_bytes()).unwrap();
        assert_eq!(source.original_text().as_bytes(), code.as_bytes());
    }
}

#[test]
fn a_mark_of_byte_order_is_kept_and_neither_run_nor_counted() {
    let marked = "\u{feff}def handle(x: set): pass";
    assert_eq!(PythonSource::new(marked).unwrap().as_str(), "def handle(x: set): pass");
    let place = crate::problems(marked).remove(0).place.unwrap();
    assert_eq!((place.line, place.column), (1, 15));
}

#[test]
fn lines_are_counted_as_python_counts_them() {
    for newline in ["\n", "\r\n", "\r"] {
        let code = ["x = 1", "", "def handle(", "  x: set): pass"].join(newline);
        let place = crate::problems(&code).remove(0).place.unwrap();
        assert_eq!((place.line, place.column, place.text.as_str()), (4, 6, "  x: set): pass"));
    }
}

#[test]
fn a_source_is_text() {
    let problem = PythonSource::from_bytes(b"x = 1\ny = '\xff'").unwrap_err();
    assert_eq!(problem.message, "source is not valid UTF-8 in line 2");
    let problem = PythonSource::new("x = 1\ny = '\0'").unwrap_err();
    assert_eq!(problem.message, "source contains a NUL character");
    assert_eq!(problem.place.unwrap().line, 2);
    let problem = PythonSource::from_bytes(&vec![b' '; SOURCE_BYTES_MAX + 1]).unwrap_err();
    assert_eq!(problem.message, "source has 1048577 bytes; at most 1048576 are allowed");
}

// proves C-098
#[test]
fn a_test_has_no_parameters() {
    for parameters in ["x", "x=1", "*x", "**x", "*, x=1"] {
        let code = format!("def handle(): 'd'\ndef test({parameters}): pass");
        let checked = crate::check(&code);
        let message = "test() has parameters, and no parameters are allowed";
        assert_eq!(checked.warnings[0].message, message);
        assert_eq!(checked.warnings[0].place.as_ref().unwrap().line, 2);
        let tool = checked.result.unwrap();
        assert_eq!(tool.test, TestFunction::WithParameters);
        let error = tool.test_call().unwrap_err();
        assert_eq!((error.code.to_string(), error.message), ("code.type".into(), message.into()));
        assert!(tool.validate_call(json!({})).is_ok(), "the tool itself is fine");
    }
    for code in ["def handle(): pass\ndef test(): pass", "def handle(): 0\nasync def test(): 0"] {
        let tool = tool(code);
        assert_eq!(tool.test, TestFunction::Present);
        let call = tool.test_call().unwrap();
        assert_eq!((call.function(), call.is_test()), ("test", true));
        assert_eq!(call.arguments(), &CallArguments::None);
        assert_eq!(call.check_output(&json!([1])), Ok(()));
        assert_eq!(call.missing_function_error().message, "Function 'test' not found.");
    }
}

// proves C-107
#[test]
fn without_a_test_the_tool_is_valid_and_says_so() {
    for code in
        ["def handle(): pass", "def handle():\n    def test(): pass", "def handle(): 0\ntest = 1"]
    {
        let tool = tool(code);
        assert_eq!(tool.test, TestFunction::Absent);
        let error = tool.test_call().unwrap_err();
        assert_eq!(error.message, "Function 'test' not found.");
        assert_eq!(error.code.to_string(), "code.no_entry");
        assert!(error.hint.unwrap().contains("the tool itself is valid"));
        assert!(tool.validate_call(json!({})).is_ok());
    }
    let tested = accepted(&runner("def run(input): pass\ndef test(): pass"));
    assert_eq!(tested.test_call().unwrap().function(), "test");
}

#[test]
fn imports_inside_of_functions_do_not_change_the_types_of_handle() {
    let tool = tool(
        "import datetime\ndef help():\n    from datetime import datetime\n    return datetime\n\
         def handle(at: datetime.datetime):\n    from datetime import datetime\n    return at",
    );
    assert_eq!(tool.descriptor()["properties"]["at"]["format"], "date-time");
}

#[test]
fn integrations_that_a_tool_leaves_by_are_a_list_of_names() {
    let run = |value: Value| {
        let configuration = json!({"code": "def run(input): ...", "integrations": value});
        json!({"name": "n", "tool_type": "code_runner", "configuration": configuration})
    };
    let handle = |value: Value| {
        let configuration = json!({"pythonCode": "def handle(): ...", "integrations": value});
        json!({"type": "runPythonCode", "name": "n", "description": "Does nothing at all.",
               "configuration": configuration})
    };
    let read = |tool: Value| CodeTool::from_json(&tool.to_string(), AnnotationMode::Strict).result;
    assert_eq!(read(run(json!(["github"]))).unwrap().integrations, ["github"]);
    assert_eq!(read(handle(json!(["github"]))).unwrap().integrations, ["github"]);
    assert_eq!(read(run(json!(null))).unwrap().integrations, [""; 0]);
    for wrong in [json!("github"), json!([1]), json!(vec!["i"; 17])] {
        let problems = read(run(wrong)).unwrap_err();
        assert_eq!(problems[0].path.as_deref(), Some("$.configuration.integrations"));
    }
}

#[test]
fn programs_that_a_tool_starts_are_named_by_their_file_names() {
    let read = |programs: Value| {
        let configuration = json!({"code": "def run(input): ...", "requires_binaries": programs});
        let tool = json!({"name": "n", "tool_type": "code_runner", "configuration": configuration});
        CodeTool::from_json(&tool.to_string(), AnnotationMode::Strict).result
    };
    assert_eq!(read(json!(["ffprobe", "g++"])).unwrap().requires_binaries, ["ffprobe", "g++"]);
    assert_eq!(read(json!(null)).unwrap().requires_binaries, [""; 0]);
    for wrong in [json!("ffprobe"), json!(["/bin/sh"]), json!([".."]), json!([""]), json!([1])] {
        let problems = read(wrong).unwrap_err();
        assert_eq!(problems[0].path.as_deref(), Some("$.configuration.requires_binaries"));
    }
}
