//! `belljar tool test` against a server: files that are not saved there, its tools, and those of its agents.

use crate::harness::{stderr, stdout};
use crate::remote::{answer, belljar};
use crate::test_server::World;
use serde_json::{Value, json};

const GOOD: &str = "def handle(n: int) -> int:\n    \"\"\"Doubles.\n\n    Args:\n        n: it\n    \"\"\"\n    return n * 2\n\ndef test():\n    print('trying')\n    return handle(21)\n";

// proves C-171
#[tokio::test(flavor = "multi_thread")]
async fn a_file_a_tool_and_a_tool_of_an_agent_are_tested_on_a_server() {
    let world = World::start().await;
    let here = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = here.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let good = file("good.py", GOOD);
    let runner = json!({"name": "r", "tool_type": "code_runner", "configuration": {"type": "CodeRunner",
        "runtime": "python", "code": "def run(input): return 1\n\ndef test(): assert run({}) == 2, 'Expected 2'\n"}});
    let bad = file("bad.json", &runner.to_string());
    let report = belljar(&world.owner, &["tool", "test", &good, &bad, "--json"]).await;
    assert_eq!(report.status.code(), Some(1), "{}", stderr(&report));
    let report: Value = serde_json::from_str(&stdout(&report)).unwrap();
    assert_eq!((&report["passed"], &report["failed"]), (&json!(1), &json!(1)), "{report}");
    let first = &report["tests"][0];
    assert_eq!(
        (&first["outcome"], &first["value"], &first["environment"]),
        (&json!("passed"), &json!(42), &json!("bare"))
    );
    assert_eq!(
        (&first["output"][0]["text"], first["duration_ms"].is_u64()),
        (&json!("trying\n"), true),
        "{first}"
    );
    assert_eq!(
        report["tests"][1]["error"]["assertion"]["values"],
        json!([["run({})", "1"]]),
        "{report}"
    );
    assert_eq!(world.owner.get("/v1/tools").await["items"], json!([]), "nothing is saved");

    let broken = file("broken.py", "def handle(:\n");
    let output = belljar(&world.owner, &["tool", "test", &broken]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("valid Python"), "{}", stdout(&output));

    answer(&world.owner, &["tool", "add", &good, "--description", "Doubles a number.", "--json"])
        .await;
    let saved = belljar(&world.owner, &["tool", "test", "good"]).await;
    assert!(
        stdout(&saved).contains("good: passed in") && stdout(&saved).contains("returned 42"),
        "{}",
        stdout(&saved)
    );
    let tool = json!({"type": "runPythonCode", "name": "within", "description": "Doubles a number.",
        "configuration": {"pythonCode": GOOD}});
    let agent = json!({"name": "helper", "specification": {"tools": [tool]}});
    world.owner.post("/v1/agents", agent).await;
    let within = belljar(&world.owner, &["tool", "test", "within", "--agent", "helper"]).await;
    assert!(
        stdout(&within).contains("within: passed in"),
        "{} {}",
        stdout(&within),
        stderr(&within)
    );
}
