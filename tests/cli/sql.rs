//! `belljar sql`: statements as an argument, from a file and from standard input.

use crate::harness::{self, stderr, stdout};
use crate::remote::{answer, belljar, failure};
use crate::test_server::{Api, World};
use serde_json::json;
use std::io::Write;
use std::process::{Output, Stdio};

const RULE: &str =
    "CREATE NETWORK RULE hub TYPE = HOST_PORT MODE = EGRESS VALUE_LIST = ('a.example')";
const SECRET: &str =
    "CREATE SECRET TOKEN TYPE = GENERIC_STRING SECRET_STRING = 'sk-canary-4711-0815'";

async fn with_input(api: &Api, input: &'static str, args: &[&str]) -> Output {
    let mut command = harness::belljar(&[&["sql"], args].concat());
    command.env("BELLJAR_URL", &api.address).env("BELLJAR_API_KEY", &api.key);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = move || {
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_come_from_an_argument_a_file_or_standard_input() {
    let world = World::start().await;
    let api = &world.owner;
    let made = answer(api, &["sql", RULE, "--json"]).await;
    assert_eq!(made["statements"][0]["action"], "created");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{SECRET};\nSHOW NETWORK RULES LIKE 'HUB'")).unwrap();
    let shown = belljar(api, &["sql", "--file", file.path().to_str().unwrap()]).await;
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    let table = stdout(&shown);
    assert!(table.starts_with("NAME") && table.contains("hub"), "{table}");
    assert!(stderr(&shown).contains("CREATE SECRET: created secret TOKEN"), "{}", stderr(&shown));
    for args in [&[][..], &["-"]] {
        let described = with_input(api, "DESCRIBE NETWORK RULE hub", args).await;
        assert_eq!(described.status.code(), Some(0), "{}", stderr(&described));
        assert!(stdout(&described).contains("a.example"), "{}", stdout(&described));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_has_its_place_and_what_ran_before_it_is_shown() {
    let world = World::start().await;
    let api = &world.owner;
    let said = failure(api, 1, &["sql", "SHOW AGENTS;\n  ALTER AGENT a"]).await;
    assert!(said.contains("2:3: a statement cannot start with \"ALTER\""), "{said}");
    let said = failure(api, 1, &["sql", &format!("{RULE};\n  DROP AGENT missing")]).await;
    assert!(said.contains("CREATE NETWORK RULE: created network rule hub"), "{said}");
    assert!(said.contains("2:14: agent \"missing\" not found"), "{said}");
    let partial =
        belljar(api, &["sql", "--json", "DROP NETWORK RULE hub; DROP AGENT missing"]).await;
    assert_eq!(partial.status.code(), Some(1));
    let results: serde_json::Value = serde_json::from_str(&stdout(&partial)).unwrap();
    assert_eq!(results["statements"][0]["action"], json!("dropped"));
}

#[tokio::test(flavor = "multi_thread")]
async fn t266_a_secret_is_refused_as_an_argument_and_taken_from_standard_input() {
    let world = World::start().await;
    let api = &world.owner;
    let said = failure(api, 2, &["sql", SECRET]).await;
    assert!(said.contains("use --file or standard input") && !said.contains("canary"), "{said}");
    let none = answer(api, &["sql", "SHOW SECRETS", "--json"]).await;
    assert_eq!(none["statements"][0]["rows"], json!([]), "it was not sent");
    let taken = with_input(api, SECRET, &[]).await;
    assert_eq!(taken.status.code(), Some(0), "{}", stderr(&taken));
}
