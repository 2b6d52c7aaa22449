//! Importer 1: annotations and docstrings of `handle`.

use crate::{check, error, errors, is_draft_7, problems, schema, tool};
use serde_json::{Value, json};

/// The type of one parameter.
fn parameter(annotation: &str) -> Value {
    schema(&format!("def handle(x: {annotation}): pass"))["properties"]["x"].clone()
}

fn refused(annotation: &str) -> String {
    let (code, message) = error(&format!("def handle(x: {annotation}): pass"));
    assert_eq!(code, "code.type");
    message.strip_prefix("Unsupported type for parameter 'x': ").unwrap().to_owned()
}

// proves C-004, C-011, C-017, C-018, C-032
#[test]
fn the_contract_is_generated_from_annotations_alone() {
    let plain = schema("def handle(name: str, age: int): pass");
    let expected = json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["age", "name"],
    });
    assert_eq!(plain, expected);
    assert_eq!(schema("def handle(name: str, age: int) -> dict[str, set]: pass"), expected);
    assert!(is_draft_7(&plain));
}

// proves C-012
#[test]
fn an_async_handle_has_the_same_schema() {
    assert_eq!(schema("async def handle(n: int): pass"), schema("def handle(n: int): pass"));
}

// proves C-005
#[test]
fn checking_does_not_run_the_module() {
    tool("raise SystemExit\nopen('/etc/x', 'w')\nwhile True: pass\ndef handle(): pass");
}

// proves C-006
#[test]
fn what_is_not_python_is_one_error_with_its_place() {
    let problems = problems("def handle(x: str):\n    return x +\n\ndef broken(:\n");
    assert_eq!(problems.len(), 1);
    let problem = &problems[0];
    assert_eq!(problem.code.to_string(), "code.syntax");
    assert_eq!(
        problem.message,
        "Failed to parse Python code. Check that the code is valid Python code."
    );
    let place = problem.place.as_ref().unwrap();
    assert_eq!((place.line, place.text.as_str()), (2, "    return x +"));
    assert!(place.column > 10, "{place:?}");
    assert!(problem.hint.as_ref().unwrap().contains("Expected an expression"), "{problem:?}");
}

// proves C-007, C-008
#[test]
fn without_handle_there_is_no_tool() {
    let expected = ("code.no_entry".to_owned(), "Function 'handle' not found.".to_owned());
    for code in ["", "x = 1", "def Handle(): pass", "def handler(x: int): pass", "handle = print"] {
        assert_eq!(error(code), expected, "{code}");
    }
    let misspelt = problems("import os\n\ndef handler(x: int): pass").remove(0);
    assert_eq!(misspelt.place.unwrap().line, 3);
    assert_eq!(misspelt.hint.unwrap(), "name this function `handle` instead of `handler`");
}

// proves C-009
#[test]
fn a_handle_inside_of_something_else_is_not_the_entry() {
    for code in [
        "def outer():\n    def handle(x: int): pass",
        "class Tool:\n    def handle(self): pass",
        "if True:\n    def handle(x: int): pass",
    ] {
        let problem = problems(code).remove(0);
        assert_eq!(problem.message, "Function 'handle' not found.");
        assert_eq!(problem.place.unwrap().line, 2);
        assert!(problem.hint.unwrap().contains("at the top level of the module"), "{code}");
    }
}

// proves C-010
#[test]
fn of_two_definitions_the_last_counts_with_a_warning() {
    let checked = check("def handle(a: int):\n    'x'\n\ndef handle(b: str):\n    'y'");
    assert_eq!(checked.result.unwrap().descriptor()["required"], json!(["b"]));
    let warning = &checked.warnings[0];
    assert_eq!(warning.message, "handle() is defined again below; the last definition is used");
    assert_eq!(warning.place.as_ref().unwrap().line, 1);
}

// proves C-013
#[test]
fn parameters_without_annotation_are_named_in_order() {
    assert_eq!(
        error("def handle(b, x: int, a): pass"),
        ("code.annotation".into(), "Missing type annotation for parameter(s): b, a".into())
    );
}

// proves C-014
#[test]
fn a_name_that_is_there_twice_is_our_error_and_no_syntax_error() {
    assert_eq!(
        error("def handle(name: str, n: int, name: str): pass"),
        ("code.duplicate_argument".into(), "Duplicate argument name(s) found: name".into())
    );
    assert_eq!(
        errors("def handle(a: str, *, a: str, **a: str): pass")[0].1,
        "Duplicate argument name(s) found: a"
    );
}

// proves C-003, C-015
#[test]
fn all_errors_come_at_once_and_then_there_is_no_contract() {
    let checked = check("def handle(a, b: set, a: int, c: list[int] = [1]): pass");
    let messages: Vec<String> =
        checked.result.unwrap_err().into_iter().map(|problem| problem.message).collect();
    assert_eq!(
        messages,
        [
            "Missing type annotation for parameter(s): a",
            "Unsupported type for parameter 'b': set",
            "Duplicate argument name(s) found: a",
            "Unsupported default for parameter 'c': default values are not supported for lists",
        ]
    );
}

// proves C-016, C-057, C-059, C-060, C-061, C-062, C-063, C-064, C-065, C-066, C-067
#[test]
fn a_type_that_a_model_cannot_give_is_refused_by_its_own_name() {
    for (annotation, unparsed) in [
        ("Custom", "Custom"),
        ("module.Custom", "module.Custom"),
        ("dict[str,int]", "dict[str, int]"),
        ("list[dict]", "list[dict]"),
        ("list[dict[str, int]]", "list[dict[str, int]]"),
        ("Sequence[str]", "Sequence[str]"),
        ("str|int", "str | int"),
        ("Union[str,int]", "Union[str, int]"),
        ("Optional[str]", "Optional[str]"),
        ("typing.Optional[str]", "typing.Optional[str]"),
        ("str | None", "str | None"),
        ("None", "None"),
        ("tuple", "tuple"),
        ("tuple[int,int]", "tuple[int, int]"),
        ("set", "set"),
        ("set[str]", "set[str]"),
        ("frozenset", "frozenset"),
        ("Literal[\"A\"]", "Literal['A']"),
        ("Literal['A',\"B\"]", "Literal['A', 'B']"),
        ("dict", "dict"),
        ("Any", "Any"),
        ("any", "any"),
        ("list[set]", "list[set]"),
        ("list[tuple]", "list[tuple]"),
        ("list[complex]", "list[complex]"),
        ("list", "list"),
        ("list[str, int]", "list[str, int]"),
        ("List[str]", "List[str]"),
        ("Callable[[int], str]", "Callable[[int], str]"),
        ("1 + 1", "1 + 1"),
    ] {
        assert_eq!(refused(annotation), unparsed, "{annotation}");
    }
    assert_eq!(parameter("str"), json!({"type": "string"}), "the harmless twin");
}

#[test]
fn a_class_of_the_tool_is_not_the_type_whose_name_it_took() {
    let code = "class NodeId: pass\nclass datetime: pass\ndef handle(a: NodeId, b: datetime): pass";
    let messages: Vec<String> = errors(code).into_iter().map(|(_, message)| message).collect();
    assert_eq!(
        messages,
        [
            "Unsupported type for parameter 'a': NodeId",
            "Unsupported type for parameter 'b': datetime"
        ]
    );
}

// proves C-047, C-058
#[test]
fn lists_of_lists_have_a_text_of_their_own() {
    for annotation in ["list[list[str]]", "list[list]", "list['list[int]']"] {
        assert_eq!(refused(annotation), "nested list types are not supported");
    }
}

// proves C-019
#[test]
fn a_missing_docstring_is_a_warning_and_no_error() {
    let checked = check("def handle(x: int): pass");
    assert_eq!(checked.result.unwrap().descriptor()["properties"]["x"], json!({"type": "integer"}));
    let messages: Vec<&str> = checked.warnings.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(
        messages,
        ["handle() has no docstring; the agent will see no parameter descriptions"]
    );
}

const DOCUMENTED: &str = r#"
def handle(param1: str, count: int = 1, other: float = 1.0, undocumented: bool = True) -> str:
    """
    SECRET summary of the function.

    More SECRET text: with a colon.

    Args:
        param1 (str): Description of the first: with a colon
            that goes on, for example "a (b)",
            over lines.
        count: Number of repetitions (default=1).
        other (float, optional): The other one.

    Returns:
        str: SECRET result.

    Raises:
        ValueError: SECRET reason.

    Examples:
        >>> handle("SECRET")
    """
    return param1
"#;

// proves C-020, C-021, C-022, C-023, C-024, C-025, C-027
#[test]
fn only_the_descriptions_of_arguments_reach_the_model() {
    let schema = schema(DOCUMENTED);
    let description = |name: &str| schema["properties"][name]["description"].clone();
    assert_eq!(
        description("param1"),
        "Description of the first: with a colon that goes on, for example \"a (b)\", over lines."
    );
    assert_eq!(description("count"), "Number of repetitions (default=1).");
    assert_eq!(description("other"), "The other one.");
    assert_eq!(description("undocumented"), Value::Null);
    assert!(!schema.to_string().contains("SECRET"), "{schema}");
}

#[test]
fn a_parameter_that_is_not_described_is_a_warning() {
    let checked = check(DOCUMENTED);
    let messages: Vec<&str> = checked.warnings.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(
        messages,
        ["the docstring of handle() does not describe parameter(s): undocumented"]
    );
}

// proves C-026
#[test]
fn a_description_of_a_parameter_that_is_not_there_is_an_error_in_its_line() {
    let code = "def handle(a: int):\n    \"\"\"S.\n\n    Args:\n        a: A.\n        gone (str): G.\n    \"\"\"";
    let problem = problems(code).remove(0);
    assert_eq!(problem.message, "The docstring documents parameter(s) that do not exist: gone");
    let place = problem.place.unwrap();
    assert_eq!((place.line, place.column, place.width), (6, 9, 4));
}

// proves C-029
#[test]
fn a_handle_without_parameters_takes_an_empty_object() {
    let expected = json!({"type": "object", "properties": {}, "required": []});
    assert_eq!(schema("def handle(): return 1"), expected);
}

// proves C-030, C-109
#[test]
fn what_stands_beside_handle_is_not_in_the_contract() {
    let code = "class Helper:\n    x: set = 1\ndef help(a, *b): pass\ndef test(): pass\n\
                def handle(n: int): return help(n)";
    assert_eq!(schema(code)["properties"], json!({"n": {"type": "integer"}}));
    assert!(!schema(code).to_string().contains("test"));
}

// proves C-031, C-043
#[test]
fn a_default_leaves_required_and_shows_itself_in_its_own_type() {
    let schema = schema(
        "def handle(z: str, a: str, s: str = 'x', i: int = -3, f: float = 1, g: float = 2.5, \
         b: bool = True): pass",
    );
    assert_eq!(schema["required"], json!(["a", "z"]));
    let default = |name: &str| schema["properties"][name]["default"].to_string();
    assert_eq!(default("s"), "\"x\"");
    assert_eq!(default("i"), "-3");
    assert_eq!(default("f"), "1.0");
    assert_eq!(default("g"), "2.5");
    assert_eq!(default("b"), "true");
}

// proves C-045
#[test]
fn a_default_of_another_type_is_an_error() {
    for default in [
        "count: int = 'x'",
        "count: int = None",
        "count: int = True",
        "count: int = 1.0",
        "count: str = 5",
        "count: bool = 1",
        "count: float = 'x'",
        "count: float = None",
        "count: int = [1]",
    ] {
        let (code, message) = error(&format!("def handle({default}): pass"));
        let given = default.split("= ").nth(1).unwrap();
        assert_eq!(code, "code.type");
        let expected =
            format!("Unsupported default for parameter 'count': {given} is not of its type");
        assert_eq!(message, expected);
    }
    let (_, message) = error("def handle(count: int = 1 + 1): pass");
    assert_eq!(message, "Unsupported default for parameter 'count': 1 + 1 is not a literal");
}

// proves C-033
#[test]
fn variadic_parameters_are_refused_and_others_are_ordinary() {
    assert_eq!(
        error("def handle(a: int, *rest: int, **more: str): pass"),
        ("code.type".into(), "Unsupported parameter(s): *rest, **more".into())
    );
    let schema = schema("def handle(a: int, /, b: int, *, c: int = 1): pass");
    assert_eq!(schema["required"], json!(["a", "b"]));
    assert_eq!(schema["properties"]["c"], json!({"type": "integer", "default": 1}));
}

// proves C-034
#[test]
fn annotations_in_quotes_are_what_they_say() {
    assert_eq!(parameter("'str'"), json!({"type": "string"}));
    assert_eq!(parameter("\"list[int]\""), parameter("list[int]"));
    assert_eq!(parameter("list['int']"), parameter("list[int]"));
    assert_eq!(refused("'dict[str,int]'"), "dict[str, int]");
    assert_eq!(refused("'not python ('"), "'not python ('");
    let future = "from __future__ import annotations\ndef handle(x: int): pass";
    assert_eq!(schema(future)["properties"]["x"], json!({"type": "integer"}));
}

// proves C-035, C-036, C-037, C-038, C-046, C-048, C-049
#[test]
fn every_type_has_its_schema() {
    let node_id = json!({
        "type": "object",
        "properties": {"space": {"type": "string"}, "externalId": {"type": "string"}},
        "required": ["externalId", "space"],
    });
    for (annotation, expected) in [
        ("str", json!({"type": "string"})),
        ("int", json!({"type": "integer"})),
        ("float", json!({"type": "number"})),
        ("bool", json!({"type": "boolean"})),
        ("datetime.datetime", json!({"type": "string", "format": "date-time"})),
        ("datetime", json!({"type": "string", "format": "date-time"})),
        ("NodeId", node_id.clone()),
        ("data_modeling.NodeId", node_id),
    ] {
        assert_eq!(parameter(annotation), expected);
        let list = json!({"type": "array", "items": expected});
        assert_eq!(parameter(&format!("list[{annotation}]")), list);
    }
}

// proves C-052, C-054, C-056
#[test]
fn a_node_id_is_an_object_of_two_texts() {
    let node_id = parameter("NodeId");
    assert_eq!(
        node_id,
        json!({
            "type": "object",
            "properties": {"space": {"type": "string"}, "externalId": {"type": "string"}},
            "required": ["externalId", "space"],
        })
    );
    assert_eq!(parameter("list[NodeId]"), json!({"type": "array", "items": node_id}));
    assert_eq!(parameter("data_modeling.NodeId"), node_id);
    assert_eq!(refused("MyCustomNodeId"), "MyCustomNodeId");
}

#[test]
fn types_are_known_by_the_names_they_were_imported_under() {
    let schema = schema(
        "import datetime as dt\nfrom datetime import datetime as Moment\n\
         try:\n    from cognite.client.data_classes.data_modeling import NodeId as Node\n\
         except ImportError: pass\n\
         def handle(a: dt.datetime, b: Moment, c: Node): pass",
    );
    assert_eq!(schema["properties"]["a"]["format"], "date-time");
    assert_eq!(schema["properties"]["b"]["format"], "date-time");
    assert_eq!(schema["properties"]["c"]["required"], json!(["externalId", "space"]));
}

// proves C-068, C-069, C-070
#[test]
fn only_primitives_have_defaults() {
    let primitive = "only primitive types (str, int, float, bool) support default values";
    for (parameter, reason) in [
        ("x: list[int] = [1]", "default values are not supported for lists"),
        ("x: list[NodeId] = None", "default values are not supported for lists"),
        ("x: NodeId = None", primitive),
        ("x: NodeId = NodeId('a', 'b')", primitive),
        ("x: datetime.datetime = None", primitive),
        ("x: datetime.datetime = datetime.datetime.now()", primitive),
    ] {
        let (_, message) = error(&format!("def handle({parameter}): pass"));
        assert_eq!(message, format!("Unsupported default for parameter 'x': {reason}"));
    }
}

#[test]
fn a_problem_knows_its_place_in_characters() {
    let problem = problems("# ☃☃\ndef handle(é: str, ö: set[int]): pass").remove(0);
    let place = problem.place.unwrap();
    assert_eq!((place.line, place.column, place.width), (2, 23, 8));
    assert_eq!(place.text, "def handle(é: str, ö: set[int]): pass");
}

#[test]
fn other_styles_of_docstrings_are_named_and_never_an_error() {
    let numpy = "def handle(q: str):\n    \"\"\"Find.\n\n    Parameters\n    ----------\n    q : str\n        \
                 The query.\n\n    Returns\n    -------\n    str\n    \"\"\"";
    let sphinx = "def handle(q: str):\n    \"\"\"Find.\n\n    :param q: The query.\n    :returns: x\n    \"\"\"";
    for (code, style) in [(numpy, "NumPy's"), (sphinx, "Sphinx's")] {
        let checked = check(code);
        assert_eq!(
            checked.result.unwrap().descriptor()["properties"]["q"],
            json!({"type": "string"})
        );
        let hint = checked.warnings[0].hint.clone().unwrap();
        assert_eq!(hint, format!("this is {style} style; use `Args:` in Google style"));
    }
}

#[test]
fn a_type_that_is_not_imported_is_reported_before_it_is_a_name_error() {
    let warnings = |code: &str| -> Vec<String> {
        let warnings = check(code).warnings;
        warnings.into_iter().map(|it| it.message).filter(|it| it.contains("not defined")).collect()
    };
    assert_eq!(
        warnings("def handle(a: NodeId, b: list[datetime]): pass"),
        [
            "NodeId is not defined; calls will raise a NameError",
            "datetime is not defined; calls will raise a NameError"
        ]
    );
    for code in [
        "from datetime import datetime\ndef handle(b: list[datetime]): pass",
        "from __future__ import annotations\ndef handle(b: datetime): pass",
        "from cognite import *\ndef handle(b: NodeId): pass",
        "def handle(b: list[str], c: int): pass",
    ] {
        assert!(warnings(code).is_empty(), "{code}");
    }
    let hint = problems("def handle(a: Optional[str]): pass").remove(0).hint.unwrap();
    assert!(hint.starts_with("Optional is not defined; import it"), "{hint}");
}

#[test]
fn a_slip_of_the_pen_is_recognised() {
    for name in ["handel", "handl", "hanlde", "Handle", "handle_it", "main"] {
        let problem = problems(&format!("def {name}(x: int): pass")).remove(0);
        let expected = format!("name this function `handle` instead of `{name}`");
        assert_eq!(problem.hint.unwrap(), expected);
    }
    let other = problems("def convert(x: int): pass").remove(0).hint.unwrap();
    assert!(other.starts_with("a tool is a function"), "{other}");
    let run = problems("def run(input): pass").remove(0).hint.unwrap();
    assert!(run.contains("--style run"), "{run}");
}

#[test]
fn a_default_that_is_refused_says_what_to_write() {
    for (default, hint) in [
        (
            "s: str = None",
            "use a default of the same type; `--extended` allows Optional[...] = None",
        ),
        ("s: str = 5", "use a default of the same type"),
        ("s: int = LIMIT", "use a literal: a string, a number, True or False"),
    ] {
        let problem = problems(&format!("def handle({default}): pass")).remove(0);
        assert_eq!(problem.hint.unwrap(), hint);
    }
}
