//! `belljar agent run`, as people type it.

use crate::confirmations::{book, booking};
use crate::harness::{self, stderr, stdout};
use crate::model::ModelServer;
use crate::scene::{Scene, code, plan, say};
use crate::world::Api;
use serde_json::json;
use std::process::Output;

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

pub(crate) async fn typed(api: &Api, words: &[&str]) -> Output {
    let mut command = harness::belljar(words);
    command.env("BELLJAR_URL", &api.address).env("BELLJAR_API_KEY", &api.key);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The command that stands in this text and begins so.
fn hinted<'a>(told: &'a str, beginning: &str) -> Vec<&'a str> {
    let found = told.split('`').find(|piece| piece.starts_with(beginning));
    found.unwrap_or_else(|| panic!("{beginning:?} is not in {told:?}")).split(' ').skip(1).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_that_a_question_is_told_with_answer_it_and_go_on() {
    let scene = Scene::play(json!([book("a table"), say("The table is booked.")])).await;
    let agent = scene.agent(booking()).await;
    let boss = scene.world.principal("boss", &["OWNERSHIP"]).await;
    let id = agent.rsplit('/').next().unwrap();
    let asked = typed(scene.owner(), &["agent", "run", id, "-r", "Book a table."]).await;
    let told = stderr(&asked);
    let answered = typed(&boss, &hinted(&told, "belljar approvals allow")).await;
    assert!(answered.status.success(), "{}", stderr(&answered));
    let done = typed(scene.owner(), &hinted(&told, "belljar agent run")).await;
    assert_eq!(stdout(&done), "The table is booked.\n", "{}", stderr(&done));
    let neither = typed(scene.owner(), &["agent", "run", id]).await;
    assert!(stderr(&neither).contains("--request"), "{}", stderr(&neither));
}
