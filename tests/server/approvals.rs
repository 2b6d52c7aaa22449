//! Calls that need an approval: bound to exactly what will run, and used once.

use crate::harness::wait;
use crate::test_server::{Api, World, events};
use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const TOOL: &str =
    "def run(input):\n    open('ran.txt', 'w').write('x')\n    return {'got': input}\n";

/// A tool that asks, an agent's principal that calls it, and the owner who answers.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) agent: Api,
    pub(crate) tool: String,
}

impl Scene {
    pub(crate) async fn start(options: &[&str]) -> Self {
        let world = World::with(options).await;
        let agent = world.principal("agent", &["USAGE"]).await;
        let tool = asking_tool(&world, "asks").await;
        let me = agent.get("/v1/principals/me").await["id"].clone();
        let grant =
            json!({"principal": me, "privilege": "USAGE", "object": {"kind": "tool", "id": tool}});
        world.owner.post("/v1/grants", grant).await;
        Self { world, agent, tool }
    }

    pub(crate) async fn ask(&self, arguments: Value) -> Value {
        self.ask_with(json!({"arguments": arguments})).await
    }

    pub(crate) async fn ask_with(&self, request: Value) -> Value {
        let path = format!("/v1/tools/{}/call", self.tool);
        let (status, record) = self.agent.call("POST", &path, Some(request)).await;
        assert_eq!((status, &record["status"]), (202, &json!("waiting_approval")), "{record}");
        record
    }

    pub(crate) async fn answer(&self, record: &Value, decision: Value) -> Value {
        self.world.owner.post(&approval_of(record), decision).await
    }

    pub(crate) async fn settled(&self, record: &Value) -> Value {
        settled(&self.agent, record).await
    }
}

pub(crate) async fn asking_tool(world: &World, name: &str) -> String {
    asking_tool_of(&world.owner, name).await
}

pub(crate) async fn asking_tool_of(owner: &Api, name: &str) -> String {
    let tool = json!({
        "name": name, "description": "Asks before it runs.", "tool_type": "code_runner",
        "approval_action": "review",
        "configuration": {"type": "CodeRunner", "runtime": "python", "code": TOOL},
    });
    owner.post("/v1/tools", tool).await["id"].as_str().unwrap().to_owned()
}

pub(crate) fn approval_of(record: &Value) -> String {
    format!("/v1/approvals/{}", record["approval_id"].as_str().unwrap())
}

pub(crate) async fn settled(api: &Api, record: &Value) -> Value {
    let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
    let settled = async || {
        let now = api.get(&path).await;
        let unsettled = ["waiting_approval", "queued", "running"];
        (!unsettled.contains(&now["status"].as_str().unwrap())).then_some(now)
    };
    wait::until_some("the call has ended", settled).await
}

// proves W-054
#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_before_the_approval_and_then_exactly_that_runs() {
    let scene = Scene::start(&[]).await;
    let record = scene.ask(json!({"n": 1})).await;
    let listed = scene.world.owner.get("/v1/approvals?state=pending").await;
    assert_eq!(listed["items"][0]["arguments"], json!({"n": 1}));
    assert_eq!(listed["items"][0]["code"], TOOL);
    let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
    let waits = async || scene.agent.get(&path).await["status"] == "waiting_approval";
    wait::stays(Duration::from_millis(300), "it waits for an answer", waits).await;
    let answered = scene.answer(&record, json!({"decision": "allow", "reason": "fine"})).await;
    assert_eq!((&answered["state"], &answered["reason"]), (&json!("allowed"), &json!("fine")));
    let done = scene.settled(&record).await;
    assert_eq!((&done["status"], &done["value"]), (&json!("succeeded"), &json!({"got": {"n": 1}})));
    assert_eq!(done["created_at"], record["created_at"], "it is as old as the question");
    assert_eq!(scene.world.owner.get(&approval_of(&record)).await["state"], "used");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_never_runs_and_says_why() {
    let scene = Scene::start(&[]).await;
    let record = scene.ask(json!({})).await;
    scene.answer(&record, json!({"decision": "deny", "reason": "too risky"})).await;
    let done = scene.settled(&record).await;
    assert_eq!(
        (&done["status"], &done["error"]["code"]),
        (&json!("denied"), &json!("approval.denied"))
    );
    assert!(done["error"]["message"].as_str().unwrap().contains("too risky"));
    assert_eq!(done["files_out"], json!([]));
    let late = json!({"decision": "allow"});
    let error = scene.world.owner.refused("POST", &approval_of(&record), Some(late)).await;
    assert_eq!(error, (403, "approval.invalid".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn t55_a_requester_cannot_decide_and_a_principal_without_rights_does_not_see_the_approval() {
    let scene = Scene::start(&[]).await;
    let record = scene.ask(json!({})).await;
    let allow = Some(json!({"decision": "allow"}));
    let (status, _) = scene.agent.refused("POST", &approval_of(&record), allow.clone()).await;
    assert_eq!(status, 403);
    let stranger = scene.world.principal("stranger", &["USAGE"]).await;
    let error = stranger.refused("POST", &approval_of(&record), allow.clone()).await;
    assert_eq!(error, (404, "object.not_found".into()));
    assert_eq!(stranger.get("/v1/approvals").await["items"], json!([]));
    // The owner of everything cannot answer its own question either.
    let path = format!("/v1/tools/{}/call", scene.tool);
    let (_, own) = scene.world.owner.call("POST", &path, Some(json!({"arguments": {}}))).await;
    let error = scene.world.owner.refused("POST", &approval_of(&own), allow).await;
    assert_eq!(error, (403, "approval.denied".into()));
    scene.answer(&record, json!({"decision": "allow"})).await;
    assert_eq!(scene.settled(&record).await["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn t55_fifty_decisions_at_once_are_one_run() {
    let scene = Scene::start(&[]).await;
    let record = scene.ask(json!({})).await;
    let answers = (0..50).map(|_| {
        let (owner, path) = (scene.world.owner.clone(), approval_of(&record));
        tokio::spawn(async move {
            owner.call("POST", &path, Some(json!({"decision": "allow"}))).await.0
        })
    });
    let mut allowed = 0;
    for answer in answers.collect::<Vec<_>>() {
        allowed += usize::from(answer.await.unwrap() == 200);
    }
    assert_eq!(allowed, 1);
    assert_eq!(scene.settled(&record).await["status"], "succeeded");
    let audit = scene.world.owner.get("/v1/audit?action=execution.run").await;
    assert_eq!(audit["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_for_always_holds_for_the_same_code_and_no_other() {
    let scene = Scene::start(&[]).await;
    let record = scene.ask(json!({"n": 1})).await;
    scene.answer(&record, json!({"decision": "allow", "scope": "always"})).await;
    scene.settled(&record).await;
    let path = format!("/v1/tools/{}/call", scene.tool);
    let again = scene.agent.post(&path, json!({"arguments": {"n": 2}})).await;
    assert_eq!(again["value"], json!({"got": {"n": 2}}));
    let changed = json!({"configuration": {
        "type": "CodeRunner", "runtime": "python", "code": "def run(input):\n    return 'other'\n",
    }});
    let patched =
        scene.world.owner.call("PATCH", &format!("/v1/tools/{}", scene.tool), Some(changed)).await;
    assert_eq!(patched.0, 200, "{}", patched.1);
    scene.ask(json!({"n": 3})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_for_a_session_holds_in_that_session_only() {
    let scene = Scene::start(&[]).await;
    let (one, other) = (scene.agent.session().await, scene.agent.session().await);
    let record = scene.ask_with(json!({"sandbox_id": one})).await;
    scene.answer(&record, json!({"decision": "allow", "scope": "session"})).await;
    scene.settled(&record).await;
    let path = format!("/v1/tools/{}/call", scene.tool);
    assert_eq!(scene.agent.post(&path, json!({"sandbox_id": one})).await["status"], "succeeded");
    scene.ask_with(json!({"sandbox_id": other})).await;
    scene.ask_with(json!({})).await;
    let fresh = scene.ask(json!({})).await;
    let session = Some(json!({"decision": "allow", "scope": "session"}));
    let error = scene.world.owner.refused("POST", &approval_of(&fresh), session).await;
    assert_eq!(error, (400, "args.invalid".into()), "there is no session");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_call_tells_the_question_the_answer_and_the_end() {
    let scene = Scene::start(&[]).await;
    let request = scene
        .agent
        .request(Method::POST, &format!("/v1/tools/{}/call", scene.tool))
        .header("accept", "text/event-stream")
        .header("content-type", "application/json")
        .body("{}");
    let stream = tokio::spawn(async move { events(request.send().await.unwrap()).await });
    let pending = wait::until_some("somebody is asked", async || {
        let listed = scene.world.owner.get("/v1/approvals?state=pending").await;
        listed["items"].get(0).cloned()
    });
    let pending = pending.await;
    let path = format!("/v1/approvals/{}", pending["id"].as_str().unwrap());
    scene.world.owner.post(&path, json!({"decision": "allow"})).await;
    let received = stream.await.unwrap();
    let names: Vec<&str> = received.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["status", "approval", "status", "file", "end"]);
    assert_eq!(received[4].2["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_question_does_not_hold_up_a_stop_and_is_there_after_it() {
    let mut scene = Scene::start(&["--drain-seconds", "30"]).await;
    let record = scene.ask(json!({"n": 1})).await;
    let began = Instant::now();
    assert_eq!(scene.world.stop().await, Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "it waited {:?}", began.elapsed());
    scene.world.again().await;
    scene.agent = scene.world.api(&scene.agent.key);
    scene.answer(&record, json!({"decision": "allow"})).await;
    assert_eq!(scene.settled(&record).await["value"], json!({"got": {"n": 1}}));
}

/// Writes to the records as an attacker without the key of the server could.
fn tamper(world: &World, number: usize, approval: &Value, execution: &Value) -> String {
    let records = Connection::open(world.database()).unwrap();
    records.busy_timeout(Duration::from_secs(5)).unwrap();
    let blob =
        |id: &Value| uuid::Uuid::parse_str(id.as_str().unwrap()).unwrap().as_bytes().to_vec();
    let (approval, execution) = (blob(approval), blob(execution));
    let plan: Vec<u8> = records
        .query_row("SELECT plan FROM executions WHERE id = ?1", [&execution], |row| row.get(0))
        .unwrap();
    let mut plan: Value = serde_json::from_slice(&plan).unwrap();
    let kind = match number % 5 {
        0 => {
            plan["arguments"]["n"] = json!(format!("evil {number}"));
            "arguments"
        }
        1 => {
            plan["limits"]["wall_ms"] = json!(1000 + number);
            "limits"
        }
        2 => {
            plan["arguments"][format!("k{number}")] = json!(1);
            "an argument more"
        }
        3 => {
            let seal: Vec<u8> = (0..32).map(|byte| (byte * 7 + number) as u8).collect();
            let sql = "UPDATE approvals SET mac = ?1 WHERE id = ?2";
            assert_eq!(records.execute(sql, (seal, &approval)).unwrap(), 1);
            "the seal"
        }
        _ => "nothing but the answer",
    };
    let plan = serde_json::to_vec(&plan).unwrap();
    records.execute("UPDATE executions SET plan = ?1 WHERE id = ?2", (plan, &execution)).unwrap();
    let body: String = records
        .query_row("SELECT body FROM approvals WHERE id = ?1", [&approval], |row| row.get(0))
        .unwrap();
    let mut body: Value = serde_json::from_str(&body).unwrap();
    body["state"] = json!("allowed");
    body["decided_by"] = body["run_as"].clone();
    let sql = "UPDATE approvals SET state = 'allowed', body = ?1 WHERE id = ?2";
    records.execute(sql, (body.to_string(), &approval)).unwrap();
    kind.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn t54_a_thousand_forged_decisions_run_nothing() {
    let mut scene = Scene::start(&[]).await;
    let mut asked = Vec::new();
    for number in 0..1000 {
        asked.push(scene.ask(json!({"n": number})).await);
    }
    scene.world.kill();
    let mut kinds = Vec::new();
    for (number, record) in asked.iter().enumerate() {
        kinds.push(tamper(&scene.world, number, &record["approval_id"], &record["id"]));
    }
    // At its start the server takes up whatever was agreed to and has not begun.
    scene.world.again().await;
    scene.agent = scene.world.api(&scene.agent.key);
    for (record, kind) in asked.iter().zip(kinds) {
        let done = scene.settled(record).await;
        assert_eq!(
            (&done["status"], &done["error"]["code"]),
            (&json!("failed"), &json!("approval.invalid")),
            "{kind}"
        );
        assert_eq!(done["files_out"], json!([]));
    }
    let record = scene.ask(json!({"n": "honest"})).await;
    scene.answer(&record, json!({"decision": "allow"})).await;
    assert_eq!(scene.settled(&record).await["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn t54_what_changes_between_the_request_and_the_decision_is_not_run() {
    let scene = Scene::start(&[]).await;
    let path = format!("/v1/tools/{}", scene.tool);
    let record = scene.ask(json!({})).await;
    let changed = json!({"configuration": {
        "type": "CodeRunner", "runtime": "python", "code": format!("{TOOL}#"),
    }});
    assert_eq!(scene.world.owner.call("PATCH", &path, Some(changed)).await.0, 200);
    let allow = Some(json!({"decision": "allow"}));
    let error = scene.world.owner.refused("POST", &approval_of(&record), allow.clone()).await;
    assert_eq!(error, (403, "approval.invalid".into()));

    let file = json!({"files": [{"name": "in.txt", "text": "one"}]});
    let record = scene.ask_with(file).await;
    let approval = scene.world.owner.get(&approval_of(&record)).await;
    assert_eq!(approval["files"][0][0], "in.txt");
    change_kept_files(&scene.world);
    scene.world.owner.post(&approval_of(&record), json!({"decision": "allow"})).await;
    let done = scene.settled(&record).await;
    assert_eq!(
        (&done["status"], &done["error"]["code"]),
        (&json!("failed"), &json!("approval.invalid"))
    );

    let record = scene.ask(json!({})).await;
    for grant in scene.world.owner.get("/v1/grants").await["items"].as_array().unwrap() {
        if grant["object"]["kind"] == "tool" && grant["privilege"] == "USAGE" {
            scene
                .world
                .owner
                .delete(&format!("/v1/grants/{}", grant["id"].as_str().unwrap()))
                .await;
        }
    }
    let error = scene.world.owner.refused("POST", &approval_of(&record), allow).await;
    assert_eq!(error, (403, "grant.missing".into()), "the requester may not any more");
}

fn change_kept_files(world: &World) {
    let files = world.data.path().join("db/files");
    let mut changed = 0;
    let directories = std::fs::read_dir(files).unwrap().map(|directory| directory.unwrap().path());
    for directory in directories.filter(|directory| directory.is_dir()) {
        for file in std::fs::read_dir(directory).unwrap() {
            std::fs::write(file.unwrap().path(), "two").unwrap();
            changed += 1;
        }
    }
    assert_eq!(changed, 1);
}
