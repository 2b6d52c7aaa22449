//! The test of a tool while it is written, and of tools that are part of an agent.

use crate::approvals::{approval_of, settled};
use crate::test_server::{Api, World, printed};
use serde_json::{Value, json};

const DOUBLE: &str = "def handle(n: int) -> int:\n    \"\"\"Doubles.\n\n    Args:\n        n: it\n    \"\"\"\n    return n * 2\n";
const PATH: &str = "/v1/tools/test";

/// Code with this `test()`.
fn with_test(test: &str) -> String {
    format!("{DOUBLE}\ndef test():\n{test}")
}

fn handle(code: &str) -> Value {
    json!({"type": "runPythonCode", "configuration": {"pythonCode": code}})
}

async fn python(api: &Api, query: &str, code: &str) -> (u16, Value) {
    let request = api.request(reqwest::Method::POST, &format!("{PATH}{query}"));
    let request = request.header("content-type", "text/x-python").body(code.to_owned());
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
}

// proves C-167
#[tokio::test(flavor = "multi_thread")]
async fn code_is_tested_in_each_form_before_it_is_saved_and_the_result_is_all_of_it() {
    let world = World::start().await;
    let passing = with_test(
        "    print('trying')\n    assert handle(21) == 42\n    return {'sample': handle(1)}\n",
    );
    let runner = json!({"tool_type": "code_runner", "configuration": {"type": "CodeRunner", "runtime": "python",
        "code": "def run(input):\n    return 1\n\ndef test():\n    print('trying')\n    return {'sample': run({}) + 1}\n"}});
    let (_, from_file) = python(&world.owner, "", &passing).await;
    let results = [
        world.owner.post(PATH, handle(&passing)).await,
        world.owner.post(PATH, runner).await,
        from_file,
    ];
    for result in results {
        assert_eq!(
            (&result["test_outcome"], &result["value"]),
            (&json!("passed"), &json!({"sample": 2})),
            "{result}"
        );
        assert_eq!((printed(&result), &result["entry"]), ("trying\n".to_owned(), &json!("test")));
        assert_eq!(result["environment"], "bare", "{result}");
        assert!(result["usage"]["wall_ms"].is_u64(), "{result}");
    }
    let failing =
        with_test("    expected = 41\n    assert handle(21) == expected, 'Expected 41'\n");
    let result = world.owner.post(PATH, handle(&failing)).await;
    assert_eq!(result["test_outcome"], "failed", "{result}");
    let error = &result["error"];
    assert_eq!(error["message"], "Expected 41");
    let values = json!([["handle(21)", "42"], ["expected", "41"]]);
    assert_eq!(error["assertion"]["values"], values, "{error}");
    let mut slow = handle(&with_test("    while True: pass\n"));
    slow["limits"] = json!({"wall_ms": 300});
    let result = world.owner.post(PATH, slow).await;
    assert_eq!(
        (&result["test_outcome"], &result["error"]["code"]),
        (&json!("timed_out"), &json!("time.exceeded")),
        "{result}"
    );
    let kept = world.owner.get("/v1/tools").await;
    assert_eq!(kept["items"], json!([]), "none of it is saved");
}

// proves C-168
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_tested_is_refused_with_what_is_wrong_with_it() {
    let world = World::start().await;
    let refused = async |body: Value| {
        let (status, problem) = world.owner.call("POST", PATH, Some(body)).await;
        assert!(matches!(status, 400 | 422), "{status} {problem}");
        problem
    };
    let problem = refused(handle(DOUBLE)).await;
    assert_eq!(problem["code"], "code.no_entry", "{problem}");
    assert!(problem.to_string().contains("test()"), "{problem}");
    let problem = refused(handle("def handle(:\n")).await;
    assert_eq!(
        (&problem["code"], &problem["errors"][0]["line"]),
        (&json!("tool.invalid"), &json!(1)),
        "{problem}"
    );
    let problem = refused(handle(&format!("{DOUBLE}\ndef test(x):\n    pass\n"))).await;
    assert!(problem.to_string().contains("no parameters are allowed"), "{problem}");
    let problem = refused(
        json!({"type": "callFunction", "configuration": {"externalId": "f", "schema": {}}}),
    )
    .await;
    assert!(problem.to_string().contains("no test()"), "{problem}");
    let problem = refused(json!({"tool_type": "api", "configuration": {}})).await;
    assert!(problem.to_string().contains("'api' are not supported"), "{problem}");
    let mut elsewhere = handle(&with_test("    return 1\n"));
    elsewhere["environment"] = json!("absent");
    assert!(refused(elsewhere).await.to_string().contains("absent"));
    let (status, problem) = python(&world.owner, "", "def other():\n    pass\n").await;
    assert_eq!(
        (status, &problem["errors"][0]["code"]),
        (422, &json!("code.no_entry")),
        "{problem}"
    );
    let ran = world.owner.get("/v1/executions").await;
    assert_eq!(ran["items"], json!([]));
}

// proves C-169
#[tokio::test(flavor = "multi_thread")]
async fn t237_a_test_of_unsaved_code_is_asked_about_and_denied_as_submitted_code_is() {
    let world = World::start().await;
    let author = world.principal("author", &["USAGE"]).await;
    let body = || Some(handle(&with_test("    return handle(21)\n")));
    let set = async |permission: &str| {
        let body = Some(json!({ "permission": permission }));
        assert_eq!(world.owner.call("PUT", "/v1/permissions/execute_python", body).await.0, 200);
    };
    let (status, record) = author.call("POST", PATH, body()).await;
    assert_eq!((status, &record["value"]), (200, &json!(42)), "the twin: {record}");
    set("deny").await;
    assert_eq!(author.refused("POST", PATH, body()).await, (403, "approval.denied".into()));
    set("ask").await;
    let (status, record) = author.call("POST", PATH, body()).await;
    assert_eq!((status, &record["status"]), (202, &json!("waiting_approval")), "{record}");
    let question = world.owner.get(&approval_of(&record)).await;
    assert!(question["code"].as_str().unwrap().contains("return handle(21)"), "{question}");
    let yes = json!({"decision": "allow"});
    let refused = author.refused("POST", &approval_of(&record), Some(yes.clone())).await;
    assert_eq!(refused.0, 403);
    world.owner.post(&approval_of(&record), yes).await;
    let done = settled(&author, &record).await;
    assert_eq!((&done["value"], &done["test_outcome"]), (&json!(42), &json!("passed")), "{done}");
    let mut secret = json!({"tool_type": "code_runner", "configuration": {"type": "CodeRunner", "runtime": "python",
        "code": "def run(input): ...\ndef test(): ...\n", "env_variables": [{"name": "TOKEN", "value": "hunter2-hunter2"}]}});
    let (status, problem) = author.call("POST", PATH, Some(secret.clone())).await;
    assert_eq!(
        (status, &problem["errors"][0]["path"]),
        (400, &json!("/configuration/env_variables")),
        "{problem}"
    );
    set("allow").await;
    secret["configuration"]["code"] =
        json!("import os\ndef run(input): ...\ndef test():\n    return len(os.environ['TOKEN'])\n");
    assert_eq!(author.post(PATH, secret).await["value"], 15);
    let stranger = world.principal("stranger", &[]).await;
    assert_eq!(stranger.refused("POST", PATH, body()).await, (403, "grant.missing".into()));
}

// proves C-170
#[tokio::test(flavor = "multi_thread")]
async fn t238_a_tool_of_an_agent_is_tested_by_its_name_by_those_who_may_change_the_agent() {
    let world = World::start().await;
    let tool = |name: &str| {
        let mut tool = handle(&with_test("    assert handle(21) == 42\n    return 'tested'\n"));
        tool["name"] = json!(name);
        tool["description"] = json!("Doubles a number.");
        tool
    };
    let specification = json!({"tools": [tool("within")]});
    let agent = json!({"name": "helper", "specification": specification});
    let id = world.owner.post("/v1/agents", agent).await["id"].as_str().unwrap().to_owned();
    let attached = world.owner.post("/v1/tools", tool("attached")).await["id"].clone();
    let agent = format!("/v1/agents/{id}");
    world.owner.post(&format!("{agent}/tools/{}", attached.as_str().unwrap()), json!({})).await;
    for name in ["within", "attached", attached.as_str().unwrap()] {
        let result = world.owner.post(&format!("{agent}/tools/{name}/test"), json!({})).await;
        assert_eq!(
            (&result["test_outcome"], &result["value"]),
            (&json!("passed"), &json!("tested")),
            "{result}"
        );
        assert_eq!(result["agent"], json!(id), "{result}");
    }
    let (status, problem) =
        world.owner.call("POST", &format!("{agent}/tools/none/test"), Some(json!({}))).await;
    assert_eq!((status, &problem["code"]), (404, &json!("object.not_found")), "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("within"), "{problem}");
    let user = world.principal("user", &["USAGE"]).await;
    let grant = async |privilege: &str| {
        let who = user.get("/v1/principals/me").await["id"].clone();
        let object = json!({"kind": "agent", "id": id});
        world
            .owner
            .post("/v1/grants", json!({"principal": who, "privilege": privilege, "object": object}))
            .await;
    };
    let path = format!("{agent}/tools/within/test");
    grant("USAGE").await;
    assert_eq!(user.refused("POST", &path, Some(json!({}))).await, (403, "grant.missing".into()));
    grant("MODIFY").await;
    assert_eq!(user.post(&path, json!({})).await["test_outcome"], "passed", "the twin");
}
