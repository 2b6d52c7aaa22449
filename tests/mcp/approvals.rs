//! Tools and code that need an approval: through the client if it supports elicitation, and nothing runs before
//! the decision.

use crate::harness::wait;
use crate::test_server::{Api, World};
use crate::wire::{Stdio, answer, called, hello, post};
use serde_json::{Value, json};

const DANGER: &str = "def handle(what: str) -> str:\n    \"\"\"Deletes something.\n\n    Args:\n        what: which\n    \"\"\"\n    return 'deleted ' + what\n";

pub(crate) async fn world() -> World {
    let world = World::start().await;
    let tool = json!({"type": "runPythonCode", "name": "danger", "configuration": {"pythonCode": DANGER}, "description": "Deletes something.", "approval_action": "review"});
    world.owner.post("/v1/tools", tool).await;
    world
}

pub(crate) fn can_ask() -> Value {
    json!({"elicitation": {"form": {}}})
}

async fn sent(api: &Api, more: Value) -> Value {
    let mut params = json!({"name": "danger", "arguments": {"what": "it"}});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    answer(post(api, "tools/call", params, &can_ask()).await).await
}

async fn call(api: &Api, more: Value) -> Value {
    sent(api, more).await["result"].clone()
}

pub(crate) async fn ran(world: &World) -> usize {
    let done = world.owner.get("/v1/executions?status=succeeded").await;
    done["items"].as_array().unwrap().len()
}

// proves P-021
#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_current_revision_is_asked_and_its_answer_runs_the_call_once() {
    let world = world().await;
    let question = call(&world.owner, json!({})).await;
    assert_eq!(question["resultType"], "input_required", "{question}");
    let form = &question["inputRequests"]["approval"];
    assert_eq!(form["method"], "elicitation/create");
    assert!(form["params"]["message"].as_str().unwrap().contains("danger"), "{form}");
    assert_eq!(ran(&world).await, 0);

    let state = question["requestState"].clone();
    let yes = json!({"requestState": state, "inputResponses": {"approval": {"action": "accept", "content": {}}}});
    let done = call(&world.owner, yes.clone()).await;
    assert_eq!(done["structuredContent"]["result"], "deleted it", "{done}");
    assert_eq!(ran(&world).await, 1);
    let twice = call(&world.owner, yes).await;
    assert_eq!(twice["isError"], true, "{twice}");
    assert_eq!(ran(&world).await, 1);

    let question = call(&world.owner, json!({})).await;
    let no = json!({"requestState": question["requestState"], "inputResponses": {"approval": {"action": "decline"}}});
    let denied = call(&world.owner, no).await;
    assert_eq!(denied["isError"], true, "{denied}");
    assert_eq!(ran(&world).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_good_for_the_call_that_was_asked_about_and_its_asker() {
    let world = world().await;
    let question = call(&world.owner, json!({})).await;
    let state = question["requestState"].clone();
    let answer_ = json!({"approval": {"action": "accept", "content": {}}});
    let ann = world.principal("ann", &["OWNERSHIP"]).await;
    let other = json!({"arguments": {"what": "everything"}, "requestState": state, "inputResponses": answer_});
    let forged = json!({"requestState": "forged", "inputResponses": answer_});
    let stolen = json!({"requestState": state, "inputResponses": answer_});
    for (api, more) in [(&world.owner, other), (&world.owner, forged), (&ann, stolen)] {
        let refused = sent(api, more).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert_eq!(ran(&world).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cannot_ask_and_a_service_are_told_where_to_answer() {
    let world = world().await;
    let link = |result: &Value| {
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        assert!(text.contains("approval.required") && text.contains("/v1/approvals/"), "{text}");
    };
    link(&called(&world.owner, "danger", json!({"what": "it"})).await);
    // A service has no person to ask, whatever its client says.
    link(&call(&world.principal("robot", &["OWNERSHIP"]).await, json!({})).await);
    assert_eq!(ran(&world).await, 0);
    let open = world.owner.get("/v1/approvals?state=pending").await;
    assert_eq!(open["items"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_a_call_that_another_principal_has_allowed_can_be_read() {
    let world = world().await;
    let robot = world.principal("robot", &["OWNERSHIP"]).await;
    called(&robot, "danger", json!({"what": "it"})).await;
    let open = world.owner.get("/v1/approvals?state=pending").await["items"][0].clone();
    let result = || called(&robot, "get_result", json!({"execution": open["execution_id"]}));
    let waits = result().await;
    assert!(waits["content"][0]["text"].as_str().unwrap().contains("still waiting"), "{waits}");
    let path = format!("/v1/approvals/{}", open["id"].as_str().unwrap());
    world.owner.post(&path, json!({"decision": "allow"})).await;
    let is_done = async || result().await["structuredContent"]["result"] == "deleted it";
    wait::until("it has run", is_done).await;
    let others = called(
        &world.principal("other", &["USAGE"]).await,
        "get_result",
        json!({"execution": open["execution_id"]}),
    )
    .await;
    assert_eq!(others["isError"], true, "{others}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_legacy_revision_is_asked_in_the_middle_of_the_call() {
    let world = world().await;
    let (url, key) = (world.address().to_owned(), world.owner.key.clone());
    let asked = tokio::task::spawn_blocking(move || {
        let variables = [("BELLJAR_URL", url.as_str()), ("BELLJAR_API_KEY", key.as_str())];
        let mut client = Stdio::silent(&[], &variables);
        client.request("initialize", hello(&json!({"elicitation": {}})));
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let mut answers = Vec::new();
        for action in ["accept", "decline"] {
            let params = json!({"name": "danger", "arguments": {"what": action}});
            let id = client.begin("tools/call", params);
            let question = client.receive();
            assert_eq!(question["method"], "elicitation/create", "{question}");
            let result = json!({"action": action, "content": {}});
            client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
            answers.push(client.answer(id)["result"].clone());
        }
        answers
    });
    let answers = asked.await.unwrap();
    assert_eq!(answers[0]["structuredContent"]["result"], "deleted accept", "{}", answers[0]);
    assert_eq!(answers[1]["isError"], true, "{}", answers[1]);
    assert_eq!(ran(&world).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_was_put_over_rest_is_not_answered_by_its_asker_over_mcp() {
    let world = world().await;
    let tools = world.owner.get("/v1/tools").await;
    let path = format!("/v1/tools/{}/call", tools["items"][0]["id"].as_str().unwrap());
    let (status, asked) =
        world.owner.call("POST", &path, Some(json!({"arguments": {"what": "it"}}))).await;
    assert_eq!(status, 202, "{asked}");
    let params = json!({
        "name": "danger", "arguments": {"what": "it"}, "requestState": asked["approval_id"],
        "inputResponses": {"approval": {"action": "accept", "content": {}}},
    });
    let answered = answer(post(&world.owner, "tools/call", params, &can_ask()).await).await;
    assert_eq!(answered["error"]["code"], -32602, "{answered}");
    assert_eq!(ran(&world).await, 0);
}

/// A person who may run code, and change nothing.
async fn person(world: &World) -> Api {
    let ann = json!({"name": "ann", "kind": "user"});
    let ann = world.owner.post("/v1/principals", ann).await["id"].clone();
    let me = world.owner.get("/v1/principals/me").await;
    let all = json!({"kind": "workspace", "id": me["workspace"]});
    let grant = json!({"principal": ann, "privilege": "USAGE", "object": all});
    world.owner.post("/v1/grants", grant).await;
    let key = world.owner.post("/v1/keys", json!({"name": "ann", "principal": ann})).await;
    world.api(key["secret"].as_str().unwrap())
}

async fn permit(world: &World, permission: &str) {
    let change = Some(json!({"permission": permission}));
    let (status, now) = world.owner.call("PUT", "/v1/permissions/execute_python", change).await;
    assert_eq!(status, 200, "{now}");
}

async fn run(api: &Api, arguments: Value, more: Value) -> Value {
    let mut params = json!({"name": "execute_python", "arguments": arguments});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    answer(post(api, "tools/call", params, &can_ask()).await).await
}

fn answered(question: &Value, action: &str) -> Value {
    let state = &question["result"]["requestState"];
    json!({"requestState": state, "inputResponses": {"approval": {"action": action, "content": {}}}})
}

// proves P-018
#[tokio::test(flavor = "multi_thread")]
async fn ask_first_puts_every_run_of_code_to_the_user_and_nothing_runs_before() {
    let world = World::start().await;
    let ann = person(&world).await;
    let script = json!({"code": "result = 6 * 7"});
    let allowed = run(&ann, script.clone(), json!({})).await;
    assert_eq!(allowed["result"]["structuredContent"]["result"], 42, "no prompt: {allowed}");

    permit(&world, "ask").await;
    for _ in 0..2 {
        let before = ran(&world).await;
        let question = run(&ann, script.clone(), json!({})).await;
        let message = &question["result"]["inputRequests"]["approval"]["params"]["message"];
        assert!(message.as_str().unwrap().contains("result = 6 * 7"), "{question}");
        assert_eq!(ran(&world).await, before);
        let other = run(&ann, json!({"code": "result = 1"}), answered(&question, "accept")).await;
        assert_eq!(other["error"]["code"], -32602, "{other}");
        let done = run(&ann, script.clone(), answered(&question, "accept")).await;
        assert_eq!(done["result"]["structuredContent"]["result"], 42, "{done}");
        assert_eq!(ran(&world).await, before + 1);
    }
    let question = run(&ann, script.clone(), json!({})).await;
    let denied = run(&ann, script.clone(), answered(&question, "decline")).await;
    assert_eq!(denied["result"]["isError"], true, "{denied}");

    permit(&world, "ask_once").await;
    let session = called(&ann, "create_session", json!({})).await;
    let session = &session["structuredContent"]["session"];
    let first = json!({"code": "x = 41", "session": session});
    let question = run(&ann, first.clone(), json!({})).await;
    run(&ann, first, answered(&question, "accept")).await;
    let next = run(&ann, json!({"code": "result = x + 1", "session": session}), json!({})).await;
    assert_eq!(next["result"]["structuredContent"]["result"], 42, "asked once: {next}");

    permit(&world, "deny").await;
    let refused = run(&ann, script, json!({})).await;
    assert_eq!(refused["result"]["structuredContent"]["error"]["code"], "approval.denied");
}

#[test]
fn an_engine_of_ones_own_asks_first_if_it_is_told_to() {
    let mut client = Stdio::silent(&["--permission", "ask"], &[]);
    client.request("initialize", hello(&json!({"elicitation": {}})));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    for (action, error) in [("accept", false), ("decline", true)] {
        let params = json!({"name": "execute_python", "arguments": {"code": "result = 42"}});
        let id = client.begin("tools/call", params);
        let question = client.receive();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let result = json!({"action": action, "content": {}});
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
        let done = client.answer(id);
        assert_eq!(done["result"]["isError"], error, "{done}");
    }
}

#[test]
fn an_engine_of_ones_own_runs_nothing_for_a_client_that_cannot_ask() {
    let mut client = Stdio::start(&["--permission", "ask"]);
    let params = json!({"name": "execute_python", "arguments": {"code": "result = 42"}});
    let refused = client.request("tools/call", params);
    let error = &refused["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "approval.denied", "{refused}");
    assert!(
        error["message"].as_str().unwrap().contains("this client does not support elicitation"),
        "{refused}"
    );
}

/// A person who may use this tool and change nothing.
async fn user_of(owner: &Api, tool: &str) -> Api {
    let ann = owner.post("/v1/principals", json!({"name": "ann", "kind": "user"})).await;
    let workspace = owner.get("/v1/principals/me").await["workspace"].clone();
    for (kind, id) in [("workspace", workspace), ("tool", json!(tool))] {
        let object = json!({"kind": kind, "id": id});
        let grant = json!({"principal": ann["id"], "privilege": "USAGE", "object": object});
        owner.post("/v1/grants", grant).await;
    }
    let key = owner.post("/v1/keys", json!({"name": "ann", "principal": ann["id"]})).await;
    Api::new(&owner.address, key["secret"].as_str().unwrap())
}

// proves C-146, C-166, C-172
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_with_a_handle_asks_the_user_of_the_client_unless_its_policy_says_otherwise() {
    let world = World::start().await;
    let tool = json!({"type": "runPythonCode", "name": "danger", "configuration": {"pythonCode": DANGER}, "description": "Deletes something."});
    let id = world.owner.post("/v1/tools", tool).await["id"].as_str().unwrap().to_owned();
    let ann = user_of(&world.owner, &id).await;
    let question = call(&ann, json!({})).await;
    assert_eq!((&question["resultType"], ran(&world).await), (&json!("input_required"), 0));
    let answered = |action: &str| json!({"requestState": question["requestState"], "inputResponses": {"approval": {"action": action, "content": {}}}});
    let done = call(&ann, answered("accept")).await;
    assert_eq!(done["structuredContent"]["result"], "deleted it", "{done}");
    assert_eq!(done["_meta"]["belljar/environment"], "bare", "{done}");
    assert_eq!(ran(&world).await, 1);
    // One who has no user to ask does not confirm for itself.
    let robot = world.principal("robot", &["OWNERSHIP"]).await;
    assert_eq!(call(&robot, json!({})).await["isError"], true);
    // With `review` a person who may not change the tool does not decide any more.
    let set = async |action: &str| {
        let body = Some(json!({"approval_action": action}));
        let answer = world.owner.call("PATCH", &format!("/v1/tools/{id}"), body).await;
        assert_eq!(answer.0, 200, "{}", answer.1);
    };
    set("review").await;
    assert_eq!(call(&ann, json!({})).await["isError"], true);
    assert_eq!(ran(&world).await, 1);
    set("allow").await;
    assert_eq!(
        call(&ann, json!({})).await["structuredContent"]["result"],
        "deleted it",
        "the twin"
    );
    let python = called(&world.owner, "execute_python", json!({"code": "6 * 7"})).await;
    assert_eq!(python["_meta"]["belljar/environment"], "bare", "{python}");
}
