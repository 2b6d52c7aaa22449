//! The extended contract: annotations beyond those of the vendor document.

use crate::{check_as, is_draft_7, within};
use belljar_contract::{AnnotationMode, CodeTool, SourceCheck};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// CPU time for contracts that are small to write and would be large.
const CHECK_TIME_MAX: Duration = Duration::from_secs(5);

const IMPORTS: &str = "import datetime\nfrom dataclasses import dataclass, field, KW_ONLY\n\
    from typing import Annotated, Any, ClassVar, Dict, List, Literal, NotRequired, Optional, \
    Required, TypedDict, Union\n";

fn check(code: &str) -> SourceCheck<CodeTool> {
    check_as(&format!("{IMPORTS}{code}"), AnnotationMode::Extended)
}

fn tool(code: &str) -> CodeTool {
    check(code).result.unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn schema(code: &str) -> Value {
    let schema = tool(code).descriptor();
    assert!(is_draft_7(&schema), "{schema}");
    schema
}

/// The type of one parameter.
fn parameter(annotation: &str) -> Value {
    schema(&format!("def handle(x: {annotation}): pass"))["properties"]["x"].clone()
}

fn error(code: &str) -> String {
    let mut problems = check(code).result.unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.remove(0).message
}

fn refused(annotation: &str) -> String {
    let message = error(&format!("def handle(x: {annotation}): pass"));
    message.strip_prefix("Unsupported type for parameter 'x': ").unwrap().to_owned()
}

#[test]
fn every_further_annotation_has_its_schema() {
    let maybe_text = json!({"type": ["string", "null"]});
    let dates =
        json!({"type": ["array", "null"], "items": {"type": "string", "format": "date-time"}});
    for (annotation, expected) in [
        ("Optional[str]", maybe_text.clone()),
        ("str | None", maybe_text.clone()),
        ("None | str", maybe_text.clone()),
        ("Union[str, None]", maybe_text.clone()),
        ("Union[None, str]", maybe_text.clone()),
        ("Optional['str']", maybe_text.clone()),
        ("'Optional[str]'", maybe_text.clone()),
        ("Optional[Optional[str]]", maybe_text),
        ("Optional[list[datetime.datetime]]", dates),
        ("Literal['b', 'a', 'b']", json!({"type": "string", "enum": ["b", "a"]})),
        ("Literal[-1, 2]", json!({"type": "integer", "enum": [-1, 2]})),
        ("Literal[True]", json!({"type": "boolean", "enum": [true]})),
        ("Literal['a', None]", json!({"type": ["string", "null"], "enum": ["a", null]})),
        ("Optional[Literal['a']]", json!({"type": ["string", "null"], "enum": ["a", null]})),
        ("Literal['list[int]']", json!({"type": "string", "enum": ["list[int]"]})),
        ("dict", json!({"type": "object"})),
        ("Dict[str, int]", json!({"type": "object", "additionalProperties": {"type": "integer"}})),
        ("dict[str, Any]", json!({"type": "object", "additionalProperties": {}})),
        ("list", json!({"type": "array"})),
        ("List[bool]", json!({"type": "array", "items": {"type": "boolean"}})),
        (
            "list[list[float]]",
            json!({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
        ),
        ("Any", json!({})),
        ("Annotated[int, 'seconds']", json!({"type": "integer"})),
    ] {
        assert_eq!(parameter(annotation), expected, "{annotation}");
    }
}

#[test]
fn what_even_extended_does_not_take_is_refused_by_its_own_name() {
    for annotation in [
        "Union[str, int]",
        "str | int",
        "Union[str, int, None]",
        "str | int | None",
        "Optional[set]",
        "set[str]",
        "tuple[int, int]",
        "dict[int, str]",
        "dict[str, set]",
        "Literal['a', 1]",
        "Literal[True, 1]",
        "Literal[1.5]",
        "Literal[None]",
        "Literal[18446744073709551616]",
        "Custom",
        "None",
        "typing.Nothing",
        "list[int, str]",
    ] {
        assert_eq!(refused(annotation), annotation);
    }
    assert_eq!(parameter("Optional[str]"), json!({"type": ["string", "null"]}), "the twin");
}

#[test]
fn a_name_that_was_not_imported_is_none_of_these() {
    for annotation in ["Optional[str]", "Literal['a']", "Any", "List[int]"] {
        let code = format!("def handle(x: {annotation}): pass");
        let problems = check_as(&code, AnnotationMode::Extended).result.unwrap_err();
        assert_eq!(
            problems[0].message,
            format!("Unsupported type for parameter 'x': {annotation}")
        );
    }
    let code = "import typing as t\nfrom typing_extensions import Literal as L\n\
                def handle(x: t.Optional[L['a']]): pass";
    let tool = check_as(code, AnnotationMode::Extended).result.unwrap();
    assert_eq!(tool.descriptor()["properties"]["x"]["enum"], json!(["a", null]));
}

#[test]
fn strict_stays_strict_and_says_who_would_take_it() {
    for annotation in ["Optional[str]", "Literal['a']", "dict", "Any", "list", "Job"] {
        let code = format!(
            "{IMPORTS}@dataclass\nclass Job:\n    n: int\ndef handle(x: {annotation}): pass"
        );
        let problem = check_as(&code, AnnotationMode::Strict).result.unwrap_err().remove(0);
        let expected = format!("Unsupported type for parameter 'x': {annotation}");
        assert_eq!(problem.message, expected);
        assert!(problem.hint.unwrap().ends_with("`--extended` allows this type"));
    }
    let problem = check_as("def handle(x: set): pass", AnnotationMode::Strict).result.unwrap_err();
    assert!(!problem[0].hint.as_ref().unwrap().contains("extended"));
}

#[test]
fn null_is_for_those_who_may_be_null() {
    let tool = tool("def handle(a: Optional[int], b: Literal['x', None], c: int = 1): pass");
    assert!(tool.validate_call(json!({"a": null, "b": null})).is_ok());
    assert!(tool.validate_call(json!({"a": 1, "b": "x"})).is_ok());
    for (arguments, message) in [
        (json!({"a": "1", "b": "x"}), r#"Invalid argument 'a': expected integer, got string "1""#),
        (json!({"a": 1, "b": "y"}), r#"Invalid argument 'b': it must be one of "x""#),
        (json!({"a": 1, "b": "x", "c": null}), "Invalid argument 'c': expected integer, got null"),
    ] {
        assert_eq!(tool.validate_call(arguments).unwrap_err().message, message);
    }
}

#[test]
fn defaults_are_shown_where_they_are_plain() {
    let schema = schema(
        "def handle(a: Optional[int] = None, b: list[int] = [1, 2], c: list[str] = [], \
         d: datetime.datetime = datetime.datetime.now(), e: dict = {'a': [1, None]}, \
         f: Literal['x', 'y'] = 'y', g: list[datetime.datetime] = [], h: NodeId = None or 1, \
         i: Optional[datetime.datetime] = None, j: int = -9223372036854775808, \
         k: list[int] = make(), l: Any = 5): pass",
    );
    assert_eq!(schema["required"], json!([]));
    let default = |name: &str| schema["properties"][name].get("default").cloned();
    assert_eq!(default("a"), Some(Value::Null));
    assert_eq!(default("b"), Some(json!([1, 2])));
    assert_eq!(default("c"), Some(json!([])));
    assert_eq!(default("d"), None, "made by Python when the argument is left out");
    assert_eq!(default("e"), Some(json!({"a": [1, null]})));
    assert_eq!(default("f"), Some(json!("y")));
    assert_eq!(default("g"), Some(json!([])));
    assert_eq!(default("h"), None);
    assert_eq!(default("i"), Some(Value::Null));
    assert_eq!(default("j"), Some(json!(i64::MIN)));
    assert_eq!(default("k"), None);
    assert_eq!(default("l"), Some(json!(5)));
}

#[test]
fn a_default_that_python_would_see_in_another_type_is_refused() {
    for (parameter, given) in [
        ("x: datetime.datetime = '2024-05-17'", "'2024-05-17'"),
        ("x: list[datetime.datetime] = ['2024-05-17']", "['2024-05-17']"),
        ("x: NodeId = {'space': 's', 'externalId': 'x'}", "{'space': 's', 'externalId': 'x'}"),
        ("x: datetime.datetime = None", "None"),
        ("x: Literal['a'] = 'b'", "'b'"),
        ("x: list[int] = ['a']", "['a']"),
        ("x: Optional[int] = 'a'", "'a'"),
    ] {
        let message = error(&format!("def handle({parameter}): pass"));
        let expected = format!("Unsupported default for parameter 'x': {given} is not of its type");
        assert_eq!(message, expected);
    }
}

#[test]
fn a_typed_dict_is_an_object_with_its_keys() {
    let schema = schema(
        "class Base(TypedDict, total=False):\n    a: int\n    b: Required[str]\n\
         class Job(Base):\n    c: float\n    d: NotRequired[list[int]]\n    e: 'NotRequired[str]'\n\
         def handle(job: Job): pass",
    );
    let expected = json!({
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string"},
            "c": {"type": "number"},
            "d": {"type": "array", "items": {"type": "integer"}},
            "e": {"type": "string"},
        },
        "required": ["b", "c"],
        "additionalProperties": false,
    });
    assert_eq!(schema["properties"]["job"], expected);
}

#[test]
fn a_dataclass_is_what_can_be_given_to_it() {
    let code = "@dataclass(frozen=True)\nclass Point:\n    x: float\n    y: float = 0\n\
         @dataclass\nclass Base:\n    name: str\n    kind: str = 'base'\n    at: Point = None\n\
         @dataclass\nclass Job(Base):\n    LIMIT: ClassVar[int] = 5\n    ALL: ClassVar = 6\n\
         \x20   kind: Literal['job'] = 'job'\n    tags: list[str] = field(default_factory=list)\n\
         \x20   _: KW_ONLY\n    size: int = field(default=3)\n    key: str = field(repr=False)\n\
         \x20   made: str = field(init=False)\n    plain = 5\n\
         \x20   def run(self): pass\n\
         def handle(job: Job): pass";
    let schema = schema(code);
    let job = &schema["properties"]["job"];
    let names: Vec<&String> = job["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["name", "kind", "at", "tags", "size", "key"]);
    assert_eq!(job["required"], json!(["key", "name"]));
    assert_eq!(
        job["properties"]["kind"],
        json!({"type": "string", "enum": ["job"], "default": "job"})
    );
    assert_eq!(job["properties"]["size"]["default"], 3);
    assert_eq!(job["properties"]["at"]["required"], json!(["x"]));
    let call = tool(code)
        .validate_call(json!({"job": {"name": "n", "key": "k", "at": {"x": 1}}}))
        .unwrap();
    let point = json!({"dataclass": "Point", "fields": {}});
    let expected = json!({"job": {"dataclass": "Job", "fields": {"at": point}}});
    assert_eq!(Value::Object(call.conversions().clone()), expected);
    for (job, message) in [
        (json!({"name": "n"}), "Invalid argument 'job': 'key' is missing"),
        (json!({"name": "n", "key": "k", "made": "x"}), "Invalid argument 'job': it has no made"),
        (
            json!({"name": "n", "key": "k", "at": {"x": "1"}}),
            r#"Invalid argument 'job.at.x': expected number, got string "1""#,
        ),
    ] {
        assert_eq!(tool(code).validate_call(json!({ "job": job })).unwrap_err().message, message);
    }
}

#[test]
fn a_field_that_is_inherited_twice_is_there_once() {
    let code = "@dataclass\nclass A:\n    x: int\n\
         @dataclass\nclass B(A):\n    b: int = 1\n\
         @dataclass\nclass C(A):\n    x: str\n\
         @dataclass\nclass D(B, C):\n    d: int = 2\n\
         def handle(d: D): pass";
    let schema = schema(code);
    let d = &schema["properties"]["d"];
    assert_eq!(d["required"], json!(["x"]));
    assert_eq!(d["properties"]["x"], json!({"type": "string"}), "C comes before A, as in Python");
    assert!(tool(code).validate_call(json!({"d": {"x": "text"}})).is_ok());
}

#[test]
fn a_class_that_is_neither_gives_nothing_to_a_dataclass() {
    let schema = schema(
        "class Mixin:\n    secret: set\n@dataclass\nclass Job(Mixin):\n    n: int\n\
         def handle(job: Job): pass",
    );
    assert_eq!(schema["properties"]["job"]["properties"], json!({"n": {"type": "integer"}}));
    assert_eq!(
        error("class Job:\n    n: int\ndef handle(x: Job): pass"),
        "Unsupported type for parameter 'x': Job"
    );
    assert_eq!(
        error("@dataclass\nclass Job:\n    n: list[set]\ndef handle(x: Job): pass"),
        "Unsupported type for parameter 'x': Job (field 'n' of Job is list[set])"
    );
}

#[test]
fn classes_that_contain_themselves_are_refused() {
    for (classes, contains) in [
        ("@dataclass\nclass A:\n    a: 'A'\n", "A"),
        ("@dataclass\nclass A:\n    a: Optional[list['A']] = None\n", "A"),
        ("@dataclass\nclass A:\n    b: 'B'\n@dataclass\nclass B:\n    a: A\n", "A"),
        (
            "class A(TypedDict):\n    b: dict[str, 'B']\nclass B(TypedDict):\n    b: list['B']\n",
            "B",
        ),
        ("@dataclass\nclass A(A):\n    n: int\n", "A"),
        ("@dataclass\nclass A(B): pass\n@dataclass\nclass B(A): pass\n", "A"),
    ] {
        assert_eq!(
            error(&format!("{classes}def handle(x: A): pass")),
            format!("Unsupported type for parameter 'x': A ({contains} contains itself)")
        );
    }
    let twice = schema(
        "@dataclass\nclass P:\n    n: int\n@dataclass\nclass L:\n    a: P\n    b: P\n\
         def handle(x: L, y: P): pass",
    );
    assert_eq!(twice["properties"]["x"]["properties"]["a"], twice["properties"]["y"], "the twin");
}

#[test]
fn classes_that_double_with_each_other_are_refused_at_once() {
    let mut code = "@dataclass\nclass A0:\n    n: int\n".to_owned();
    for at in 1..30 {
        let _ = writeln!(code, "@dataclass\nclass A{at}:\n    a: A{0}\n    b: A{0}", at - 1);
    }
    let message = within(CHECK_TIME_MAX, "a doubled class", || {
        error(&format!("{code}def handle(x: A29): pass"))
    });
    assert!(message.ends_with("(the classes of this contract make more than 65536 characters)"));
    tool(&format!("{code}def handle(x: A9): pass"));
}

#[test]
fn many_parameters_of_one_large_class_are_bounded_together() {
    let mut code = "@dataclass\nclass A:\n".to_owned();
    for at in 0..1_000 {
        let _ = writeln!(code, "    f{at}: Literal['{}']", "x".repeat(20));
    }
    assert_eq!(check(&format!("{code}def handle(x: A): pass")).result.map(drop), Ok(()));
    let parameters: Vec<String> = (0..1_000).map(|at| format!("p{at}: A")).collect();
    let code = format!("{code}def handle({}): pass", parameters.join(", "));
    let problems = within(CHECK_TIME_MAX, "many parameters", || check(&code).result.unwrap_err());
    assert_eq!(problems.len(), 101);
}
