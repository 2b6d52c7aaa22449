//! The configurations in docs/mcp.md, each parsed as its client does and started.

use crate::harness;
use crate::test_server::World;
use crate::wire::hello;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A server as a client would start or reach it.
#[derive(Debug)]
enum Configured {
    Command { words: Vec<String>, variables: Vec<(String, String)> },
    Url { url: String, authorization: String },
}

fn guide() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mcp.md");
    std::fs::read_to_string(path).unwrap()
}

/// The blocks of one kind in the guide's first chapter.
fn blocks(kind: &str) -> Vec<String> {
    let guide = guide();
    let chapter = guide.split("\n## ").nth(1).unwrap();
    let fence = format!("```{kind}\n");
    let parts = chapter.split(&fence).skip(1);
    parts.map(|part| part.split("```").next().unwrap().trim().to_owned()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// As Claude Desktop, Cursor and VS Code read it.
fn from_json(block: &str) -> Configured {
    let read: Value = serde_json::from_str(block).unwrap();
    let servers = read.get("mcpServers").or(read.get("servers")).unwrap();
    let server = &servers["belljar"];
    if let Some(url) = server.get("url") {
        return Configured::Url {
            url: text(url),
            authorization: text(&server["headers"]["Authorization"]),
        };
    }
    let arguments = server["args"].as_array().unwrap().iter().map(text);
    let words = [text(&server["command"])].into_iter().chain(arguments).collect();
    let variables = server.get("env").and_then(Value::as_object).into_iter().flatten();
    let variables = variables.map(|(name, value)| (name.clone(), text(value))).collect();
    Configured::Command { words, variables }
}

/// As `claude mcp add` reads it.
fn from_line(line: &str) -> Configured {
    match line.split_once(" -- ") {
        Some((_, command)) => {
            let words = command.split_whitespace().map(str::to_owned).collect();
            Configured::Command { words, variables: Vec::new() }
        }
        None => {
            let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
            let header = line.split("--header \"").nth(1).unwrap().trim_end_matches('"');
            let authorization = header.strip_prefix("Authorization: ").unwrap();
            Configured::Url { url: url.to_owned(), authorization: authorization.to_owned() }
        }
    }
}

/// A place on the PATH where `belljar` is.
fn on_the_path() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(harness::binary(), place.path().join("belljar")).unwrap();
    let path = place.path().to_owned();
    (place, path)
}

fn greets(words: &[String], variables: &[(String, String)]) {
    let (_place, path) = on_the_path();
    let mut process = Command::new(path.join(&words[0]))
        .args(&words[1..])
        .env("BELLJAR_DATA", harness::data())
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hello =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello(&json!({}))});
    let mut input = process.stdin.take().unwrap();
    writeln!(input, "{hello}").unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(input);
    assert!(process.wait().unwrap().success());
    let response: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(response["result"]["serverInfo"]["name"], "belljar", "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_of_configuration_in_the_guide_starts_a_server() {
    let world = World::start().await;
    let key = &world.owner.key;
    let (lines, objects) = (blocks("sh"), blocks("json"));
    assert_eq!((lines.len(), objects.len()), (2, 6));
    let configured = lines
        .iter()
        .map(|line| from_line(line))
        .chain(objects.iter().map(|object| from_json(object)));
    for one in configured {
        match one {
            Configured::Command { words, variables } => {
                let real = |(name, value): (String, String)| match name.as_str() {
                    "BELLJAR_URL" => (name, world.address().to_owned()),
                    "BELLJAR_API_KEY" => (name, key.clone()),
                    _ => (name, value),
                };
                let variables: Vec<_> = variables.into_iter().map(real).collect();
                tokio::task::spawn_blocking(move || greets(&words, &variables)).await.unwrap();
            }
            Configured::Url { url, authorization } => {
                assert_eq!(url, "http://127.0.0.1:7117/mcp");
                let bearer = authorization
                    .replace("${env:BELLJAR_API_KEY}", key)
                    .replace("$BELLJAR_API_KEY", key);
                let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello(&json!({}))});
                let answer = world
                    .api("")
                    .request(Method::POST, "/mcp")
                    .header("authorization", bearer)
                    .header("content-type", "application/json")
                    .header("accept", "application/json, text/event-stream")
                    .body(body.to_string())
                    .send()
                    .await
                    .unwrap();
                assert_eq!(answer.status(), 200);
            }
        }
    }
}
