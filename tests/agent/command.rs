//! `belljar agent run`, as people type it.

use crate::harness::{self, stderr, stdout};
use crate::model::ModelServer;
use crate::scene::{code, plan, say};
use serde_json::json;

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
