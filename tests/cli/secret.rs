//! `belljar secret`: a value can be passed in every way but as an argument, and is never shown.

use crate::harness::{self, binary, stderr, stdout};
use crate::helper;
use crate::test_server::{Api, World};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const CANARY: &str = "sk-canary-4711-0815";

fn command(api: &Api, args: &[&str]) -> Command {
    let mut command = harness::belljar(&[&["secret"], args].concat());
    command.env("BELLJAR_URL", &api.address).env("BELLJAR_API_KEY", &api.key);
    command
}

fn with_input(api: &Api, args: &[&str], input: &str) -> Output {
    let mut command = command(api, args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that refuses does not read it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let shown = format!("{}{}", stdout(&output), stderr(&output));
    assert!(!shown.contains(CANARY), "{shown}");
    output
}

fn set(api: &Api, args: &[&str], value: &str) -> String {
    let output = with_input(api, &[&["set"], args].concat(), value);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    stderr(&output)
}

fn shown(api: &Api, name: &str) -> Value {
    let output = with_input(api, &["show", name, "--json"], "");
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_set_listed_shown_replaced_and_removed() {
    let world = World::start().await;
    let api = &world.owner;
    let said = set(api, &["TOKEN"], CANARY);
    assert!(said.contains("stored secret TOKEN, used as environment variable TOKEN"), "{said}");
    assert!(
        said.contains("`belljar network integration new INTEGRATION --secret TOKEN`"),
        "{said}"
    );
    let allowing =
        serde_json::json!({"name": "all", "allowed_network_rules": [], "allowed_secrets": "all"});
    api.post("/v1/integrations", allowing).await;
    assert!(!set(api, &["TOKEN"], CANARY).contains("integration"));
    let got = with_input(api, &["get", "TOKEN"], "");
    assert_eq!(got.status.code(), Some(2));
    assert!(stderr(&got).contains("`belljar secret show TOKEN`"), "{}", stderr(&got));
    assert_eq!(shown(api, "TOKEN")["version"], 2);
    set(api, &["TOKEN"], "another-value\n");
    assert_eq!(shown(api, "TOKEN")["version"], 3);
    let client = [
        "cdf",
        "--client",
        "cognite",
        "--base-url",
        "https://api.cognitedata.com",
        "--project",
        "p",
    ];
    set(api, &client, CANARY);
    let header = ["shop", "--header", "api.example.com:8443:X-Api-Key", "--prefix", "Bearer "];
    assert!(set(api, &header, CANARY).contains("x-api-key at api.example.com:8443"));
    assert_eq!(shown(api, "shop")["inject"]["header"]["prefix"], "Bearer ");
    assert!(set(api, &["PIN"], "1234").contains("is not redacted"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{CANARY}\n")).unwrap();
    set(api, &["MINE", "--mine", "--file", file.path().to_str().unwrap()], "");
    assert_eq!(shown(api, "MINE")["scope"], "caller");
    let list = stdout(&with_input(api, &["ls"], ""));
    for known in ["TOKEN", "credential of cognite", "x-api-key at api.example.com:8443"] {
        assert!(list.contains(known), "{known}: {list}");
    }
    assert_eq!(with_input(api, &["rm", "TOKEN"], "").status.code(), Some(0));
    assert_eq!(with_input(api, &["show", "TOKEN"], "").status.code(), Some(1));
    let rotated = with_input(api, &["rotate"], "");
    assert!(
        stderr(&rotated).contains("re-encrypted all secrets with a new key"),
        "{}",
        stderr(&rotated)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_an_argument_is_refused_and_nothing_is_kept() {
    let world = World::start().await;
    let assigned = format!("TOKEN={CANARY}");
    for args in
        [&["set", "TOKEN", CANARY][..], &["set", &assigned], &["set", "TOKEN", CANARY, "more"]]
    {
        let output = with_input(&world.owner, args, CANARY);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("--file"), "{}", stderr(&output));
    }
    assert_eq!(world.owner.get("/v1/secrets").await["items"], serde_json::json!([]));
}

fn type_at(api: &Api, keys: &[&str]) -> Output {
    let steps = [("Value of TOKEN: ", keys.concat())];
    let mut typist = helper("typist.py");
    typist.arg(serde_json::to_string(&steps).unwrap()).arg(binary());
    typist.args(["secret", "set", "TOKEN"]);
    typist.env("BELLJAR_URL", &api.address).env("BELLJAR_API_KEY", &api.key).output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_shows_nothing_of_what_is_typed() {
    let world = World::start().await;
    let given_up = type_at(&world.owner, &["sk-hidden", "\x03"]);
    assert!(!stdout(&given_up).contains("sk-hidden") && !given_up.status.success());
    // The last two keys are taken back: five bytes are left, which is told.
    let typed = type_at(&world.owner, &["sk-12é", "x", "\x7f\x7f", "\r"]);
    let screen = stdout(&typed);
    assert_eq!(typed.status.code(), Some(0), "{screen}");
    assert!(
        screen.contains("stored secret TOKEN") && screen.contains("is not redacted"),
        "{screen}"
    );
    assert!(!screen.contains("sk-12") && !screen.contains('é'), "{screen}");
}
