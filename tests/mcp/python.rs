//! `execute_python`, as the vendor document describes it.

use crate::harness;
use crate::wire::{Stdio, called};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;

fn run(client: &mut Stdio, code: &str) -> Value {
    client.call("execute_python", json!({"code": code}))
}

/// The structured content of a run, which is its text as well.
fn structured(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), result["structuredContent"]);
    result["structuredContent"].clone()
}

// proves P-013, P-015, P-016, P-017, P-033, P-051
#[test]
fn what_is_assigned_is_the_result_and_what_is_printed_is_a_log_or_the_result() {
    let mut client = Stdio::start(&[]);
    for (code, expected) in [
        ("print('hello')", json!({"result": "hello", "logs": []})),
        ("print(1)\nresult = {'a': [1, 2]}", json!({"result": {"a": [1, 2]}, "logs": ["1"]})),
        ("print('x')\n6 * 7", json!({"result": 42, "logs": ["x"]})),
        ("x = 1", json!({"result": null, "logs": []})),
        (
            "import sys\nprint('o')\nprint('e', file=sys.stderr)",
            json!({"result": "o", "logs": ["e"]}),
        ),
        ("result = {1}", json!({"result": "{1}", "logs": []})),
    ] {
        let result = run(&mut client, code);
        assert_eq!((structured(&result), &result["isError"]), (expected, &json!(false)), "{code}");
    }
}

// proves P-049, P-050, P-052, P-053, P-054
#[test]
fn a_failure_is_a_result_with_its_class_its_message_and_its_traceback() {
    let mut client = Stdio::start(&[]);
    for (code, class, message) in [
        ("print('before')\n1/0", "ZeroDivisionError", "division by zero"),
        ("def f(:", "SyntaxError", "invalid syntax"),
        ("import nothing_like_it", "ModuleNotFoundError", "nothing_like_it"),
    ] {
        let result = run(&mut client, code);
        let error = &structured(&result)["error"];
        assert_eq!((&result["isError"], &error["code"]), (&json!(true), &json!(class)), "{result}");
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
        let stack = error["stack"].as_str().unwrap();
        assert!(stack.contains(class) && stack.contains("line 1") || class == "ZeroDivisionError");
    }
    assert_eq!(structured(&run(&mut client, "print('before')\n1/0"))["logs"], json!(["before"]));
    assert_eq!(structured(&run(&mut client, "6 * 7"))["result"], 42);
}

// proves P-010, P-012
#[test]
fn bad_arguments_are_errors_of_the_tool_that_name_the_argument() {
    let mut client = Stdio::start(&[]);
    for (arguments, named) in [
        (json!({}), "Missing required argument 'code'"),
        (json!({"code": null}), "Missing required argument 'code'"),
        (json!({"code": 7}), "'/code'"),
        (json!({"code": "  "}), "\"code\""),
        (json!({"code": "1", "files": "http://x/a.csv"}), "'/files'"),
        (json!({"code": "1", "files": ["a.csv"]}), "files[0]"),
        (json!({"code": "1", "files": [7]}), "'/files/0'"),
        (json!({"code": "1", "files": ["http://127.0.0.1:9/a.csv"]}), "http://127.0.0.1:9/a.csv"),
        (json!({"code": "1", "session": "nope"}), "\"session\""),
        (json!({"code": "1", "agent_id": "me"}), "'agent_id'"),
        (json!({"code": "1", "timeout": "long"}), "'/timeout'"),
    ] {
        let result = client.call("execute_python", arguments.clone());
        let error = &structured(&result)["error"];
        assert_eq!(result["isError"], true, "{arguments}: {result}");
        assert!(error["message"].as_str().unwrap().contains(named), "{arguments}: {error}");
    }
    assert_eq!(structured(&run(&mut client, "6 * 7"))["result"], 42);
}

/// Serves one file, as often as it is asked for.
fn file_server(content: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.read(&mut [0; 4096]);
            let length = content.len();
            let _ = write!(
                connection,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{content}"
            );
        }
    });
    address
}

// proves P-022, P-023, P-028, P-029
#[tokio::test(flavor = "multi_thread")]
async fn a_file_by_url_is_there_before_the_run_and_opened_by_its_name() {
    let address = file_server("produit,montant\na,10.5\nb,4.5\n");
    let world = crate::test_server::World::with(&["--fetch-from", &address]).await;
    let code = "import csv\nwith open(\"ventes.csv\", newline=\"\") as f:\n    rows = list(csv.DictReader(f))\n\
                total = sum(float(r[\"montant\"]) for r in rows)\nprint({\"lignes\": len(rows), \"total\": total})";
    let files = json!([format!("http://{address}/a/ventes.csv?token=1")]);
    let arguments = json!({"code": code, "files": files});
    let result = called(&world.owner, "execute_python", arguments).await;
    assert_eq!(structured(&result)["result"], "{'lignes': 2, 'total': 15.0}");
}

// proves P-036, P-046
#[test]
fn a_run_knows_nothing_of_the_one_before_unless_both_are_in_a_session() {
    let mut client = Stdio::start(&[]);
    run(&mut client, "x = 41\nopen('f', 'w').write('1')");
    assert_eq!(structured(&run(&mut client, "x"))["error"]["code"], "NameError");
    assert_eq!(structured(&run(&mut client, "import os\nos.listdir()"))["result"], json!([]));
    let session = client.call("create_session", json!({}))["structuredContent"]["session"].clone();
    let mut keep = |code: &str| {
        structured(&client.call("execute_python", json!({"code": code, "session": session})))
    };
    keep("x = 41\nopen('f', 'w').write('1')");
    assert_eq!(keep("x + 1")["result"], 42);
    assert_eq!(keep("open('f').read()")["result"], "1");
}

// proves P-034
#[test]
fn charts_are_data_unless_visuals_are_asked_for() {
    let mut client = Stdio::start(&["--env", "default"]);
    let code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nresult = 1";
    let plain = run(&mut client, code);
    let kinds = |result: &Value| {
        let content = result["content"].as_array().unwrap();
        content.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(!kinds(&plain).contains(&"image".to_owned()), "{:?}", kinds(&plain));
    let shown = client.call("execute_python", json!({"code": code, "visuals": true}));
    assert!(kinds(&shown).contains(&"image".to_owned()), "{:?}", kinds(&shown));
    assert_eq!(structured(&shown)["result"], 1);
}

// proves P-037
#[test]
fn there_is_no_network() {
    let mut client = Stdio::start(&[]);
    for code in [
        "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:80', timeout=3)",
        "import socket\nsocket.create_connection(('1.1.1.1', 53), 3)",
        "import socket\nsocket.getaddrinfo('example.org', 80)",
    ] {
        assert_eq!(run(&mut client, code)["isError"], true, "{code}");
    }
}

// proves P-038, P-041, P-066
#[test]
fn only_what_the_operator_lists_can_be_imported() {
    const SETTING: &str = "PYTHON_PACKAGES_WHITELIST_IMPORT";
    let mut client = Stdio::with(&["--env", "default"], &[(SETTING, "numpy")]);
    let refused = run(&mut client, "import pandas");
    let error = &structured(&refused)["error"];
    assert_eq!((&refused["isError"], &error["code"]), (&json!(true), &json!("ImportError")));
    assert_eq!(error["message"], format!("pandas not allowed by {SETTING}"));
    assert!(error["stack"].as_str().unwrap().trim_end().ends_with(SETTING), "{error}");
    assert_eq!(
        structured(&run(&mut client, "import numpy\nint(numpy.arange(4).sum())"))["result"],
        6
    );
    assert_eq!(
        structured(&run(&mut client, "import csv, json, math\nmath.floor(2.5)"))["result"],
        2
    );
    let mut other = Stdio::start(&["--env", "default"]);
    assert_eq!(
        structured(&run(&mut other, "import pandas\nlen(pandas.DataFrame([1]))"))["result"],
        1
    );
}

// proves P-040, P-044
#[test]
fn a_listed_package_has_its_dependencies_and_no_trick_imports_another_or_weakens_a_layer() {
    let listed = ("PYTHON_PACKAGES_WHITELIST_IMPORT", "pandas");
    let mut client = Stdio::with(&["--env", "default"], &[listed]);
    let sum = "import pandas\nint(pandas.DataFrame({'a': [1, 2]})['a'].sum())";
    assert_eq!(structured(&run(&mut client, sum))["result"], 3);
    for trick in [
        "__import__('scipy')",
        "importlib.import_module('scipy')",
        "importlib.__import__('scipy')",
        "exec('import scipy', {})",
        "eval(\"__import__('scipy')\")",
        "sys.modules['scipy']",
        "[c for c in object.__subclasses__() if c.__name__ == 'BuiltinImporter'][0].load_module('scipy')",
    ] {
        let result = run(&mut client, &format!("import importlib, sys\n{trick}"));
        assert_eq!(result["isError"], true, "{trick}: {result}");
    }
    // Code that removes the guidance itself can import a module, behind the same isolation layers.
    let around = "import importlib, os, socket, subprocess\n\
                  importlib._bootstrap._gcd_import('scipy')\nopened = []\n\
                  for attempt in [lambda: open('/etc/shadow'), lambda: os.listdir('/root'),\n                \
                  lambda: socket.create_connection(('1.1.1.1', 53), 3), lambda: os.mkdir('/etc/x')]:\n    \
                  try: attempt(); opened.append(1)\n    except OSError: pass\nopened";
    assert_eq!(structured(&run(&mut client, around))["result"], json!([]));
}

// proves P-047, P-048, P-055
#[test]
fn what_stops_a_run_has_a_code_of_its_own_and_the_server_lives_on() {
    let mut client = Stdio::start(&[]);
    let slow = json!({"code": "while True: pass", "timeout": 1});
    assert_eq!(structured(&client.call("execute_python", slow))["error"]["code"], "time.exceeded");
    let large = run(&mut client, "x = bytearray(2 << 30)");
    assert!(
        ["memory.exceeded", "MemoryError"]
            .contains(&structured(&large)["error"]["code"].as_str().unwrap()),
        "{large}"
    );
    assert_eq!(structured(&run(&mut client, "6 * 7"))["result"], 42);
    let mut without = Stdio::with(&[], &[("BELLJAR_PYTHON", "/nowhere/python3")]);
    let unreachable = run(&mut without, "1");
    assert_eq!(
        structured(&unreachable)["error"]["code"],
        "CodeSandboxUnreachable",
        "{unreachable}"
    );
    assert_eq!(unreachable["isError"], true);
    let _ = harness::data();
}

#[test]
fn pictures_that_are_saved_come_as_images_if_visuals_are_asked_for() {
    let mut client = Stdio::start(&["--env", "default"]);
    let code =
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('a.png')\nplt.close()";
    let images = |result: &Value| {
        let content = result["content"].as_array().unwrap();
        content.iter().filter(|block| block["type"] == "image").count()
    };
    assert_eq!(images(&run(&mut client, code)), 0);
    let arguments = json!({"code": code, "visuals": true});
    assert_eq!(images(&client.call("execute_python", arguments)), 1);
}

#[test]
fn long_output_says_what_is_left_out_and_a_crash_is_the_codes_own() {
    let mut client = Stdio::start(&[]);
    let long = run(&mut client, "print('begin')\nfor i in range(50_000): print(i)\nprint('end')");
    let text = structured(&long)["result"].as_str().unwrap().to_owned();
    assert!(text.len() < 70_000 && text.starts_with("begin") && text.ends_with("end"));
    assert!(text.contains("bytes left out here"), "{}", &text[..200]);
    let crashed = run(&mut client, "import os\nos.kill(os.getpid(), 11)");
    assert_eq!(structured(&crashed)["error"]["code"], "sandbox.crashed", "{crashed}");
    let session = client.call("create_session", json!({}))["structuredContent"]["session"].clone();
    let keep = |client: &mut Stdio, code: &str| {
        structured(&client.call("execute_python", json!({"code": code, "session": session})))
    };
    let ended = keep(&mut client, "import os\nos.kill(os.getpid(), 9)");
    let said = ended["logs"].to_string();
    assert!(said.contains("warning: the interpreter has exited"), "{ended}");
    assert_eq!(keep(&mut client, "1")["result"], 1);
}

/// An agent's session, opened by a client of the protocol.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_an_agent_has_its_volumes_and_an_unknown_agent_is_refused() {
    let world = crate::test_server::World::start().await;
    world.owner.post("/v1/volumes", json!({"name": "notes", "quota_bytes": 1_000_000})).await;
    let specification = "tools:\n  - tool_spec: {type: code_execution, name: code_execution}\n\
                         tool_resources:\n  code_execution:\n    environment: bare\n    \
                         volumes: [{name: notes, access: write}]\n";
    let agent = json!({"name": "keeper", "specification": specification});
    let agent = world.owner.post("/v1/agents", agent).await["id"].clone();
    let stranger = world.principal("ann", &["USAGE"]).await;
    let open = json!({"agent_id": agent});
    let session = called(&world.owner, "create_session", open.clone()).await;
    let session = session["structuredContent"]["session"].clone();
    let write = json!({"code": "open('/mnt/notes/x', 'w').write('kept')", "session": session});
    assert_eq!(structured(&called(&world.owner, "execute_python", write).await)["result"], 4);

    let plain = called(&world.owner, "create_session", json!({})).await;
    let plain = plain["structuredContent"]["session"].clone();
    let look = json!({"code": "import os\nos.listdir('/mnt')", "session": plain});
    assert_eq!(
        structured(&called(&world.owner, "execute_python", look).await)["result"],
        json!([])
    );
    for (who, open) in [
        (&stranger, open),
        (&world.owner, json!({"agent_id": "keeper"})),
        (&world.owner, json!({"agent_id": "00000000-0000-7000-8000-000000000000"})),
    ] {
        let refused = called(who, "create_session", open).await;
        assert_eq!(refused["isError"], true, "{refused}");
    }
}
