//! The environment of each kind of work: that of the kind, unless the object, the request or the operator names
//! another one.

use crate::test_server::{Api, BY_KIND, World, printed};
use serde_json::{Value, json};

fn handle(code: &str, more: Value) -> Value {
    let mut tool = json!({
        "type": "runPythonCode", "name": "handler", "description": "Says where it runs.",
        "configuration": {"pythonCode": format!("def handle():\n{code}")},
    });
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    tool
}

fn runner(name: &str, code: &str, more: Value) -> Value {
    let mut tool = json!({
        "name": name, "description": "Says where it runs.", "tool_type": "code_runner",
        "configuration": {"type": "CodeRunner", "runtime": "python",
            "code": format!("def run(input):\n{code}")},
    });
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    tool
}

async fn make(owner: &Api, tool: Value) -> String {
    format!("/v1/tools/{}", owner.post("/v1/tools", tool).await["id"].as_str().unwrap())
}

async fn call(owner: &Api, tool: &str, more: Value) -> Value {
    owner.post(&format!("{tool}/call"), more).await
}

const AGENT: &str = "tools:\n  - tool_spec:\n      type: code_execution\n      name: code_execution\n\
                     tool_resources:\n  code_execution:\n";

async fn agent_session(owner: &Api, name: &str, specification: &str, more: Value) -> Value {
    let agent = json!({"name": name, "specification": specification});
    let mut session = json!({"agent_id": owner.post("/v1/agents", agent).await["id"]});
    session.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    owner.post("/v1/sessions", session).await
}

// proves C-161, S-043
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_work_runs_in_its_environment_and_the_record_names_it() {
    let world = World::with(&[BY_KIND]).await;
    let owner = &world.owner;
    let code = "    import cognite.client, sys\n    return list(sys.version_info[:2])";
    let ran = call(owner, &make(owner, handle(code, json!({}))).await, json!({})).await;
    assert_eq!((&ran["environment"], &ran["value"]), (&json!("atlas"), &json!([3, 11])), "{ran}");
    let code = "    import docx\n    return docx.__name__";
    let ran = call(owner, &make(owner, runner("r", code, json!({}))).await, json!({})).await;
    assert_eq!(
        (&ran["environment"], &ran["value"]),
        (&json!("coderunner"), &json!("docx")),
        "{ran}"
    );
    let session = agent_session(owner, "helper", AGENT, json!({})).await;
    assert_eq!(session["environment"], "cortex");
    let session = session["sandbox_id"].as_str().unwrap();
    let ran = owner.run(session, "import pyarrow, sys; list(sys.version_info[:2])").await;
    assert_eq!((&ran["environment"], &ran["value"]), (&json!("cortex"), &json!([3, 12])), "{ran}");
    let ran = owner.execute("import sympy; str(sympy.sqrt(8))").await;
    assert_eq!(
        (&ran["environment"], &ran["value"]),
        (&json!("default"), &json!("2*sqrt(2)")),
        "{ran}"
    );
}

// proves C-162
#[tokio::test(flavor = "multi_thread")]
async fn the_operator_the_object_and_the_request_say_otherwise_and_the_nearest_holds() {
    let world =
        World::with(&["--environment-for", "run_python_code=default,code_execution=default"]).await;
    let owner = &world.owner;
    let environment = async |tool: Value| {
        let id = make(owner, tool).await;
        call(owner, &id, json!({})).await["environment"].clone()
    };
    let code = "    return 1";
    assert_eq!(environment(handle(code, json!({}))).await, "default", "of the operator");
    let own = json!({"name": "own", "environment": "bare"});
    assert_eq!(environment(handle(code, own)).await, "bare", "of the tool");
    assert_eq!(environment(runner("r", code, json!({}))).await, "bare", "of another kind");
    let of_agent = |section: &str| AGENT.replace("code_execution:\n", "code_execution:") + section;
    let opened = async |name: &str, section: &str, more: Value| {
        agent_session(owner, name, &of_agent(section), more).await["environment"].clone()
    };
    assert_eq!(opened("a", " {}\n", json!({})).await, "default", "of the operator");
    assert_eq!(opened("b", " {environment: bare}\n", json!({})).await, "bare", "of the agent");
    let request = json!({"environment": "default"});
    assert_eq!(opened("c", " {environment: bare}\n", request).await, "default", "of the request");
}

// proves C-164
#[tokio::test(flavor = "multi_thread")]
async fn t235_an_environment_that_is_missing_or_cannot_be_built_fails_the_call_and_no_other_takes_its_place()
 {
    // A machine without packages that cannot reach an index.
    let data = tempfile::tempdir().unwrap();
    std::fs::set_permissions(data.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let nowhere = ["env", "UV_DEFAULT_INDEX=http://127.0.0.1:9/simple", "PATH=/usr/bin:/bin"];
    let data = data.path().to_str().unwrap();
    let options = ["--data", data, "--environment-for", "run_python_code=atlas,code_runner=absent"];
    let world = World::under(&nowhere, &options).await;
    let owner = &world.owner;
    let failure = async |tool: String| {
        let (_, answer) = owner.call("POST", &format!("{tool}/call"), Some(json!({}))).await;
        assert!(answer.get("value").is_none(), "it has run: {answer}");
        answer.to_string()
    };
    let text = failure(make(owner, handle("    return 1", json!({}))).await).await;
    assert!(text.contains("`atlas`") && text.contains("127.0.0.1:9"), "{text}");
    assert!(
        text.contains("belljar exec --env atlas") && text.contains("--environment-for"),
        "{text}"
    );
    let text = failure(make(owner, runner("r", "    return 1", json!({}))).await).await;
    assert!(text.contains("`absent` not found") && text.contains("bare"), "{text}");
    let twin =
        make(owner, handle("    return 1", json!({"name": "own", "environment": "bare"}))).await;
    assert_eq!(call(owner, &twin, json!({})).await["value"], 1);
    let succeeded = owner.get("/v1/executions?status=succeeded").await;
    assert_eq!(succeeded["items"].as_array().unwrap().len(), 1, "{succeeded}");
}

const WORK: &str = "    import numpy, os\n    assert open('in.txt').read() == 'abc'\n    \
                    open('out.txt', 'w').write(str(numpy.arange(3).sum()))\n    \
                    open('changed.txt', 'a').write(' more')\n    if os.path.exists('gone.txt'): os.remove('gone.txt')\n    \
                    os.makedirs('deep', exist_ok=True)\n    open('deep/x.txt', 'w').write('x')\n    \
                    if input.get('fail'): raise ValueError('after that')\n    \
                    return os.environ['BELLJAR_SESSION']";

// proves C-163
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_keeps_its_environment_in_a_session_of_another_and_works_on_the_files_of_the_session()
 {
    let world = World::start().await;
    let owner = &world.owner;
    let own = make(owner, runner("own", WORK, json!({"environment": "default"}))).await;
    let session = owner.session().await;
    let begin = "kept = 42\nfor name, text in [('in.txt', 'abc'), ('changed.txt', 'some'), ('gone.txt', '')]:\n    \
                 open(name, 'w').write(text)";
    owner.run(&session, begin).await;
    let ran = call(owner, &own, json!({"sandbox_id": session})).await;
    assert_eq!((&ran["environment"], &ran["value"]), (&json!("default"), &json!(session)), "{ran}");
    assert_eq!((&ran["sandbox_id"], &ran["warnings"]), (&json!(session), &json!([])), "{ran}");
    let names = |record: &Value| -> Vec<String> {
        let files = record["files_out"].as_array().unwrap().iter();
        files.map(|file| file["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&ran), ["changed.txt", "deep/x.txt", "out.txt"]);
    let look = "import os\nprint(kept, open('out.txt').read(), open('changed.txt').read(), os.path.exists('gone.txt'))";
    let seen = owner.run(&session, look).await;
    assert_eq!(
        printed(&seen),
        "42 3 some more False\n",
        "the state is kept, and the changes of the files come back: {seen}"
    );
    assert_eq!(
        (&seen["environment"], names(&seen)),
        (&json!("bare"), vec![]),
        "they are not new again"
    );
    let failed =
        call(owner, &own, json!({"sandbox_id": session, "arguments": {"fail": true}})).await;
    assert_eq!(failed["status"], "failed", "{failed}");
    assert_eq!(failed["error"]["message"], "after that", "{failed}");
    assert_eq!(
        printed(&owner.run(&session, "print(open('changed.txt').read())").await),
        "some more more\n"
    );
    // The twin: in the environment of the session, it runs in its interpreter.
    let code = "    open('here.txt', 'w').write('here')\n    return 1";
    let here = make(owner, runner("here", code, json!({"environment": "bare"}))).await;
    let ran = call(owner, &here, json!({"sandbox_id": session})).await;
    assert_eq!(
        (&ran["environment"], &ran["warnings"][0]["code"]),
        (&json!("bare"), &json!("tool.unisolated"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn t236_a_tool_beside_a_session_does_not_meet_its_code_and_holds_the_session_meanwhile() {
    let world = World::start().await;
    let owner = &world.owner;
    let code = "    import time\n    open('begun', 'w').close()\n    if input.get('wait'): time.sleep(60)\n    \
                return len('abc')";
    let beside = make(owner, runner("own", code, json!({"environment": "default"}))).await;
    let session = owner.session().await;
    owner.run(&session, "import builtins\nbuiltins.len = lambda it: 'a lie'").await;
    let ran = call(owner, &beside, json!({"sandbox_id": session})).await;
    assert_eq!(ran["value"], 3, "what code of the session has replaced is not there: {ran}");
    let request = owner.request(reqwest::Method::POST, &format!("{beside}/call"));
    let request =
        request.header("prefer", "respond-async").header("content-type", "application/json");
    let body = json!({"sandbox_id": session, "arguments": {"wait": true}}).to_string();
    let answer = request.body(body).send().await.unwrap();
    let record = answer.headers()["location"].to_str().unwrap().to_owned();
    let is = async |status: &str| owner.get(&record).await["status"] == status;
    crate::harness::wait::until("it runs", async || is("running").await).await;
    let busy = owner
        .refused("POST", &format!("/v1/sessions/{session}/execute"), Some(json!({"code": "1"})))
        .await;
    assert_eq!(busy, (409, "session.busy".into()));
    owner.post(&format!("{record}/cancel"), json!({})).await;
    crate::harness::wait::until("it is cancelled", async || is("cancelled").await).await;
    assert_eq!(owner.run(&session, "6 * 7").await["value"], 42, "the session goes on");
}
