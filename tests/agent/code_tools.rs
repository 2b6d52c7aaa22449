//! The tools with which the model of an agent runs code: those of its specification, with all their arguments.

use crate::scripted_server::{
    RUNS_CODE, Scene, call, chat, code, offered, plan, say, say_to, text, upload,
};
use serde_json::{Value, json};

fn named(tool: &str, more: &str) -> String {
    format!(
        "tools:\n  - tool_spec: {{type: code_execution, name: {tool}}}\n\
         tool_resources: {{code_execution: {{}}}}\n{more}"
    )
}

// proves P-073, U-066
#[tokio::test(flavor = "multi_thread")]
async fn the_model_gets_the_tool_that_the_specification_names() {
    let scene = Scene::play(json!(vec![say("Hello."); 3])).await;
    for tool in ["code_execution", "code_interpreter", "execute_python"] {
        let agent = crate::scripted_server::agent(scene.owner(), tool, named(tool, "")).await;
        say_to(scene.owner(), &agent, "Hi").await;
        let asked = scene.asked().pop().unwrap();
        assert_eq!(offered(&asked), [tool]);
        assert!(text(&asked["messages"][0]["content"]).contains(&format!("With `{tool}` you run")));
    }
    let both = "tools:\n  - tool_spec: {type: code_execution, name: code_execution}\n\
                \x20 - tool_spec: {type: code_execution, name: code_interpreter}\n";
    let refused = json!({"name": "both", "specification": both});
    assert_eq!(scene.owner().refused("POST", "/v1/agents", Some(refused)).await.0, 400);
}

// proves U-067
#[tokio::test(flavor = "multi_thread")]
async fn a_request_takes_documents_and_context_and_is_answered_with_its_whole_object() {
    let scene = Scene::play(json!([
        {"calls": [{"id": "toolu_1", "name": "code_execution", "arguments": {
            "request": "Add the numbers of a.csv, and keep them.", "context": "In roman numerals."}}]},
        plan(&["Load", "Add"]),
        code("numbers = [int(part) for part in open('/home/uploaded_files/a.csv').read().split(',')]\nprint(numbers)"),
        code("open('sum.txt', 'w').write(str(sum(numbers)))\nprint(sum(numbers))"),
        say("It is 8, or VIII."),
        say("VIII."),
    ]))
    .await;
    let owner = scene.owner();
    let agent = scene.agent(RUNS_CODE).await;
    let document = upload(owner, "a.csv", b"3,5").await;
    let asked = json!({"message": "Add them.", "document_ids": [document]});
    let done = chat(owner, &agent, asked).await;
    assert_eq!(done["answer"], "VIII.", "{done}");
    assert!(scene.messages(1).contains("In roman numerals."), "{}", scene.messages(1));
    let asked = &scene.asked()[5];
    let messages = asked["messages"].as_array().unwrap();
    let result = messages.iter().rev().find(|message| message["role"] == "tool").unwrap();
    let result: Value = serde_json::from_str(&text(&result["content"])).unwrap();
    assert_eq!(result["sandbox_id"], done["sandbox_id"]);
    assert_eq!(result["execution_id"], "toolu_1");
    assert_eq!((&result["total_rounds"], &result["plan"]), (&json!(2), &json!(["Load", "Add"])));
    assert_eq!(result["generated_files"][0]["name"], "sum.txt", "{result}");
    assert_eq!(
        (&result["answer"], &result["artifacts"]),
        (&json!("It is 8, or VIII."), &json!([]))
    );
    let logs = text(&result["logs"]);
    let lines = [
        "INFO: Development plan: [\"Load\", \"Add\"]",
        "--- Round 1/20: Load... ---",
        "GENERATED CODE:",
        "STDOUT:\n8",
        "STATUS: Execution successful",
    ];
    for line in lines {
        assert!(logs.contains(line), "{line}: {logs}");
    }
}

// proves U-068
#[tokio::test(flavor = "multi_thread")]
async fn t253_a_request_reaches_no_other_session_and_no_document_of_others() {
    let other = "0198c0de-0000-7000-8000-000000000000";
    let asks = |arguments: Value| call("code_execution", arguments);
    let scene = Scene::play(json!([
        asks(json!({"request": "Look.", "sandbox_id": other})),
        asks(json!({"request": "Look.", "document_ids": [other]})),
        say("I cannot."),
        asks(json!({"request": "Look.", "document_ids": ["a.csv"]})),
        say("I cannot."),
        asks(json!({"request": "Look."})),
        plan(&["Look"]),
        code("print('looked')"),
        say("Looked."),
        say("Looked."),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    for _ in 0..2 {
        let refused = say_to(scene.owner(), &agent, "Look.").await;
        assert_eq!(refused["rounds"], json!([]), "nothing ran: {refused}");
    }
    for (request, reason) in [
        (1, "is not the session of this conversation"),
        (2, "not found"),
        (4, "which is not a UUID"),
    ] {
        assert!(scene.messages(request).contains(reason), "{reason}: {}", scene.messages(request));
    }
    let done = say_to(scene.owner(), &agent, "Look.").await;
    assert_eq!(done["rounds"][0]["stdout"], "looked\n", "{done}");
}

// proves U-069
#[tokio::test(flavor = "multi_thread")]
async fn t254_a_request_is_within_the_budget_of_the_run_and_contains_no_other_one() {
    let mut turns = vec![call("code_execution", json!({"request": "Go on."})), plan(&["Go on"])];
    turns.push(call("code_execution", json!({"request": "Go on further."})));
    turns.extend(vec![code("print(1)"); 12]);
    let scene = Scene::play(json!(turns)).await;
    let agent = scene.agent(format!("{RUNS_CODE}budget: {{rounds: 4}}\n")).await;
    let done = say_to(scene.owner(), &agent, "Go on.").await;
    assert_eq!(done["error"]["code"], "budget.exhausted", "{done}");
    assert_eq!(done["rounds"].as_array().unwrap().len(), 2, "{done}");
    assert_eq!(offered(&scene.asked()[2]), ["run_python"]);
    assert!(
        scene.messages(3).contains("There is no tool \"code_execution\""),
        "{}",
        scene.messages(3)
    );
}
