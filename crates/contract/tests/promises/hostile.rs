//! No input breaks the parser: no panic, no deep stack, no long wait.

use crate::{check_as, draft_7, is_draft_7, within};
use belljar_contract::{AnnotationMode, CodeTool, PythonSource, SOURCE_BYTES_MAX, SourceCheck};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Of the threads of tokio, on which tools are checked.
const STACK_BYTES: usize = 2 * 1024 * 1024;
/// CPU time for a source of the full size, unoptimised, on a slow machine.
const CHECK_TIME_MAX: Duration = Duration::from_secs(10);

fn on_a_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    match thread.spawn(work).unwrap().join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Reads a source in every way that there is, and uses what comes out.
fn use_all(code: &str) {
    for annotations in [AnnotationMode::Strict, AnnotationMode::Extended] {
        use_tool(check_as(code, annotations));
    }
    let configuration = json!({ "code": code });
    let runner = json!({"name": "t", "tool_type": "code_runner", "configuration": configuration});
    use_tool(CodeTool::from_json(&runner.to_string(), AnnotationMode::Strict));
}

fn use_tool(checked: SourceCheck<CodeTool>) {
    match checked.result {
        Ok(tool) => {
            let descriptor = tool.descriptor();
            assert!(is_draft_7(&descriptor), "{descriptor}");
            let _ = (tool.validate_call(json!({})), tool.test_call());
        }
        Err(problems) => assert!((1..=101).contains(&problems.len())),
    }
}

/// A construct that nests: what stands before, opens each level, is in the middle, closes each
/// level, and stands after.
type Construct = (&'static str, &'static str, &'static str, &'static str, &'static str);

const CONSTRUCTS: [Construct; 74] = [
    ("x = ", "(", "1", ")", ""),
    ("x = ", "[", "1", "]", ""),
    ("x = ", "[1, ", "", "]", ""),
    ("x = ", "{1: ", "1", "}", ""),
    ("x = ", "{", "1", "}", ""),
    ("x = ", "(", "", "", ""),
    ("x = ", "[", "", "", ""),
    ("x = ", "{", "", "", ""),
    ("x = ", "([{", "", "", ""),
    ("x = ", ")", "", "", ""),
    ("x = ", "-", "1", "", ""),
    ("x = ", "~+-", "1", "", ""),
    ("x = ", "not ", "1", "", ""),
    ("x = ", "await ", "1", "", ""),
    ("x = ", "yield ", "1", "", ""),
    ("x = ", "yield from ", "1", "", ""),
    ("x = ", "(yield ", "1", ")", ""),
    ("x = ", "*", "1", "", ""),
    ("x = ", "**", "1", "", ""),
    ("x = 1", " + 1", "", "", ""),
    ("x = 1", " ** 1", "", "", ""),
    ("x = 1", " ** -1", "", "", ""),
    ("x = 1", " | 1 & 1 ^ 1", "", "", ""),
    ("x = 1", " and 1 or 1", "", "", ""),
    ("x = 1", " < 1", "", "", ""),
    ("x = 1", " not in 1 is not 1", "", "", ""),
    ("x = a", ".a", "", "", ""),
    ("x = a", "()", "", "", ""),
    ("x = a", "[0]", "", "", ""),
    ("x = a", ".a(1)[0]", "", "", ""),
    ("x = ", "f(", "1", ")", ""),
    ("x = ", "f(a=", "1", ")", ""),
    ("x = ", "f(*", "1", ")", ""),
    ("x = ", "a[", "1", "]", ""),
    ("x = ", "a[1:", "1", ":2]", ""),
    ("x = ", "1 if 1 else ", "1", "", ""),
    ("x = ", "1 if ", "1", " else 1", ""),
    ("x = ", "(1 if (", "1", ") else 1)", ""),
    ("x = ", "1 if 1 ", "", "", ""),
    ("x = ", "lambda: ", "1", "", ""),
    ("x = ", "lambda a, b=1, *c: ", "1", "", ""),
    ("x = ", "lambda a=", "1", ": 1", ""),
    ("x = ", "lambda a, ", "", "", ""),
    ("x = ", "not not not not lambda a, b: ", "1", "", ""),
    ("x = ", "[a for a in ", "b", "]", ""),
    ("x = ", "[", "a", " for a in b]", ""),
    ("x = [a", " for a in b if c", "", "", "]"),
    ("x = ", "f'{", "1", "}'", ""),
    ("x = ", "f'''{", "1", "}'''", ""),
    ("x = ", "f'{f\"{", "1", "}\"}'", ""),
    ("x = f'", "{a:", "", "}", "'"),
    ("x = ", "t'{", "1", "}'", ""),
    ("x = ", "f'{", "", "", ""),
    ("x = ", "f'{(", "", "", ""),
    ("x = ", "(a := ", "1", ")", ""),
    ("x = ", "a := ", "1", "", ""),
    ("", "x = ", "1", "", ""),
    ("x: ", "list[", "int", "]", " = 1"),
    ("", "@a\n", "def f(): pass", "", ""),
    ("", "if 1: ", "pass", "", ""),
    ("", "while 1: ", "pass", "", ""),
    ("", "class A(", "B", "): pass", ""),
    ("", "def f(a=", "1", "): pass", ""),
    ("", "(return ", "", "", ""),
    ("if 1: pass\n", "elif 1: pass\n", "", "", ""),
    ("match x:\n case ", "[", "1", "]", ": pass"),
    ("match x:\n case ", "A(a=", "1", ")", ": pass"),
    ("match x:\n case ", "{1: ", "1", "}", ": pass"),
    ("match x:\n case 1", " | 1", "", "", ": pass"),
    ("match x:\n case a", " as a", "", "", ": pass"),
    ("type A[", "T: (", "1", ")", "] = 1"),
    ("def f[T](", "a: b[", "1", "], ", "): pass"),
    ("from ", ".", " import x", "", ""),
    ("import a", ".a", "", "", ""),
];

/// The places in which an expression is read for the contract.
const PLACES: [(&str, &str); 10] = [
    ("def handle(x: ", "): pass"),
    ("def handle(x: '", "'): pass"),
    ("def handle(x: list[", "]): pass"),
    ("def handle(x: int = ", "): pass"),
    ("from typing import *\nfrom typing import Any\ndef handle(x: Any = ", "): pass"),
    ("from typing import Optional\ndef handle(x: Optional[", "]): pass"),
    (
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    a: ",
        "\ndef handle(x: A): pass",
    ),
    ("@", "\nclass A:\n    a: int\ndef handle(x: A): pass"),
    ("class A(", "): pass\ndef handle(x: A): pass"),
    ("def handle():\n    '''", "'''"),
];

fn nested((before, open, middle, close, after): Construct, levels: usize) -> String {
    [before, &open.repeat(levels), middle, &close.repeat(levels), after].concat()
}

/// As many levels as a source can hold.
fn full(construct: Construct) -> String {
    let (before, open, middle, close, after) = construct;
    let rest = SOURCE_BYTES_MAX - before.len() - middle.len() - after.len();
    nested(construct, rest / (open.len() + close.len()))
}

fn in_time(what: &str, code: String) {
    let what = what.to_owned();
    let check = move || use_tool(check_as(&code, AnnotationMode::Extended));
    on_a_small_stack(move || within(CHECK_TIME_MAX, &what, check));
}

#[test]
fn every_construct_can_be_nested_as_deep_as_a_source_is_long() {
    for construct in CONSTRUCTS {
        for levels in [900, 1_100] {
            let code = nested(construct, levels);
            on_a_small_stack(move || use_all(&code));
        }
        in_time(&format!("{construct:?}"), full(construct));
    }
}

#[test]
fn every_construct_can_stand_where_the_contract_is_read() {
    for construct in CONSTRUCTS {
        let expression = (
            construct.0.trim_start_matches("x = "),
            construct.1,
            construct.2,
            construct.3,
            construct.4,
        );
        for (before, after) in PLACES {
            for levels in [30, 990] {
                let code = format!("{before}{}{after}", nested(expression, levels));
                on_a_small_stack(move || use_all(&code));
            }
        }
    }
}

/// The parser takes a word that does not belong into an expression for a name, and nests on.
#[test]
fn words_of_statements_hide_no_depth() {
    let brackets = format!("{}class", "[".repeat(990));
    for each in [
        brackets.as_str(),
        "a.pass.",
        "-class",
        "(class",
        "a.class(",
        "[\nreturn ",
        " if b assert",
        "\nif b\nassert ",
        " if b: c ",
        "await pass ",
        "lambda a, pass=1: ",
        "not def ",
    ] {
        let code = format!("x = (a {}", each.repeat(SOURCE_BYTES_MAX / each.len() - 1));
        in_time(each, code);
    }
}

#[test]
fn what_is_too_deep_is_said_with_its_line() {
    for construct in ["(", "[", "{1: ", "-", "not ", "lambda a, b: ", "1 if 1 else ", "f'{"] {
        let deep = format!("x = 1\ny = {}1\nz = 2\n", construct.repeat(1_100));
        let problem = PythonSource::new(&deep).unwrap_err();
        assert_eq!(problem.code.to_string(), "code.syntax");
        assert_eq!(problem.message, "source is nested deeper than 1000 levels");
        assert_eq!(problem.place.unwrap().line, 2);
    }
}

#[test]
fn what_stands_side_by_side_is_not_deep() {
    for (before, each, after) in [
        ("x = [", "lambda a, b=1: -a, ", "]"),
        ("x = {", "'k': 1 if a else -2, ", "}"),
        ("x = (", "'a long text'\n", ")"),
        ("x = f(", "a=-b.c[0], ", ")"),
        ("", "x = -a.b(c)[0] if d else not e; ", ""),
        ("", "x = a = b = -1\n", ""),
        ("def f(", "a: list[int] = -1, ", "): pass"),
        ("x = f'", "{a.b:>{c}} ", "'"),
        ("", "if a.b: pass\n", ""),
        ("$ ", "? ", ""),
    ] {
        let code = [before, &each.repeat(3_000), after].concat();
        assert_eq!(PythonSource::new(&code).map(drop), Ok(()), "{each}");
    }
}

#[test]
fn a_file_that_misses_one_bracket_is_no_deep_file() {
    for file in [
        "def f#(a, b=1):\n    if a.b < -b:\n        return [a.c(x) for x in a if x]\n",
        "x# = load(a.b, c=-1)[0]\ny# = x#.z\n",
        "print(x#.y.z + 1)\nlog.info('%s', a[#])\n",
        "TABLE[#] = {'a': -1, 'b': (2, 3)}\n",
        "assert f(#) == -# and g(#).h if x else y\n",
    ] {
        let lines: String = (0..2_000).map(|n| file.replace('#', &n.to_string())).collect();
        assert_eq!(PythonSource::new(&lines).map(drop), Ok(()), "the twin");
        for missing in ["x = (1 +\n", "x = [1, 2\n", "x = {'a': f(1, 2\n", "x = f(a.b(c)[0]\n"] {
            let problems = crate::problems(&format!("{missing}{lines}"));
            let expected = "Failed to parse Python code. Check that the code is valid Python code.";
            assert_eq!(problems[0].message, expected, "{missing}{file}");
        }
    }
}

/// Sources that end an f-string for the parser, after an error in its braces, where the lexer does
/// not: what is hidden in a string for the one is code for the other.
const HIDING_PLACES: [(&str, &str); 7] = [
    ("f'''{'''\n", ""),
    ("f'''{a!r'''\n", ""),
    ("f'{'\n}", "'"),
    ("f'{(\n'a ", "'"),
    ("f'''{(1 '' ) ''' ", " '''}'''"),
    ("f'{(1 # ' ", ""),
    ("f'{f\"{'", "'}\"}'"),
];

#[test]
fn no_depth_can_be_hidden_in_an_f_string() {
    let fillers = ["-", "[", "lambda a=", "1 if 1 else ", "f'{"];
    for (before, after) in HIDING_PLACES {
        for filler in fillers {
            let signs = filler.bytes().filter(u8::is_ascii_punctuation).count().max(1);
            let code = format!("{before}{}1{after}", filler.repeat(19_000 / signs));
            on_a_small_stack(move || drop(check_as(&code, AnnotationMode::Strict)));
            let levels = (SOURCE_BYTES_MAX - 100) / filler.len();
            let code = format!("{before}{}1{after}", filler.repeat(levels));
            on_a_small_stack(move || drop(check_as(&code, AnnotationMode::Strict)));
        }
    }
}

#[test]
fn a_large_source_with_quotes_in_f_strings_is_told_what_to_do() {
    let line = "x = f\"{a['k']}\" + f'{b}'\n";
    let fits = format!("def handle(): pass\n{}", line.repeat(1_000));
    assert_eq!(check_as(&fits, AnnotationMode::Strict).result.map(drop), Ok(()));
    let large = line.repeat(2_000);
    let problem = PythonSource::new(&large).unwrap_err();
    assert_eq!(
        problem.message,
        "source has more than 20000 operators, strings and comments inside the braces of f-strings"
    );
    let harmless = large.replace("a['k']", "a.k");
    assert!(PythonSource::new(&harmless).is_ok(), "the twin");
}

const TOKENS: [&str; 96] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ";",
    ".",
    "=",
    "==",
    ":=",
    "->",
    "...",
    "+",
    "-",
    "*",
    "**",
    "/",
    "//",
    "%",
    "@",
    "&",
    "|",
    "^",
    "~",
    "<",
    ">",
    "!",
    "!=",
    "?",
    "$",
    "#",
    "\\",
    "\\\n",
    "\n",
    "\n ",
    "\n    ",
    "\n\t",
    "\r",
    "\u{c}",
    " ",
    "'",
    "\"",
    "'''",
    "\"\"\"",
    "f'",
    "f\"",
    "f'''",
    "f\"\"\"",
    "rf'",
    "t'",
    "b'",
    "r'",
    "f'{",
    "}'",
    "{a!r",
    "{a:",
    "'{'",
    "a",
    "b ",
    "1",
    "1.5e9",
    "0x",
    "1j",
    "'s'",
    "None",
    "True ",
    "not ",
    "lambda ",
    "lambda a, b: ",
    "if ",
    "else ",
    "elif ",
    "for ",
    "in ",
    "is ",
    "and ",
    "or ",
    "await ",
    "async ",
    "yield ",
    "from ",
    "import ",
    "def f(",
    "class A:",
    "return ",
    "while ",
    "with ",
    "try:",
    "except ",
    "match ",
    "case ",
    "type ",
    "del ",
];

/// Python-like text: tokens, some of them many times.
fn soup() -> impl Strategy<Value = String> {
    let times = prop_oneof![8 => 1..4_usize, 1 => 1..3_000_usize];
    let piece = (proptest::sample::select(TOKENS.to_vec()), times);
    proptest::collection::vec(piece, 0..40)
        .prop_map(|pieces| pieces.into_iter().map(|(token, times)| token.repeat(times)).collect())
}

const REAL: [&str; 3] = [
    "import datetime\nfrom dataclasses import dataclass, field\nfrom typing import Literal, Optional\n\n\n\
     @dataclass\nclass Job:\n    at: datetime.datetime\n    kind: Literal['a', 'b'] = 'a'\n    \
     tags: list[str] = field(default_factory=list)\n\n\n\
     async def handle(job: Job, n: int = 1, names: Optional[list[str]] = None) -> dict:\n    \
     \"\"\"Does it.\n\n    Args:\n        job (Job): The job: all of it\n            and more.\n        \
     n: How often (default=1).\n    \"\"\"\n    text = f\"{job.kind!r:>{n}} {names['x'] if names else '-'}\"\n    \
     return {'text': text, 'n': [i ** 2 for i in range(n) if i % 2]}\n\n\ndef test():\n    assert handle\n",
    "def run(input):\n    with open(input['path']) as file:\n        return {\"lines\": len(file.read().split('\\n'))}\n",
    "match x:\n    case {'a': [1, *rest], **more} if rest:\n        lambda a, *b, c=1: (yield a)\n",
];

/// A real source with pieces taken out, put in and doubled.
fn mutated() -> impl Strategy<Value = String> {
    let change = (
        any::<prop::sample::Index>(),
        0..40_usize,
        proptest::sample::select(TOKENS.to_vec()),
        0..4_u8,
    );
    (proptest::sample::select(REAL.to_vec()), proptest::collection::vec(change, 1..8)).prop_map(
        |(source, changes)| {
            let mut text: Vec<char> = source.chars().collect();
            for (at, length, token, kind) in changes {
                let start = at.index(text.len() + 1);
                let end = (start + length).min(text.len());
                let piece: Vec<char> = text[start..end].to_vec();
                match kind {
                    0 => drop(text.splice(start..end, [])),
                    1 => drop(text.splice(start..start, token.chars())),
                    2 => drop(text.splice(start..start, piece)),
                    _ => drop(text.splice(start..end, token.chars())),
                }
            }
            text.into_iter().collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_text_is_a_tool_or_has_its_problems(text in ".{0,300}|(?s:.{0,300})") {
        on_a_small_stack(move || use_all(&text));
    }

    #[test]
    fn any_bytes_are_a_source_or_have_their_problem(
        bytes in proptest::collection::vec(any::<u8>(), 0..300)
    ) {
        if let Ok(source) = PythonSource::from_bytes(&bytes) {
            prop_assert_eq!(source.original_text().as_bytes(), &bytes);
            use_all(source.original_text());
        }
    }

    #[test]
    fn any_tokens_are_a_tool_or_have_their_problems(text in soup()) {
        on_a_small_stack(move || use_all(&text));
    }

    #[test]
    fn any_tokens_can_stand_where_the_contract_is_read(
        text in soup(), (before, after) in proptest::sample::select(PLACES.to_vec())
    ) {
        let code = format!("{before}{text}{after}");
        on_a_small_stack(move || use_all(&code));
    }

    #[test]
    fn a_damaged_tool_is_a_tool_or_has_its_problems(text in mutated()) {
        on_a_small_stack(move || use_all(&text));
    }

    #[test]
    fn any_json_is_a_tool_or_has_its_problems(value in json(), key in "name|tool_type|configuration") {
        let mut tool = json!({"name": "t", "tool_type": "code_runner", "configuration": {"code": "run = 1"}});
        use_tool(CodeTool::from_json(&value.to_string(), AnnotationMode::Strict));
        for key in ["type", "runtime", "input_schema", "output_schema", "env_variables", "timeout_seconds"] {
            let mut tool = tool.clone();
            tool["configuration"][key] = value.clone();
            use_tool(CodeTool::from_json(&tool.to_string(), AnnotationMode::Strict));
        }
        tool[key] = value;
        use_tool(CodeTool::from_json(&tool.to_string(), AnnotationMode::Strict));
    }
}

fn json() -> impl Strategy<Value = Value> {
    let word = proptest::sample::select(vec![
        "a",
        "b",
        "name",
        "field_type",
        "STRING",
        "ARRAY",
        "OBJECT",
        "items_schema",
        "properties",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3..4_i64).prop_map(Value::from),
        (-3..4_i8).prop_map(|half| Value::from(f64::from(half) / 2.0)),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let member = (word.clone().prop_map(str::to_owned), inner.clone());
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            proptest::collection::vec(member, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A source of nearly the full size, made of what each number gives.
fn many(before: &str, each: impl Fn(usize) -> String, after: &str) -> String {
    let mut code = before.to_owned();
    for number in 0.. {
        let next = each(number);
        if code.len() + next.len() + after.len() > SOURCE_BYTES_MAX {
            break;
        }
        code.push_str(&next);
    }
    code + after
}

#[test]
fn a_megabyte_of_parameters_and_classes_is_checked_in_time() {
    let imports = "from dataclasses import dataclass\nfrom typing import Literal, TypedDict\n";
    let parameters = |each: fn(usize) -> String| many("def handle(", each, "): 0");
    let handle_all: String = (0..30_000).map(|n| format!("a{n}: A{n},")).collect();
    let handle_all = format!("def handle({handle_all}): 0");
    for (what, code) in [
        ("parameters", parameters(|n| format!("a{n}: int,"))),
        ("parameters without annotation", parameters(|n| format!("a{n},"))),
        ("parameters of wrong types", parameters(|n| format!("a{n}:A,"))),
        ("parameters that are there twice", parameters(|n| format!("a{n},a{n},"))),
        ("parameters of one name", parameters(|_| "a,".to_owned())),
        ("quoted annotations", parameters(|n| format!("a{n}:'list[int]',"))),
        ("quoted parts", parameters(|n| format!("a{n}:list['int'],"))),
        ("a long line with many errors", parameters(|n| format!("é{n}:s,"))),
        ("handles", many("", |_| "def handle(): 0\n".to_owned(), "")),
        ("classes and parameters", many("", |n| format!("class A{n}:0\n"), &handle_all)),
        (
            "a lineage",
            many(
                &format!("{imports}class A0(TypedDict): 0\n"),
                |n| format!("class A{}(A{n}):0\n", n + 1),
                "def handle(x: A20000, y: A20001): 0",
            ),
        ),
        (
            "bases",
            many(
                &format!("{imports}@dataclass\nclass A("),
                |_| "B,".to_owned(),
                "): 0\nclass B: 0\ndef handle(x: A): 0",
            ),
        ),
        (
            "fields",
            many(
                &format!("{imports}@dataclass\nclass A:\n"),
                |n| format!(" f{n}: int\n"),
                "def handle(x: A): 0",
            ),
        ),
        (
            "choices",
            many(&format!("{imports}def handle(x: Literal["), |n| format!("{n},"), "]): 0"),
        ),
        ("alternatives", many("def handle(x: int", |_| "|A".to_owned(), "): 0")),
        ("a default", many("def handle(x: list = [", |n| format!("{n},"), "]): 0")),
        ("a long name", format!("def handle(x: {}): 0", "a".repeat(1_000_000))),
        ("a long string", format!("def handle(x: '{}'): 0", " a".repeat(500_000))),
        ("classes in classes", many("", |n| format!("{}class A:\n", " ".repeat(n)), "")),
        ("commas in brackets", format!("x = {}{}", "[".repeat(900), "1,".repeat(500_000))),
        ("lines in a bracket", format!("x = [\n{}", "a.b\n".repeat(250_000))),
        ("strings", format!("x = {}", "'a' ".repeat(250_000))),
    ] {
        in_time(what, code);
    }
}

#[test]
fn a_megabyte_of_docstring_is_read_in_time() {
    let before = "def handle(a: int):\n    \"\"\"S.\n\n    Args:\n";
    for each in [
        "        p#: text\n",
        "        a: text\n",
        "        a: text\n            goes on\n",
        "    Args:\n",
        "    Returns:\n        x: y\n    Args:\n        a#: b\n",
        "        a (((((: [[[[\n",
        " a:",
        "(",
        "a, ",
        "        *#, **#: x\n",
        "\n",
        " ",
        "\t",
        "--- :param #: >>> `` ..\n",
        "    a#\n    ----\n",
        "        a (int",
        "\u{2003}é: ☃\n",
    ] {
        let code = many(before, |n| each.replace('#', &n.to_string()), "\n    \"\"\"\n");
        in_time(each, code);
    }
    let steps = many(before, |n| format!("{}a:\n", " ".repeat(n)), "\n    \"\"\"\n");
    in_time("ever deeper indentation", steps);
}

#[test]
fn a_large_json_of_a_tool_is_read_in_time() {
    let fields: Vec<Value> =
        (0..20_000).map(|n| json!({"name": format!("f{n}"), "field_type": "STRING"})).collect();
    let variables: Vec<Value> =
        (0..20_000).map(|n| json!({"name": format!("V{n}"), "value": ""})).collect();
    let tool = json!({"name": "t", "tool_type": "code_runner", "configuration": {
        "code": "run = print", "input_schema": fields, "env_variables": variables,
    }});
    let tool = tool.to_string();
    within(CHECK_TIME_MAX, "a large tool", || {
        let tool = CodeTool::from_json(&tool, AnnotationMode::Strict).result.unwrap();
        for letter in ["f", "g"] {
            let input: Map<String, Value> =
                (0..20_000).map(|n| (format!("{letter}{n}"), json!("x"))).collect();
            assert!(tool.validate_call(Value::Object(input)).is_ok());
        }
    });
}

fn runner(input_schema: &Value) -> CodeTool {
    let configuration = json!({"code": "run = print", "input_schema": input_schema});
    let tool = json!({"name": "t", "tool_type": "code_runner", "configuration": configuration});
    CodeTool::from_json(&tool.to_string(), AnnotationMode::Strict).result.unwrap()
}

#[test]
fn values_of_any_depth_and_size_are_refused_or_taken_in_time() {
    let any = runner(&json!([{"name": "x", "field_type": "OBJECT"}]));
    let text = runner(&json!([{"name": "x", "field_type": "STRING"}]));
    let choices: Vec<String> = (0..1_000).map(|n| format!("choice {n}")).collect();
    let chosen = runner(&json!([
        {"name": "x", "field_type": "ARRAY", "items_schema": {"field_type": "STRING", "enum_values": choices}}
    ]));
    on_a_small_stack(move || {
        let mut deep = json!({});
        for _ in 0..1_000 {
            deep = json!({ "x": deep });
        }
        assert!(any.validate_call(deep.clone()).is_ok());
        assert!(text.validate_call(deep).is_err());
        within(CHECK_TIME_MAX, "a long list of choices", || {
            assert!(chosen.validate_call(json!({ "x": vec!["choice 999"; 70_000] })).is_ok());
            assert!(chosen.validate_call(json!({ "x": vec!["choice"; 90_000] })).is_err());
        });
    });
}

/// Annotations with every kind of schema in them.
fn annotation() -> impl Strategy<Value = String> {
    let leaf = proptest::sample::select(vec![
        "str",
        "int",
        "float",
        "bool",
        "Any",
        "dict",
        "list",
        "Job",
        "Point",
        "Window",
        "Literal['a', 'b']",
        "Literal[1, 2, None]",
        "Literal[True]",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(3, 8, 1, |inner| {
        let around =
            proptest::sample::select(vec!["Optional[#]", "list[#]", "dict[str, #]", "# | None"]);
        (around, inner).prop_map(|(around, inner)| around.replace('#', &inner))
    })
}

const CLASSES: &str = "from dataclasses import dataclass\n\
    from typing import Any, Literal, NotRequired, Optional, TypedDict\n\
    @dataclass\nclass Point:\n    a: float\n    b: int = 0\n\
    class Window(TypedDict):\n    a: Optional[Point]\n    name: NotRequired[list[int]]\n\
    @dataclass\nclass Job:\n    b: Window\n    a: dict[str, Point]\n    name: Literal['a'] = 'a'\n";

/// What the two checks mean to disagree about: digits that JSON readers lose.
fn loses_digits(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|float| float.abs() > 2f64.powi(53)),
        Value::Array(items) => items.iter().any(loses_digits),
        Value::Object(members) => members.values().any(loses_digits),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_value_conforms_here_when_it_does_elsewhere(
        annotation in annotation(), values in proptest::collection::vec(json(), 20)
    ) {
        let code = format!("{CLASSES}def handle(x: {annotation}): pass");
        let tool = check_as(&code, AnnotationMode::Extended).result.unwrap();
        let schema = &tool.input().unwrap().properties[0].schema;
        let elsewhere = draft_7(&schema.descriptor()).unwrap();
        for value in values.into_iter().filter(|value| !loses_digits(value)) {
            let conformed = schema.conform(value.clone());
            prop_assert_eq!(conformed.is_ok(), elsewhere.find_mismatches(&value).is_empty(), "{} {}", annotation, value);
            if let Ok(conformed) = conformed {
                prop_assert!(elsewhere.find_mismatches(&conformed).is_empty(), "{} {}", annotation, conformed);
            }
        }
    }

    #[test]
    fn input_conforms_here_when_it_does_elsewhere(
        least in -4..4_i64, width in 0..4_i64, values in proptest::collection::vec(json(), 20)
    ) {
        let tool = runner(&json!([
            {"name": "a", "field_type": "INTEGER", "minimum": least, "maximum": least + width},
            {"name": "b", "field_type": "NUMBER", "minimum": least, "enum_values": [least, least + width + 1]},
            {"name": "name", "field_type": "ARRAY", "items_type": "NUMBER", "min_items": 1, "max_items": 2},
            {"name": "properties", "field_type": "OBJECT", "properties": [
                {"name": "a", "field_type": "STRING", "required": true, "enum_values": ["a", "b"]},
            ]},
        ]));
        let input = tool.input().unwrap();
        let elsewhere = draft_7(&input.descriptor()).unwrap();
        for value in values.into_iter().filter(|value| !loses_digits(value)) {
            for key in ["a", "b", "name", "properties", "else"] {
                let object = Map::from_iter([(key.to_owned(), value.clone())]);
                let expected = elsewhere.find_mismatches(&Value::Object(object.clone())).is_empty();
                prop_assert_eq!(input.conform(object).is_ok(), expected, "{} {}", key, value);
            }
        }
    }
}
