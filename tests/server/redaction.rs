//! Secret values of code do not come back: not printed, raised, displayed, returned, nor in a file.
//! Encodings other than those here are not found, see docs/secrets.md.

use crate::principals::id;
use crate::test_server::{Api, World, printed};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Value, json};
use std::path::Path;

const TOKEN: &str = "tök/en+&= \"quoted\" \\ 'core-0123456789-core'";
const PLAIN: &str = "sk-live-ABCDEFGHIJKL-0815";

const EVERY_WAY: &str = r#"
import base64, json, os, sys, urllib.parse

def forms(value):
    yield from [value, repr(value), ascii(value), json.dumps(value), repr(value.encode())]
    yield from [value.encode().hex(), value.encode().hex().upper()]
    for before in range(3):
        around = b"x" * before + value.encode() + b"yz"
        yield from [base64.b64encode(around).decode(), base64.urlsafe_b64encode(around).decode()]
    # As PHP and Go write JSON.
    yield json.dumps(value).replace("/", "\\/")
    yield json.dumps(value, ensure_ascii=False).replace("&", "\\u0026")
    quoted = [urllib.parse.quote(value), urllib.parse.quote_plus(value), urllib.parse.quote(value, safe="")]
    yield from quoted
    yield urllib.parse.quote(value, safe="").lower()

def run(input):
    values = [os.environ["TOKEN"], os.environ["PLAIN"]]
    for value in values:
        for form in forms(value):
            print(form)
            print(form, file=sys.stderr)
        for sign in value:
            print(sign, end="", flush=True)
        print(flush=True)
        os.write(1, value.encode()[:10]); os.write(2, b"between\n"); os.write(1, value.encode()[10:] + b"\n")
    with open("all.txt", "w") as file:
        for value in values:
            for form in forms(value):
                file.write("-" * 65530 + form + "\n")
    open(f"named-{values[1]}.txt", "w").write("by name")
    open(f"named-{values[1].encode().hex()}.txt", "w").write("by another name")
    if input.get("raises"):
        raise type("Wrong" + values[1], (Exception,), {})(f"failed with {values}")
    return {"values": values, values[1]: list(forms(values[0])), "harmless": "core-less"}
"#;

fn tool() -> Value {
    let variables = json!([{"name": "TOKEN", "value": TOKEN}, {"name": "PLAIN", "value": PLAIN}]);
    json!({"name": "leaky", "tool_type": "code_runner", "environment": "bare",
        "configuration": {"code": EVERY_WAY, "env_variables": variables}})
}

/// Parts of every form, none of which may be anywhere.
fn parts() -> Vec<String> {
    let mut parts = Vec::new();
    for (value, core) in [(TOKEN, "core-0123456789-core"), (PLAIN, "ABCDEFGHIJKL")] {
        parts.push(core.to_owned());
        let hex: String = core.bytes().map(|byte| format!("{byte:02x}")).collect();
        parts.extend([hex.to_uppercase(), hex]);
        for before in 0..3 {
            let around = format!("{}{value}", "x".repeat(before));
            for encoded in [STANDARD.encode(&around), URL_SAFE.encode(&around)] {
                parts.push(encoded[4..encoded.len() - 4].to_owned());
            }
        }
    }
    parts.push("t%C3%B6k".to_owned());
    parts
}

fn check(what: &str, bytes: &[u8]) {
    for part in parts() {
        let found = bytes.windows(part.len()).position(|window| window == part.as_bytes());
        if let Some(at) = found {
            let around = &bytes[at.saturating_sub(40)..(at + 80).min(bytes.len())];
            panic!("{what} has {part}: {}", String::from_utf8_lossy(around));
        }
    }
}

fn check_disk(directory: &Path) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += check_disk(&path);
        } else {
            check(&path.display().to_string(), &std::fs::read(&path).unwrap());
            files += 1;
        }
    }
    files
}

async fn bytes_of(who: &Api, path: &str) -> Vec<u8> {
    who.request(reqwest::Method::GET, path).send().await.unwrap().bytes().await.unwrap().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn t43_a_value_that_code_was_given_comes_back_in_no_way_that_is_listed() {
    let world = World::start().await;
    let owner = &world.owner;
    let tool = owner.post("/v1/tools", tool()).await;
    let call = format!("/v1/tools/{}/call", id(&tool));
    let record = owner.post(&call, json!({"arguments": {}})).await;
    assert_eq!(record["status"], "succeeded", "{record}");
    check("the record", record.to_string().as_bytes());
    assert_eq!(record["value"]["values"], json!(["[redacted:TOKEN]", "[redacted:PLAIN]"]));
    assert_eq!(record["value"]["harmless"], "core-less");
    let lines = printed(&record);
    assert_eq!(lines.lines().next(), Some("[redacted:TOKEN]"));
    assert!(lines.matches("[redacted:PLAIN]").count() >= 15, "{lines}");
    let names: Vec<&str> = record["files_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["all.txt", "named-[redacted:PLAIN].txt", "named-[redacted:PLAIN].txt-2"]);
    for file in record["files_out"].as_array().unwrap() {
        let bytes = bytes_of(owner, file["url"].as_str().unwrap()).await;
        assert_eq!(json!(bytes.len()), file["size"]);
        check("a file", &bytes);
    }

    let raising = json!({"arguments": {"raises": true}});
    let failed = owner.post(&call, raising).await;
    assert!(failed["error"]["message"].as_str().unwrap().contains("[redacted:PLAIN]"), "{failed}");
    check("a failure", failed.to_string().as_bytes());
    let stream = owner.request(reqwest::Method::POST, &call).header("accept", "text/event-stream");
    let stream = stream.header("content-type", "application/json").body("{\"arguments\": {}}");
    let stream = stream.send().await.unwrap().bytes().await.unwrap();
    check("a stream", &stream);
    assert!(stream.windows(16).any(|window| window == b"[redacted:TOKEN]"));
    let list = owner.get("/v1/executions").await;
    check("the list", list.to_string().as_bytes());
    assert!(check_disk(world.data.path()) > 5);
}

/// Prints what PHP and Go make of a value, in two pieces with a cut at each byte.
const CUT_EVERYWHERE: &str = r#"
import json, os

def written(value):
    php = json.dumps(value).replace("/", "\\/")
    go = json.dumps(value, ensure_ascii=False)
    for sign in "<>&":
        go = go.replace(sign, f"\\u{ord(sign):04x}")
    return [php.encode(), go.encode()]

def run(input):
    for form in written(os.environ["TOKEN"]):
        for at in range(len(form) + 1):
            os.write(1, form[:at]); os.write(1, form[at:] + b"\n")
    for form in written(os.environ["TOKEN"].replace("core", "kernel")):
        os.write(2, form + b"\n")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn t178_a_value_in_the_json_of_php_and_go_is_found_wherever_it_is_cut() {
    let world = World::start().await;
    let owner = &world.owner;
    let variables = json!([{"name": "TOKEN", "value": TOKEN}]);
    let tool = json!({"name": "cutting", "tool_type": "code_runner", "environment": "bare",
        "configuration": {"code": CUT_EVERYWHERE, "env_variables": variables}});
    let tool = owner.post("/v1/tools", tool).await;
    let call = format!("/v1/tools/{}/call", id(&tool));
    let record = owner.post(&call, json!({"arguments": {}})).await;
    assert_eq!(record["status"], "succeeded", "{record}");
    let stream = |name: &str| -> String {
        let chunks = record["output"].as_array().unwrap().iter();
        let chunks = chunks.filter(|chunk| chunk["stream"] == name);
        chunks.map(|chunk| chunk["text"].as_str().unwrap()).collect()
    };
    let stdout = stream("stdout");
    assert!(stdout.lines().count() > 100, "{stdout}");
    for line in stdout.lines() {
        assert_eq!(line, "\"[redacted:TOKEN]\"");
    }
    // The harmless twin is another value, written in the same ways.
    let other = TOKEN.replace("core", "kernel");
    let go = serde_json::to_string(&other).unwrap().replace('&', "\\u0026");
    let php = serde_json::to_string(&other).unwrap();
    let php = php.replace('/', "\\/").replace('\u{f6}', "\\u00f6");
    assert_eq!(stream("stderr"), format!("{php}\n{go}\n"));
}
