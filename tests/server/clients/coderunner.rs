//! CodeRunner tools in their own environment: documents that others can open, media, and the clients of model
//! providers.

use super::{PLACEHOLDER, Setting, here};
use crate::harness;
use crate::principals::id;
use crate::test_server::Api;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The providers whose keys are injected like those of the three of the seed.
const PROVIDERS: [(&str, &str, &str); 4] = [
    ("groq", "groq.test", "gsk-groq-canary-4715"),
    ("cohere", "cohere.test", "cohere-canary-4716"),
    ("mistral", "mistral.test", "mistral-canary-4717"),
    ("together", "together.test", "together-canary-4718"),
];

/// Python with the libraries that open documents, in a virtual environment that is made once and kept below the target
/// directory.
fn reader() -> PathBuf {
    let requirements = here().join("readers.txt");
    let wanted = std::fs::read_to_string(&requirements).unwrap();
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readers");
    let made = home.join("readers.txt");
    if !std::fs::read_to_string(&made).is_ok_and(|had| had == wanted) {
        let run = |command: &mut Command| {
            let ran = command.output().unwrap();
            assert!(ran.status.success(), "{command:?}: {}", harness::stderr(&ran));
        };
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        let install = ["install", "--quiet", "--requirement"];
        run(Command::new(home.join("bin/pip")).args(install).arg(&requirements));
        std::fs::write(made, wanted).unwrap();
    }
    home.join("bin/python")
}

async fn runner(owner: &Api, name: &str, program: &str, input_schema: Value) -> String {
    let code = std::fs::read_to_string(here().join(program)).unwrap();
    let tool = json!({"name": name, "description": "Does what its name says.",
        "tool_type": "code_runner", "environment": "coderunner",
        "configuration": {"type": "CodeRunner", "runtime": "python", "timeout_seconds": 180,
            "code": code, "input_schema": input_schema}});
    format!("/v1/tools/{}/call", id(&owner.post("/v1/tools", tool).await))
}

/// A file of a session, as a client of the server gets it.
async fn download(owner: &Api, session: &str, name: &str, to: &Path) -> PathBuf {
    let path = format!("/v1/sessions/{session}/files/{name}");
    let response = owner.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(response.status(), 200, "{name}");
    let file = to.join(name);
    std::fs::write(&file, response.bytes().await.unwrap()).unwrap();
    file
}

// proves W-033
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_parses_a_file_probes_media_and_makes_documents_that_open_elsewhere() {
    let setting = Setting::new().await;
    let owner = &setting.world.owner;
    let string = |name: &str| json!({"name": name, "field_type": "STRING", "required": true});
    let schema = json!([string("table"), string("program")]);
    let call = runner(owner, "report", "documents.py", schema).await;
    let session = super::session(owner, "coderunner", json!([])).await;
    let table = "open('table.csv', 'w').write('name,amount\\nAnn,40\\nBob,2\\n')";
    assert_eq!(owner.run(&session, table).await["status"], "succeeded");
    let with = |program: &str| json!({"arguments": {"table": "table.csv", "program": program}, "sandbox_id": session});
    let record = owner.post(&call, with("a-prober-of-no-image")).await;
    let missing = "a-prober-of-no-image is not available in this sandbox; use an image that has it";
    let expected = json!({"rows": 2, "total": 42, "seconds": 1.0, "probed": missing});
    assert_eq!(record["value"], expected, "{record:#}");

    // What ffprobe says where the machine has it, and the same error where it has not.
    let has_ffprobe = Command::new("sh").args(["-c", "command -v ffprobe"]).output().unwrap();
    let probed = match has_ffprobe.status.success() {
        true => "wav".to_owned(),
        false => missing.replace("a-prober-of-no-image", "ffprobe"),
    };
    assert_eq!(owner.post(&call, with("ffprobe")).await["value"]["probed"], probed);

    let files = tempfile::tempdir().unwrap();
    let mut read = Command::new(reader());
    read.arg(here().join("read_documents.py"));
    for (name, signature) in [
        ("report.docx", &b"PK\x03\x04"[..]),
        ("report.pptx", b"PK\x03\x04"),
        ("report.pdf", b"%PDF-"),
    ] {
        let file = download(owner, &session, name, files.path()).await;
        assert!(std::fs::read(&file).unwrap().starts_with(signature), "{name}");
        read.arg(file);
    }
    let read = read.output().unwrap();
    assert!(read.status.success(), "{}", harness::stderr(&read));
    let texts: Value = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(texts["docx"], json!(["Amounts", "Ann", "40", "Bob", "2"]));
    assert_eq!(texts["pptx"], json!(["Amounts", "Ann: 40, Bob: 2"]));
    assert_eq!(texts["pdf"], json!(["Ann: 40\nBob: 2"]));
}

// proves W-033, W-064
#[tokio::test(flavor = "multi_thread")]
async fn t295_keys_of_further_providers_reach_their_provider_alone_with_the_sdks_of_the_environment()
 {
    let setting = Setting::new().await;
    let owner = &setting.world.owner;
    let providers = json!([{"name": "providers", "field_type": "ARRAY", "items_type": "STRING"}]);
    let call = runner(owner, "ask", "sdks.py", providers).await;
    let ask = async |names: &[&str]| {
        let session = super::session(owner, "coderunner", json!(["machine"])).await;
        let call_in = json!({"arguments": {"providers": names}, "sandbox_id": session});
        owner.post(&call, call_in).await
    };
    let none = ask(&[]).await;
    let keys = none["value"]["keys"].as_object().unwrap_or_else(|| panic!("{none:#}"));
    assert!(keys.values().all(Value::is_null), "{none:#}");
    for (client, host, value) in PROVIDERS {
        setting.client_secret(owner, client, value, host).await;
    }
    let asked = ask(&PROVIDERS.map(|(client, _, _)| client)).await;
    let expected =
        PROVIDERS.map(|(client, _, _)| (client.to_owned(), json!(format!("from {client}"))));
    let expected: serde_json::Map<String, Value> = expected.into_iter().collect();
    assert_eq!(asked["value"]["said"], Value::Object(expected), "{asked:#}");
    let keys = asked["value"]["keys"].as_object().unwrap();
    assert_eq!(keys.len(), 5);
    for (variable, value) in keys {
        assert!(value.as_str().unwrap_or_default().starts_with(PLACEHOLDER), "{variable}: {value}");
    }
    assert_eq!(keys["CO_API_KEY"], keys["COHERE_API_KEY"]);
    for (_, host, value) in PROVIDERS {
        let reached = setting.reached(host);
        let bearer = format!("Bearer {value}");
        assert!(
            !reached.is_empty() && reached.iter().all(|it| it.header("authorization") == bearer)
        );
        setting.only_at(value, host);
        assert!(!asked.to_string().contains(value));
    }
    // Their variables are for the client, as those of the other clients are.
    let plain = json!({"name": "COHERE_API_KEY", "value": "in-clear-0815"});
    let (status, problem) = owner.call("POST", "/v1/secrets", Some(plain)).await;
    assert_eq!(status, 400, "{problem}");
    assert!(problem.to_string().contains("reserved for the client cohere"), "{problem}");
}
