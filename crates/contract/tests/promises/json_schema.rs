//! JSON Schema of users and of attackers.

use belljar_contract::{ArgumentsSchema, CallFunctionTool, JsonSchemaError};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Unoptimised, on a machine that does other things as well.
const CHECK_TIME_MAX: Duration = Duration::from_secs(20);

fn schema(written: Value) -> Result<ArgumentsSchema, JsonSchemaError> {
    ArgumentsSchema::new(written.as_object().unwrap().clone())
}

fn tool(schema: Value) -> CallFunctionTool {
    let tool = json!({
        "type": "callFunction",
        "name": "forecast",
        "description": "Forecasts the next values",
        "configuration": {"externalId": "f", "schema": schema},
    });
    CallFunctionTool::from_json(tool.as_object().unwrap()).result.unwrap()
}

fn refusal(tool: &CallFunctionTool, arguments: Value) -> (String, String) {
    let error = tool.check(&arguments).unwrap_err();
    (error.code.to_string(), error.message)
}

#[test]
fn arguments_are_held_against_the_schema_and_named_where_they_differ() {
    let tool = tool(json!({
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]+$"},
            "days": {"$ref": "#/$defs/days"},
        },
        "required": ["name"],
        "additionalProperties": false,
        "$defs": {"days": {"type": "array", "items": {"type": "integer", "maximum": 31}}},
    }));
    assert!(tool.check(&json!({"name": "pump", "days": [1, 31]})).is_ok());
    let missing = refusal(&tool, json!({}));
    assert_eq!(missing, ("args.missing".into(), "Missing required argument 'name'".into()));
    let (code, message) = refusal(&tool, json!({"name": "pump", "days": [1, 32]}));
    assert_eq!(code, "args.invalid");
    assert!(message.contains("'/days/1'") && message.contains("31"), "{message}");
    assert!(refusal(&tool, json!({"name": "PUMP"})).1.contains("'/name'"));
    assert!(refusal(&tool, json!({"name": "a", "x": 1})).1.contains("'x'"));
    assert!(refusal(&tool, json!([])).1.contains("must be a JSON object"));
    assert_eq!(tool.schema.descriptor()["type"], "object", "models are shown an object");
}

#[test]
fn drafts_that_people_use_are_understood() {
    for draft in
        ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
    {
        let tool = tool(json!({"$schema": draft, "properties": {"a": {"type": "integer"}}}));
        assert!(tool.check(&json!({"a": 1})).is_ok());
        assert!(tool.check(&json!({"a": "1"})).is_err());
    }
    let unknown = schema(json!({"$schema": "https://example.com/mine"}));
    assert!(matches!(unknown, Err(JsonSchemaError::Draft { .. })));
}

#[test]
fn a_schema_refers_to_nothing_outside_of_itself() {
    let refer = |to: &str| schema(json!({"properties": {"a": {"$ref": to}}, "$defs": {"a": {}}}));
    assert!(refer("#/$defs/a").is_ok());
    for to in
        ["https://127.0.0.1/x", "file:///etc/passwd", "#/$defs/b", "other", "#a", "#/%24defs/a"]
    {
        assert!(matches!(refer(to), Err(JsonSchemaError::Reference(_))), "{to}");
    }
    for key in ["$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"] {
        let rebased = schema(json!({"properties": {"a": {key: "#"}}}));
        assert_eq!(rebased.unwrap_err(), JsonSchemaError::Keyword(key.to_owned()));
    }
    assert!(schema(json!({"properties": {"$ref": {"type": "string"}, "$id": {}}})).is_ok());
}

#[test]
fn a_schema_without_an_end_is_refused_before_anything_is_checked_against_it() {
    for endless in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"properties": {"child": {"$ref": "#"}}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    ] {
        assert_eq!(schema(endless.clone()).unwrap_err(), JsonSchemaError::TooLarge, "{endless}");
    }
    let mut doubling = json!({"$ref": "#/$defs/d0", "$defs": {"d40": {}}});
    for step in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", step + 1)});
        doubling["$defs"][format!("d{step}")] = json!({"allOf": [next, next]});
    }
    assert_eq!(schema(doubling).unwrap_err(), JsonSchemaError::TooLarge);
}

#[test]
fn a_mismatch_says_what_is_expected_and_where() {
    let tool = tool(json!({
        "properties": {
            "n": {"type": ["integer", "null"], "minimum": 1, "multipleOf": 2},
            "word": {"enum": ["a", "b"]},
            "text": {"minLength": 2, "pattern": "^[a-z]+$"},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "shape": {"oneOf": [
                {"properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
                {"properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]},
            ]},
            "list": {"items": {"type": "string"}, "uniqueItems": true, "maxItems": 3},
        },
        "dependentRequired": {"n": ["text"]},
        "unevaluatedProperties": false,
    }));
    for (arguments, code, message) in [
        (json!({"z": 1}), "args.unknown", "Unknown argument 'z'"),
        (json!({"n": 2}), "args.missing", "Missing required argument 'text'; \"n\" requires it"),
        (
            json!({"n": "2", "text": "aa"}),
            "args.invalid",
            "Invalid argument '/n': must be integer or null, but is string \"2\"",
        ),
        (
            json!({"n": -1, "text": "aa"}),
            "args.invalid",
            "Invalid argument '/n': must be at least 1; Invalid argument '/n': must be a multiple of 2",
        ),
        (
            json!({"word": "c"}),
            "args.invalid",
            "Invalid argument '/word': must be one of \"a\", \"b\"",
        ),
        (
            json!({"text": "A"}),
            "args.invalid",
            "Invalid argument '/text': must have at least 2 characters; Invalid argument '/text': must match the pattern ^[a-z]+$",
        ),
        (
            json!({"either": 1}),
            "args.invalid",
            "Invalid argument '/either': must be string or null, but is number 1",
        ),
        (
            json!({"shape": {"kind": "square", "side": "x"}}),
            "args.invalid",
            "Invalid argument '/shape/side': must be number, but is string \"x\"",
        ),
        (
            json!({"list": ["a", "a"]}),
            "args.invalid",
            "Invalid argument '/list/1': must not be equal to an earlier item",
        ),
    ] {
        assert_eq!(refusal(&tool, arguments), (code.to_owned(), message.to_owned()));
    }
}

#[test]
fn a_schema_that_is_invalid_is_refused_with_its_place() {
    for (wrong, path) in [
        (json!({"properties": {"a": {"type": "strin"}}}), "/properties/a/type"),
        (json!({"required": "a"}), "/required"),
        (json!({"properties": {"a/b": {"minLength": -1}}}), "/properties/a~1b/minLength"),
        (json!({"properties": {"a": {"items": [{}]}}}), "/properties/a/items"),
        (json!({"properties": {"a": {"multipleOf": 0}}}), "/properties/a/multipleOf"),
        (json!({"$defs": {"a": {"anyOf": []}}}), "/$defs/a/anyOf"),
        (json!({"additionalProperties": 1}), "/additionalProperties"),
    ] {
        match schema(wrong.clone()) {
            Err(JsonSchemaError::Invalid { path: found, .. }) => assert_eq!(found, path),
            other => panic!("{wrong}: {other:?}"),
        }
    }
    assert!(schema(json!({"default": {"$ref": "x"}, "examples": [{"$id": "x"}]})).is_ok());
}

#[test]
fn a_check_ends_after_a_number_of_steps() {
    let branches: Vec<Value> = (0..2000).map(|n| json!({"not": {"const": n}})).collect();
    let tool = tool(json!({"properties": {"a": {"items": {"allOf": branches}}}}));
    assert!(tool.check(&json!({"a": vec![-1; 100]})).is_ok());
    let started = Instant::now();
    let (code, message) = refusal(&tool, json!({"a": vec![-1; 100_000]}));
    assert_eq!(code, "args.invalid");
    assert!(message.contains("takes too long to check"), "{message}");
    assert!(started.elapsed() < CHECK_TIME_MAX, "{:?}", started.elapsed());
    let mut nested = json!({"properties": {"a": {}}});
    (0..40).for_each(|_| nested = json!({"allOf": [nested], "unevaluatedProperties": false}));
    assert!(self::tool(nested.clone()).check(&json!({"a": 1})).is_ok());
    assert!(self::tool(nested).check(&json!({"b": 1})).is_err());
}

#[test]
fn no_pattern_takes_long_to_match() {
    let tool = tool(json!({"properties": {"a": {"pattern": "^(a+)+$"}}}));
    let started = Instant::now();
    assert!(tool.check(&json!({"a": format!("{}b", "a".repeat(100_000))})).is_err());
    assert!(started.elapsed() < Duration::from_secs(2));
    for costly in ["(?:(?:a{1000}){1000}){1000}", "(a)\\1", "(?<=a)b"] {
        let refused = schema(json!({"properties": {"a": {"pattern": costly}}}));
        assert!(matches!(refused, Err(JsonSchemaError::Invalid { .. })), "{costly}");
    }
}

#[test]
fn the_deepest_schema_that_is_taken_can_be_checked_against() {
    let mut deep = json!({"type": "integer"});
    let mut value = json!("not an integer");
    for _ in 0..47 {
        deep = json!({"properties": {"a": deep}});
        value = json!({"a": value});
    }
    assert!(tool(deep.clone()).check(&value).is_err());
    (0..2).for_each(|_| deep = json!({"properties": {"a": deep}}));
    assert_eq!(schema(deep).unwrap_err(), JsonSchemaError::TooLarge);
}
