//! Arguments of `handle`: which ones are accepted, and which values it gets.

use crate::{check_as, tool};
use belljar_contract::{
    ARGUMENTS_BYTES_MAX, AnnotationMode, CallArguments, CodeTool, ValidatedCall,
};
use serde_json::{Value, json};
use types::Error;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A call of a handle with these parameters, with arguments as JSON text.
fn call(parameters: &str, arguments: &str) -> Result<ValidatedCall, Error> {
    tool(&format!("def handle({parameters}): pass")).validate_call(parsed(arguments))
}

/// What `handle` is given, as JSON text.
fn given(parameters: &str, arguments: &str) -> String {
    keywords(&call(parameters, arguments).unwrap()).to_string()
}

fn keywords(call: &ValidatedCall) -> Value {
    match call.arguments() {
        CallArguments::Keywords(keywords) => Value::Object(keywords.clone()),
        other => panic!("{other:?}"),
    }
}

fn refused(parameters: &str, arguments: &str) -> (String, String) {
    let error = call(parameters, arguments).unwrap_err();
    assert!(!error.retryable, "the same arguments fail again");
    (error.code.to_string(), error.message)
}

fn extended(code: &str) -> CodeTool {
    check_as(code, AnnotationMode::Extended).result.unwrap_or_else(|it| panic!("{it:#?}"))
}

// proves C-040, C-041
#[test]
fn another_type_is_refused_by_the_name_of_its_parameter() {
    for (parameter, argument, message) in [
        ("age: int", r#""25""#, r#"Invalid argument 'age': expected integer, got string "25""#),
        ("age: int", "true", "Invalid argument 'age': expected integer, got boolean true"),
        ("age: int", "null", "Invalid argument 'age': expected integer, got null"),
        ("age: int", "[1]", "Invalid argument 'age': expected integer, got array"),
        ("age: float", "false", "Invalid argument 'age': expected number, got boolean false"),
        ("age: float", r#""1""#, r#"Invalid argument 'age': expected number, got string "1""#),
        ("age: bool", "1", "Invalid argument 'age': expected boolean, got number 1"),
        ("age: str", "5", "Invalid argument 'age': expected string, got number 5"),
        ("age: list[int]", "1", "Invalid argument 'age': expected array, got number 1"),
        (
            "age: list[int]",
            "[1, true]",
            "Invalid argument 'age[1]': expected integer, got boolean true",
        ),
    ] {
        let found = refused(parameter, &format!(r#"{{"age": {argument}}}"#));
        assert_eq!(found, ("args.invalid".to_owned(), message.to_owned()));
    }
    assert_eq!(given("age: int", r#"{"age": 25}"#), r#"{"age":25}"#, "the harmless twin");
}

// proves C-042
#[test]
fn a_number_arrives_in_the_type_of_its_parameter() {
    assert_eq!(given("x: float", r#"{"x": 25}"#), r#"{"x":25.0}"#);
    assert_eq!(given("x: float", r#"{"x": 25.5}"#), r#"{"x":25.5}"#);
    assert_eq!(given("x: int", r#"{"x": 25.0}"#), r#"{"x":25}"#);
    assert_eq!(given("x: int", r#"{"x": -0.0}"#), r#"{"x":0}"#);
    assert_eq!(given("x: int", r#"{"x": 1e3}"#), r#"{"x":1000}"#);
    assert_eq!(given("x: list[float]", r#"{"x": [1, 2.5]}"#), r#"{"x":[1.0,2.5]}"#);
    let (code, message) = refused("x: int", r#"{"x": 25.5}"#);
    assert_eq!(code, "args.invalid");
    assert_eq!(message, "Invalid argument 'x': expected integer, got number 25.5");
}

#[test]
fn an_integer_that_json_readers_round_is_refused() {
    for (argument, arrives) in [
        ("9223372036854775807", true),
        ("-9223372036854775808", true),
        ("18446744073709551615", true),
        ("9007199254740992.0", true),
        ("18446744073709551616", false),
        ("-9223372036854775809", false),
        ("123456789012345678901234567890", false),
        ("9007199254740994.0", false),
        ("1e300", false),
    ] {
        let arguments = format!(r#"{{"x": {argument}}}"#);
        let called = call("x: int", &arguments);
        assert_eq!(called.is_ok(), arrives, "{argument}");
        if let Err(error) = called {
            let expected =
                "Invalid argument 'x': it does not fit into 64 bits; pass it as a string";
            assert_eq!(error.message, expected);
        }
    }
    assert_eq!(
        given("x: int", r#"{"x": 9223372036854775807}"#),
        r#"{"x":9223372036854775807}"#,
        "not one digit is lost"
    );
}

// the half of C-044 that needs no Python: what is left out is left to Python's default
#[test]
fn a_default_is_not_put_in_and_an_argument_is_kept() {
    let parameters = "message: str, count: int = 1, multiplier: float = 1.0, enabled: bool = True";
    assert_eq!(given(parameters, r#"{"message": "a"}"#), r#"{"message":"a"}"#);
    assert_eq!(
        given(parameters, r#"{"count": 2, "multiplier": 2.9, "message": "a"}"#),
        r#"{"message":"a","count":2,"multiplier":2.9}"#
    );
}

// proves C-071
#[test]
fn arguments_that_handle_does_not_have_are_listed() {
    let expected = ("args.unknown".to_owned(), "Unknown argument(s): zeta, alpha".to_owned());
    assert_eq!(refused("x: int", r#"{"zeta": 1, "x": 1, "alpha": 2}"#), expected);
    assert_eq!(
        refused("", r#"{"x": 1}"#),
        ("args.unknown".to_owned(), "Unknown argument(s): x".to_owned())
    );
    assert_eq!(given("", "{}"), "{}");
}

// proves C-072
#[test]
fn a_missing_argument_is_named_and_nothing_is_called() {
    let (code, message) = refused("a: int, b: str, c: int = 1", "{}");
    assert_eq!(code, "args.missing");
    assert_eq!(message, "Missing required argument 'a'; Missing required argument 'b'");
}

// the first half of C-115: without valid arguments there is no Call, so there is nothing to make
#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let error = call("a: int, b: str, c: bool = True", r#"{"b": 5, "d": 1, "c": 0}"#).unwrap_err();
    assert_eq!(error.code.to_string(), "args.invalid");
    assert_eq!(
        error.message,
        "Missing required argument 'a'; Invalid argument 'b': expected string, got number 5; \
         Invalid argument 'c': expected boolean, got number 0; Unknown argument(s): d"
    );
    assert!(error.hint.unwrap().contains("the tool was not called"));
}

#[test]
fn arguments_are_an_object_or_nothing() {
    for (arguments, kind) in
        [("null", "null"), ("[1]", "array"), ("5", "number"), ("\"x\"", "string")]
    {
        let (code, message) = refused("x: int = 1", arguments);
        assert_eq!(code, "args.invalid");
        assert_eq!(message, format!("Arguments must be a JSON object, got {kind}"));
    }
    assert_eq!(given("x: int = 1", "{}"), "{}");
}

#[test]
fn arguments_are_bounded_in_size() {
    let tool = tool("def handle(x: str): pass");
    let fits = "x".repeat(ARGUMENTS_BYTES_MAX - r#"{"x":""}"#.len());
    assert!(tool.validate_call(json!({ "x": fits })).is_ok());
    let error = tool.validate_call(json!({ "x": format!("{fits}x") })).unwrap_err();
    assert_eq!(error.code.to_string(), "args.invalid");
    assert_eq!(error.message, "The arguments have 1048577 bytes; at most 1048576 are allowed");
    assert_eq!(error.hint.unwrap(), "pass large data as a file");
}

#[test]
fn a_refusal_is_short_whatever_was_sent() {
    let many = json!({ "x": vec!["no"; 100_000] });
    let error = tool("def handle(x: list[int]): pass").validate_call(many).unwrap_err();
    assert!(error.message.starts_with("Invalid argument 'x[0]': expected integer, got string"));
    assert!(error.message.ends_with("there may be more errors"), "{}", error.message);
    let long = json!({ "x": "é".repeat(100_000), "y".repeat(100_000): 1 });
    let error = tool("def handle(x: int): pass").validate_call(long).unwrap_err();
    assert!(error.message.chars().count() < 4_100, "{}", error.message.len());
    assert!(error.message.ends_with('…'));
}

/// What a date and time becomes, or `None` for a refusal.
const DATES: [(&str, Option<&str>); 53] = [
    ("2024-05-17T10:30:00Z", Some("2024-05-17T10:30:00+00:00")),
    ("2024-05-17T10:30:00z", Some("2024-05-17T10:30:00+00:00")),
    ("2024-05-17t10:30:00Z", Some("2024-05-17T10:30:00+00:00")),
    ("2024-05-17 10:30:00", Some("2024-05-17T10:30:00")),
    ("2024-05-17T10:30:00", Some("2024-05-17T10:30:00")),
    ("2024-05-17T10:30", Some("2024-05-17T10:30:00")),
    ("2024-05-17T10:30Z", Some("2024-05-17T10:30:00+00:00")),
    ("2024-05-17", Some("2024-05-17T00:00:00")),
    ("2024-05-17T10:30:00+02:00", Some("2024-05-17T10:30:00+02:00")),
    ("2024-05-17T10:30:00-0330", Some("2024-05-17T10:30:00-03:30")),
    ("2024-05-17T10:30:00+02", Some("2024-05-17T10:30:00+02:00")),
    ("2024-05-17T10:30:00-00:00", Some("2024-05-17T10:30:00-00:00")),
    ("2024-05-17T10:30:00+23:59", Some("2024-05-17T10:30:00+23:59")),
    ("2024-05-17T10:30:00.5Z", Some("2024-05-17T10:30:00.500000+00:00")),
    ("2024-05-17T10:30:00.123456", Some("2024-05-17T10:30:00.123456")),
    ("2024-05-17T10:30:00.123456789Z", Some("2024-05-17T10:30:00.123456+00:00")),
    ("2024-05-17T10:30:00.0000009", Some("2024-05-17T10:30:00")),
    ("2024-02-29T00:00:00", Some("2024-02-29T00:00:00")),
    ("0001-01-01T00:00:00+23:59", Some("0001-01-01T00:00:00+23:59")),
    ("9999-12-31T23:59:59.999999", Some("9999-12-31T23:59:59.999999")),
    ("", None),
    ("yesterday", None),
    ("2024-05-17T", None),
    ("2024-5-17", None),
    ("2023-02-29", None),
    ("2024-13-01", None),
    ("0000-01-01", None),
    ("10000-01-01", None),
    ("+2024-05-17", None),
    ("20240517T103000", None),
    ("2024-W20-5", None),
    ("2024-138", None),
    ("2024-05-17T24:00:00", None),
    ("2024-05-17T10:30:60", None),
    ("2024-05-17T10:60:00", None),
    ("2024-05-17T1:30:00", None),
    ("2024-05-17T10:30:0", None),
    ("2024-05-17T10", None),
    ("2024-05-17T10:30:00.", None),
    ("2024-05-17T10:30:00,5", None),
    ("2024-05-17T10:30:00+24:00", None),
    ("2024-05-17T10:30:00+02:60", None),
    ("2024-05-17T10:30:00+1:30", None),
    ("2024-05-17T10:30:00+01:3", None),
    ("2024-05-17T10:30:00+1", None),
    ("2024-05-17T10:30:00+", None),
    ("2024-05-17T10:30:00+02:00:30", None),
    ("2024-05-17T10:30:00ZZ", None),
    ("2024-05-17T10:30:00 +02:00", None),
    ("2024-05-17T10:30:00−02:00", None),
    ("2024-05-17_10:30:00", None),
    ("٢٠٢٤-05-17", None),
    (" 2024-05-17", None),
];

// proves C-051
#[test]
fn a_date_is_read_in_one_way_or_refused_before_handle_runs() {
    for (text, canonical) in DATES {
        let arguments = json!({ "at": text }).to_string();
        match canonical {
            Some(canonical) => {
                let expected = json!({ "at": canonical }).to_string();
                assert_eq!(given("at: datetime.datetime", &arguments), expected);
            }
            None => {
                let (code, message) = refused("at: datetime.datetime", &arguments);
                assert_eq!(code, "args.invalid");
                let expected = format!(
                    "Invalid argument 'at': string {} is not in the format date-time",
                    json!(text)
                );
                assert_eq!(message, expected);
            }
        }
    }
}

// proves C-050
#[test]
fn python_reads_the_same_moment_from_every_date_that_is_taken() {
    let program = "import json, re, sys\nfrom datetime import datetime\n\
        for text, canonical in json.load(sys.stdin):\n    \
            given, taken = datetime.fromisoformat(text.upper()), datetime.fromisoformat(canonical)\n    \
            assert given == taken and given.utcoffset() == taken.utcoffset(), (text, canonical)\n    \
            has_offset = re.search('Z$|[+-][0-9:]+$', text.upper()[10:]) is not None\n    \
            assert (taken.tzinfo is not None) == has_offset, (text, canonical)\n\
        print('all read')";
    let taken: Vec<(&str, &str)> =
        DATES.iter().filter_map(|(text, canonical)| Some((*text, (*canonical)?))).collect();
    let mut python = std::process::Command::new("python3")
        .args(["-I", "-c", program])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(python.stdin.take().unwrap(), &taken).unwrap();
    let output = python.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "all read");
}

// proves C-055
#[test]
fn a_node_id_has_its_two_texts_and_nothing_else() {
    for (argument, message) in [
        (r#"{"space": "s"}"#, "Invalid argument 'node': 'externalId' is missing"),
        (r#"{"externalId": "s"}"#, "Invalid argument 'node': 'space' is missing"),
        (r#""s""#, r#"Invalid argument 'node': expected object, got string "s""#),
        (r#"["s", "x"]"#, "Invalid argument 'node': expected object, got array"),
        (
            r#"{"space": 1, "externalId": "x"}"#,
            "Invalid argument 'node.space': expected string, got number 1",
        ),
        (
            r#"{"space": "s", "externalId": "x", "more": 1}"#,
            "Invalid argument 'node': it has no more",
        ),
    ] {
        let found = refused("node: NodeId", &format!(r#"{{"node": {argument}}}"#));
        assert_eq!(found, ("args.invalid".to_owned(), message.to_owned()));
        let found = refused("node: list[NodeId]", &format!(r#"{{"node": [{argument}]}}"#));
        assert_eq!(found.1, message.replace("'node", "'node[0]"));
    }
    let fine = r#"{"node":{"space":"my-space","externalId":"asset-123"}}"#;
    assert_eq!(given("node: NodeId", fine), fine);
}

#[test]
fn what_arguments_become_in_python_is_a_plan_beside_them() {
    let tool = extended(
        "import datetime as dt\nfrom dataclasses import dataclass\nfrom typing import *\n\
         from typing import Optional, TypedDict\n\
         class Window(TypedDict):\n    start: dt.datetime\n    name: str\n\
         class Plain(TypedDict):\n    name: str\n\
         @dataclass\nclass Job:\n    at: dt.datetime\n    n: int = 1\n\
         @dataclass\nclass Jobs:\n    jobs: list[Job]\n\
         def handle(text: str, number: float, at: dt.datetime, ats: list[dt.datetime], \
         node: NodeId, nodes: list[NodeId], maybe: Optional[dt.datetime], \
         by_name: dict[str, dt.datetime], anything: dict, window: Window, plain: Plain, job: Job, \
         jobs: Jobs, deep: list[list[NodeId]]): pass",
    );
    let job = json!({"dataclass": "Job", "fields": {"at": "datetime"}});
    let expected = json!({
        "at": "datetime",
        "ats": {"list": "datetime"},
        "node": "node_id",
        "nodes": {"list": "node_id"},
        "maybe": "datetime",
        "by_name": {"values": "datetime"},
        "window": {"fields": {"start": "datetime"}},
        "job": job,
        "jobs": {"dataclass": "Jobs", "fields": {"jobs": {"list": job}}},
        "deep": {"list": {"list": "node_id"}},
    });
    let date = json!("2024-05-17");
    let node = json!({"space": "s", "externalId": "x"});
    let call = tool
        .validate_call(json!({
            "text": "t", "number": 1, "at": date, "ats": [date], "node": node, "nodes": [node],
            "maybe": null, "by_name": {"a": date}, "anything": {"free": [1]},
            "window": {"start": date, "name": "w"}, "plain": {"name": "p"}, "job": {"at": date},
            "jobs": {"jobs": [{"at": date, "n": 2}]}, "deep": [[node]],
        }))
        .unwrap();
    assert_eq!(Value::Object(call.conversions().clone()), expected);
    assert_eq!(call.function(), "handle");
    assert!(!call.is_test());
    let keywords = keywords(&call);
    assert_eq!(keywords["jobs"], json!({"jobs": [{"at": "2024-05-17T00:00:00", "n": 2}]}));
    assert_eq!(keywords["maybe"], Value::Null);
    assert_eq!(keywords["by_name"], json!({"a": "2024-05-17T00:00:00"}));
}

#[test]
fn a_handle_that_is_gone_when_it_is_called_is_said_in_the_same_words() {
    let error = call("", "{}").unwrap().missing_function_error();
    assert_eq!(error.code.to_string(), "code.no_entry");
    assert_eq!(error.message, "Function 'handle' not found.");
}
