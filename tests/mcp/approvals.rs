//! A tool that a person is asked about first: through the client where it can, and nothing runs
//! before the answer.

use crate::wire::{Stdio, answer, called, hello, post};
use crate::world::{Api, World};
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
async fn a_client_of_the_newer_era_is_asked_and_its_answer_runs_the_call_once() {
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
        let told = result["content"][0]["text"].as_str().unwrap().to_owned();
        assert!(told.contains("approval.required") && told.contains("/v1/approvals/"), "{told}");
    };
    link(&called(&world.owner, "danger", json!({"what": "it"})).await);
    // A service has nobody to ask, whatever its client says.
    link(&call(&world.principal("robot", &["OWNERSHIP"]).await, json!({})).await);
    assert_eq!(ran(&world).await, 0);
    let open = world.owner.get("/v1/approvals?state=pending").await;
    assert_eq!(open["items"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_older_era_is_asked_in_the_middle_of_the_call() {
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
