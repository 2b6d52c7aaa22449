//! Tools: a plain function is called with what its contract allows, and gives back JSON.

use crate::harness::{self, call, config, error_code, open, printed, run_with, tool};
use contract::{AnnotationMode, CodeTool};
use engine::{Command, Config, Engine, RunnerSource};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{Execution, ExecutionStatus, LimitsRequest, OutputStream};

async fn called(engine: &Arc<Engine>, code: &str, arguments: Value) -> Execution {
    let tool = tool(code);
    let checked = tool.validate_call(arguments).unwrap();
    run_with(engine, call("bare", checked)).await.execution
}

async fn value_of(engine: &Arc<Engine>, code: &str, arguments: Value) -> Value {
    let execution = called(engine, code, arguments).await;
    assert_eq!(execution.status, ExecutionStatus::Succeeded, "{execution:#?}");
    execution.value.unwrap()
}

async fn tested(engine: &Arc<Engine>, code: &str) -> Execution {
    let tool = tool(code);
    let test = tool.test_call().unwrap();
    run_with(engine, call("bare", test)).await.execution
}

fn message(execution: &Execution) -> &str {
    &execution.error.as_ref().unwrap().message
}

fn hint(execution: &Execution) -> &str {
    execution.error.as_ref().unwrap().hint.as_deref().unwrap_or_default()
}

fn seed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn json_tool(text: &str) -> CodeTool {
    CodeTool::from_json(text, AnnotationMode::Strict).result.unwrap()
}

/// A CodeRunner tool with that source and those schemas.
fn run_tool(code: &str, schemas: Value) -> CodeTool {
    let mut configuration = json!({"type": "CodeRunner", "code": code});
    configuration.as_object_mut().unwrap().extend(schemas.as_object().unwrap().clone());
    let tool = json!({"name": "t", "tool_type": "code_runner", "configuration": configuration});
    json_tool(&tool.to_string())
}

async fn ran(engine: &Arc<Engine>, tool: &CodeTool, arguments: Value) -> Execution {
    let checked = tool.validate_call(arguments).unwrap();
    run_with(engine, call("bare", checked)).await.execution
}

// proves C-039
#[tokio::test]
async fn the_primitive_example_returns_what_it_was_given() {
    let engine = Engine::start(config());
    let arguments = json!({"is_active": true, "name": "John Doe", "age": 25, "temperature": 23.5});
    let value = value_of(&engine, &seed("seed-000/primitives.py"), arguments).await;
    let expected = r#"{"name":"John Doe","age":25,"temperature":23.5,"is_active":true}"#;
    assert_eq!(value.to_string(), expected);
}

// proves C-040, C-041, C-072
#[tokio::test]
async fn a_function_is_not_called_with_what_its_contract_does_not_allow() {
    let tool = tool("def handle(n: int): raise SystemExit('called')");
    for (arguments, refusal) in [
        (json!({"n": "25"}), "Invalid argument 'n': expected integer, got string \"25\""),
        (json!({"n": true}), "Invalid argument 'n': expected integer, got boolean true"),
        (json!({}), "Missing required argument 'n'"),
    ] {
        assert_eq!(tool.validate_call(arguments).unwrap_err().message, refusal);
    }
    assert!(tool.validate_call(json!({"n": 25})).is_ok());
}

// proves C-115
#[tokio::test]
async fn arguments_are_checked_then_converted_then_passed() {
    let engine = Engine::start(config());
    let code = "import datetime\nprint('loaded')\n\
                def handle(when: datetime.datetime):\n    return type(when).__name__";
    let refusal = tool(code).validate_call(json!({"when": "yesterday"})).unwrap_err();
    assert_eq!(refusal.code.to_string(), "args.invalid");
    let execution = called(&engine, code, json!({"when": "2024-05-06T00:00:00Z"})).await;
    assert_eq!(execution.value, Some(json!("datetime")));
    assert_eq!(execution.arguments, Some(json!({"when": "2024-05-06T00:00:00+00:00"})));
    assert_eq!(printed(&execution, OutputStream::Stdout), "loaded\n");
}

// proves C-042
#[tokio::test]
async fn numbers_arrive_as_the_type_that_was_declared() {
    let engine = Engine::start(config());
    let code = "def handle(f: float, i: int, fs: list[float]): return [repr(f), repr(i), repr(fs)]";
    let value = value_of(&engine, code, json!({"f": 25, "i": 25.0, "fs": [1, 2.5]})).await;
    assert_eq!(value, json!(["25.0", "25", "[1.0, 2.5]"]));
    let refusal =
        tool(code).validate_call(json!({"f": 1, "i": 25.5, "fs": []})).unwrap_err().message;
    assert_eq!(refusal, "Invalid argument 'i': expected integer, got number 25.5");
}

// proves C-044
#[tokio::test]
async fn defaults_are_pythons_own_until_an_argument_is_given() {
    let engine = Engine::start(config());
    let code = seed("seed-000/defaults.py");
    for (arguments, expected) in [
        (json!({"message": "a"}), "a"),
        (json!({"message": "a", "count": 3}), "aaa"),
        (json!({"message": "a", "count": 2, "multiplier": 2.9}), "aaaa"),
        (json!({"message": "a", "enabled": false}), "Processing disabled"),
    ] {
        assert_eq!(value_of(&engine, &code, arguments).await, expected);
    }
}

// proves C-046
#[tokio::test]
async fn the_example_of_lists_adds_them_up() {
    let engine = Engine::start(config());
    let arguments = json!({"names": ["a", "b"], "values": [1, 2, 3], "temperatures": []});
    let value = value_of(&engine, &seed("seed-000/lists.py"), arguments).await;
    assert_eq!(value, json!({"name_count": 2, "total_value": 6, "avg_temperature": 0}));
}

// proves C-048, C-049, C-050
#[tokio::test]
async fn dates_arrive_as_datetimes_with_the_offset_they_came_with() {
    let engine = Engine::start(config());
    let arguments = json!({
        "start_time": "2024-01-01T00:00:00Z",
        "end_time": "2024-01-01T01:00:00+00:00",
        "timestamps": ["2024-01-01T00:00:00Z", "2024-01-02T00:00:00.25-05:30"],
    });
    let value = value_of(&engine, &seed("seed-000/datetimes.py"), arguments).await;
    assert_eq!(value, json!({"duration_seconds": 3600.0, "timestamp_count": 2}));
    let code = "from datetime import datetime\n\
                def handle(ds: list[datetime]): return [repr(d) for d in ds]";
    let dates =
        json!({"ds": ["2024-05-06T07:08:09Z", "2024-05-06 07:08", "2024-05-06T07:08:09.5+02:00"]});
    assert_eq!(
        value_of(&engine, code, dates).await,
        json!([
            "datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.timezone.utc)",
            "datetime.datetime(2024, 5, 6, 7, 8)",
            "datetime.datetime(2024, 5, 6, 7, 8, 9, 500000, \
             tzinfo=datetime.timezone(datetime.timedelta(seconds=7200)))",
        ])
    );
}

// proves C-030, C-033
#[tokio::test]
async fn helpers_and_every_kind_of_parameter_work_at_run_time() {
    let engine = Engine::start(config());
    let code = "import dataclasses\n\
                @dataclasses.dataclass\nclass Box:\n    n: int\n\
                def double(n): return 2 * n\n\
                def handle(a: int = 1, b: int = 2, /, c: int = 3, *, d: int = 4):\n    \
                    from math import floor\n    return [a, b, floor(c), Box(double(d)).n]\n\
                if __name__ == '__main__':\n    raise SystemExit('run as a program')";
    assert_eq!(value_of(&engine, code, json!({"b": 20, "d": 40})).await, json!([1, 20, 3, 80]));
}

// proves C-073, C-074, C-075, C-076, C-077, C-078, C-079, C-080
#[tokio::test]
async fn everything_that_the_seed_returns_comes_back_as_json() {
    let engine = Engine::start(config());
    let code = seed("seed-000/returns.py");
    for (which, expected) in [
        ("text", r#""Success message""#),
        ("whole", "42"),
        ("fraction", "3.14159"),
        ("truth", "true"),
        ("mapping", r#"{"status":"completed","count":10,"results":["item1","item2"]}"#),
        ("texts", r#"["result1","result2","result3"]"#),
        ("mappings", r#"[{"id":1,"name":"Item 1"},{"id":2,"name":"Item 2"}]"#),
    ] {
        let value = value_of(&engine, &code, json!({"which": which})).await;
        assert_eq!(value.to_string(), expected);
    }
    let nothing = called(&engine, &code, json!({"which": "nothing"})).await;
    assert_eq!(
        (nothing.status, nothing.value.clone()),
        (ExecutionStatus::Succeeded, Some(Value::Null))
    );
    assert_eq!(printed(&nothing, OutputStream::Stdout), "Operation completed\n");
}

// proves C-081
#[tokio::test]
async fn a_value_may_be_a_hundred_levels_deep_and_not_endless() {
    let engine = Engine::start(config());
    let code = "def handle(depth: int):\n    value = 1\n    for _ in range(depth): value = [value]\n    return value";
    let deep = value_of(&engine, code, json!({"depth": 100})).await;
    assert_eq!(deep.to_string(), format!("{}1{}", "[".repeat(100), "]".repeat(100)));
    let deeper = called(&engine, code, json!({"depth": 100_000})).await;
    assert_eq!(error_code(&deeper), "value.not_json");
}

// proves C-083, C-084, C-085, C-086, C-087, C-088, C-090, W-023
#[tokio::test]
async fn what_is_not_json_fails_with_its_type_its_place_and_what_to_do() {
    let engine = Engine::start(config());
    let code = "import datetime\nclass Thing: pass\n\
                def handle(which: str):\n    return {'results': [1, 2, eval(which)]}";
    for (which, kind, fix) in [
        ("Thing()", "Thing", "return a dict of the values that are needed"),
        ("lambda: 1", "function", "call it"),
        ("open('/tmp/x', 'w')", "TextIOWrapper", "read"),
        ("b'bytes'", "bytes", "decode it, or write it to a file"),
        ("{1, 2}", "set", "sorted(x) or list(x)"),
        ("1j", "complex", "real"),
        ("datetime.datetime.now()", "datetime", ".isoformat()"),
        ("float('nan')", "nan", "None"),
        ("float('-inf')", "-inf", "None"),
        ("{(1, 2): 3}", "tuple", "str(key)"),
        ("2**64", "integer", "str("),
    ] {
        let execution = called(&engine, code, json!({"which": which})).await;
        assert_eq!(execution.status, ExecutionStatus::Failed, "{which}");
        assert_eq!(error_code(&execution), "value.not_json", "{which}");
        assert_eq!(execution.value, None);
        let message = message(&execution);
        let place = "the returned value is not JSON at $.results[2]";
        assert!(message.starts_with(place) && message.contains(kind), "{which}: {message}");
        assert!(hint(&execution).contains(fix), "{which}: {}", hint(&execution));
    }
    let cycle = "def handle():\n    value = []\n    value.append(value)\n    return value";
    let execution = called(&engine, cycle, json!({})).await;
    assert!(message(&execution).contains("contains itself"), "{}", message(&execution));
    let keys = "def handle(): return {1: 'a', 2.5: 'b', True: 'c', None: 'd', 'e': 'f'}";
    let value = value_of(&engine, keys, json!({})).await;
    assert_eq!(value.to_string(), r#"{"1":"c","2.5":"b","null":"d","e":"f"}"#);
}

#[tokio::test]
async fn a_value_that_is_too_large_says_so() {
    let engine = Engine::start(config());
    let code = "def handle(n: int): return 'x' * n";
    let execution = called(&engine, code, json!({"n": 3_000_000})).await;
    assert_eq!(error_code(&execution), "output.too_large");
    assert!(value_of(&engine, code, json!({"n": 1_000_000})).await.is_string());
}

// proves C-091, C-092
#[tokio::test]
async fn an_async_handle_is_awaited() {
    let engine = Engine::start(config());
    let execution = called(&engine, &seed("seed-000/async_handle.py"), json!({"value": 21})).await;
    assert_eq!(execution.value, Some(json!(42)));
    assert!((100..2_000).contains(&execution.usage.wall_ms), "{:?}", execution.usage);
}

// proves C-093, C-114
#[tokio::test]
async fn an_exception_has_its_type_its_message_and_the_users_frames_only() {
    let engine = Engine::start(config());
    let body = "def check(x):\n    raise KeyError(f'no {x}')\n";
    let sync = format!("{body}def handle(x: int):\n    check(x)");
    let sync = called(&engine, &sync, json!({"x": 1})).await;
    let waiting = format!("{body}async def handle(x: int):\n    check(x)");
    let waiting = called(&engine, &waiting, json!({"x": 1})).await;
    for execution in [&sync, &waiting] {
        let error = execution.error.as_ref().unwrap();
        assert_eq!(error.code.to_string(), "python.KeyError");
        assert_eq!(error.exception.as_deref(), Some("KeyError"));
        assert_eq!(error.message, "'no 1'");
        let traceback = error.traceback.as_ref().unwrap();
        assert_eq!(traceback.matches("File ").count(), 2, "{traceback}");
        assert!(traceback.contains("File \"tool.py\", line 4, in handle"), "{traceback}");
        assert!(traceback.contains("raise KeyError(f'no {x}')"), "{traceback}");
    }
}

// proves C-094
#[tokio::test]
async fn a_sync_handle_may_run_a_loop_of_its_own() {
    let engine = Engine::start(config());
    let code =
        "import asyncio\nasync def work(): return 7\ndef handle(): return asyncio.run(work())";
    assert_eq!(value_of(&engine, code, json!({})).await, 7);
}

// proves C-112, C-113
#[tokio::test]
async fn the_message_of_the_author_reaches_the_agent() {
    let engine = Engine::start(config());
    let code = seed("seed-000/errors.py");
    let below = called(&engine, &code, json!({"value": -1})).await;
    assert_eq!(message(&below), "The value must be non-negative.");
    assert_eq!(error_code(&below), "python.ValueError");
    let above = called(&engine, &code, json!({"value": 1001})).await;
    assert_eq!(message(&above), "The value exceeds the maximum allowed limit of 1000.");
    assert_eq!(value_of(&engine, &code, json!({"value": 1000})).await, json!(2000.0));
    assert_eq!(value_of(&engine, &code, json!({"value": 0})).await, json!(0.0));
}

// proves C-096, C-097, C-105, C-106, C-111
#[tokio::test]
async fn the_tests_of_the_seed_pass_as_written() {
    let engine = Engine::start(config());
    for (name, returned) in [
        ("basic.py", json!("Processed example with value 100")),
        ("async_handle.py", json!(42)),
        ("comprehensive.py", json!("sample 100")),
    ] {
        let execution = tested(&engine, &seed(&format!("seed-000/{name}"))).await;
        assert_eq!(execution.status, ExecutionStatus::Succeeded, "{name}: {:#?}", execution.error);
        assert_eq!(execution.value, Some(returned), "{name}");
    }
}

// proves C-100, C-101, C-103
#[tokio::test]
async fn a_failed_assert_shows_its_line_and_the_values_in_it() {
    let engine = Engine::start(config());
    let handle = "def handle(n: int) -> int:\n    print('handling', n)\n    return n - 1\n";
    let source = format!(
        "{handle}def test():\n    print('first')\n    result = handle(42)\n    print('last')\n    \
         assert result == 42, f'Expected 42, got {{result}}'"
    );
    let execution = tested(&engine, &source).await;
    assert_eq!(error_code(&execution), "python.AssertionError");
    assert_eq!(message(&execution), "Expected 42, got 41");
    assert_eq!(printed(&execution, OutputStream::Stdout), "first\nhandling 42\nlast\n");
    let assertion = execution.error.unwrap().assertion.unwrap();
    assert_eq!(assertion.line, 8);
    assert_eq!(assertion.source, "assert result == 42, f'Expected 42, got {result}'");
    assert_eq!(assertion.values, [("result".to_owned(), "41".to_owned())]);

    let bare = tested(&engine, &format!("{handle}def test():\n    assert handle(5) == 5")).await;
    assert_eq!(message(&bare), "handle(5) == 5");
    let assertion = bare.error.unwrap().assertion.unwrap();
    assert_eq!(assertion.source, "assert handle(5) == 5");
    assert_eq!(assertion.values, [("handle(5)".to_owned(), "4".to_owned())]);
}

// proves C-102, C-104, C-110
#[tokio::test]
async fn a_test_passes_fails_or_runs_out_of_time() {
    let engine = Engine::start(config());
    let handle = "def handle(n: int): return n\n";
    let passed = tested(&engine, &format!("{handle}def test():\n    assert handle(1) == 1")).await;
    assert_eq!((passed.status, passed.value), (ExecutionStatus::Succeeded, Some(Value::Null)));
    let failed = tested(&engine, &format!("{handle}def test():\n    [][1]")).await;
    assert_eq!(
        (failed.status, error_code(&failed).as_str()),
        (ExecutionStatus::Failed, "python.IndexError")
    );
    assert!(failed.error.unwrap().traceback.unwrap().contains("line 3, in test"));

    let tool = tool(&format!("{handle}def test():\n    while True: pass"));
    let limits = LimitsRequest { wall_ms: Some(300), ..LimitsRequest::default() };
    let endless = Command { limits, ..call("bare", tool.test_call().unwrap()) };
    let endless = run_with(&engine, endless).await.execution;
    assert_eq!(endless.status, ExecutionStatus::TimedOut);
    assert!(message(&endless).contains("300 ms"), "{}", message(&endless));
    assert!(endless.usage.wall_ms >= 300, "{:?}", endless.usage);
}

// proves C-107, C-098
#[tokio::test]
async fn a_test_that_cannot_be_called_leaves_the_tool_valid() {
    let absent = tool("def handle(n: int): return n");
    assert_eq!(absent.test_call().unwrap_err().message, "Function 'test' not found.");
    let asking = tool("def handle(n: int): return n\ndef test(x): pass");
    let refusal = asking.test_call().unwrap_err().message;
    assert!(refusal.ends_with("no parameters are allowed"), "{refusal}");
    let engine = Engine::start(config());
    let checked = asking.validate_call(json!({"n": 5})).unwrap();
    assert_eq!(run_with(&engine, call("bare", checked)).await.execution.value, Some(json!(5)));
}

// proves C-108, C-109
#[tokio::test]
async fn a_test_runs_where_the_tool_runs_and_never_on_its_own() {
    let engine = Engine::start(config());
    let code = "import os, sys\n\
                def handle(): return [os.getcwd(), sys.version, os.getuid(), sorted(os.environ)]\n\
                def test(): print('the test ran'); return handle()";
    let called = called(&engine, code, json!({})).await;
    let tested = tested(&engine, code).await;
    assert_eq!(called.value, tested.value);
    assert_eq!(called.limits, tested.limits);
    assert_eq!(printed(&called, OutputStream::Stdout), "");
    assert_eq!(printed(&tested, OutputStream::Stdout), "the test ran\n");
}

// proves C-138
#[tokio::test]
async fn an_endless_tool_does_not_hold_up_another() {
    let engine = Engine::start(config());
    let endless = tool("def handle():\n    print('on', flush=True)\n    while True: pass");
    let limits = LimitsRequest { wall_ms: Some(3_000), ..LimitsRequest::default() };
    let endless = Command { limits, ..call("bare", endless.validate_call(json!({})).unwrap()) };
    let beside = Arc::clone(&engine);
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let endless = tokio::spawn(async move {
        let mut hear = |_: &types::Event| _ = begun.send(());
        beside.run(endless, &mut hear).await.unwrap().execution
    });
    has_begun.recv().await.unwrap();
    let started = Instant::now();
    assert_eq!(value_of(&engine, "def handle(): return 1", json!({})).await, 1);
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(!endless.is_finished());
    assert_eq!(endless.await.unwrap().status, ExecutionStatus::TimedOut);
}

#[tokio::test]
async fn a_tool_that_ends_itself_has_failed() {
    let engine = Engine::start(config());
    for (ending, code) in [
        ("raise SystemExit", "python.SystemExit"),
        ("import sys; sys.exit(3)", "python.SystemExit"),
        ("import os; os._exit(0)", "sandbox.crashed"),
        ("global handle; del handle", ""),
    ] {
        let execution = called(&engine, &format!("def handle():\n    {ending}"), json!({})).await;
        assert_eq!(error_code(&execution), code, "{ending}");
        assert_eq!(execution.status == ExecutionStatus::Succeeded, code.is_empty(), "{ending}");
        assert_eq!(execution.exit_code == Some(0), code.is_empty(), "{ending}");
    }
    let exited = called(&engine, "def handle():\n    raise SystemExit", json!({})).await;
    assert_eq!(message(&exited), "the code exited with exit code 0");
    let gone = called(&engine, "def handle(): pass\ndel handle", json!({})).await;
    assert_eq!(
        (error_code(&gone).as_str(), message(&gone)),
        ("code.no_entry", "Function 'handle' not found.")
    );
}

// proves W-016, W-024
#[tokio::test]
async fn the_tool_of_seed_003_runs_verbatim() {
    let engine = Engine::start(config());
    let tool = json_tool(&seed("seed-003/media_probe.json"));
    let execution = ran(&engine, &tool, json!({"media_path": "/workspace/a.mp4"})).await;
    assert_eq!(execution.value, Some(json!({"media_path": "/workspace/a.mp4"})));
    assert_eq!(execution.tool.as_deref(), Some("media_probe"));
}

// proves W-015
#[tokio::test]
async fn a_run_that_is_not_callable_has_the_text_of_the_seed() {
    let engine = Engine::start(config());
    let tool = run_tool("run = 5", json!({}));
    let execution = ran(&engine, &tool, json!({})).await;
    assert_eq!(message(&execution), "CodeRunner script must define a callable run(input) function");
    let tool = run_tool("run = lambda input: {'ok': True}", json!({}));
    assert_eq!(ran(&engine, &tool, json!({})).await.value, Some(json!({"ok": true})));
}

// proves W-017, W-019, W-020
#[tokio::test]
async fn run_sees_only_the_fields_that_were_declared() {
    let engine = Engine::start(config());
    let schema = json!({"input_schema": [
        {"name": "a", "field_type": "STRING", "required": true},
        {"name": "b", "field_type": "STRING"},
    ]});
    let tool = run_tool("def run(input): return input", schema);
    let execution = ran(&engine, &tool, json!({"a": "x", "other": 1})).await;
    assert_eq!(execution.value, Some(json!({"a": "x"})));
    assert_eq!(
        tool.validate_call(json!({"b": "x"})).unwrap_err().message,
        "Missing required code runner input field 'a'"
    );
    let open = run_tool("def run(input): return input", json!({}));
    let anything = json!({"anything": [1, {"b": null}]});
    assert_eq!(ran(&engine, &open, anything.clone()).await.value, Some(anything));
    assert_eq!(
        open.validate_call(json!([1])).unwrap_err().message,
        "Code runner execution parameters must be an object"
    );
}

// proves W-025
#[tokio::test]
async fn the_output_of_run_is_held_against_its_schema() {
    let engine = Engine::start(config());
    let schema = json!({"output_schema": [
        {"name": "n", "field_type": "INTEGER", "required": true},
        {"name": "o", "field_type": "OBJECT", "properties": [{"name": "p", "field_type": "STRING"}]},
    ]});
    for (returned, refusal) in [
        ("[1]", "Code runner output must be a JSON object when output_schema is defined"),
        ("{'n': 1, 'x': 2, 'y': 3}", "Code runner output contains undeclared fields: x, y"),
        ("{}", "Code runner output missing required field 'n'"),
        ("{'n': 'one'}", "Invalid output field 'n' for type INTEGER"),
        ("{'n': 1, 'o': {'p': 5}}", "Invalid output field 'o.p' for type STRING"),
    ] {
        let tool = run_tool(&format!("def run(input): return {returned}"), schema.clone());
        let execution = ran(&engine, &tool, json!({})).await;
        assert_eq!(error_code(&execution), "output.schema", "{returned}");
        assert_eq!(message(&execution), refusal);
        assert_eq!(execution.value, None);
    }
    let tool = run_tool("def run(input): return {'n': 1, 'o': {'p': 'q'}}", schema);
    assert_eq!(ran(&engine, &tool, json!({})).await.value, Some(json!({"n": 1, "o": {"p": "q"}})));
}

// proves W-026, W-027, W-029
#[tokio::test]
async fn run_may_be_async_may_print_and_may_fail() {
    let engine = Engine::start(config());
    let tool = run_tool(
        "import asyncio\nasync def run(input):\n    print('{\"value\": \"not this\"}')\n    \
         await asyncio.sleep(0)\n    return {'ok': True}",
        json!({}),
    );
    let execution = ran(&engine, &tool, json!({})).await;
    assert_eq!(execution.value, Some(json!({"ok": true})));
    assert_eq!(printed(&execution, OutputStream::Stdout), "{\"value\": \"not this\"}\n");
    let tool = run_tool("def run(input): return input['missing']", json!({}));
    let execution = ran(&engine, &tool, json!({})).await;
    assert_eq!(
        (error_code(&execution).as_str(), message(&execution)),
        ("python.KeyError", "'missing'")
    );
    assert!(execution.error.unwrap().traceback.unwrap().contains("line 1, in run"));
}

// proves W-032
#[tokio::test]
async fn a_tool_in_a_session_sees_its_files_and_leaves_its_variables_alone() {
    let engine = Engine::start(config());
    let session = open(&engine, "bare").await;
    let make = "value = 'of the session'\nopen('/workspace/a.txt', 'w').write('from a cell')";
    harness::run_in(&engine, session, make).await;
    let tool = run_tool(
        "value = 'of the tool'\ndef run(input):\n    open('b.txt', 'w').write('from a tool')\n    \
         return open(input['path']).read()",
        json!({}),
    );
    let checked = tool.validate_call(json!({"path": "/workspace/a.txt"})).unwrap();
    let in_session = Command { session: Some(session), ..call("bare", checked) };
    let execution = run_with(&engine, in_session).await.execution;
    assert_eq!(execution.value, Some(json!("from a cell")));
    let after = harness::run_in(&engine, session, "[value, open('b.txt').read()]").await;
    assert_eq!(after.value, Some(json!(["of the session", "from a tool"])));
    let tool =
        run_tool("import os\ndef run(input): return os.environ['BELLJAR_SESSION']", json!({}));
    let checked = tool.validate_call(json!({})).unwrap();
    let in_session = Command { session: Some(session), ..call("bare", checked) };
    let record = run_with(&engine, in_session).await.execution;
    assert_eq!(record.value, Some(json!(session.to_string())), "a tool knows its session");
}

#[tokio::test]
async fn variables_of_a_tool_are_there_for_its_call_alone() {
    let engine = Engine::start(config());
    let session = open(&engine, "bare").await;
    let variables = json!({"env_variables": [{"name": "TOKEN", "value": "abc"}]});
    let tool = run_tool("import os\ndef run(input): return os.environ['TOKEN']", variables);
    let command = call("bare", tool.validate_call(json!({})).unwrap());
    let command = Command { session: Some(session), ..command };
    assert_eq!(run_with(&engine, command).await.execution.value, Some(json!("abc")));
    let after =
        harness::run_in(&engine, session, "import os; os.environ.get('TOKEN', 'gone')").await;
    assert_eq!(after.value, Some(json!("gone")));
}

async fn in_atlas(engine: &Arc<Engine>, code: &str, arguments: Value) -> Execution {
    let tool = tool(code);
    let checked = tool.validate_call(arguments).unwrap();
    run_with(engine, call("atlas", checked)).await.execution
}

// proves C-053, C-054, C-055
#[tokio::test(flavor = "multi_thread")]
async fn a_node_id_arrives_as_the_one_of_the_sdk() {
    let engine = Engine::start(config());
    let code = seed("seed-000/node_ids.py");
    let asset = json!({"space": "my-space", "externalId": "asset-123"});
    let arguments = json!({"asset_id": asset, "related_asset_ids": [asset, asset]});
    let execution = in_atlas(&engine, &code, arguments).await;
    let primary = json!({"space": "my-space", "external_id": "asset-123"});
    let expected = json!({"primary_asset": primary, "related_count": 2});
    assert_eq!(execution.value, Some(expected), "{:#?}", execution.error);
    let kind = "from cognite.client.data_classes import data_modeling\n\
                def handle(one: data_modeling.NodeId, many: list[data_modeling.NodeId]):\n    \
                    return [type(one) is data_modeling.NodeId, type(many[0]) is data_modeling.NodeId]";
    let execution = in_atlas(&engine, kind, json!({"one": asset, "many": [asset]})).await;
    assert_eq!(execution.value, Some(json!([true, true])));
    for wrong in [json!({"space": "s"}), json!({"externalId": "e"}), json!("s:e"), json!({})] {
        let arguments = json!({"asset_id": wrong, "related_asset_ids": []});
        let refusal = tool(&code).validate_call(arguments).unwrap_err().message;
        assert!(refusal.contains("'asset_id'"), "{refusal}");
    }
}

// proves C-082, C-089, C-120
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_the_sdk_have_to_be_dumped() {
    let engine = Engine::start(config());
    let code = "def handle(how: str):\n    \
                    from cognite.client.data_classes import Asset, AssetList\n    \
                    from cognite.client.data_classes.data_modeling import NodeId\n    \
                    asset = Asset(id=1, created_time=0, last_updated_time=0, root_id=1, name='A', external_id='a')\n    \
                    assets = AssetList([asset])\n    \
                    return {'found': eval(how)}";
    for how in ["asset", "assets", "NodeId('s', 'e')"] {
        let execution = in_atlas(&engine, code, json!({"how": how})).await;
        assert_eq!(error_code(&execution), "value.not_json", "{execution:#?}");
        assert!(message(&execution).contains("$.found"), "{}", message(&execution));
        assert_eq!(hint(&execution), "Use the .dump() method on Cognite SDK objects");
    }
    let one = in_atlas(&engine, code, json!({"how": "asset.dump()"})).await;
    assert_eq!(one.value.unwrap()["found"]["externalId"], "a");
    let many = in_atlas(&engine, code, json!({"how": "assets.dump()"})).await;
    assert_eq!(many.value.unwrap()["found"][0]["externalId"], "a");
}

// proves C-087
#[tokio::test(flavor = "multi_thread")]
async fn values_of_numpy_and_pandas_say_how_they_become_json() {
    let engine = Engine::start(config());
    let code = "import numpy, pandas\n\
                def handle(which: str): return {'results': [eval(which)]}";
    for (which, kind, fix) in [
        ("numpy.int64(3)", "numpy.int64", "call .tolist() on it"),
        ("numpy.array([1, 2])", "numpy.ndarray", "call .tolist() on it"),
        ("pandas.DataFrame({'a': [1]})", "DataFrame", "call .to_dict(\"records\") on it"),
        ("pandas.Series([1])", "Series", "call .tolist() on it"),
        ("pandas.Timestamp(0)", "Timestamp", "call .isoformat() on it"),
    ] {
        let tool = tool(code);
        let command = call("default", tool.validate_call(json!({"which": which})).unwrap());
        let execution = run_with(&engine, command).await.execution;
        assert_eq!(error_code(&execution), "value.not_json", "{which}: {:?}", execution.error);
        let message = message(&execution);
        assert!(message.contains("$.results[0]") && message.contains(kind), "{message}");
        assert_eq!(hint(&execution), fix, "{which}");
        let fixed =
            format!("({which}){}", fix.trim_start_matches("call ").trim_end_matches(" on it"));
        let command = call("default", tool.validate_call(json!({"which": fixed})).unwrap());
        assert_eq!(
            run_with(&engine, command).await.execution.status,
            ExecutionStatus::Succeeded,
            "{fixed}"
        );
    }
}

/// An engine with a runner that an attacker has changed.
fn lying_engine(from: &str, to: &str) -> (Arc<Engine>, tempfile::TempDir) {
    let runner = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../runner");
    let copy = tempfile::tempdir().unwrap();
    let target = copy.path().join("runner");
    let copied = std::process::Command::new("cp").arg("-r").args([&runner, &target]).status();
    assert!(copied.unwrap().success());
    let session = target.join("belljar_runner/session.py");
    let source = std::fs::read_to_string(&session).unwrap();
    assert!(source.contains(from), "the runner does not have {from:?} any more");
    std::fs::write(&session, source.replace(from, to)).unwrap();
    (Engine::start(Config { runner: RunnerSource::Directory(target), ..config() }), copy)
}

#[tokio::test]
async fn t46_schema_checked_outside() {
    let schema =
        json!({"output_schema": [{"name": "n", "field_type": "INTEGER", "required": true}]});
    let tool = run_tool("def run(input): return {'n': 1}", schema);
    let honest = Engine::start(config());
    assert_eq!(ran(&honest, &tool, json!({})).await.value, Some(json!({"n": 1})));
    for (lie, code) in [
        (r#"{"n":"one"}"#, "output.schema"),
        (r#"{"n":1,"admin":true}"#, "output.schema"),
        ("NaN", "sandbox.crashed"),
        (r#"{"n":1e999}"#, "sandbox.crashed"),
        ("[[1]", "sandbox.crashed"),
    ] {
        let from =
            r#"_DONE_WITH_VALUE = b'{"ev":"done","error":null,"exit_code":null,"value":%b}'"#;
        let to = format!(
            "class _Lie(bytes):\n    def __mod__(self, value): return b'{{\"ev\":\"done\",\"error\":\
             null,\"exit_code\":null,\"value\":{lie}}}'\n_DONE_WITH_VALUE = _Lie()"
        );
        let (lying, _copy) = lying_engine(from, &to);
        let execution = ran(&lying, &tool, json!({})).await;
        assert_eq!(error_code(&execution), code, "{lie}");
        assert_eq!(execution.value, None, "{lie}");
    }
    // A value of 3 MB, where 2 MiB are allowed, of a tool that returns any JSON.
    let any = run_tool("def run(input): return 1", json!({}));
    let from = r#""exit_code":null,"value":%b}'"#;
    let large = r#""exit_code":null,"value":"' + b"x" * 3_000_000 + b'"}' + b"%.0b""#;
    let (lying, _copy) = lying_engine(from, large);
    assert_eq!(error_code(&ran(&lying, &any, json!({})).await), "output.too_large");
    let deep = "[".repeat(200) + &"]".repeat(200);
    let from = r#""exit_code":null,"value":%b}'"#;
    let (lying, _copy) =
        lying_engine(from, &format!(r#""exit_code":null,"value":{deep}}}' + b"%.0b""#));
    assert_eq!(error_code(&ran(&lying, &tool, json!({})).await), "sandbox.crashed");
}

// proves C-159
#[tokio::test(flavor = "multi_thread")]
async fn a_large_value_is_delivered_whole_with_its_size_and_a_word_of_advice() {
    let engine = Engine::start(config());
    let code = "def handle(n: int) -> list[int]:\n    \"\"\"Counts.\n\n    Args:\n        n: how far\n    \"\"\"\n    return list(range(n))\n";
    let large = called(&engine, code, json!({"n": 50_000})).await;
    let value = large.value.as_ref().unwrap();
    assert_eq!(value.as_array().unwrap().len(), 50_000);
    let [warning] = &large.warnings[..] else { panic!("{:?}", large.warnings) };
    assert_eq!(warning.code, "value.large");
    let bytes = format!("{} bytes", value.to_string().len());
    assert!(warning.message.contains(&bytes), "{}", warning.message);
    assert!(
        warning.message.contains("return only the values that are needed"),
        "{}",
        warning.message
    );
    assert!(called(&engine, code, json!({"n": 10})).await.warnings.is_empty());
}

// proves C-158
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_needs_other_packages_or_the_network_is_pointed_to_a_function() {
    let engine = Engine::start(config());
    for (body, code) in [
        ("import sklearn", "python.ModuleNotFoundError"),
        ("import urllib.request; urllib.request.urlopen('http://example.org/')", "network.denied"),
    ] {
        let code_of =
            format!("def handle() -> int:\n    \"\"\"Tries.\"\"\"\n    {body}\n    return 1\n");
        let failed = called(&engine, &code_of, json!({})).await;
        assert_eq!(error_code(&failed), code, "{failed:?}");
        assert!(hint(&failed).contains("Call Function"), "{}", hint(&failed));
    }
}

// proves W-045
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_looks_for_a_program_and_says_itself_that_it_is_missing() {
    let engine = Engine::start(config());
    let code = "\
import shutil

def handle(program: str) -> dict:
    if shutil.which(program) is None:
        return {'error': f'{program} is not available in this environment'}
    return {'found': program}
";
    let looked = async |program: &str| value_of(&engine, code, json!({"program": program})).await;
    let missing = "no-such-ffprobe is not available in this environment";
    assert_eq!(looked("no-such-ffprobe").await, json!({"error": missing}));
    assert_eq!(looked("sh").await, json!({"found": "sh"}));
}
