//! The formats of a trace, over REST and with `belljar agent show`, whatever its code has printed.

use crate::harness::{self, stderr, stdout};
use crate::notebook::valid_cells;
use crate::test_server::{Api, World};
use reqwest::Method;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap};
use serde_json::json;
use std::process::Output;
use tempfile::TempDir;

/// Prints what an attacker would, shows pages and pictures, fails, and answers.
const SCRIPT: &str = r#"
- calls: [{name: plan, arguments: {steps: ["Show <b>everything</b>", "Fail"]}}]
  tokens: {input: 11, output: 7}
- calls:
    - name: run_python
      arguments:
        code: |
          import base64, sys
          PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==")
          class Chart:
              def _repr_png_(self): return PNG
              def _repr_html_(self): return "<img src=https://evil.example/?secret>"
          print("<script>alert(1)</script> \x1b[2J \u202e")
          print("beside", file=sys.stderr)
          open("saved.png", "wb").write(PNG + b"another")
          Chart()
- calls: [{name: run_python, arguments: {code: "raise ValueError('</pre><script>')"}}]
- calls: [{name: run_python, arguments: {code: "6 * 7"}}]
- say: "It is 42. ![x](https://evil.example/?42) <script>alert(2)</script>"
"#;

struct Ran {
    world: World,
    run: String,
    _script: TempDir,
}

async fn ran() -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.yaml");
    std::fs::write(&script, SCRIPT).unwrap();
    let world = World::with(&["--model", &format!("script:{}", script.display())]).await;
    let result =
        world.owner.post("/v1/code_execution", json!({"request": "Show & tell <i>"})).await;
    assert_eq!(result["status"], "succeeded", "{result:#}");
    let run = result["execution_id"].as_str().unwrap().to_owned();
    Ran { world, run, _script: folder }
}

impl Ran {
    async fn trace_in(&self, format: &str) -> (HeaderMap, String) {
        let path = format!("/v1/executions/{}/trace?format={format}", self.run);
        let answer = self.world.owner.request(Method::GET, &path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{format}");
        (answer.headers().clone(), answer.text().await.unwrap())
    }

    async fn show(&self, args: &[&str]) -> Output {
        show(&self.world.owner, &[&[self.run.as_str()], args].concat()).await
    }
}

async fn show(api: &Api, args: &[&str]) -> Output {
    let mut command = harness::belljar(&[&["agent", "show"], args].concat());
    command.env("BELLJAR_URL", &api.address).env("BELLJAR_API_KEY", &api.key);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test]
async fn the_page_of_a_run_has_its_charts_and_can_do_nothing() {
    let ran = ran().await;
    let (headers, page) = ran.trace_in("html").await;
    assert_eq!(headers[CONTENT_TYPE], "text/html; charset=utf-8");
    let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.starts_with("sandbox; default-src 'none';"), "{policy}");
    assert_eq!(page.matches(" src=\"data:image/png;base64,").count(), 2, "shown, and saved");
    assert!(!page.contains("<script") && !page.contains("<b>") && !page.contains("<img src=https"));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt; \\u{1b}[2J \\u{202e}"), "{page}");
    for expected in ["Show &amp; tell", "11 tokens in and 7 out", "ValueError", "It is 42."] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
}

#[tokio::test]
async fn the_notebook_of_a_run_is_one_for_jupyter_and_fetches_nothing() {
    let ran = ran().await;
    let (headers, notebook) = ran.trace_in("ipynb").await;
    assert_eq!(headers[CONTENT_TYPE], "application/x-ipynb+json");
    let disposition = headers[CONTENT_DISPOSITION].to_str().unwrap();
    assert!(disposition.contains(&format!("filename=\"run-{}.ipynb\"", ran.run)), "{disposition}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.ipynb");
    std::fs::write(&path, &notebook).unwrap();
    assert_eq!(valid_cells(&path), 2 + 2 * 3 + 5, "three rounds, and five questions to the model");
    assert!(!notebook.contains("text/html") && !notebook.contains("](https"), "{notebook}");
    assert_eq!(notebook.matches("\"image/png\"").count(), 2, "{notebook}");
}

#[tokio::test]
async fn a_run_is_shown_on_a_terminal_in_every_form() {
    let ran = ran().await;
    let text = stdout(&ran.show(&[]).await);
    for expected in [
        "Show & tell <i>",
        "1. Show <b>everything</b>",
        "You plan how to answer a request with Python.",
        "Request: Show & tell <i>",
        "You carry out a plan with Python",
        "Begin with the first step.",
        "Round 2: Fail",
        "> 6 * 7",
        "    42",
        "It is 42.",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains(['\x1b', '\u{202e}']), "{text}");
    let trace: serde_json::Value =
        serde_json::from_str(&stdout(&ran.show(&["--format", "json"]).await)).unwrap();
    assert_eq!(trace["run"], ran.run.as_str());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.ipynb");
    let shown = ran.show(&["--format", "ipynb", "--out", file.to_str().unwrap()]).await;
    assert!(shown.status.success(), "{}", stderr(&shown));
    assert!(valid_cells(&file) > 2);
}

#[tokio::test]
async fn a_run_of_another_principal_cannot_be_read_in_any_form() {
    let ran = ran().await;
    let other = ran.world.principal("other", &["USAGE"]).await;
    for format in ["json", "ipynb", "html", "text"] {
        let path = format!("/v1/executions/{}/trace?format={format}", ran.run);
        assert_eq!(other.refused("GET", &path, None).await.0, 404, "{format}");
    }
    let path = format!("/v1/executions/{}/trace?format=pdf", ran.run);
    assert_eq!(ran.world.owner.refused("GET", &path, None).await.0, 400);
}

#[tokio::test]
async fn an_agent_is_still_shown_by_its_name_and_by_its_id() {
    let world = World::start().await;
    let body = json!({"name": "helper", "specification": "instructions: help\n"});
    let agent = world.owner.post("/v1/agents", body).await;
    for what in ["helper", agent["id"].as_str().unwrap()] {
        let shown = show(&world.owner, &[what]).await;
        assert!(stdout(&shown).contains("name: helper"), "{what}: {}", stderr(&shown));
    }
    let refused = show(&world.owner, &["helper", "--format", "html"]).await;
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("require the id of a run"), "{}", stderr(&refused));
}
