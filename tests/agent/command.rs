//! `belljar agent run`, as people type it.

use crate::confirmations::{book, booking};
use crate::harness::{self, stderr, stdout};
use crate::model::ModelServer;
use crate::scripted_server::{Scene, calls, code, plan, say};
use crate::test_server::Api;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::time::Duration;

#[test]
fn an_engine_of_ones_own_asks_a_server_of_ones_own_and_keeps_what_it_said() {
    let turns = json!([plan(&["Count"]), code("print(6 * 7)"), say("It is 42.")]);
    let (model, kept) = (ModelServer::start(&turns.to_string()), tempfile::tempdir().unwrap());
    let ran = harness::belljar(&["agent", "run", "--env", "bare", "-r", "Count."])
        .env("BELLJAR_MODEL", "lab/counter")
        .env("BELLJAR_MODEL_ENDPOINT", format!("lab={}", model.url()))
        .env("BELLJAR_RECORD", kept.path())
        .output()
        .unwrap();
    assert_eq!(stdout(&ran), "It is 42.\n", "{}", stderr(&ran));
    assert_eq!(model.requests()[0].body["model"], "counter");
    let kept: Vec<_> = std::fs::read_dir(kept.path()).unwrap().collect();
    assert_eq!(kept.len(), 1, "one run is one recording");
}

/// Inodes of the sockets on which a process accepts TCP connections.
fn listening_sockets(pid: u32) -> BTreeSet<String> {
    let mut listening = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in table.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // Fields of proc(5): the state 0A is TCP_LISTEN.
            if fields.get(3) == Some(&"0A") {
                listening.insert(format!("socket:[{}]", fields[9]));
            }
        }
    }
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let open: BTreeSet<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    open.intersection(&listening).cloned().collect()
}

#[test]
fn t184_a_run_without_a_server_has_no_port_that_another_user_could_connect_to() {
    let model = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("lab=http://{}/v1", model.local_addr().unwrap());
    let mut run = harness::belljar(&["agent", "run", "--env", "bare", "-r", "Count."])
        .env("BELLJAR_MODEL", "lab/counter")
        .env("BELLJAR_MODEL_ENDPOINT", endpoint)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The run asks the model, so that the service is up and has a request in progress.
    model.set_nonblocking(true).unwrap();
    let mut request = None;
    let asked = harness::soon(Duration::from_secs(60), || {
        request = model.accept().ok();
        request.is_some() || run.try_wait().unwrap().is_some()
    });
    assert!(asked && request.is_some(), "the run has not asked the model");
    let ports = listening_sockets(run.id());
    run.kill().unwrap();
    run.wait().unwrap();
    drop(request);
    assert_eq!(ports, BTreeSet::new());
    // The harmless twin: the port of the model, in this process, is found.
    assert!(!listening_sockets(std::process::id()).is_empty());
}

pub(crate) async fn typed(api: &Api, words: &[&str]) -> Output {
    let mut command = harness::belljar(words);
    command.env("BELLJAR_URL", &api.address).env("BELLJAR_API_KEY", &api.key);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The command that stands in this text and begins so, with replies or without.
fn hinted<'a>(text: &'a str, beginning: &str, replies: bool) -> Vec<&'a str> {
    let fits = |piece: &&str| piece.starts_with(beginning) && piece.contains("--allow") == replies;
    let found = text.split('`').find(fits);
    found.unwrap_or_else(|| panic!("{beginning:?} is not in {text:?}")).split(' ').skip(1).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_that_a_question_is_told_with_answer_it_and_go_on() {
    let scene = Scene::play(json!([book("a table"), say("The table is booked.")])).await;
    let agent = scene.agent(booking()).await;
    let boss = scene.world.principal("boss", &["OWNERSHIP"]).await;
    let id = agent.rsplit('/').next().unwrap();
    let asked = typed(scene.owner(), &["agent", "run", id, "-r", "Book a table."]).await;
    let output = stderr(&asked);
    let answered = typed(&boss, &hinted(&output, "belljar approvals allow", false)).await;
    assert!(answered.status.success(), "{}", stderr(&answered));
    let done = typed(scene.owner(), &hinted(&output, "belljar agent run", false)).await;
    assert_eq!(stdout(&done), "The table is booked.\n", "{}", stderr(&done));
    let neither = typed(scene.owner(), &["agent", "run", id]).await;
    assert!(stderr(&neither).contains("--request"), "{}", stderr(&neither));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sole_owner_decides_the_approvals_of_their_own_run() {
    let both = calls(&[("book", json!({"what": "a table"})), ("order", json!({"what": "wine"}))]);
    let turns = [both.clone(), say("Both are done."), both, say("One is done.")];
    let scene = Scene::play(json!(turns)).await;
    let agent = scene.agent(booking()).await;
    let run = ["agent", "run", agent.rsplit('/').next().unwrap()];
    let begin =
        || async { stderr(&typed(scene.owner(), &[&run[..], &["-r", "Go."]].concat()).await) };
    let output = begin().await;
    assert!(!output.contains("waiting for approval"), "nobody waits: {output}");
    assert!(output.contains(r#"approval required for book {"what":"a table"}: "#), "{output}");
    let done = typed(scene.owner(), &hinted(&output, "belljar agent run", true)).await;
    assert_eq!(stdout(&done), "Both are done.\n", "{}", stderr(&done));
    assert!(scene.messages(1).contains("booked wine"), "{}", scene.messages(1));

    let output = begin().await;
    let mut allowed = hinted(&output, "belljar agent run", true);
    let first = allowed.iter().position(|word| *word == "--allow").unwrap();
    allowed[first] = "--deny";
    let done = typed(scene.owner(), &allowed).await;
    assert_eq!(stdout(&done), "One is done.\n", "{}", stderr(&done));
    let output = scene.messages(3);
    assert!(output.contains("booked wine") && !output.contains("booked a table"), "{output}");
    let alone = typed(scene.owner(), &[&run[..], &["-r", "Go.", "--allow", "x"]].concat()).await;
    assert!(stderr(&alone).contains("--cursor"), "{}", stderr(&alone));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_fails_is_told_with_what_to_set() {
    let mut scene = Scene::play(json!([{"fail": {"status": 401, "message": "bad key"}}])).await;
    let run = ["agent", "run", "-r", "Count."];
    let output = stderr(&typed(scene.owner(), &run).await);
    assert!(output.contains("bad key") && output.contains("OPENAI_API_KEY"), "{output}");
    assert!(!output.contains("session"), "there is none: {output}");
    scene.model = ModelServer::start("[]");
    let output = stderr(&typed(scene.owner(), &run).await);
    assert!(output.contains("is unavailable") && output.contains("OPENAI_BASE_URL"), "{output}");
}
