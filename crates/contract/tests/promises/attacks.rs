//! Sources, schemas and arguments that are small to write and large to parse.
//!
//! Each is within the limits of size and was a crash, a hang or a flood of memory before.

use crate::{check_as, within};
use belljar_contract::{AnnotationMode, CodeTool, ValidatedCall};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;
use types::Error;

/// CPU time: ten times what a slow machine takes without optimisation, and a tenth of what was taken before.
const SOON: Duration = Duration::from_secs(4);

fn soon<T>(what: &str, act: impl FnOnce() -> T) -> T {
    within(SOON, what, act)
}

/// What both kinds of annotations say of a source: the first error, or nothing.
fn verdicts(code: &str) -> [Option<String>; 2] {
    [AnnotationMode::Strict, AnnotationMode::Extended].map(|annotations| {
        let checked = soon("reading it", || check_as(code, annotations));
        checked.result.err().map(|problems| problems[0].message.clone())
    })
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (1..count).fold(String::new(), |mut text, at| {
        let _ = writeln!(text, "{}", line(at));
        text
    })
}

const DATACLASS: &str = "from dataclasses import dataclass\n";

fn runner(input: Value, output: Value) -> CodeTool {
    let tool = json!({
        "name": "runner",
        "tool_type": "code_runner",
        "configuration": {
            "type": "CodeRunner",
            "code": "def run(input): return {}",
            "input_schema": input,
            "output_schema": output,
        },
    });
    let checked =
        soon("reading it", || CodeTool::from_json(&tool.to_string(), AnnotationMode::Strict));
    checked.result.unwrap()
}

fn call(tool: &CodeTool, arguments: Value) -> Result<ValidatedCall, Error> {
    soon("checking the arguments", || tool.validate_call(arguments))
}

#[test]
fn a_long_line_of_ancestors_does_not_fill_the_stack() {
    let family = |count: usize| {
        let ancestors = lines(count, |at| format!("@dataclass\nclass C{at}(C{}): 0", at - 1));
        format!(
            "{DATACLASS}@dataclass\nclass C0:\n x: int\n{ancestors}def handle(a: C{}): 0\n",
            count - 1
        )
    };
    let [strict, extended] = verdicts(&family(20_000));
    assert_eq!(strict.unwrap(), "Unsupported type for parameter 'a': C19999");
    assert!(extended.is_none_or(|message| message.contains("C19999")));
    assert_eq!(verdicts(&family(50))[1], None);
}

#[test]
fn classes_in_classes_are_refused_before_they_fill_the_stack() {
    let nested = |count: usize| {
        let classes = lines(count, |at| format!("@dataclass\nclass C{at}:\n x: C{}", at - 1));
        format!(
            "{DATACLASS}@dataclass\nclass C0:\n x: int\n{classes}def handle(a: C{}): 0\n",
            count - 1
        )
    };
    assert!(verdicts(&nested(1_900))[1].as_ref().unwrap().contains("deeper than"));
    assert_eq!(verdicts(&nested(10))[1], None);
}

#[test]
fn ancestors_that_double_with_each_generation_are_not_all_visited() {
    let family = |count: usize| {
        let ancestors = lines(count, |at| format!("class C{at}(C{0}, C{0}): 0", at - 1));
        let last = count - 1;
        format!(
            "{DATACLASS}class C0: 0\n{ancestors}@dataclass\nclass D(C{last}): 0\ndef handle(a: D): 0\n"
        )
    };
    let [_, extended] = verdicts(&family(60));
    assert!(extended.is_none_or(|message| message.contains("more than")));
    assert_eq!(verdicts(&family(5))[1], None);
}

#[test]
fn a_large_class_cannot_be_had_once_for_each_of_many_parameters() {
    let source = |fields: usize, parameters: usize| {
        let fields = lines(fields + 1, |at| format!(" x{at}: int"));
        let parameters = lines(parameters + 1, |at| format!("p{at}: A,"));
        format!("{DATACLASS}@dataclass\nclass A:\n{fields}def handle({parameters}): 0\n")
    };
    let [strict, extended] = verdicts(&source(1_900, 50_000));
    assert_eq!(strict.unwrap(), "Unsupported type for parameter 'p1': A");
    assert!(extended.unwrap().contains("more than"));
    assert_eq!(verdicts(&source(30, 30))[1], None);
}

#[test]
fn a_large_literal_in_a_field_cannot_be_had_many_times() {
    let choices = (0..50_000).map(|at| at.to_string()).collect::<Vec<_>>().join(",");
    let parameters = lines(2_000, |at| format!("p{at}: A,"));
    let code = format!(
        "{DATACLASS}from typing import Literal\n@dataclass\nclass A:\n x: Literal[{choices}]\n\
         def handle({parameters}): 0\n"
    );
    assert!(verdicts(&code)[1].as_ref().unwrap().contains("more than"));
}

#[test]
fn a_field_of_two_bases_is_one_field() {
    let code = format!(
        "{DATACLASS}@dataclass\nclass A:\n x: int\n@dataclass\nclass B:\n x: str\n\
         @dataclass\nclass C(A, B): 0\ndef handle(c: C): 0\n"
    );
    let tool = check_as(&code, AnnotationMode::Extended).result.unwrap();
    assert!(tool.validate_call(json!({"c": {"x": 1}})).is_ok());
    assert!(
        tool.validate_call(json!({"c": {"x": "1"}})).is_err(),
        "the first base decides, as in Python"
    );
}

#[test]
fn many_classes_parameters_and_repetitions_are_read_in_time() {
    let classes = lines(30_000, |at| format!("class A{at}: 0"));
    let parameters = lines(30_000, |at| format!("p{at}: int,"));
    assert_eq!(verdicts(&format!("{classes}def handle({parameters}): 0\n")), [None, None]);
    let repeated = lines(40_000, |at| format!("p{at}, p{at},"));
    assert!(verdicts(&format!("def handle({repeated}): 0\n"))[0].is_some());
}

#[test]
fn brackets_that_statements_leave_open_are_counted() {
    let code = format!("{} pass ", "(".repeat(900)).repeat(1_000);
    let [strict, _] = verdicts(&code);
    assert!(strict.is_some());
    let [one, _] = verdicts("x = (1\ndef handle(): pass\n");
    assert!(one.unwrap().starts_with("Failed to parse Python code."), "one is a plain mistake");
}

#[test]
fn of_many_wrong_items_the_first_are_named() {
    let name = "p".repeat(400_000);
    let code = format!("def handle({name}: list[int]): 0\n");
    let tool = check_as(&code, AnnotationMode::Strict).result.unwrap();
    let error = call(&tool, json!({ name: vec![Value::Null; 50_000] })).unwrap_err();
    assert!(error.message.len() < 10_000, "{} bytes", error.message.len());
}

#[test]
fn a_long_list_of_choices_is_not_repeated_for_each_wrong_item() {
    let choices: Vec<u64> = (0..1_000).collect();
    let items = json!({"field_type": "INTEGER", "enum_values": choices});
    let field = json!([{"name": "a", "field_type": "ARRAY", "items_schema": items}]);
    let tool = runner(field, Value::Null);
    let error = call(&tool, json!({"a": vec![-1; 5_000]})).unwrap_err();
    assert!(error.message.len() < 200_000, "{} bytes", error.message.len());
}

#[test]
fn as_many_fields_as_fit_the_arguments_are_checked_in_time() {
    let fields: Vec<Value> =
        (0..40_000).map(|at| json!({"name": format!("p{at}"), "field_type": "INTEGER"})).collect();
    let tool = runner(json!(fields), Value::Null);
    let arguments: Value = (0..40_000).map(|at| (format!("p{at}"), json!(at))).collect();
    assert!(call(&tool, arguments).is_ok());
}

#[test]
fn neighbours_of_large_integers_are_not_taken_for_them() {
    let field = |name: &str, key: &str, value: Value| json!({"name": name, "field_type": "INTEGER", key: value});
    let large = 9_007_199_254_740_993_u64;
    let fields = json!([
        field("choice", "enum_values", json!([large])),
        field("wide", "format", json!("int64")),
    ]);
    let tool = runner(fields.clone(), Value::Null);
    let beyond = i64::MAX.unsigned_abs() + 1;
    for (name, fits, does_not) in [("choice", large, large - 1), ("wide", beyond - 1, beyond)] {
        assert!(tool.validate_call(json!({ name: fits })).is_ok(), "{name}");
        assert!(tool.validate_call(json!({ name: does_not })).is_err(), "{name}");
    }
    let tool = runner(json!([]), fields);
    let call = tool.validate_call(json!({})).unwrap();
    assert!(call.check_output(&json!({"choice": large})).is_ok());
    assert!(call.check_output(&json!({"choice": large - 1})).is_err());
}

#[test]
fn one_is_one_however_it_is_written_and_true_is_not() {
    let fields = json!([
        {"name": "n", "field_type": "NUMBER", "enum_values": [1, 0.5], "minimum": 0.5, "maximum": 1.0},
    ]);
    let tool = runner(fields, Value::Null);
    for fits in [json!(1), json!(1.0), json!(0.5)] {
        assert!(tool.validate_call(json!({ "n": fits })).is_ok(), "{fits}");
    }
    for does_not in [json!(true), json!(1.5), json!(0), json!("1"), Value::Null] {
        assert!(tool.validate_call(json!({ "n": does_not })).is_err(), "{does_not}");
    }
}
