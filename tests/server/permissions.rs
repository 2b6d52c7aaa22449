//! The approval policy of a workspace for submitted code: run, refused, or shown to a person first.

use crate::approvals::{approval_of, settled};
use crate::test_server::{Api, World};
use serde_json::{Value, json};

const PATH: &str = "/v1/permissions/execute_python";

async fn set(who: &Api, permission: &str) -> Value {
    let (status, now) = who.call("PUT", PATH, Some(json!({"permission": permission}))).await;
    assert_eq!((status, &now["permission"]), (200, &json!(permission)), "{now}");
    now
}

async fn sent(who: &Api, path: &str, code: &str) -> (u16, Value) {
    who.call("POST", path, Some(json!({"code": code}))).await
}

async fn asked(who: &Api, path: &str, code: &str) -> Value {
    let (status, record) = sent(who, path, code).await;
    assert_eq!((status, &record["status"]), (202, &json!("waiting_approval")), "{record}");
    record
}

async fn allow(world: &World, record: &Value, more: Value) -> Value {
    let mut decision = json!({"decision": "allow"});
    decision.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.owner.post(&approval_of(record), decision).await
}

#[tokio::test(flavor = "multi_thread")]
async fn code_is_shown_to_a_person_before_every_run_where_the_workspace_asks() {
    let world = World::start().await;
    let agent = world.principal("agent", &["USAGE"]).await;
    assert_eq!(sent(&agent, "/v1/execute", "6 * 7").await.1["value"], 42, "allowed at first");
    set(&world.owner, "ask").await;
    for round in 1..=2 {
        let record = asked(&agent, "/v1/execute", "6 * 7").await;
        let question = world.owner.get(&approval_of(&record)).await;
        assert_eq!(
            (&question["tool_name"], &question["code"]),
            (&json!("execute_python"), &json!("6 * 7"))
        );
        let yes = Some(json!({"decision": "allow"}));
        let mine = agent.refused("POST", &approval_of(&record), yes).await;
        assert_eq!(mine.0, 403, "whoever asks cannot answer");
        allow(&world, &record, json!({})).await;
        let done = settled(&agent, &record).await;
        assert_eq!((&done["status"], &done["value"]), (&json!("succeeded"), &json!(42)), "{round}");
        assert_eq!((&done["entry"], &done["tool"]), (&json!("cell"), &Value::Null));
    }
    let refused = asked(&agent, "/v1/execute", "open('ran.txt', 'w')").await;
    world.owner.post(&approval_of(&refused), json!({"decision": "deny"})).await;
    let done = settled(&agent, &refused).await;
    assert_eq!((&done["status"], &done["files_out"]), (&json!("denied"), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_is_good_for_a_session_where_the_workspace_asks_once() {
    let world = World::start().await;
    let agent = world.principal("agent", &["USAGE"]).await;
    set(&world.owner, "ask_once").await;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let session = agent.post("/v1/sessions", json!({})).await;
        sessions.push(format!("/v1/sessions/{}/execute", session["sandbox_id"].as_str().unwrap()));
    }
    let record = asked(&agent, &sessions[0], "x = 41").await;
    let answer = allow(&world, &record, json!({})).await;
    assert_eq!(answer["scope"], "session");
    settled(&agent, &record).await;
    let (status, next) = sent(&agent, &sessions[0], "x + 1").await;
    assert_eq!((status, &next["value"]), (200, &json!(42)), "other code, and nobody is asked");
    asked(&agent, &sessions[1], "1").await;
    asked(&agent, "/v1/execute", "1").await;
    // Said again, it is asked again.
    set(&world.owner, "ask_once").await;
    asked(&agent, &sessions[0], "x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_code_is_denied_it_never_runs_and_tools_still_do() {
    let world = World::start().await;
    let agent = world.principal("agent", &["USAGE"]).await;
    let tool = json!({
        "name": "doubles", "description": "Doubles.", "tool_type": "code_runner",
        "configuration": {"type": "CodeRunner", "runtime": "python", "code": "def run(input):\n    return 2 * input['n']\n"},
    });
    let tool = world.owner.post("/v1/tools", tool).await;
    set(&world.owner, "deny").await;
    for who in [&agent, &world.owner] {
        let error = who.refused("POST", "/v1/execute", Some(json!({"code": "1"}))).await;
        assert_eq!(error, (403, "approval.denied".into()));
    }
    let path = format!("/v1/tools/{}/call", tool["id"].as_str().unwrap());
    let called = world.owner.post(&path, json!({"arguments": {"n": 21}})).await;
    assert_eq!(called["value"], 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_about_code_is_void_once_code_is_denied() {
    let world = World::start().await;
    let agent = world.principal("agent", &["USAGE"]).await;
    set(&world.owner, "ask").await;
    let record = asked(&agent, "/v1/execute", "1").await;
    set(&world.owner, "deny").await;
    let decision = Some(json!({"decision": "allow"}));
    let error = world.owner.refused("POST", &approval_of(&record), decision).await;
    assert_eq!(error, (403, "approval.denied".into()));
    set(&world.owner, "ask").await;
    allow(&world, &record, json!({})).await;
    assert_eq!(settled(&agent, &record).await["value"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_make_tools_may_not_say_that_code_runs() {
    let world = World::start().await;
    let agent = world.principal("agent", &["USAGE"]).await;
    set(&world.owner, "ask").await;
    let error = agent.refused("PUT", PATH, Some(json!({"permission": "allow"}))).await;
    assert_eq!(error, (403, "grant.missing".into()));
    assert_eq!(agent.get(PATH).await["permission"], "ask");
    let unknown = world.owner.refused("PUT", PATH, Some(json!({"permission": "maybe"}))).await;
    assert_eq!(unknown.0, 400);
    let maker = world.principal("maker", &["USAGE", "MODIFY"]).await;
    set(&maker, "allow").await;
    assert_eq!(sent(&agent, "/v1/execute", "1").await.1["value"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_for_once_is_for_once_and_who_asks_too_much_is_told() {
    let world = World::start().await;
    let agent = world.principal("agent", &["USAGE"]).await;
    set(&world.owner, "ask_once").await;
    let session = agent.post("/v1/sessions", json!({})).await;
    let path = format!("/v1/sessions/{}/execute", session["sandbox_id"].as_str().unwrap());
    let record = asked(&agent, &path, "1").await;
    assert_eq!(world.owner.get(&approval_of(&record)).await["scope"], "session");
    let answer = allow(&world, &record, json!({"scope": "once"})).await;
    assert_eq!(answer["scope"], "once");
    settled(&agent, &record).await;
    asked(&agent, &path, "2").await;
    for _ in 0..999 {
        asked(&agent, "/v1/execute", "3").await;
    }
    let error = agent.refused("POST", "/v1/execute", Some(json!({"code": "4"}))).await;
    assert_eq!(error.1, "capacity.exhausted");
    let other = world.principal("other", &["USAGE"]).await;
    asked(&other, "/v1/execute", "5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn code_of_an_agent_is_answered_for_by_the_workspace() {
    let world = World::start().await;
    let (ann, bob) =
        (world.principal("ann", &["USAGE"]).await, world.principal("bob", &["USAGE"]).await);
    let text = "tools: [{tool_spec: {type: code_execution, name: code_execution}}]\n\
                tool_resources: {code_execution: {environment: bare}}\n";
    let made = world.owner.post("/v1/agents", json!({"name": "a", "specification": text})).await;
    for (who, privilege) in [(&ann, "USAGE"), (&bob, "MODIFY")] {
        let me = who.get("/v1/principals/me").await["id"].clone();
        let object = json!({"kind": "agent", "id": made["id"]});
        let grant = json!({"principal": me, "privilege": privilege, "object": object});
        world.owner.post("/v1/grants", grant).await;
    }
    set(&world.owner, "ask").await;
    let session = ann.post("/v1/sessions", json!({"agent_id": made["id"]})).await;
    let path = format!("/v1/sessions/{}/execute", session["sandbox_id"].as_str().unwrap());
    let record = asked(&ann, &path, "6 * 7").await;
    let yes = Some(json!({"decision": "allow"}));
    assert_eq!(bob.refused("POST", &approval_of(&record), yes).await.0, 404);
    allow(&world, &record, json!({})).await;
    assert_eq!(settled(&ann, &record).await["value"], 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_call_does_not_stand_in_for_a_module_of_the_tool() {
    let world = World::start().await;
    let code = "import colorsys\ndef run(input):\n    return [colorsys.__file__, open('colorsys.py').read()]\n";
    let tool = json!({
        "name": "looks", "description": "Looks.", "tool_type": "code_runner", "environment": "bare",
        "configuration": {"type": "CodeRunner", "runtime": "python", "code": code},
    });
    let tool = world.owner.post("/v1/tools", tool).await;
    set(&world.owner, "deny").await;
    let path = format!("/v1/tools/{}/call", tool["id"].as_str().unwrap());
    let files = json!([{"name": "colorsys.py", "text": "__file__ = 'mine'"}]);
    let called = world.owner.post(&path, json!({"arguments": {}, "files": files})).await;
    assert_eq!(called["value"][1], "__file__ = 'mine'", "it is there to be read: {called}");
    assert_ne!(called["value"][0], "mine", "and is not run: {called}");
}
