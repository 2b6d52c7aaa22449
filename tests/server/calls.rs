//! Calls of tools, directly and through agents, with the privileges that apply.

use crate::test_server::{World, printed};
use serde_json::{Value, json};

const HANDLE: &str = "def handle(a: int, b: int = 2) -> int:\n    \"\"\"Adds.\n\n    Args:\n        a (int): One.\n        b (int): Another.\n    \"\"\"\n    print('adding')\n    return a + b\n\ndef test():\n    assert handle(1) == 3\n    return 'tested'\n";

async fn tool(world: &World, name: &str) -> String {
    let tool = json!({
        "type": "runPythonCode", "approval_action": "allow", "name": name, "description": "Adds two numbers.",
        "configuration": {"pythonCode": HANDLE},
    });
    world.owner.post("/v1/tools", tool).await["id"].as_str().unwrap().to_owned()
}

async fn agent(world: &World, name: &str) -> String {
    let agent = json!({"name": name, "specification": "instructions: help\n"});
    world.owner.post("/v1/agents", agent).await["id"].as_str().unwrap().to_owned()
}

async fn grant(world: &World, principal: &Value, privilege: &str, kind: &str, id: &str) -> Value {
    let grant = json!({
        "principal": principal, "privilege": privilege, "object": {"kind": kind, "id": id},
    });
    world.owner.post("/v1/grants", grant).await
}

// proves C-095
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_called_with_checked_arguments_and_tested() {
    let world = World::start().await;
    let id = tool(&world, "add").await;
    let record =
        world.owner.post(&format!("/v1/tools/{id}/call"), json!({"arguments": {"a": 40}})).await;
    assert_eq!((&record["value"], &record["tool"]), (&json!(42), &json!("add")));
    assert_eq!(printed(&record), "adding\n");
    let wrong = Some(json!({"arguments": {"a": "x"}}));
    let error = world.owner.refused("POST", &format!("/v1/tools/{id}/call"), wrong).await;
    assert_eq!(error, (400, "args.invalid".into()));
    let tested = world.owner.post(&format!("/v1/tools/{id}/test"), json!({})).await;
    assert_eq!((&tested["status"], &tested["value"]), (&json!("succeeded"), &json!("tested")));
}

// proves W-032, W-031
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_in_a_session_sees_its_files_and_is_told_where_it_is() {
    let world = World::start().await;
    let code = "import os\ndef run(input):\n    text = open(input['path']).read()\n    open('out.txt', 'w').write(text.upper())\n    return {'session': os.environ['BELLJAR_SESSION'], 'who': os.environ['BELLJAR_PRINCIPAL'], 'cwd': os.getcwd()}\n";
    let tool = json!({
        "name": "upper", "description": "Makes a file upper case.", "tool_type": "code_runner",
        "configuration": {"type": "CodeRunner", "runtime": "python", "code": code, "input_schema": [
            {"name": "path", "field_type": "STRING", "required": true},
        ]},
    });
    let id = world.owner.post("/v1/tools", tool).await["id"].as_str().unwrap().to_owned();
    let session = world.owner.session().await;
    world.owner.run(&session, "open('in.txt', 'w').write('abc')").await;
    let call = json!({"arguments": {"path": "in.txt"}, "sandbox_id": session});
    let record = world.owner.post(&format!("/v1/tools/{id}/call"), call).await;
    assert_eq!(
        record["value"],
        json!({"session": session, "who": "owner", "cwd": "/workspace"}),
        "{record}"
    );
    assert_eq!(printed(&world.owner.run(&session, "print(open('out.txt').read())").await), "ABC\n");
}

// proves S-031, S-032, S-039
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_run_as_owner_has_its_owners_rights_and_no_others() {
    let world = World::start().await;
    let (add, bot) = (tool(&world, "add").await, agent(&world, "bot").await);
    let caller = world.principal("caller", &["USAGE"]).await;
    let me = caller.get("/v1/principals/me").await["id"].clone();
    let path = format!("/v1/tools/{add}/call");
    let direct = Some(json!({"arguments": {"a": 1}}));
    assert_eq!(caller.refused("POST", &path, direct.clone()).await, (403, "grant.missing".into()));
    let through = Some(json!({"arguments": {"a": 1}, "agent_id": bot}));
    assert_eq!(caller.refused("POST", &path, through.clone()).await, (403, "grant.missing".into()));
    let usage = grant(&world, &me, "USAGE", "agent", &bot).await;
    // W-060: the agent does not have the tool yet.
    let (status, problem) = caller.call("POST", &path, through.clone()).await;
    assert_eq!(status, 403);
    assert_eq!(problem["detail"], "Tool 'add' is not available in the current execution mode");
    world.owner.post(&format!("/v1/agents/{bot}/tools/{add}"), json!({})).await;
    let (status, record) = caller.call("POST", &path, through.clone()).await;
    assert_eq!((status, &record["value"]), (200, &json!(3)), "{record}");
    let owner = world.owner.get("/v1/principals/me").await["id"].clone();
    assert_eq!((&record["principal"], &record["run_as"]), (&me, &owner));
    assert_eq!(caller.refused("POST", &path, direct).await.0, 403, "only through the agent");
    // S-037: the next request feels it.
    world.owner.delete(&format!("/v1/grants/{}", usage["id"].as_str().unwrap())).await;
    assert_eq!(caller.refused("POST", &path, through).await, (403, "grant.missing".into()));
}

// proves S-036, S-040
#[tokio::test(flavor = "multi_thread")]
async fn a_new_owner_changes_what_an_agent_reaches() {
    let world = World::start().await;
    let (add, bot) = (tool(&world, "add").await, agent(&world, "bot").await);
    world.owner.post(&format!("/v1/agents/{bot}/tools/{add}"), json!({})).await;
    let path = format!("/v1/tools/{add}/call");
    let through = json!({"arguments": {"a": 1}, "agent_id": bot});
    assert_eq!(world.owner.post(&path, through.clone()).await["value"], 3);
    let heir = world.principal("heir", &["USAGE"]).await;
    let me = heir.get("/v1/principals/me").await["id"].clone();
    grant(&world, &me, "OWNERSHIP", "agent", &bot).await;
    // It has the rights of its callers until its new owner says otherwise.
    let now = heir.get(&format!("/v1/agents/{bot}")).await;
    assert_eq!((&now["owner"], &now["run_as"]), (&me, &json!("caller")));
    assert_eq!(heir.refused("POST", &path, Some(through.clone())).await.0, 403);
    let own = json!({"specification": now["specification"], "run_as": "owner"});
    assert_eq!(heir.call("PUT", &format!("/v1/agents/{bot}"), Some(own)).await.0, 200);
    let error = world.owner.refused("POST", &path, Some(through.clone())).await;
    assert_eq!(error, (403, "grant.missing".into()), "the heir may not use the tool");
    grant(&world, &me, "USAGE", "tool", &add).await;
    let record = heir.post(&path, through).await;
    assert_eq!((&record["value"], &record["run_as"]), (&json!(3), &me));
    heir.delete(&format!("/v1/agents/{bot}")).await;
}

// proves W-055, W-060
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_the_agent_denies_is_refused_in_those_words() {
    let world = World::start().await;
    let (add, bot) = (tool(&world, "add").await, agent(&world, "bot").await);
    let binding = format!("/v1/agents/{bot}/tools/{add}");
    let path = format!("/v1/tools/{add}/call");
    let through = Some(json!({"arguments": {"a": 1}, "agent_id": bot}));
    let (_, problem) = world.owner.call("POST", &path, through.clone()).await;
    assert_eq!(problem["detail"], "Tool 'add' is not available in the current execution mode");
    assert_eq!(world.owner.post(&binding, json!({})).await["approval_action"], "allow");
    assert_eq!(world.owner.call("POST", &path, through.clone()).await.0, 200);
    let deny = Some(json!({"approval_action": "deny"}));
    assert_eq!(world.owner.call("PATCH", &binding, deny).await.0, 200);
    let (status, problem) = world.owner.call("POST", &path, through.clone()).await;
    assert_eq!((status, &problem["code"]), (403, &json!("approval.denied")));
    assert_eq!(problem["detail"], "Tool 'add' denied by agent approval policy");
    let review = Some(json!({"approval_action": "review"}));
    assert_eq!(world.owner.call("PATCH", &binding, review).await.0, 200);
    let (status, record) = world.owner.call("POST", &path, through).await;
    assert_eq!((status, &record["status"]), (202, &json!("waiting_approval")));
}

// proves W-028, W-063
#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_a_call_has_the_form_of_a_code_runner_if_the_request_says_so() {
    let world = World::start().await;
    let code = "def run(input):\n    if input['n'] < 0:\n        raise ValueError('it is negative')\n    \
                if input['n'] == 7:\n        raise SystemExit(7)\n    \
                print('printed')\n    return {'doubled': 2 * input['n']}\n";
    let tool = json!({"name": "double", "tool_type": "code_runner", "environment": "bare",
        "configuration": {"code": code, "input_schema": [
            {"name": "n", "field_type": "INTEGER", "required": true}]}});
    let tool = world.owner.post("/v1/tools", tool).await;
    let path = format!("/v1/tools/{}/call", tool["id"].as_str().unwrap());
    let call = |n: i64| json!({"arguments": {"n": n}, "result": "code_runner"});
    let done = world.owner.post(&path, call(21)).await;
    let expected =
        json!({"success": true, "tool": "double", "runtime": "python", "output": {"doubled": 42}});
    assert_eq!(done, expected);

    let failed = world.owner.post(&path, call(-1)).await;
    assert_eq!((&failed["success"], &failed["tool"]), (&json!(false), &json!("double")));
    let said = failed["error"].as_str().unwrap();
    let details = said.strip_prefix("Code runner 'double' failed with exit code 1: ");
    let details: Value = serde_json::from_str(details.unwrap_or_else(|| panic!("{said}"))).unwrap();
    assert_eq!(details["error"], "ValueError: it is negative");
    let traceback = details["traceback"].as_str().unwrap();
    assert!(traceback.contains("line 3") && traceback.contains("ValueError"), "{traceback}");
    assert_eq!(details.as_object().unwrap().len(), 2);
    let exited = world.owner.post(&path, call(7)).await;
    let said = exited["error"].as_str().unwrap();
    assert!(said.starts_with("Code runner 'double' failed with exit code 7: {"), "{said}");

    // By default the record is the result.
    let record = world.owner.post(&path, json!({"arguments": {"n": 21}})).await;
    assert_eq!(
        (&record["status"], &record["value"]),
        (&json!("succeeded"), &json!({"doubled": 42}))
    );
    let unknown = json!({"arguments": {"n": 1}, "result": "text"});
    assert_eq!(world.owner.refused("POST", &path, Some(unknown)).await.0, 400);
}
