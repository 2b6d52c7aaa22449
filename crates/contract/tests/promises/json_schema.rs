//! JSON Schema of users and of attackers.

use belljar_contract::{ArgumentsSchema, CallFunctionTool, JsonSchema, JsonSchemaError};
use serde_json::{Map, Value, json};

const TOO_MANY_STEPS: &str = "takes too long to check";
const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";
const DRAFT_2020_12: &str = "https://json-schema.org/draft/2020-12/schema";

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
    for draft in [DRAFT_7, DRAFT_2020_12] {
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
fn t204_a_check_ends_after_a_number_of_steps() {
    let text = "a".repeat(1_000_000);
    let many = |schema: Value| Value::Array(vec![schema; 1_000]);
    for (schema, long, short) in [
        (many(json!({"not": {"const": 1}})), json!(vec![-1; 50_000]), json!(vec![-1; 100])),
        (many(json!({"format": "uri"})), json!([format!("a:{text}")]), json!(["a:b"])),
        (many(json!({"uniqueItems": true})), json!([[text]]), json!([[1, 2]])),
        (
            many(json!({"propertyNames": {"minLength": 1}})),
            json!([{text.as_str(): 1}]),
            json!([{"a": 1}]),
        ),
        (many(json!({"properties": {"b": {}}})), json!([{text.as_str(): 1}]), json!([{"a": 1}])),
        (many(json!({"multipleOf": 0.1})), json!(vec![0.2; 1_000]), json!([0.2])),
        (json!([{"pattern": "^[ab]*a[ab]{9000}c"}]), json!([text]), json!(["abc"])),
    ] {
        let tool = tool(json!({
            "$schema": DRAFT_7,
            "properties": {"list": {"items": {"allOf": schema}}},
        }));
        let (code, message) = refusal(&tool, json!({"list": long}));
        assert_eq!(code, "args.invalid");
        let shown: String = schema[0].to_string();
        assert!(message.contains(TOO_MANY_STEPS), "{shown}: {message}");
        let short = tool.check(&json!({"list": short}));
        let too_long = short.is_err_and(|error| error.message.contains(TOO_MANY_STEPS));
        assert!(!too_long, "{shown}: the twin is short");
    }
}

#[test]
fn nested_schemas_that_ask_what_was_evaluated_are_checked_once_each() {
    let mut nested = json!({"properties": {"a": {}}});
    (0..40).for_each(|_| nested = json!({"allOf": [nested], "unevaluatedProperties": false}));
    assert!(tool(nested.clone()).check(&json!({"a": 1})).is_ok());
    assert!(tool(nested).check(&json!({"b": 1})).is_err());
}

#[test]
fn t204_every_value_of_a_schema_is_counted() {
    let names = |count: usize| -> Map<String, Value> {
        (0..count).map(|n| (format!("p{n}"), json!([]))).collect()
    };
    let sized = |count: usize| {
        [
            json!({"const": vec![0; count]}),
            json!({"enum": [vec![0; count / 2], vec![1; count / 2], [[], {"a": 1}]]}),
            json!({"dependentRequired": names(count)}),
            json!({"dependencies": names(count)}),
            json!({"required": vec!["a"; count]}),
        ]
    };
    for (large, small) in sized(10_000).into_iter().zip(sized(1_000)) {
        assert_eq!(schema(large).unwrap_err(), JsonSchemaError::TooLarge);
        assert!(schema(small).is_ok());
    }
    for (names, is_valid) in [
        (json!(["string", "string"]), false),
        (json!(vec!["string"; 50_000]), false),
        (json!(["string", "null"]), true),
    ] {
        assert_eq!(schema(json!({"properties": {"a": {"type": names}}})).is_ok(), is_valid);
    }
}

#[test]
fn t204_messages_are_short_however_long_names_and_constants_are() {
    let long = "x".repeat(100_000);
    let names: Map<String, Value> = (0..2).map(|n| (format!("{long}{n}"), json!({}))).collect();
    let enough: Map<String, Value> = (0..60).map(|n| (format!("p{n}"), json!({}))).collect();
    for (schema, value, expected) in [
        (json!({"const": long}), json!("a"), "must be \"xxx"),
        (json!({"enum": [long, [long]]}), json!("a"), "must be one of \"xxx"),
        (json!({"type": "number"}), json!(long), "must be number, but is string \"xxx"),
        (
            json!({"properties": names, "additionalProperties": false}),
            json!({"a": 1}),
            "use one of xxx",
        ),
        (json!({"properties": enough, "additionalProperties": false}), json!({"a": 1}), "p49, …"),
        (json!({"propertyNames": {"const": long}}), json!({"a": 1}), "its name must be \"xxx"),
    ] {
        let mismatches = JsonSchema::new(&schema).unwrap().find_mismatches(&value);
        let [mismatch] = mismatches.as_slice() else { panic!("{mismatches:?}") };
        let message = mismatch.message();
        assert!(message.contains(expected), "{message}");
        assert!(message.chars().count() < 1_000 && message.contains('…'), "{message}");
    }
    let schema = JsonSchema::new(&json!({"additionalProperties": {"items": {"type": "string"}}}));
    let mismatches =
        schema.as_ref().unwrap().find_mismatches(&json!({long.as_str(): vec![0; 100]}));
    assert_eq!(mismatches.len(), 20);
    assert!(mismatches.iter().all(|it| it.path().starts_with("/xxx") && it.path().len() < 1_000));
    let mismatches = schema.unwrap().find_mismatches(&json!({"short": [0]}));
    assert_eq!(mismatches[0].path(), "/short/0", "the twin is complete");
}

#[test]
fn t206_patterns_are_bounded_one_by_one_and_together() {
    let pattern = |pattern: &str| schema(json!({"properties": {"a": {"pattern": pattern}}}));
    for costly in ["(?:(?:a{1000}){1000}){1000}", "(a)\\1", "(?<=a)b", &"a".repeat(2_001)] {
        assert!(matches!(pattern(costly), Err(JsonSchemaError::Invalid { .. })), "{costly}");
    }
    assert!(pattern(&"a".repeat(2_000)).is_ok() && pattern("^(a+)+$").is_ok());
    let several = |count: usize| {
        let all: Map<String, Value> = (0..count)
            .map(|n| (format!("p{n}"), json!({"pattern": format!("\\p{{L}}{{20}}{n}")})))
            .collect();
        schema(json!({"properties": all}))
    };
    match several(100) {
        Err(JsonSchemaError::Invalid { path, reason }) => {
            assert!(path.starts_with("/properties/p") && path.ends_with("/pattern"), "{path}");
            assert!(reason.contains("more than 4 MiB"), "{reason}");
        }
        other => panic!("{:?}", other.map(drop)),
    }
    assert!(several(3).is_ok());
    let same = json!({"pattern": "\\p{L}{20}"});
    assert!(schema(json!({"allOf": vec![same; 1_000]})).is_ok(), "each is compiled once");
}

#[test]
fn formats_are_checked_in_draft_7_only() {
    let matches = |draft: &str| {
        let schema = JsonSchema::new(&json!({"$schema": draft, "format": "date"})).unwrap();
        [json!("2024-02-29"), json!("2023-02-29"), json!(1)]
            .map(|value| schema.find_mismatches(&value).is_empty())
    };
    assert_eq!(matches(DRAFT_7), [true, false, true]);
    for newer in ["https://json-schema.org/draft/2019-09/schema", DRAFT_2020_12] {
        assert_eq!(matches(newer), [true, true, true], "{newer}");
    }
    let other = json!({"$schema": DRAFT_7, "format": "iri"});
    assert!(JsonSchema::new(&other).unwrap().find_mismatches(&json!("no iri")).is_empty());
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
