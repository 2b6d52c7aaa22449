//! Tools of an agent besides code: attached, in the specification, and several at once.

use crate::command::typed;
use crate::harness::stderr;
use crate::scripted_server::{
    RUNS_CODE, Scene, agent_code, call, calls, download, offered, say, say_to, text,
};
use crate::test_server::Api;
use serde_json::{Value, json};

const DOUBLE: &str = "def handle(n: int) -> int:\n    \"\"\"Doubles a number.\n\n    Args:\n        n: the number\n    \"\"\"\n    return n * 2\n";
const READ: &str = "def run(input):\n    return {'read': open(input['name']).read()}\n";
const SLOW: &str = "import time\n\ndef handle(name: str) -> dict:\n    \"\"\"Takes its time.\n\n    Args:\n        name: of the call\n    \"\"\"\n    began = time.time()\n    time.sleep(1)\n    return {'name': name, 'began': began, 'ended': time.time()}\n";

fn handle(name: &str, code: &str) -> Value {
    json!({
        "type": "runPythonCode", "approval_action": "allow", "name": name, "description": "Does what its name says.",
        "configuration": {"pythonCode": code},
    })
}

fn runner(name: &str, code: &str) -> Value {
    json!({
        "name": name, "description": "Does what its name says.", "tool_type": "code_runner",
        "configuration": {"type": "CodeRunner", "runtime": "python", "code": code,
            "input_schema": [{"name": "name", "field_type": "STRING", "required": true}]},
    })
}

async fn attach(api: &Api, agent: &str, tool: Value) -> String {
    let id = text(&api.post("/v1/tools", tool).await["id"]);
    api.post(&format!("{agent}/tools/{id}"), json!({})).await;
    id
}

// proves S-013, C-147
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_calls_its_tools_beside_its_code_and_all_is_told() {
    let scene = Scene::play(json!([
        {"say": "Let me double it.", "calls": [{"name": "double", "arguments": {"n": 21}, "id": "call-1"}]},
        agent_code("open('note.txt', 'w').write('a note')\nprint('written')"),
        call("read", json!({"name": "note.txt"})),
        say("It is 42, and there is a note."),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    attach(scene.owner(), &agent, handle("double", DOUBLE)).await;
    attach(scene.owner(), &agent, runner("read", READ)).await;
    let done = crate::scripted_server::chat(
        scene.owner(),
        &agent,
        json!({"message": "Go.", "agentExternalId": "mine"}),
    )
    .await;
    assert_eq!(done["answer"], "It is 42, and there is a note.", "{done}");
    assert_eq!(offered(&scene.asked()[0]), ["code_execution", "double", "read"]);
    assert!(scene.messages(1).contains("42"));
    assert!(scene.messages(2).contains("written"));
    assert!(
        scene.messages(3).contains("{\"read\":\"a note\"}"),
        "it sees the files of the session: {}",
        scene.messages(3)
    );

    assert_eq!(done["agentExternalId"], "mine");
    let response = &done["response"];
    assert_eq!((&response["type"], &response["cursor"]), (&json!("result"), &done["cursor"]));
    let message = &response["messages"][0];
    assert_eq!(message["role"], "agent");
    assert_eq!(message["content"], json!({"type": "text", "text": done["answer"]}));
    assert_eq!((&message["data"], &message["actions"]), (&json!([]), &json!([])));
    let said = &message["reasoning"][0]["content"][0]["text"];
    assert_eq!(said, "Let me double it.");
    let double = &message["reasoning"][1]["data"][0]["toolCall"];
    let expected = json!({"id": "call-1", "name": "double", "toolType": "runPythonCode", "input": {"n": 21}, "result": "42"});
    assert_eq!(double, &expected);
    let ran = &message["reasoning"][2]["data"][0]["toolCall"];
    assert_eq!((&ran["toolType"], &ran["result"]), (&json!("code_execution"), &json!("written\n")));
    let read = &message["reasoning"][3]["data"][0]["toolCall"];
    assert_eq!(read["name"], "read", "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t98_a_run_says_which_tools_ran_beside_other_code_in_its_session() {
    let lie = "import builtins, io\nbuiltins.open = lambda *a: io.StringIO('a lie')";
    let scene = Scene::play(json!([
        call("double", json!({"n": 21})),
        agent_code(lie),
        call("read", json!({"name": "note.txt"})),
        say("There is a note."),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    attach(scene.owner(), &agent, handle("double", DOUBLE)).await;
    attach(scene.owner(), &agent, runner("read", READ)).await;
    let done = crate::scripted_server::chat(scene.owner(), &agent, json!({"message": "Go."})).await;
    assert!(scene.messages(3).contains("a lie"), "{}", scene.messages(3));
    let warnings = done["warnings"].as_array().unwrap();
    let codes: Vec<_> = warnings.iter().map(|warning| &warning["code"]).collect();
    assert_eq!(codes, ["tool.unisolated"], "{done}");
    let message = warnings[0]["message"].as_str().unwrap();
    assert!(message.contains("\"read\"") && message.contains("unisolated"), "{message}");
}

// proves U-001
#[tokio::test(flavor = "multi_thread")]
async fn code_has_two_names_and_is_the_same() {
    let scene = Scene::play(json!([
        agent_code("kept = 42"),
        call("code_interpreter", json!({"code": "print(kept)"})),
        say("It is 42."),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    let done = say_to(scene.owner(), &agent, "Go.").await;
    assert_eq!(done["rounds"][1]["stdout"], "42\n", "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_share_nothing_run_at_the_same_time_and_answer_in_order() {
    let scene = Scene::play(json!([
        calls(&[("slow", json!({"name": "a"})), ("slow", json!({"name": "b"}))]),
        say("Both are done."),
    ]))
    .await;
    let agent = scene.agent("instructions: x\n").await;
    attach(scene.owner(), &agent, handle("slow", SLOW)).await;
    let done = say_to(scene.owner(), &agent, "Go.").await;
    assert_eq!(done["answer"], "Both are done.", "{done}");
    // The trace has them as they came; the model is told them as it called them.
    let results: Vec<Value> = scene.asked()[1]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| serde_json::from_str(message["content"].as_str().unwrap()).unwrap())
        .collect();
    let (one, two) = (&results[0], &results[1]);
    assert_eq!((&one["name"], &two["name"]), (&json!("a"), &json!("b")));
    let time = |value: &Value| value.as_f64().unwrap();
    assert!(
        time(&two["began"]) < time(&one["ended"]) && time(&one["began"]) < time(&two["ended"]),
        "{one} {two}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tool_does_not_take_or_raises_is_told_to_the_model() {
    let scene = Scene::play(json!([
        call("double", json!({"n": "much"})),
        call("double", json!("{\"n\": 2")),
        call("double", json!({"n": 2})),
        call("read", json!({"name": "nowhere"})),
        say("It is 4."),
    ]))
    .await;
    let agent = scene.agent("instructions: x\n").await;
    attach(scene.owner(), &agent, handle("double", DOUBLE)).await;
    attach(scene.owner(), &agent, runner("read", READ)).await;
    let done = say_to(scene.owner(), &agent, "Go.").await;
    assert_eq!(done["answer"], "It is 4.", "{done}");
    let called: Vec<&Value> = done["trace"]["steps"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|step| step["step"] == "called")
        .map(|step| &step["tool"])
        .collect();
    let failed: Vec<&Value> = called.iter().map(|tool| &tool["failed"]).collect();
    assert_eq!(failed, [true, true, false, true], "{called:?}");
    assert!(scene.messages(1).contains("args.invalid"), "{}", scene.messages(1));
    assert!(scene.messages(4).contains("FileNotFoundError"), "{}", scene.messages(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_switched_off_or_not_to_be_used_is_not_offered() {
    let scene = Scene::play(json!([say("Hello."), say("Hello.")])).await;
    let agent = scene.agent("instructions: x\n").await;
    let tool = attach(scene.owner(), &agent, handle("double", DOUBLE)).await;
    say_to(scene.owner(), &agent, "Hi").await;
    let off = json!({"approval_action": "deny"});
    assert_eq!(
        scene.owner().call("PATCH", &format!("{agent}/tools/{tool}"), Some(off)).await.0,
        200
    );
    say_to(scene.owner(), &agent, "Hi").await;
    let asked = scene.asked();
    assert_eq!(offered(&asked[0]), ["double"]);
    assert_eq!(offered(&asked[1]), [""; 0]);
}

// proves C-028, C-160
#[tokio::test(flavor = "multi_thread")]
async fn a_model_reads_what_a_tool_is_for_and_passes_what_one_found_on_to_the_next() {
    let find = "def handle() -> dict:\n    \"\"\"Finds readings.\"\"\"\n    return {'unit': 'F', 'readings': [32, 212]}\n";
    let convert = "def handle(readings: list[float], unit: str) -> list[float]:\n    \"\"\"Converts.\n\n    Args:\n        readings: what was read\n        unit: of the readings\n    \"\"\"\n    return [(r - 32) * 5 / 9 if unit == 'F' else r for r in readings]\n";
    let scene = Scene::play(json!([
        call("find", json!({})),
        call("convert", json!({"readings": [32, 212], "unit": "F"})),
        say("They are 0 and 100 degrees Celsius."),
    ]))
    .await;
    let agent = scene.agent(RUNS_CODE).await;
    let guidance = "Use it after find, never for numbers that a person typed.";
    let mut tool = handle("convert", convert);
    tool["description"] = json!(guidance);
    attach(scene.owner(), &agent, handle("find", find)).await;
    attach(scene.owner(), &agent, tool).await;
    let done = say_to(scene.owner(), &agent, "What was read, in Celsius?").await;
    let offers = scene.asked()[0]["tools"].as_array().unwrap().clone();
    let offer = offers.iter().find(|offer| offer["function"]["name"] == "convert").unwrap();
    assert_eq!(offer["function"]["description"], guidance);
    assert!(scene.messages(1).contains(r#""readings":[32,212]"#), "{}", scene.messages(1));
    assert!(scene.messages(2).contains("[0.0,100.0]"), "{}", scene.messages(2));
    assert_eq!(done["answer"], "They are 0 and 100 degrees Celsius.");
}

const DRAW: &str = "import base64\n\ndef handle(text: str) -> str:\n    \"\"\"Writes and draws.\n\n    Args:\n        text: what\n    \"\"\"\n    open('tool.csv', 'w').write(text)\n    open('tool.png', 'wb').write(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg=='))\n    return 'done'\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_the_tools_of_an_agent_make_is_what_its_run_has_made() {
    let both = calls(&[("draw", json!({"text": "a"})), ("draw", json!({"text": "b"}))]);
    let turns = [both.clone(), say("Drawn."), both, say("Drawn.")];
    let scene = Scene::play(json!(turns)).await;
    let agent = scene.agent("instructions: x\n").await;
    attach(scene.owner(), &agent, handle("draw", DRAW)).await;
    let done = say_to(scene.owner(), &agent, "Draw.").await;
    let artifacts = done["artifacts"].as_array().unwrap();
    assert_eq!((artifacts.len(), &artifacts[0]["name"]), (1, &json!("tool.png")), "{done}");
    assert_eq!(download(scene.owner(), &artifacts[0]["url"]).await.1, "image/png");
    let mut written = Vec::new();
    for file in done["generated_files"].as_array().unwrap() {
        assert_eq!(file["name"], "tool.csv");
        written.push(download(scene.owner(), &file["url"]).await.2);
    }
    written.sort();
    assert_eq!(written, [b"a", b"b"], "each has written its own: {done}");

    let folder = tempfile::tempdir().unwrap();
    let (id, out) = (agent.rsplit('/').next().unwrap(), folder.path().to_str().unwrap());
    let ran = typed(scene.owner(), &["agent", "run", id, "-r", "Draw.", "--out", out]).await;
    assert!(ran.status.success(), "{}", stderr(&ran));
    for name in ["tool.csv", "tool-1.csv", "tool.png"] {
        assert!(folder.path().join(name).is_file(), "{name}: {}", stderr(&ran));
    }
}

// proves W-028, W-061, W-063
#[tokio::test(flavor = "multi_thread")]
async fn a_code_runner_with_variables_works_on_the_files_of_the_run_and_answers_in_its_own_form() {
    let reader = "import os\n\ndef run(input):\n    text = open(input['name']).read()\n    \
                  open('signed.txt', 'w').write('signed')\n    \
                  return {'read': text, 'key': len(os.environ['SIGNING_KEY'])}\n";
    let scene = Scene::play(json!([
        agent_code(
            "import os\nopen('note.txt', 'w').write('a note')\nprint(os.environ.get('SIGNING_KEY'))"
        ),
        call("sign", json!({"name": "note.txt"})),
        call("sign", json!({"name": "nothing.txt"})),
        agent_code("print(open('signed.txt').read(), os.environ.get('SIGNING_KEY'))"),
        say("It is signed."),
    ]))
    .await;
    let agent = scene.agent(format!("tool_results: code_runner\n{RUNS_CODE}")).await;
    let mut sign = runner("sign", reader);
    sign["configuration"]["env_variables"] =
        json!([{"name": "SIGNING_KEY", "value": "a-key-for-signing"}]);
    attach(scene.owner(), &agent, sign).await;
    let done = say_to(scene.owner(), &agent, "Sign it.").await;
    assert_eq!(done["answer"], "It is signed.", "{done:#}");
    let told = |round: usize| {
        let results = scene.asked()[round]["messages"].as_array().unwrap().clone();
        results.last().unwrap()["content"].as_str().unwrap().to_owned()
    };
    assert!(told(1).contains("\nNone\n"), "{}", told(1));
    let result: Value = serde_json::from_str(&told(2)).unwrap();
    let output = json!({"read": "a note", "key": 17});
    let expected = json!({"success": true, "tool": "sign", "runtime": "python", "output": output});
    assert_eq!(result, expected);
    let failed: Value = serde_json::from_str(&told(3)).unwrap();
    let said = failed["error"].as_str().unwrap();
    let details = said.strip_prefix("Code runner 'sign' failed with exit code 1: ").unwrap();
    let details: Value = serde_json::from_str(details).unwrap();
    assert!(details["error"].as_str().unwrap().starts_with("FileNotFoundError: "), "{said}");
    assert!(details["traceback"].as_str().unwrap().contains("line 4"), "{said}");
    assert!(told(4).contains("\nsigned None\n"), "{}", told(4));
    assert!(!done.to_string().contains("unisolated"), "{done:#}");
    let bad = json!({"name": "bad", "specification": "tool_results: text\n"});
    assert_eq!(scene.owner().refused("POST", "/v1/agents", Some(bad)).await.0, 400);
}

// proves W-055
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_allowed_by_default_reviewed_or_denied_and_the_agent_continues_without_it() {
    let turns =
        json!([call("read", json!({"name": "note.txt"})), say("I have tried to read it."),]);
    let scene =
        Scene::play(Value::Array((0..3).flat_map(|_| turns.as_array().unwrap().clone()).collect()))
            .await;
    let agent = scene.agent(RUNS_CODE).await;
    let tool = attach(
        scene.owner(),
        &agent,
        runner("read", "def run(input):\n    return input['name']\n"),
    )
    .await;
    let binding = format!("{agent}/tools/{tool}");
    let attached = scene.owner().get(&agent).await["tools"][0].clone();
    assert_eq!(attached["approval_action"], "allow", "by default: {attached}");
    say_to(scene.owner(), &agent, "Read it.").await;
    assert!(scene.messages(1).contains(r#""note.txt""#), "{}", scene.messages(1));

    let set = async |action: &str| {
        let body = Some(json!({"approval_action": action}));
        assert_eq!(scene.owner().call("PATCH", &binding, body).await.0, 200, "{action}");
    };
    set("deny").await;
    let done = say_to(scene.owner(), &agent, "Read it.").await;
    assert!(
        scene.messages(3).contains("Tool 'read' denied by agent approval policy"),
        "{}",
        scene.messages(3)
    );
    let called = &done["response"]["messages"][0]["reasoning"][0]["data"][0]["toolCall"];
    let result = called["result"].as_str().unwrap();
    assert!(result.contains("Tool 'read' denied by agent approval policy"), "{done:#}");
    assert_eq!(done["answer"], "I have tried to read it.");

    set("review").await;
    let asks = say_to(scene.owner(), &agent, "Read it.").await;
    assert_eq!(
        asks["response"]["messages"][0]["actions"][0]["toolConfirmation"]["toolName"], "read",
        "{asks:#}"
    );
    assert_eq!(scene.asked().len(), 5, "it waits for the decision");
}
