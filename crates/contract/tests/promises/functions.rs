//! Deployed functions, and tools that call them.

use belljar_contract::{
    CallArguments, CallFunctionTool, Diagnostic, FunctionContract, PythonSource,
};
use serde_json::{Value, json};

fn function(code: &str) -> Result<FunctionContract, Vec<Diagnostic>> {
    FunctionContract::from_python(PythonSource::new(code).unwrap()).result
}

fn given(code: &str) -> Value {
    let call = function(code).unwrap().call("f", json!({"a": 1}), json!({"call_id": "c"})).unwrap();
    match call.arguments() {
        CallArguments::Keywords(keywords) => Value::Object(keywords.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_function_is_given_what_it_asks_for_by_name_and_nothing_else() {
    assert_eq!(given("def handle(): ..."), json!({}));
    assert_eq!(given("def handle(data): ..."), json!({"data": {"a": 1}}));
    assert_eq!(
        given("def handle(function_call_info, secrets, *, data, more=1, **rest): ..."),
        json!({"data": {"a": 1}, "secrets": {}, "function_call_info": {"call_id": "c"}})
    );
}

#[test]
fn an_argument_that_functions_do_not_have_is_refused_with_its_place() {
    let refused = |code: &str| function(code).unwrap_err().remove(0);
    let other = refused("import os\ndef handle(data, other): ...");
    let place = other.place.unwrap();
    assert_eq!((place.line, place.column), (2, 18));
    assert!(other.message.contains("`other`") && other.hint.unwrap().contains("data, client"));
    assert_eq!(refused("def main(data): ...").message, "Function 'handle' not found.");
    assert_eq!(refused("def handle(data):\n    return (\n").code.to_string(), "code.syntax");
}

fn call_function(configuration: Value) -> Result<CallFunctionTool, Vec<Diagnostic>> {
    let tool = json!({
        "type": "callFunction",
        "name": "forecast",
        "description": "Forecasts the next values",
        "configuration": configuration,
    });
    CallFunctionTool::from_json(tool.as_object().unwrap()).result
}

// proves C-152
#[test]
fn the_polling_time_is_from_1_to_540_seconds_and_540_if_nothing_is_said() {
    let polling = |time: Value| {
        call_function(json!({"externalId": "f", "maxPollingTime": time, "schema": {}}))
            .map(|tool| tool.polling_seconds)
    };
    assert_eq!(call_function(json!({"externalId": "f"})).unwrap().polling_seconds, 540);
    assert_eq!(polling(json!(1)).unwrap(), 1);
    assert_eq!(polling(json!(540)).unwrap(), 540);
    for wrong in [json!(0), json!(541), json!("60"), json!(1.5)] {
        let problems = polling(wrong).unwrap_err();
        assert_eq!(problems[0].path.as_deref(), Some("$.configuration.maxPollingTime"));
    }
}

#[test]
fn a_tool_that_calls_a_function_says_everything_that_is_wrong_with_it() {
    let problems = call_function(json!({"schema": {"type": "array"}, "code": "x"})).unwrap_err();
    let paths: Vec<_> = problems.iter().filter_map(|problem| problem.path.as_deref()).collect();
    let all = ["$.configuration.code", "$.configuration.externalId", "$.configuration.schema"];
    assert_eq!(paths, all, "{problems:#?}");
}
