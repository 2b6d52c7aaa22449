//! Code of a model in a workspace whose approval policy is `ask`.

use crate::harness::wait;
use crate::scripted_server::{CODE, RUNS_CODE, Scene, begin, call, code, plan, say, text};
use crate::test_server::Api;
use serde_json::{Value, json};

const PERMISSION: &str = "/v1/permissions/execute_python";

async fn question(api: &Api) -> Value {
    let first = async || {
        let open = api.get("/v1/approvals?state=pending").await;
        open["items"].as_array().unwrap().first().cloned()
    };
    wait::until_some("somebody is asked", first).await
}

async fn answer(api: &Api, question: &Value, decision: &str) {
    let path = format!("/v1/approvals/{}", text(&question["id"]));
    api.post(&path, json!({"decision": decision, "reason": "I say so"})).await;
}

async fn set(api: &Api, permission: &str) {
    let (status, now) = api.call("PUT", PERMISSION, Some(json!({"permission": permission}))).await;
    assert_eq!(status, 200, "{now}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_for_the_decision_and_continues_when_it_is_allowed() {
    let scene =
        Scene::play(json!([plan(&["Count"]), code("print(6 * 7)"), say("It is 42.")])).await;
    let ann = scene.world.principal("ann", &["USAGE"]).await;
    set(scene.owner(), "ask").await;
    let place = begin(&ann, CODE, json!({"request": "Count."})).await;
    let question = question(scene.owner()).await;
    assert_eq!(question["code"], "print(6 * 7)");
    let own = ann
        .refused(
            "POST",
            &format!("/v1/approvals/{}", text(&question["id"])),
            Some(json!({"decision": "allow"})),
        )
        .await;
    assert_eq!(own.0, 403, "whoever asks cannot answer");
    assert_eq!(ann.get(&place).await["status"], "running");
    assert_eq!(scene.asked().len(), 2, "the model waits too");
    answer(scene.owner(), &question, "allow").await;
    let done = crate::scripted_server::settled(&ann, &place).await;
    assert_eq!(done["status"], "succeeded", "{done}");
    let done = ann.get(&format!("{CODE}/{}", text(&done["id"]))).await;
    assert_eq!(
        (&done["answer"], &done["rounds"][0]["stdout"]),
        (&json!("It is 42."), &json!("42\n"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_told_that_its_code_was_denied_and_what_was_denied_does_not_run() {
    let scene = Scene::play(json!([
        plan(&["Write"]),
        code("open('written.txt', 'w').write('x')"),
        say("It was not allowed."),
        plan(&["Look"]),
        code("import os\nprint(os.listdir('.'))"),
        say("There is nothing."),
    ]))
    .await;
    let ann = scene.world.principal("ann", &["USAGE"]).await;
    set(scene.owner(), "ask").await;
    let place = begin(&ann, CODE, json!({"request": "Write."})).await;
    answer(scene.owner(), &question(scene.owner()).await, "deny").await;
    let record = crate::scripted_server::settled(&ann, &place).await;
    let messages = scene.messages(2);
    assert!(messages.contains("denied") && messages.contains("I say so"), "{messages}");
    let done = ann.get(&format!("{CODE}/{}", text(&record["id"]))).await;
    assert_eq!(
        (&done["complete"], &done["answer"]),
        (&json!(false), &json!("It was not allowed.")),
        "{done}"
    );
    assert_eq!(done["error"]["code"], "approval.denied");
    set(scene.owner(), "allow").await;
    let look = json!({"request": "Look.", "sandbox_id": done["sandbox_id"]});
    assert_eq!(ann.post(CODE, look).await["rounds"][0]["stdout"], "[]\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_withdrawn_when_the_run_is_cancelled() {
    let scene =
        Scene::play(json!([plan(&["Count"]), code("open('ran.txt', 'w').write('x')")])).await;
    let ann = scene.world.principal("ann", &["USAGE"]).await;
    set(scene.owner(), "ask").await;
    let place = begin(&ann, CODE, json!({"request": "Count."})).await;
    let question = question(scene.owner()).await;
    ann.post(&format!("{place}/cancel"), Value::Null).await;
    assert_eq!(crate::scripted_server::settled(&ann, &place).await["status"], "cancelled");
    let path = format!("/v1/approvals/{}", text(&question["id"]));
    let is_withdrawn = async || scene.owner().get(&path).await["state"] != "pending";
    wait::until("the question is withdrawn", is_withdrawn).await;
    let late = scene.owner().refused("POST", &path, Some(json!({"decision": "allow"}))).await;
    assert_eq!(late.1, "approval.invalid");
    let ran = scene.owner().get("/v1/executions?status=succeeded").await;
    assert_eq!(ran["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_code_is_not_allowed_at_all_no_model_gets_it_to_run() {
    let scene = Scene::play(json!([
        plan(&["Count"]),
        code("print(1)"),
        code("print(1)"),
        code("print(1)")
    ]))
    .await;
    let ann = scene.world.principal("ann", &["USAGE"]).await;
    set(scene.owner(), "deny").await;
    let done = ann.post(CODE, json!({"request": "Count."})).await;
    assert_eq!((&done["status"], &done["complete"]), (&json!("failed"), &json!(false)), "{done}");
    assert_eq!(done["error"]["code"], "budget.exhausted");
    let errors = done["rounds"].as_array().unwrap().iter().map(|round| text(&round["error"]));
    assert!(errors.clone().all(|error| error.starts_with("approval.denied")), "{done}");
    let ran = scene.owner().get("/v1/executions?status=succeeded").await;
    assert_eq!(ran["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_within_an_agent_waits_as_well() {
    let scene = Scene::play(json!([
        call("code_execution", json!({"request": "Count."})),
        plan(&["Count"]),
        code("print(6 * 7)"),
        say("Counted: 42."),
        say("It is 42."),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    let ann = scene.friend("ann", &agent).await;
    set(scene.owner(), "ask").await;
    let place = begin(&ann, &format!("{agent}/run"), json!({"message": "Count."})).await;
    let boss = scene.world.principal("boss", &["OWNERSHIP"]).await;
    answer(&boss, &question(&boss).await, "allow").await;
    let done = crate::scripted_server::settled(&ann, &place).await;
    assert_eq!(
        (&done["status"], &done["rounds"][0]["stdout"]),
        (&json!("succeeded"), &json!("42\n"))
    );
    assert!(scene.messages(4).contains("Counted: 42."));
}
