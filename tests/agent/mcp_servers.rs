//! Agents that use MCP servers as tools: what they can call, what they must ask for, and what a hostile
//! server can do, which is to fail its own call.

use crate::confirmations::reply;
use crate::harness;
use crate::mcp_server::{
    HttpScript, NAMED, RESOLVED, Script, allowed, open_host, reverse_proxy, with_action,
};
use crate::scripted_server::{Scene, call, calls, chat, download, offered, say, say_to};
use crate::test_server::World;
use serde_json::{Value, json};

fn find(what: &str) -> Value {
    call("docs__find", json!({ "what": what }))
}

/// A scene with a command of the operator, `docs`.
async fn with_command(script: &Script, turns: Value) -> Scene {
    Scene::with(turns, &["--mcp-command", &script.command("docs")]).await
}

fn command() -> Value {
    json!({"command": "docs"})
}

/// The executions of tools of MCP servers, newest first.
async fn remote_calls(scene: &Scene) -> Vec<Value> {
    let all = scene.owner().get("/v1/executions").await;
    let all = all["items"].as_array().unwrap().iter().filter(|it| it["entry"] == "mcp");
    all.cloned().collect()
}

/// The text of the one call that the model got back in its second request.
fn returned(scene: &Scene) -> String {
    scene.messages(1)
}

// proves P-100, P-101
#[tokio::test(flavor = "multi_thread")]
async fn a_model_calls_the_tools_of_a_command_and_of_a_url() {
    let (command, http) = (Script::new(""), HttpScript::start(""));
    let turns = json!([
        calls(&[
            ("files__find", json!({"what": "a file"})),
            ("web__find", json!({"what": "a page"})),
        ]),
        say("Both were found."),
    ]);
    let options = ["--mcp-command", &command.command("files"), "--mcp-server", &http.host()];
    let scene = Scene::with(turns, &options).await;
    open_host(scene.owner(), "web", &[&http.host()]).await;
    let agent = scene
        .agent(json!({"mcp_servers": [
            {"name": "files", "command": "files", "approval_action": "allow"},
            {"name": "web", "url": http.url(), "integrations": ["web"], "approval_action": "allow"},
        ]}))
        .await;
    let done = say_to(scene.owner(), &agent, "Find them.").await;
    assert_eq!(done["answer"], "Both were found.", "{done}");
    assert_eq!(offered(&scene.asked()[0]), ["files__find", "web__find"]);
    let schema = &scene.asked()[0]["tools"][0]["function"];
    assert_eq!(schema["description"], "Finds a thing.");
    assert_eq!(schema["parameters"]["properties"]["what"]["type"], "string");
    let messages = returned(&scene);
    assert!(messages.contains("found a file") && messages.contains("found a page"), "{messages}");

    let calls = remote_calls(&scene).await;
    assert_eq!(calls.len(), 2);
    for record in &calls {
        assert_eq!((&record["status"], &record["environment"]), (&json!("succeeded"), &json!("")));
    }
    let of_web = calls.iter().find(|it| it["tool"] == "web__find").unwrap();
    let attempt = &of_web["network"][0];
    assert_eq!((&attempt["port"], &attempt["integration"]), (&json!(http.port), &json!("web")));
    let of_files = calls.iter().find(|it| it["tool"] == "files__find").unwrap();
    assert_eq!(of_files["arguments"], json!({"what": "a file"}));
    // The session of the protocol ends with each operation, and so does the process.
    assert_eq!(http.script.notes().iter().filter(|note| *note == "deleted").count(), 2);
    command.leaves_nothing().await;
}

// proves P-102
#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_a_person_unless_the_entry_says_otherwise() {
    let script = Script::new("");
    let turns = json!([find("a thing"), say("Found."), find("more"), say("Not found.")]);
    let scene = with_command(&script, turns).await;
    let agent = scene.agent(json!({"mcp_servers": [{"name": "docs", "command": "docs"}]})).await;
    let asked = say_to(scene.owner(), &agent, "Find it.").await;
    let action = &asked["actions"][0]["toolConfirmation"];
    assert_eq!(action["toolName"], "docs__find", "{asked}");
    assert_eq!(
        (&action["toolType"], &action["toolArguments"]),
        (&json!("mcp"), &json!({"what": "a thing"}))
    );
    assert_eq!(script.asked("tools/call").len(), 0, "nothing is called before");
    let done = chat(scene.owner(), &agent, reply(&asked, "ALLOW")).await;
    assert_eq!(done["answer"], "Found.", "{done}");
    assert!(scene.messages(1).contains("found a thing"), "{}", scene.messages(1));
    assert_eq!(script.asked("tools/call").len(), 1);

    let asked = say_to(scene.owner(), &agent, "Find more.").await;
    let done = chat(scene.owner(), &agent, reply(&asked, "DENY")).await;
    assert_eq!(done["answer"], "Not found.", "{done}");
    assert_eq!(script.asked("tools/call").len(), 1, "what is denied is not called");
}

// proves P-103
#[tokio::test(flavor = "multi_thread")]
async fn t284_a_server_that_calls_itself_harmless_is_believed_only_where_the_author_says_so() {
    let claims = "TOOL['annotations'] = {'readOnlyHint': True}";
    let script = Script::new(claims);
    let turns = json!([find("one"), find("two"), say("Done.")]);
    let scene = with_command(&script, turns).await;
    let doubting = scene.agent(with_action(command(), "review")).await;
    let asked = say_to(scene.owner(), &doubting, "Find it.").await;
    assert_eq!(asked["actions"].as_array().unwrap().len(), 1, "{asked}");
    assert_eq!(script.asked("tools/call").len(), 0);
    let mut trusting = with_action(command(), "review");
    trusting["mcp_servers"][0]["trust_annotations"] = json!(true);
    let trusting = crate::scripted_server::agent(scene.owner(), "trusting", trusting).await;
    let done = say_to(scene.owner(), &trusting, "Find it.").await;
    assert_eq!(done["actions"], json!([]), "{done}");
    assert_eq!(script.asked("tools/call").len(), 1);
}

// proves P-104
#[tokio::test(flavor = "multi_thread")]
async fn only_allowed_tools_are_offered_and_can_be_called() {
    let two = "def tools(request):\n    return result(request, {'tools': [TOOL, {**TOOL, 'name': 'drop'}]})";
    let script = Script::new(two);
    let turns = json!([call("docs__drop", json!({})), say("I cannot."), say("Hello.")]);
    let scene = with_command(&script, turns).await;
    let mut entry = allowed(command());
    entry["mcp_servers"][0]["allowed_tools"] = json!(["find"]);
    let agent = scene.agent(entry).await;
    let done = say_to(scene.owner(), &agent, "Drop it.").await;
    assert_eq!(done["answer"], "I cannot.", "{done}");
    assert_eq!(offered(&scene.asked()[0]), ["docs__find"]);
    assert!(returned(&scene).contains("There is no tool \"docs__drop\""), "{}", returned(&scene));
    assert_eq!(script.asked("tools/call").len(), 0);
    let denied = scene.owner();
    let denied =
        crate::scripted_server::agent(denied, "denied", with_action(command(), "deny")).await;
    let turns = script.asked("tools/list").len();
    chat(scene.owner(), &denied, json!({"message": "Hello"})).await;
    assert_eq!(script.asked("tools/list").len(), turns, "a denied server is not even started");
}

// proves P-105
#[tokio::test(flavor = "multi_thread")]
async fn t285_a_url_needs_the_operator_and_an_integration() {
    let (http, other) = (HttpScript::start(""), HttpScript::start(""));
    let turns = json!([say("1"), say("2"), say("3"), find("it"), say("4")]);
    let scene = Scene::with(turns, &["--mcp-server", &http.host()]).await;
    let owner = scene.owner();
    open_host(owner, "web", &[&http.host()]).await;
    open_host(owner, "other", &[&other.host()]).await;
    let agent = async |name: &str, url: String, integrations: Value| {
        let specification = allowed(json!({"url": url, "integrations": integrations}));
        crate::scripted_server::agent(owner, name, specification).await
    };
    let warned = async |agent: String| {
        let done = say_to(owner, &agent, "Hello").await;
        done["warnings"].to_string()
    };
    let none = warned(agent("none", http.url(), json!([])).await).await;
    assert!(none.contains("is not allowed by any integration"), "{none}");
    let unlisted = warned(agent("unlisted", other.url(), json!(["other"])).await).await;
    assert!(unlisted.contains("operator of this server"), "{unlisted}");
    let wrong = warned(agent("wrong", http.url(), json!(["other"])).await).await;
    assert!(wrong.contains("is not allowed by any integration"), "{wrong}");
    assert_eq!((http.script.notes().len(), other.script.notes().len()), (0, 0), "nobody was asked");
    let both = agent("both", http.url(), json!(["web"])).await;
    let done = say_to(owner, &both, "Find it.").await;
    assert_eq!(done["answer"], "4", "{done}");
    let unknown = allowed(json!({"url": http.url(), "integrations": ["nothing"]}));
    let unknown = json!({"name": "unknown", "specification": unknown});
    assert_eq!(owner.refused("POST", "/v1/agents", Some(unknown)).await.0, 400);
}

// proves P-106
#[tokio::test(flavor = "multi_thread")]
async fn t286_a_redirect_is_judged_again_and_leads_nowhere_else() {
    let other = HttpScript::start("");
    let http = HttpScript::start(&format!("REDIRECT = {:?}", other.url()));
    let scene = Scene::with(
        json!([say("1"), find("it"), say("2")]),
        &["--mcp-server", &http.host(), "--mcp-server", &other.host()],
    )
    .await;
    open_host(scene.owner(), "web", &[&http.host()]).await;
    open_host(scene.owner(), "other", &[&other.host()]).await;
    let owner = scene.owner();
    let only = allowed(json!({"url": http.url(), "integrations": ["web"]}));
    let only = crate::scripted_server::agent(owner, "only", only).await;
    let done = say_to(owner, &only, "Hello").await;
    assert!(done["warnings"].to_string().contains("is not allowed by any integration"), "{done}");
    assert_eq!(other.script.notes().len(), 0, "it was not asked");
    let both = allowed(json!({"url": http.url(), "integrations": ["web", "other"]}));
    let both = crate::scripted_server::agent(owner, "both", both).await;
    let done = say_to(owner, &both, "Find it.").await;
    assert_eq!(done["answer"], "2", "{done}");
    assert_eq!(other.script.asked("tools/call").len(), 1);
}

/// A scene in which the integration `web` and the operator open a host by its name and its address.
async fn with_named(turns: Value, options: &[&str], named: &str, address: &str) -> Scene {
    let operator = ["--mcp-server", named, "--mcp-server", address];
    let scene = Scene::with(turns, &[options, &RESOLVED, &operator].concat()).await;
    open_host(scene.owner(), "web", &[named, address]).await;
    scene
}

/// A secret that is sent to a host of this machine as a bearer token.
async fn credential(scene: &Scene, value: &str, host: &str) {
    // Of the kinds of secrets, this one can be sent over plain HTTP to an internal address.
    let inject = json!({"client": "openai", "base_url": format!("http://{host}")});
    let secret = json!({"name": "DOCS", "value": value, "inject": inject});
    scene.owner().post("/v1/secrets", secret).await;
}

const SECRET: &str = "s3cr3t-of-the-docs-server";

// proves P-107
#[tokio::test(flavor = "multi_thread")]
async fn t287_a_credential_goes_to_its_server_and_never_to_the_model() {
    let echo = "def call(request):\n    seen = open(sys.argv[1]).read()\n    return [text(request, 'seen: ' + seen)]";
    let http = HttpScript::start(echo);
    let named = format!("{NAMED}:{}", http.port);
    let scene = with_named(json!([find("it"), say("Done.")]), &[], &named, &http.host()).await;
    credential(&scene, SECRET, &named).await;
    let specification =
        allowed(json!({"url": format!("http://{named}/mcp"), "integrations": ["web"]}));
    let agent = scene.agent(specification).await;
    let done = say_to(scene.owner(), &agent, "Find it.").await;
    assert_eq!(done["answer"], "Done.", "{done}");
    let headers = http.script.asked("headers");
    let sent = |headers: &Value| headers["authorization"] == format!("Bearer {SECRET}");
    assert!(!headers.is_empty() && headers.iter().all(sent), "{headers:?}");
    let everything = json!([scene.asked(), done, remote_calls(&scene).await]).to_string();
    assert!(everything.contains("seen: "), "the server has answered with what it got");
    assert!(!everything.contains(SECRET), "the model or a record has the secret");
    assert!(everything.contains(&"*".repeat(SECRET.len())));
}

/// What a server does, and what the model is told about it.
const HOSTILE: [(&str, &str, &str); 9] = [
    (
        "wrong id",
        "def call(request):\n    return [text({'id': 4711}, 'a lie')]",
        "a request that was not made",
    ),
    ("no JSON", "def call(request):\n    return ['hello there']", "not valid MCP"),
    (
        "other result",
        "def call(request):\n    return [json.dumps({'id': request['id'], 'ok': True})]",
        "not valid MCP",
    ),
    (
        "too long",
        "def call(request):\n    return [text(request, 'x' * (9 << 20))]",
        "more bytes than the 8388608",
    ),
    (
        "many messages",
        "def call(request):\n    return [json.dumps({'jsonrpc': '2.0', 'method': 'notifications/message', 'params': {'level': 'info', 'data': 'x'}})] * 2000",
        "more messages than the 1000",
    ),
    (
        "samples",
        "def call(request):\n    return [json.dumps({'jsonrpc': '2.0', 'id': i, 'method': 'roots/list'}) for i in range(100)]",
        "more requests of its own than the 16",
    ),
    (
        "memory",
        "def call(request):\n    return [result(request, {'content': [], 'structuredContent': [[[]] for _ in range(900000)]})]",
        "a message that takes more memory",
    ),
    (
        "refuses",
        "def call(request):\n    return [json.dumps({'jsonrpc': '2.0', 'id': request['id'], 'error': {'code': -32000, 'message': 'not\\u0000 now'}})]",
        "refused the request: not  now (code -32000)",
    ),
    (
        "fails",
        "def call(request):\n    return [text(request, 'there is no such thing', isError=True)]",
        "the tool failed: there is no such thing",
    ),
];

// proves P-108
#[tokio::test(flavor = "multi_thread")]
async fn t288_a_hostile_server_fails_its_own_call_and_the_run_goes_on() {
    let scripts: Vec<Script> =
        HOSTILE.iter().map(|(_, replaced, _)| Script::new(replaced)).collect();
    let https: Vec<HttpScript> =
        HOSTILE.iter().map(|(_, replaced, _)| HttpScript::start(replaced)).collect();
    let turns: Vec<Value> =
        HOSTILE.iter().flat_map(|_| [find("it"), say("On."), find("it"), say("On.")]).collect();
    let commands: Vec<String> = scripts
        .iter()
        .enumerate()
        .map(|(number, script)| script.command(&format!("c{number}")))
        .collect();
    let mut options: Vec<&str> = commands.iter().flat_map(|it| ["--mcp-command", it]).collect();
    let hosts: Vec<String> = https.iter().map(HttpScript::host).collect();
    options.extend(hosts.iter().flat_map(|host| ["--mcp-server", host.as_str()]));
    let scene = Scene::with(json!(turns), &options).await;
    for (number, (name, _, expected)) in HOSTILE.iter().enumerate() {
        let integration = format!("h{number}");
        open_host(scene.owner(), &integration, &[&hosts[number]]).await;
        let addresses = [
            json!({"command": format!("c{number}")}),
            json!({"url": https[number].url(), "integrations": [integration]}),
        ];
        for (form, address) in addresses.into_iter().enumerate() {
            let agent = format!("a{number}-{form}");
            let agent =
                crate::scripted_server::agent(scene.owner(), &agent, allowed(address)).await;
            let done = say_to(scene.owner(), &agent, "Find it.").await;
            assert_eq!(
                (&done["answer"], &done["status"]),
                (&json!("On."), &json!("succeeded")),
                "{name}: {done}"
            );
            let told = scene.messages(4 * number + 2 * form + 1);
            assert!(told.contains(expected), "{name} {form}: {told}");
        }
        scripts[number].leaves_nothing().await;
    }
}

// proves P-109
#[tokio::test(flavor = "multi_thread")]
async fn t289_a_server_that_hangs_is_ended_with_everything_it_started() {
    let hangs = "def call(request):\n    import subprocess\n    subprocess.Popen(['sleep', '1000'])\n    subprocess.run(['sleep', '1000'])\n    return []";
    let script = Script::new(hangs);
    let scene = Scene::with(
        json!([find("it"), say("It takes too long.")]),
        &["--mcp-command", &script.command("docs"), "--run-milliseconds", "2000"],
    )
    .await;
    let agent = scene.agent(allowed(command())).await;
    let done = say_to(scene.owner(), &agent, "Find it.").await;
    assert_eq!(done["answer"], "It takes too long.", "{done}");
    assert!(returned(&scene).contains("did not finish within 2 seconds"), "{}", returned(&scene));
    assert_eq!(remote_calls(&scene).await[0]["status"], "timed_out");
    script.leaves_nothing().await;
}

// proves P-110
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_ends_the_call_and_its_process() {
    let hangs = "def call(request):\n    import subprocess\n    subprocess.run(['sleep', '1000'])\n    return []";
    let script = Script::new(hangs);
    let scene = with_command(&script, json!([find("it"), say("Never said.")])).await;
    let agent = scene.agent(allowed(command())).await;
    let run = crate::scripted_server::begin(
        scene.owner(),
        &format!("{agent}/run"),
        json!({"message": "Find it."}),
    )
    .await;
    harness::wait::until("the tool is called", async || !script.asked("tools/call").is_empty())
        .await;
    scene.owner().call("POST", &format!("{run}/cancel"), None).await;
    let ended = scene.settled(&run).await;
    assert_eq!(ended["status"], "cancelled", "{ended}");
    assert_eq!(remote_calls(&scene).await[0]["status"], "cancelled");
    script.leaves_nothing().await;
}

// proves P-111
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_start_or_lists_nonsense_is_a_warning() {
    let nonsense = Script::new("def tools(request):\n    return 'x' * 100");
    let old = Script::new(
        "def initialize(request):\n    return result(request, {'protocolVersion': '1999-01-01', 'capabilities': {}, 'serverInfo': {'name': 'x', 'version': '1'}})",
    );
    let options = [
        "--mcp-command",
        "gone=/no/such/program --x",
        "--mcp-command",
        &nonsense.command("nonsense"),
        "--mcp-command",
        &old.command("old"),
    ];
    let scene = Scene::with(json!([say("Without them.")]), &options).await;
    let entry = |name: &str| json!({"name": name, "command": name});
    let specification =
        json!({"mcp_servers": [entry("gone"), entry("nonsense"), entry("old"), entry("unknown")]});
    let agent = scene.agent(specification).await;
    let done = say_to(scene.owner(), &agent, "Hello").await;
    assert_eq!(done["answer"], "Without them.", "{done}");
    let warnings = done["warnings"].to_string();
    for part in ["cannot be started", "not valid MCP", "version 1999-01-01", "no MCP command"] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    assert!(!warnings.contains("/no/such"), "a path of the host is not for callers: {warnings}");
    assert_eq!(offered(&scene.asked()[0]), Vec::<String>::new());
    nonsense.leaves_nothing().await;
}

// proves P-112
#[tokio::test(flavor = "multi_thread")]
async fn text_values_and_images_become_parts_of_the_record() {
    const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let replaced = format!(
        "def call(request):\n    return [result(request, {{'content': [{{'type': 'text', 'text': 'a chart'}}, {{'type': 'image', 'mimeType': 'image/png', 'data': '{PIXEL}'}}, {{'type': 'text', 'text': 'y' * 40000}}], 'structuredContent': {{'count': 42}}}})]"
    );
    let script = Script::new(&replaced);
    let scene = with_command(&script, json!([find("it"), say("There are 42.")])).await;
    let agent = scene.agent(allowed(command())).await;
    let done = say_to(scene.owner(), &agent, "Chart it.").await;
    assert_eq!(done["answer"], "There are 42.", "{done}");
    let told = returned(&scene);
    assert!(told.contains("a chart") && told.contains("{\"count\":42}"), "{told}");
    assert!(told.contains("bytes are left out here"), "what is long is cut with a note");
    assert!(!told.contains(PIXEL), "an image is a file and no text");
    let record = &remote_calls(&scene).await[0];
    assert_eq!(record["value"], json!({"count": 42}));
    let image = &record["files_out"][0];
    assert_eq!(image["mime"], "image/png", "{record}");
    let (status, kind, bytes) = download(scene.owner(), &image["url"]).await;
    assert_eq!((status, kind.as_str(), &bytes[1..4]), (200, "image/png", &b"PNG"[..]));
    let called = &done["response"]["messages"][0]["reasoning"].to_string();
    assert!(called.contains("docs__find") && called.contains("a chart"), "{called}");
}

// proves P-113
#[tokio::test(flavor = "multi_thread")]
async fn t310_a_command_has_no_variable_of_the_server() {
    let script = Script::new("");
    let scene = with_command(&script, json!([find("it"), say("Done.")])).await;
    let agent = scene.agent(allowed(command())).await;
    say_to(scene.owner(), &agent, "Find it.").await;
    let notes = script.notes();
    let started = notes.iter().find(|note| note.starts_with("started ")).unwrap();
    assert!(started.contains("PATH") && !started.contains("sk-test"), "{started}");
    assert!(!started.contains("OPENAI") && !started.contains("BELLJAR"), "{started}");
}

// proves P-114
#[tokio::test(flavor = "multi_thread")]
async fn belljar_itself_is_such_a_server_as_a_command_and_over_http() {
    let other = World::start().await;
    let port = reverse_proxy(other.address().replace("http://", "")).await;
    let (named, address) = (format!("{NAMED}:{port}"), format!("127.0.0.1:{port}"));
    let belljar = format!(
        "own={} mcp --env bare --data {}",
        harness::binary().display(),
        harness::data().display()
    );
    let python = |code: &str| json!({ "code": code });
    let turns = json!([
        calls(&[
            ("own__execute_python", python("6 * 7")),
            ("remote__execute_python", python("20 + 3")),
        ]),
        say("42 and 23."),
    ]);
    let scene = with_named(turns, &["--mcp-command", &belljar], &named, &address).await;
    credential(&scene, &other.owner.key, &named).await;
    let agent = scene
        .agent(json!({"mcp_servers": [
            {"name": "own", "command": "own", "approval_action": "allow"},
            {"name": "remote", "url": format!("http://{named}/mcp"), "integrations": ["web"],
             "approval_action": "allow", "allowed_tools": ["execute_python"]},
        ]}))
        .await;
    let done = say_to(scene.owner(), &agent, "Compute.").await;
    assert_eq!(done["answer"], "42 and 23.", "{done}");
    let told = returned(&scene);
    assert!(told.contains("42") && told.contains("23"), "{told}");
    let ran = other.owner.get("/v1/executions").await;
    assert_eq!(ran["items"].as_array().unwrap().len(), 1, "the other server has run it");
}
