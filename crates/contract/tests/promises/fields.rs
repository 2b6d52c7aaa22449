//! Importer 2: lists of SchemaField, and the arguments and results of `run`.

use crate::is_draft_7;
use belljar_contract::{AnnotationMode, CallArguments, CodeTool, ObjectSchema, schema_fields};
use proptest::prelude::*;
use serde_json::{Value, json};

const RUN: &str = "def run(input):\n    return input\n";

fn configured(configuration: Value) -> Result<CodeTool, Vec<(String, String)>> {
    let mut tool = json!({"name": "t", "tool_type": "code_runner", "configuration": configuration});
    tool["configuration"]["code"] = json!(RUN);
    let checked = CodeTool::from_json(&tool.to_string(), AnnotationMode::Strict);
    checked.result.map_err(|problems| {
        let place = |path: Option<String>| path.unwrap().replace("$.configuration.", "");
        problems.into_iter().map(|problem| (place(problem.path), problem.message)).collect()
    })
}

fn import(fields: &Value) -> Result<CodeTool, Vec<(String, String)>> {
    configured(json!({"type": "CodeRunner", "input_schema": fields}))
}

fn tool(fields: Value) -> CodeTool {
    import(&fields).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// One field and everything that is wrong with it.
fn wrong(field: Value) -> Vec<(String, String)> {
    import(&json!([field])).unwrap_err()
}

/// What `run` is given.
fn given(tool: &CodeTool, input: Value) -> Value {
    match tool.validate_call(input).unwrap().arguments() {
        CallArguments::Input(input) => input.clone(),
        other => panic!("{other:?}"),
    }
}

fn refused(tool: &CodeTool, input: Value) -> String {
    tool.validate_call(input).unwrap_err().message
}

const EVERY_TYPE: [(&str, &str); 6] = [
    ("STRING", "string"),
    ("INTEGER", "integer"),
    ("NUMBER", "number"),
    ("BOOLEAN", "boolean"),
    ("ARRAY", "array"),
    ("OBJECT", "object"),
];

// proves W-008, W-009
#[test]
fn types_have_six_names_in_upper_case() {
    for (written, shown) in EVERY_TYPE {
        let plain = tool(json!([{"name": "x", "field_type": written}]));
        assert_eq!(plain.descriptor()["properties"]["x"], json!({"type": shown}));
        let items = tool(json!([{"name": "x", "field_type": "ARRAY", "items_type": written}]));
        assert_eq!(items.descriptor()["properties"]["x"]["items"], json!({"type": shown}));
        for other in [shown.to_owned(), format!("{}{}", &written[..1], &shown[1..])] {
            assert_eq!(
                wrong(json!({"name": "x", "field_type": other})),
                [(
                    "input_schema[0].field_type".to_owned(),
                    format!("field_type '{other}' must be written '{written}'")
                )]
            );
            assert_eq!(
                wrong(json!({"name": "x", "field_type": "ARRAY", "items_type": other})),
                [(
                    "input_schema[0].items_type".to_owned(),
                    format!("items_type '{other}' must be written '{written}'")
                )]
            );
        }
    }
}

// proves W-010, W-011
#[test]
fn every_key_of_a_field_has_its_place_in_the_schema() {
    let tool = tool(json!([
        {"name": "s", "field_type": "STRING", "required": true, "title": "S", "description": "Text.",
         "enum_values": ["b", "a"]},
        {"name": "at", "field_type": "STRING", "format": "date-time"},
        {"name": "n", "field_type": "NUMBER", "minimum": 0.5, "maximum": 5},
        {"name": "i", "field_type": "INTEGER", "required": false, "format": "int32", "enum_values": null},
        {"name": "l", "field_type": "ARRAY", "items_type": "STRING", "min_items": 1, "max_items": 3},
        {"name": "o", "field_type": "OBJECT", "required": true, "properties": [
            {"name": "z", "field_type": "BOOLEAN", "required": true},
            {"name": "a", "field_type": "OBJECT", "required": true},
        ]},
        {"name": "rows", "field_type": "ARRAY", "items_type": "OBJECT", "items_schema": [
            {"name": "id", "field_type": "INTEGER", "required": true},
        ]},
        {"name": "grid", "field_type": "ARRAY", "items_schema":
            {"field_type": "ARRAY", "items_type": "NUMBER", "description": "A row."}},
    ]));
    let expected = json!({
        "type": "object",
        "properties": {
            "s": {"type": "string", "enum": ["b", "a"], "title": "S", "description": "Text."},
            "at": {"type": "string", "format": "date-time"},
            "n": {"type": "number", "minimum": 0.5, "maximum": 5},
            "i": {"type": "integer", "format": "int32"},
            "l": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            "o": {
                "type": "object",
                "properties": {"z": {"type": "boolean"}, "a": {"type": "object"}},
                "required": ["a", "z"],
                "additionalProperties": false,
            },
            "rows": {"type": "array", "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}},
                "required": ["id"],
                "additionalProperties": false,
            }},
            "grid": {"type": "array", "items":
                {"type": "array", "items": {"type": "number"}, "description": "A row."}},
        },
        "required": ["o", "s"],
        "additionalProperties": false,
    });
    assert_eq!(tool.descriptor(), expected);
    assert!(is_draft_7(&expected));
}

// proves W-014
#[test]
fn a_schema_that_is_wrong_is_refused_at_its_place() {
    for (field, path, message) in [
        (
            json!({"name": "x", "field_type": "TEXT"}),
            "[0].field_type",
            "field_type 'TEXT' is unknown; use one of STRING, INTEGER, NUMBER, BOOLEAN, ARRAY, \
             OBJECT",
        ),
        (
            json!({"name": "x"}),
            "[0].field_type",
            "field_type must be one of STRING, INTEGER, NUMBER, BOOLEAN, ARRAY, OBJECT",
        ),
        (
            json!({"name": "x", "field_type": 5}),
            "[0].field_type",
            "field_type must be one of STRING, INTEGER, NUMBER, BOOLEAN, ARRAY, OBJECT",
        ),
        (
            json!({"name": "x", "field_type": "ARRAY", "items_type": "string"}),
            "[0].items_type",
            "items_type 'string' must be written 'STRING'",
        ),
        (json!({"name": "", "field_type": "STRING"}), "[0].name", "a field needs a name"),
        (json!({"name": "  ", "field_type": "STRING"}), "[0].name", "a field needs a name"),
        (json!({"field_type": "STRING"}), "[0].name", "a field needs a name"),
        (json!({"name": 5, "field_type": "STRING"}), "[0].name", "a field needs a name"),
        (json!("x"), "[0]", "a field must be an object"),
        (
            json!({"name": "x", "field_type": "STRING", "default": 5}),
            "[0].default",
            "unknown property 'default' of a field",
        ),
        (
            json!({"name": "x", "field_type": "ARRAY", "items": {}}),
            "[0].items",
            "unknown property 'items' of a field; use items_type or items_schema",
        ),
        (
            json!({"name": "x", "field_type": "STRING", "minimum": 1}),
            "[0].minimum",
            "'minimum' is allowed for INTEGER, NUMBER, not for STRING",
        ),
        (
            json!({"name": "x", "field_type": "OBJECT", "items_type": "STRING"}),
            "[0].items_type",
            "'items_type' is allowed for ARRAY, not for OBJECT",
        ),
        (
            json!({"name": "x", "field_type": "STRING", "properties": []}),
            "[0].properties",
            "'properties' is allowed for OBJECT, not for STRING",
        ),
        (
            json!({"name": "x", "field_type": "STRING", "required": "yes"}),
            "[0].required",
            "'required' must be true or false",
        ),
        (
            json!({"name": "x", "field_type": "STRING", "title": 5}),
            "[0].title",
            "'title' must be a string",
        ),
        (
            json!({"name": "x", "field_type": "INTEGER", "minimum": "1"}),
            "[0].minimum",
            "'minimum' must be a number that fits into 53 bits",
        ),
        (
            json!({"name": "x", "field_type": "INTEGER", "maximum": 9_007_199_254_740_993_i64}),
            "[0].maximum",
            "'maximum' must be a number that fits into 53 bits",
        ),
        (
            json!({"name": "x", "field_type": "INTEGER", "minimum": 2, "maximum": 1}),
            "[0].minimum",
            "'minimum' is greater than 'maximum'",
        ),
        (
            json!({"name": "x", "field_type": "ARRAY", "min_items": -1}),
            "[0].min_items",
            "'min_items' must be an integer of at least 0",
        ),
        (
            json!({"name": "x", "field_type": "ARRAY", "min_items": 2, "max_items": 1}),
            "[0].min_items",
            "'min_items' is greater than 'max_items'",
        ),
        (
            json!({"name": "x", "field_type": "STRING", "format": "int32"}),
            "[0].format",
            "'int32' is not a format of STRING; use one of date-time, date, time, email, uuid, \
             uri, hostname, ipv4, ipv6",
        ),
        (
            json!({"name": "x", "field_type": "NUMBER", "format": "int32"}),
            "[0].format",
            "'int32' is not a format of NUMBER; use one of float, double",
        ),
        (
            json!({"name": "x", "field_type": "STRING", "enum_values": []}),
            "[0].enum_values",
            "'enum_values' must be a list of 1 to 1000 values",
        ),
        (
            json!({"name": "x", "field_type": "INTEGER", "enum_values": [1, "2"]}),
            "[0].enum_values[1]",
            "\"2\" does not have the type of this field",
        ),
        (
            json!({"name": "x", "field_type": "NUMBER", "enum_values": [1, 1.0]}),
            "[0].enum_values[1]",
            "1.0 is listed twice",
        ),
        (
            json!({"name": "x", "field_type": "ARRAY", "items_schema": "STRING"}),
            "[0].items_schema",
            "'items_schema' must be a field, or a list of fields",
        ),
        (
            json!({"name": "x", "field_type": "ARRAY", "items_type": "STRING", "items_schema": []}),
            "[0].items_schema",
            "'items_schema' is not of items_type STRING",
        ),
        (
            json!({"name": "x", "field_type": "OBJECT", "properties": [
            {"name": "y", "field_type": "ARRAY", "items_schema": [
                {"name": "z", "field_type": "string"}]}]}),
            "[0].properties[0].items_schema[0].field_type",
            "field_type 'string' must be written 'STRING'",
        ),
    ] {
        let expected = [(format!("input_schema{path}"), message.to_owned())];
        assert_eq!(wrong(field.clone()), expected, "{field}");
    }
    let twice = json!([
        {"name": "a", "field_type": "STRING"}, {"name": " a ", "field_type": "STRING"}
    ]);
    let expected = [("input_schema[1].name".to_owned(), "duplicate field 'a'".to_owned())];
    assert_eq!(import(&twice).unwrap_err(), expected);
    let expected = [("input_schema".to_owned(), "must be a list of fields".to_owned())];
    assert_eq!(import(&json!({"x": "STRING"})).unwrap_err(), expected);
    let output = configured(json!({"type": "CodeRunner", "output_schema": [{"name": "x"}]}));
    assert_eq!(output.unwrap_err()[0].0, "output_schema[0].field_type");
}

#[test]
fn all_that_is_wrong_with_a_schema_is_said_at_once() {
    let problems = import(&json!([
        {"name": "", "field_type": "string"},
        {"name": "x", "field_type": "STRING", "minimum": 1, "what": 2},
    ]));
    let paths: Vec<String> = problems.unwrap_err().into_iter().map(|(path, _)| path).collect();
    assert_eq!(
        paths,
        [
            "input_schema[0].name",
            "input_schema[0].field_type",
            "input_schema[1].minimum",
            "input_schema[1].what"
        ]
    );
}

#[test]
fn fields_are_bounded_in_depth_and_in_what_is_said_about_them() {
    let mut field = json!({"name": "x", "field_type": "STRING"});
    for _ in 0..32 {
        field = json!({"name": "x", "field_type": "OBJECT", "properties": [field]});
    }
    tool(json!([field.clone()]));
    let deeper = wrong(json!({"name": "x", "field_type": "OBJECT", "properties": [field]}));
    assert_eq!(deeper.len(), 1);
    assert_eq!(deeper[0].1, "fields are nested deeper than 32 levels");
    let text = json!({"name": "t", "tool_type": "code_runner", "configuration":
        {"code": RUN, "input_schema": vec![json!(1); 5_000]}});
    let problems =
        CodeTool::from_json(&text.to_string(), AnnotationMode::Strict).result.unwrap_err();
    assert_eq!(problems[100].message, "4900 more are not shown");
}

// proves W-016, W-017
#[test]
fn run_sees_the_fields_of_its_schema_and_no_others() {
    let tool = tool(json!([
        {"name": "a", "field_type": "STRING", "required": true},
        {"name": "b", "field_type": "OBJECT"},
    ]));
    let input = json!({"secret": 1, "a": "x", "b": {"free": [1]}, "more": {}});
    assert_eq!(given(&tool, input), json!({"a": "x", "b": {"free": [1]}}));
}

// proves W-018, W-022
#[test]
fn a_wrong_type_is_refused_and_run_is_not_called() {
    let values = [
        ("text", json!("1")),
        ("integer", json!(1)),
        ("whole", json!(1.0)),
        ("number", json!(1.5)),
        ("boolean", json!(true)),
        ("array", json!([1])),
        ("object", json!({"x": 1})),
        ("null", json!(null)),
    ];
    for (kind, fitting) in [
        ("STRING", &["text"][..]),
        ("INTEGER", &["integer", "whole"]),
        ("NUMBER", &["integer", "whole", "number"]),
        ("BOOLEAN", &["boolean"]),
        ("ARRAY", &["array"]),
        ("OBJECT", &["object"]),
    ] {
        let tool = tool(json!([{"name": "f", "field_type": kind}]));
        for (name, value) in &values {
            match tool.validate_call(json!({ "f": value })) {
                Ok(_) => assert!(fitting.contains(name), "{kind} took {value}"),
                Err(error) => {
                    assert!(!fitting.contains(name), "{kind} refused {value}");
                    assert_eq!(error.code.to_string(), "args.invalid");
                    assert_eq!(error.message, format!("Invalid input field 'f' for type {kind}"));
                }
            }
        }
    }
}

// proves W-019
#[test]
fn a_required_field_is_asked_for_and_another_stays_away() {
    let tool = tool(json!([
        {"name": "a", "field_type": "STRING", "required": true},
        {"name": "b", "field_type": "STRING"},
    ]));
    let error = tool.validate_call(json!({"b": "x"})).unwrap_err();
    assert_eq!(error.message, "Missing required code runner input field 'a'");
    assert_eq!(error.code.to_string(), "args.missing");
    assert_eq!(given(&tool, json!({"a": "x"})), json!({"a": "x"}));
}

// proves W-020
#[test]
fn without_a_schema_any_object_passes_and_nothing_else() {
    for configuration in
        [json!({"type": "CodeRunner"}), json!({"type": "CodeRunner", "input_schema": []})]
    {
        let tool = configured(configuration).unwrap();
        let input = json!({"a": {"b": [1, null]}});
        assert_eq!(given(&tool, input.clone()), input);
        assert_eq!(tool.descriptor(), json!({"type": "object"}));
        for other in [json!([1]), json!("x"), json!(null)] {
            let message = refused(&tool, other);
            assert_eq!(message, "Code runner execution parameters must be an object");
        }
    }
    let typed = tool(json!([{"name": "f", "field_type": "STRING"}]));
    assert_eq!(refused(&typed, json!([])), "Code runner execution parameters must be an object");
}

// proves W-012, W-021
#[test]
fn objects_inside_are_checked_all_the_way_down() {
    let tool = tool(json!([
        {"name": "o", "field_type": "OBJECT", "properties": [
            {"name": "p", "field_type": "STRING", "required": true},
            {"name": "q", "field_type": "INTEGER"},
        ]},
        {"name": "rows", "field_type": "ARRAY", "items_schema": [
            {"name": "id", "field_type": "INTEGER", "required": true},
        ]},
        {"name": "grid", "field_type": "ARRAY", "items_schema":
            {"field_type": "ARRAY", "items_type": "NUMBER", "max_items": 2}},
    ]));
    for (input, message) in [
        (json!({"o": {}}), "Missing required input field 'o.p'"),
        (
            json!({"o": {"p": "x", "r": 1, "s": 2}}),
            "Code runner input object 'o' contains undeclared fields: r, s",
        ),
        (json!({"o": {"p": 1}}), "Invalid input field 'o.p' for type STRING"),
        (json!({"rows": [{"id": 1}, {}]}), "Missing required input field 'rows[1].id'"),
        (
            json!({"rows": [{"id": 1, "x": 1}]}),
            "Code runner input object 'rows[0]' contains undeclared fields: x",
        ),
        (json!({"rows": [{"id": "1"}]}), "Invalid input field 'rows[0].id' for type INTEGER"),
        (json!({"rows": [1]}), "Invalid input field 'rows[0]' for type OBJECT"),
        (json!({"grid": [[1], ["x"]]}), "Invalid input field 'grid[1][0]' for type NUMBER"),
        (json!({"grid": [[1, 2, 3]]}), "Invalid input field 'grid[0]': it allows at most 2 items"),
    ] {
        assert_eq!(refused(&tool, input), message);
    }
    let fine = json!({"o": {"p": "x", "q": 1}, "rows": [{"id": 1}], "grid": [[1, 2.5], []]});
    assert_eq!(given(&tool, fine.clone()), fine);
}

// proves W-013
#[test]
fn every_keyword_is_enforced() {
    for (field, fits, fails, message) in [
        (
            json!({"field_type": "STRING", "enum_values": ["a", "b"]}),
            json!("a"),
            json!("c"),
            r#"it must be one of "a", "b""#,
        ),
        (
            json!({"field_type": "INTEGER", "enum_values": [1, 2]}),
            json!(2.0),
            json!(3),
            "it must be one of 1, 2",
        ),
        (
            json!({"field_type": "BOOLEAN", "enum_values": [true]}),
            json!(true),
            json!(false),
            "it must be one of true",
        ),
        (
            json!({"field_type": "INTEGER", "minimum": 0}),
            json!(0),
            json!(-1),
            "it is less than the minimum 0",
        ),
        (
            json!({"field_type": "NUMBER", "maximum": 1.5}),
            json!(1.5),
            json!(1.6),
            "it is more than the maximum 1.5",
        ),
        (
            json!({"field_type": "INTEGER", "maximum": 9_007_199_254_740_992_i64}),
            json!(9_007_199_254_740_992_i64),
            json!(9_007_199_254_740_993_i64),
            "it is more than the maximum 9007199254740992",
        ),
        (
            json!({"field_type": "ARRAY", "min_items": 1}),
            json!([1]),
            json!([]),
            "it needs at least 1 items",
        ),
        (
            json!({"field_type": "ARRAY", "max_items": 1}),
            json!([1]),
            json!([1, 2]),
            "it allows at most 1 items",
        ),
        (
            json!({"field_type": "INTEGER", "format": "int32"}),
            json!(-2_147_483_648_i64),
            json!(2_147_483_648_i64),
            "number 2147483648 is not in the format int32",
        ),
        (
            json!({"field_type": "INTEGER", "format": "int64"}),
            json!(9_223_372_036_854_775_807_u64),
            json!(9_223_372_036_854_775_808_u64),
            "number 9223372036854775808 is not in the format int64",
        ),
        (
            json!({"field_type": "NUMBER", "format": "float"}),
            json!(1e38),
            json!(1e39),
            "number 1e+39 is not in the format float",
        ),
    ] {
        let mut field = field;
        field["name"] = json!("f");
        let tool = tool(json!([field]));
        assert!(tool.validate_call(json!({ "f": fits })).is_ok(), "{field}");
        let expected = format!("Invalid input field 'f': {message}");
        assert_eq!(refused(&tool, json!({ "f": fails })), expected);
    }
}

// proves W-013
#[test]
fn every_format_of_text_takes_what_is_one_and_nothing_else() {
    for (format, fits, fails) in [
        ("date-time", &["2024-05-17T10:30:00Z"][..], &["now", "2024-05-17T10:30:00+1:30"][..]),
        ("date", &["2024-02-29"], &["2023-02-29", "2024-2-1", "2024-05-17T10:30:00Z", ""]),
        ("time", &["10:30:00Z", "10:30:00.5+02:00"], &["25:00:00Z", "10", "half past"]),
        ("email", &["a@b.example", "a.b+c@b"], &["a", "a@", "@b", "a@b@c", "a b@c", "a@-b"]),
        (
            "uuid",
            &["0190b3a2-1111-7abc-8def-0123456789ab"],
            &["0190b3a211117abc8def0123456789ab", "0190b3a2-1111-7abc-8def-0123456789ag", ""],
        ),
        ("uri", &["https://a.example/b?c#d", "urn:x"], &["a.example", "ht tp:x", "x:", "x:é"]),
        ("hostname", &["a", "a-b.example"], &["", "-a", "a.", "a_b", "é"]),
        ("ipv4", &["127.0.0.1"], &["127.0.0.256", "127.0.0.01", "1.2.3"]),
        ("ipv6", &["::1", "2001:db8::1"], &["1", ":::", "127.0.0.1"]),
    ] {
        let tool = tool(json!([{"name": "f", "field_type": "STRING", "format": format}]));
        for text in fits {
            assert_eq!(given(&tool, json!({ "f": text })), json!({ "f": text }), "{format}");
        }
        for text in fails {
            let expected = format!(
                "Invalid input field 'f': string {} is not in the format {format}",
                json!(text)
            );
            assert_eq!(refused(&tool, json!({ "f": text })), expected);
        }
    }
}

// proves W-025
#[test]
fn a_value_is_what_output_schema_says() {
    let tool = configured(json!({"type": "CodeRunner", "output_schema": [
        {"name": "ok", "field_type": "BOOLEAN", "required": true},
        {"name": "n", "field_type": "INTEGER"},
        {"name": "o", "field_type": "OBJECT", "properties": [
            {"name": "p", "field_type": "STRING", "required": true}]},
    ]}))
    .unwrap();
    let call = tool.validate_call(json!({})).unwrap();
    for (value, message) in [
        (json!([1]), "Code runner output must be a JSON object when output_schema is defined"),
        (json!(null), "Code runner output must be a JSON object when output_schema is defined"),
        (
            json!({"ok": true, "x": 1, "y": 2}),
            "Code runner output contains undeclared fields: x, y",
        ),
        (json!({"n": 1}), "Code runner output missing required field 'ok'"),
        (json!({"ok": 1}), "Invalid output field 'ok' for type BOOLEAN"),
        (json!({"ok": true, "n": 1.5}), "Invalid output field 'n' for type INTEGER"),
        (json!({"ok": true, "o": {}}), "Code runner output missing required field 'o.p'"),
        (
            json!({"ok": true, "o": {"p": "", "q": 1}}),
            "Code runner output object 'o' contains undeclared fields: q",
        ),
    ] {
        let error = call.check_output(&value).unwrap_err();
        assert_eq!(
            (error.code.to_string(), error.message),
            ("output.schema".into(), message.into())
        );
    }
    assert_eq!(call.check_output(&json!({"ok": true, "n": 1, "o": {"p": "x"}})), Ok(()));
    assert_eq!(tool.output_descriptor().unwrap()["required"], json!(["ok"]));
}

#[test]
fn without_output_schema_any_value_will_do() {
    let tool = configured(json!({"type": "CodeRunner"})).unwrap();
    let call = tool.validate_call(json!({})).unwrap();
    for value in [json!(null), json!([1]), json!({"ok": true}), json!("x")] {
        assert_eq!(call.check_output(&value), Ok(()));
    }
    assert_eq!(tool.output_descriptor(), None);
}

fn object(fields: &Value) -> ObjectSchema {
    tool(fields.clone()).input().unwrap().clone()
}

#[test]
fn what_a_list_of_fields_cannot_say_is_named() {
    let fields = |parameters: &str| {
        let code =
            format!("from typing import Any, Literal, Optional\ndef handle({parameters}): pass");
        let tool = crate::check_as(&code, AnnotationMode::Extended).result.unwrap();
        schema_fields(tool.input().unwrap()).map_err(|reason| reason.to_string())
    };
    let expected = [
        json!({"name": "a", "field_type": "STRING", "enum_values": ["x"], "required": true}),
        json!({"name": "b", "field_type": "ARRAY", "items_type": "INTEGER", "required": false}),
    ];
    assert_eq!(fields("a: Literal['x'], b: list[int] = []").unwrap(), expected);
    for (parameter, reason) in [
        ("x: Optional[int]", "'x' may be null, which a SchemaField cannot express"),
        ("x: Any", "'x' may have any type, which a SchemaField cannot express"),
        (
            "x: dict[str, int]",
            "'x' is a map with arbitrary keys, which a SchemaField cannot express",
        ),
        ("x: list[Optional[int]]", "'x[]' may be null, which a SchemaField cannot express"),
    ] {
        assert_eq!(fields(parameter).unwrap_err(), reason);
    }
}

fn names() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::btree_set("[a-z]{1,3}|[!-~]?é[\"'$.]?x", 1..4)
        .prop_map(|names| names.into_iter().map(|name| name.trim().to_owned()).collect())
}

fn bounds(field: Value, least: Option<i32>, width: Option<u16>) -> Value {
    let mut field = field;
    if let Some(least) = least {
        field["minimum"] = json!(f64::from(least) / 2.0);
    }
    if let Some(width) = width {
        field["maximum"] = json!(i64::from(least.unwrap_or(0)) + i64::from(width) + 40_000_000_000);
    }
    field
}

/// A field without its name: one of every kind, with every key that belongs to it.
fn field() -> impl Strategy<Value = Value> {
    let format = proptest::sample::select(vec!["date-time", "email", "uuid", "ipv6", "time"]);
    let leaf = prop_oneof![
        Just(json!({"field_type": "STRING"})),
        Just(json!({"field_type": "BOOLEAN"})),
        Just(json!({"field_type": "OBJECT"})),
        Just(json!({"field_type": "OBJECT", "properties": []})),
        Just(json!({"field_type": "ARRAY", "items_schema": []})),
        format.prop_map(|format| json!({"field_type": "STRING", "format": format})),
        proptest::collection::btree_set("[a-c]{0,2}", 1..4)
            .prop_map(|choices| json!({"field_type": "STRING", "enum_values": choices})),
        proptest::collection::btree_set(any::<i64>(), 1..4)
            .prop_map(|choices| json!({"field_type": "INTEGER", "enum_values": choices})),
        (any::<Option<i32>>(), any::<Option<u16>>()).prop_map(|(least, width)| bounds(
            json!({"field_type": "NUMBER", "format": "double"}),
            least,
            width
        )),
        (any::<Option<i32>>(), any::<Option<u16>>()).prop_map(|(least, width)| bounds(
            json!({"field_type": "INTEGER"}),
            least,
            width
        )),
        proptest::sample::select(EVERY_TYPE.map(|(name, _)| name).to_vec())
            .prop_map(|kind| json!({"field_type": "ARRAY", "items_type": kind})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            fields_of(inner.clone())
                .prop_map(|fields| json!({"field_type": "OBJECT", "properties": fields})),
            fields_of(inner.clone()).prop_map(|fields| json!({
                "field_type": "ARRAY", "items_type": "OBJECT", "items_schema": fields
            })),
            (inner, 0..3_u64, any::<Option<u8>>()).prop_map(|(items, least, more)| json!({
                "field_type": "ARRAY",
                "items_schema": items,
                "min_items": least,
                "max_items": more.map(|more| least + u64::from(more)),
            })),
        ]
    })
}

fn fields_of(field: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Value> {
    let about = proptest::option::of("[ -~]{0,8}");
    let rest = proptest::collection::vec((field, any::<bool>(), about.clone(), about), 3);
    (names(), rest).prop_map(|(names, rest)| {
        let fields = names.into_iter().zip(rest);
        fields
            .map(|(name, (mut field, required, title, description))| {
                field["name"] = json!(name);
                field["required"] = json!(required);
                field["title"] = json!(title);
                field["description"] = json!(description);
                field
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_way_back_leads_to_where_one_came_from(fields in fields_of(field().boxed())) {
        let object = object(&fields);
        let exported = Value::Array(schema_fields(&object).unwrap());
        prop_assert_eq!(&self::object(&exported), &object);
        prop_assert!(is_draft_7(&object.descriptor()));
    }
}
