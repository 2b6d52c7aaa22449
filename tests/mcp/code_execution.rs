//! `code_execution` over MCP, in a workspace where submitted code needs an approval.

use crate::approvals::{can_ask, ran};
use crate::harness::{wait, wait_blocking};
use crate::model::ModelServer;
use crate::test_server::World;
use crate::wire::{Stdio, called, hello, modern};
use serde_json::{Value, json};
use std::fs::write;
use tempfile::TempDir;

/// What a model says that counts in two rounds.
fn turns() -> Value {
    let call =
        |name: &str, arguments: Value| json!({"calls": [{"name": name, "arguments": arguments}]});
    json!([
        call("plan", json!({"steps": ["Count", "Double"]})),
        call("run_python", json!({"code": "x = 21"})),
        call("run_python", json!({"code": "print(x * 2)"})),
        {"say": "It is over."},
    ])
}

fn model() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.yaml");
    write(&path, turns().to_string()).unwrap();
    let name = format!("script:{}", path.display());
    (folder, name)
}

fn wish() -> Value {
    json!({"name": "code_execution", "arguments": {"request": "Count."}})
}

/// A client of the legacy revision, with an engine of its own that asks about code.
fn older(model: &str, capabilities: &Value) -> Stdio {
    let mut client = Stdio::silent(&["--permission", "ask", "--model", model], &[]);
    client.request("initialize", hello(capabilities));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    client
}

/// Answers the next question, and gives what it was.
fn reply(client: &mut Stdio, action: &str) -> String {
    let question = client.receive();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({"action": action, "content": {}});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
    question["params"]["message"].as_str().unwrap().to_owned()
}

fn said(refused: &Value) -> (&str, &str) {
    assert_eq!(refused["isError"], true, "{refused}");
    let error = &refused["structuredContent"]["error"];
    (error["code"].as_str().unwrap(), error["message"].as_str().unwrap())
}

#[test]
fn the_user_is_asked_about_each_round_in_the_middle_of_the_call() {
    let (_folder, model) = model();
    let mut client = older(&model, &json!({"elicitation": {}}));
    let id = client.begin("tools/call", wish());
    assert!(reply(&mut client, "accept").contains("x = 21"));
    assert!(reply(&mut client, "accept").contains("print(x * 2)"));
    let result = client.answer(id)["result"].clone();
    let done = result["structuredContent"].clone();
    let session = format!("sandbox_id: {}", done["sandbox_id"].as_str().unwrap());
    assert_eq!(result["content"][0]["text"], done["answer"]);
    assert_eq!(result["content"][1]["text"], session, "for models that see the text alone");
    assert_eq!(
        (&done["answer"], &done["rounds"][1]["stdout"]),
        (&json!("It is over."), &json!("42\n")),
        "{done}"
    );
}

#[test]
fn code_that_the_user_denies_does_not_run_and_the_model_is_told() {
    let (_folder, model) = model();
    let mut client = older(&model, &json!({"elicitation": {}}));
    let id = client.begin("tools/call", wish());
    reply(&mut client, "decline");
    reply(&mut client, "accept");
    let done = client.answer(id)["result"]["structuredContent"].clone();
    let errors = [0, 1].map(|round| done["rounds"][round]["error"].as_str().unwrap());
    assert!(errors[0].starts_with("approval.denied"), "{done}");
    assert!(errors[1].contains("NameError"), "{done}");
}

#[test]
fn a_user_who_leaves_the_question_open_ends_the_run() {
    let (_folder, model) = model();
    let mut client = older(&model, &json!({"elicitation": {}}));
    let id = client.begin("tools/call", wish());
    reply(&mut client, "accept");
    reply(&mut client, "cancel");
    let left = client.answer(id)["result"].clone();
    let (code, message) = said(&left);
    assert_eq!(code, "approval.denied");
    assert!(message.contains("the run was ended before this code"), "{message}");
}

#[test]
fn a_client_that_cannot_be_asked_is_told_so_at_once() {
    let (_folder, model) = model();
    let mut unable = older(&model, &json!({}));
    let refused = unable.request("tools/call", wish())["result"].clone();
    let (code, message) = said(&refused);
    assert_eq!(code, "approval.denied");
    assert!(message.contains("this client does not support elicitation"), "{message}");

    let mut newer = Stdio::silent(&["--permission", "ask", "--model", &model], &[]);
    let refused = newer.request("tools/call", modern(wish(), &can_ask()))["result"].clone();
    let (code, message) = said(&refused);
    assert_eq!(code, "approval.denied");
    assert!(message.contains("call execute_python with your own code"), "{message}");
}

#[test]
fn a_task_that_needs_an_approval_ends_where_it_cannot_be_decided() {
    let (_folder, model) = model();
    let options = ["--permission", "ask", "--task-seconds", "0", "--model", &model];
    let mut client = Stdio::silent(&options, &[]);
    let can = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    // A script answers at once, so that the question may come before there is a task.
    let task = std::iter::repeat_with(|| {
        let answer = client.request("tools/call", modern(wish(), &can))["result"].clone();
        let is_task = answer["resultType"] == "task";
        assert!(is_task || said(&answer).0 == "approval.denied", "{answer}");
        is_task.then_some(answer)
    });
    let task = task.take(100).flatten().next().expect("it never becomes a task");
    let ended = wait_blocking::until_some("the task has ended", || {
        let params = modern(json!({"taskId": task["taskId"]}), &can);
        let now = client.request("tasks/get", params)["result"].clone();
        (now["status"] != "working").then_some(now)
    });
    assert_eq!(ended["status"], "cancelled", "{ended}");
}

#[test]
fn a_model_of_ones_own_is_asked_where_it_is_and_what_it_said_is_kept() {
    let (model, kept) = (ModelServer::start(&turns().to_string()), tempfile::tempdir().unwrap());
    let (endpoint, record) = (format!("lab={}", model.url()), kept.path().to_str().unwrap());
    let options = ["--model", "lab/counter", "--model-endpoint", &endpoint, "--record", record];
    let done = Stdio::start(&options).call("code_execution", json!({"request": "Count."}));
    assert_eq!(done["structuredContent"]["answer"], "It is over.", "{done}");
    assert_eq!(std::fs::read_dir(record).unwrap().count(), 1, "one run is one recording");
}

// proves U-001
#[test]
fn the_other_name_is_the_same_tool() {
    let (_folder, script) = model();
    let options = ["--model", script.as_str()];
    for name in ["code_execution", "code_interpreter"] {
        let done = Stdio::start(&options).call(name, json!({"request": "Count."}));
        assert_eq!(done["structuredContent"]["answer"], "It is over.", "{name}: {done}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_server_the_run_waits_for_a_decision_over_its_rest_api() {
    let (_folder, model) = model();
    let variable = format!("BELLJAR_MODEL={model}");
    let world = World::under(&["env", &variable], &[]).await;
    let ask = Some(json!({"permission": "ask"}));
    assert_eq!(world.owner.call("PUT", "/v1/permissions/execute_python", ask).await.0, 200);
    let ann = world.principal("ann", &["USAGE"]).await;
    let refused = called(&ann, "code_execution", json!({"request": "Count."})).await;
    let (code, message) = said(&refused);
    assert_eq!(code, "approval.required");
    assert!(message.contains("belljar approvals allow"), "{message}");
    assert_eq!(ran(&world).await, 0);
    let run = message.split("\"execution\": \"").nth(1).unwrap().split('"').next().unwrap();
    let done = wait::until_some("the run has ended", async || {
        let done = called(&ann, "get_result", json!({"execution": run})).await;
        if done["structuredContent"]["answer"] == "It is over." {
            return Some(done);
        }
        let open = world.owner.get("/v1/approvals?state=pending").await;
        for question in open["items"].as_array().unwrap() {
            let path = format!("/v1/approvals/{}", question["id"].as_str().unwrap());
            world.owner.post(&path, json!({"decision": "allow"})).await;
        }
        None
    });
    assert_eq!(done.await["structuredContent"]["rounds"][1]["stdout"], "42\n");
}
