//! Agents: what their specification enables, and the tools that they have.

use crate::test_server::{Api, World};
use serde_json::{Value, json};

/// As the seed publishes it, with its indentation.
const PUBLISHED: &str = "tools:\n  - tool_spec:\n    type: code_execution\n    name: code_execution\n\
                         tool_resources:\n  code_execution:\n";
const NESTED: &str = "tools:\n  - tool_spec:\n      type: code_execution\n      name: code_execution\n\
                      tool_resources:\n  code_execution: {}\n";
const NO_ENTRY: &str =
    "tools requires an entry with tool_spec: {type: code_execution, name: code_execution}";
const NO_SECTION: &str = "tool_resources requires a section code_execution, which may be empty";

fn path(agent: &Value) -> String {
    format!("/v1/agents/{}", agent["id"].as_str().unwrap())
}

fn binding(agent: &Value, tool: &Value) -> String {
    format!("{}/tools/{}", path(agent), tool["id"].as_str().unwrap())
}

async fn agent(api: &Api, name: &str, specification: impl Into<Value>) -> Value {
    api.post("/v1/agents", json!({"name": name, "specification": specification.into()})).await
}

async fn tool(api: &Api, name: &str) -> Value {
    let code = "def handle(a: int) -> int:\n    return a\n";
    let tool = json!({
        "type": "runPythonCode", "approval_action": "allow", "name": name, "description": "Gives it back.",
        "configuration": {"pythonCode": code},
    });
    api.post("/v1/tools", tool).await
}

async fn put(api: &Api, agent: &Value, body: Value) -> (u16, Value) {
    api.call("PUT", &path(agent), Some(body)).await
}

async fn grant(world: &World, to: &Api, privilege: &str, kind: &str, object: &Value) {
    let principal = to.get("/v1/principals/me").await["id"].clone();
    let object = json!({"kind": kind, "id": object["id"]});
    let grant = json!({"principal": principal, "privilege": privilege, "object": object});
    world.owner.post("/v1/grants", grant).await;
}

fn tools(agent: &Value) -> Vec<&str> {
    let tools = agent["tools"].as_array().unwrap().iter();
    tools.map(|binding| binding["tool_name"].as_str().unwrap()).collect()
}

// proves S-002 to S-007
#[tokio::test(flavor = "multi_thread")]
async fn code_execution_is_on_only_where_both_sections_say_so() {
    let world = World::start().await;
    let entry = json!([{"tool_spec": {"type": "code_execution", "name": "code_execution"}}]);
    let on = json!({"enabled": true, "missing": []});
    let off = |missing: &[&str]| json!({"enabled": false, "missing": missing});
    for (name, specification, expected) in [
        ("published", json!(PUBLISHED), on.clone()),
        ("nested", json!(NESTED), on.clone()),
        ("json", json!({"tools": entry, "tool_resources": {"code_execution": null}}), on),
        ("neither", json!("instructions: be kind\n"), off(&[NO_ENTRY, NO_SECTION])),
        ("entry", json!({"tools": entry}), off(&[NO_SECTION])),
        ("section", json!({"tool_resources": {"code_execution": {}}}), off(&[NO_ENTRY])),
        (
            "other name",
            json!({
                "tools": [{"tool_spec": {"type": "code_execution", "name": "python"}}],
                "tool_resources": {"code_execution": {}},
            }),
            off(&[NO_ENTRY]),
        ),
    ] {
        let made = agent(&world.owner, name, specification).await;
        assert_eq!(made["code_execution"], expected, "{name}");
        assert_eq!(world.owner.get(&path(&made)).await, made);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_specification_that_the_guide_shows_is_taken() {
    let guide = include_str!("../../docs/server.md");
    let shown = guide.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```"));
    let world = World::start().await;
    let made = world.owner.post("/v1/agents", json!({"specification": shown.unwrap().0})).await;
    assert_eq!(
        (&made["name"], &made["code_execution"]["enabled"]),
        (&json!("helper"), &json!(true))
    );
    let probe = tool(&world.owner, "media_probe").await;
    world.owner.post(&binding(&made, &probe), json!({})).await;
    assert_eq!(world.owner.get(&path(&made)).await["warnings"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_given_no_name_has_that_of_its_specification() {
    let world = World::start().await;
    let named = json!("name: clerk\ninstructions: help\n");
    let made = world.owner.post("/v1/agents", json!({"specification": named})).await;
    assert_eq!(made["name"], "clerk");
    assert_eq!(agent(&world.owner, "other", named).await["name"], "other");
    let unnamed = json!({"specification": "name: 7\n"});
    let (status, problem) = world.owner.call("POST", "/v1/agents", Some(unnamed)).await;
    assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!("/name")), "{problem}");
}

// proves S-008
#[tokio::test(flavor = "multi_thread")]
async fn resources_of_no_tool_are_named() {
    let world = World::start().await;
    let text = format!("{NESTED}  probe: {{}}\n");
    let made = agent(&world.owner, "bot", text).await;
    let warnings = made["warnings"].to_string();
    assert!(warnings.contains("tool_resources.probe"), "{made}");
    assert_eq!(made["code_execution"]["enabled"], true);
    let probe = tool(&world.owner, "probe").await;
    world.owner.post(&binding(&made, &probe), json!({})).await;
    let warnings = world.owner.get(&path(&made)).await["warnings"].to_string();
    assert!(!warnings.contains("tool_resources.probe"), "{warnings}");
}

// proves S-009, S-010
#[tokio::test(flavor = "multi_thread")]
async fn a_specification_is_kept_as_it_was_written_and_replaced_whole() {
    let mut world = World::start().await;
    let odd = "# mine\r\ninstructions: >\n  é 'quoted' \"twice\"\n\n\nmodel: x   \n";
    let made = agent(&world.owner, "bot", odd).await;
    assert_eq!((&made["specification"], &made["format"]), (&json!(odd), &json!("yaml")));

    let raw = r#"{"model":   "y", "n": 1.50, "tool_resources": {}}"#;
    let body = format!(r#"{{"specification": {raw}}}"#);
    let request = world.owner.request("PUT".parse().unwrap(), &path(&made));
    let answer = request.header("content-type", "application/json").body(body).send().await;
    assert_eq!(answer.unwrap().status(), 200);
    world.stop().await;
    world.again().await;
    let now = world.owner.get(&path(&made)).await;
    assert_eq!((&now["specification"], &now["format"]), (&json!(raw), &json!("json")));
    assert_eq!((&now["name"], &now["run_as"]), (&json!("bot"), &json!("owner")));

    let request = world.owner.request("PUT".parse().unwrap(), &format!("{}?name=two", path(&made)));
    let answer = request.header("content-type", "application/yaml").body(NESTED).send().await;
    assert_eq!(answer.unwrap().status(), 200);
    let now = world.owner.get(&path(&made)).await;
    assert_eq!((&now["specification"], &now["name"]), (&json!(NESTED), &json!("two")));

    let exactly = format!("a: {}", "x".repeat(100_000 - 3));
    assert_eq!(put(&world.owner, &made, json!({"specification": exactly})).await.0, 200);
    let (status, problem) =
        put(&world.owner, &made, json!({"specification": format!("{exactly}x")})).await;
    assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!("/specification")));
    assert_eq!(world.owner.get(&path(&made)).await["specification"], exactly);
}

// proves C-001, C-002
#[tokio::test(flavor = "multi_thread")]
async fn a_script_inside_of_an_agent_is_checked_and_comes_back_unchanged() {
    let world = World::start().await;
    let script = "def handle(n: int) -> int:\r\n\t\"\"\"Doubles.\"\"\"\r\n\treturn n * 2  \n";
    let double = |code: &str| {
        json!({
            "type": "runPythonCode", "name": "double", "description": "Doubles a number.",
            "configuration": {"pythonCode": code},
        })
    };
    let made = agent(&world.owner, "bot", json!({"tools": [double(script)]})).await;
    let kept = world.owner.get(&path(&made)).await;
    let kept: Value = serde_json::from_str(kept["specification"].as_str().unwrap()).unwrap();
    assert_eq!(kept["tools"][0], double(script));

    let wrong = json!({"name": "b", "specification": {"tools": [double("def handle(n): ...")]}});
    let (status, problem) = world.owner.call("POST", "/v1/agents", Some(wrong)).await;
    assert_eq!((status, &problem["code"]), (422, &json!("tool.invalid")));
    let error = &problem["errors"][0];
    assert_eq!(error["path"], "/specification/tools/0/configuration/pythonCode");
    assert_eq!((&error["code"], &error["line"]), (&json!("code.annotation"), &json!(1)));

    let twice = json!({"tools": [double(script), double(script)]});
    let twice = json!({"name": "b", "specification": twice});
    let (status, problem) = world.owner.call("POST", "/v1/agents", Some(twice)).await;
    assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!("/specification/tools/1")));

    let same_name = tool(&world.owner, "double").await;
    let failure = world.owner.refused("POST", &binding(&made, &same_name), None).await;
    assert_eq!(failure, (409, "name.taken".into()), "it has a tool of that name");
    let other = tool(&world.owner, "triple").await;
    world.owner.post(&binding(&made, &other), json!({})).await;
    let at = format!("/v1/tools/{}", other["id"].as_str().unwrap());
    let failure = world.owner.refused("PATCH", &at, Some(json!({"name": "double"}))).await;
    assert_eq!(failure, (409, "name.taken".into()));
    let embeds = json!({"type": "runPythonCode", "name": "triple", "description": "Triples it all.",
        "configuration": {"pythonCode": script}});
    let replaced = put(&world.owner, &made, json!({"specification": {"tools": [embeds]}})).await;
    assert_eq!((replaced.0, &replaced.1["code"]), (409, &json!("name.taken")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_a_model_would_take_for_another_is_not_attached() {
    let world = World::start().await;
    let bot = agent(&world.owner, "bot", "instructions: help\n").await;
    for name in ["code_execution", "code_interpreter", "load_skill", "run_skill_script"] {
        let tool = tool(&world.owner, name).await;
        let error = world.owner.refused("POST", &binding(&bot, &tool), None).await;
        assert_eq!(error, (409, "name.taken".into()), "{name}");
    }
    let probe = tool(&world.owner, "probe").await;
    world.owner.post(&binding(&bot, &probe), json!({})).await;
    let at = format!("/v1/tools/{}", probe["id"].as_str().unwrap());
    let error = world.owner.refused("PATCH", &at, Some(json!({"name": "load_skill"}))).await;
    assert_eq!(error, (409, "name.taken".into()), "it is attached");
}

// proves W-049, W-050, W-058
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_attached_once_and_keeps_what_was_decided_about_it() {
    let world = World::start().await;
    let (bot, probe) =
        (agent(&world.owner, "bot", "a: 1").await, tool(&world.owner, "probe").await);
    let at = binding(&bot, &probe);
    assert_eq!(tools(&bot), [""; 0]);
    let review = json!({"approval_action": "review"});
    let early = world.owner.refused("PATCH", &at, Some(review.clone())).await;
    assert_eq!(early, (404, "object.not_found".into()));

    let attached = world.owner.post(&at, json!({})).await;
    assert_eq!((&attached["tool_id"], &attached["agent_id"]), (&probe["id"], &bot["id"]));
    assert_eq!(attached["approval_action"], "allow");
    assert_eq!(tools(&world.owner.get(&path(&bot)).await), ["probe"]);

    let (status, reviewed) = world.owner.call("PATCH", &at, Some(review)).await;
    assert_eq!((status, &reviewed["approval_action"]), (200, &json!("review")));
    let (_, again) = world.owner.call("POST", &at, None).await;
    assert_eq!(again, reviewed, "attaching again does not open what was closed");
    for action in [json!("maybe"), json!(""), json!("ALLOW"), json!(null), json!(1)] {
        let body = json!({"approval_action": action});
        let (status, problem) = world.owner.call("PATCH", &at, Some(body)).await;
        assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!("/approval_action")));
        if action.is_string() {
            let detail = problem["detail"].as_str().unwrap();
            for known in ["`allow`", "`deny`", "`review`"] {
                assert!(detail.contains(known), "{detail}");
            }
        }
    }
    assert_eq!(world.owner.get(&path(&bot)).await["tools"][0], reviewed);

    world.owner.delete(&at).await;
    assert_eq!(tools(&world.owner.get(&path(&bot)).await), [""; 0]);
    let error = world.owner.refused("DELETE", &at, None).await;
    assert_eq!(error, (404, "object.not_found".into()));
}

/// Allows the call for always, and checks that the next call runs at once.
async fn agree_for_good(world: &World, call: &str, body: &Value) {
    let (status, record) = world.owner.call("POST", call, Some(body.clone())).await;
    assert_eq!(status, 202, "{record}");
    let boss = world.principal(&uuid(&record["id"]), &["OWNERSHIP"]).await;
    let at = format!("/v1/approvals/{}", uuid(&record["approval_id"]));
    boss.post(&at, json!({"decision": "allow", "scope": "always"})).await;
    assert_eq!(world.owner.call("POST", call, Some(body.clone())).await.0, 200, "remembered");
}

fn uuid(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_forgotten_when_what_they_were_about_is_changed() {
    let world = World::start().await;
    let (bot, probe) =
        (agent(&world.owner, "bot", "a: 1").await, tool(&world.owner, "probe").await);
    let (bound, at) = (binding(&bot, &probe), format!("/v1/tools/{}", uuid(&probe["id"])));
    let review = json!({"approval_action": "review"});
    world.owner.post(&bound, json!({})).await;
    let changed = world.owner.call("PATCH", &bound, Some(review.clone())).await;
    assert_eq!(changed.0, 200);
    let call = format!("{at}/call");
    let body = json!({"arguments": {"a": 1}, "agent_id": bot["id"]});
    for (method, at, change) in [
        ("PATCH", &bound, Some(review.clone())),
        ("PATCH", &at, Some(json!({"description": "Gives it back, too."}))),
    ] {
        agree_for_good(&world, &call, &body).await;
        assert_eq!(world.owner.call(method, at, change).await.0, 200);
        assert_eq!(world.owner.call("POST", &call, Some(body.clone())).await.0, 202, "{at}");
    }
    agree_for_good(&world, &call, &body).await;
    world.owner.delete(&bound).await;
    world.owner.post(&bound, json!({})).await;
    world.owner.call("PATCH", &bound, Some(review)).await;
    assert_eq!(world.owner.call("POST", &call, Some(body)).await.0, 202, "attached anew");
}

// proves W-053
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_agents_have_is_not_deleted() {
    let world = World::start().await;
    let probe = tool(&world.owner, "probe").await;
    let at = format!("/v1/tools/{}", probe["id"].as_str().unwrap());
    let (one, two) =
        (agent(&world.owner, "beta", "a: 1").await, agent(&world.owner, "alpha", "a: 1").await);
    world.owner.post(&binding(&one, &probe), json!({})).await;
    world.owner.post(&binding(&two, &probe), json!({})).await;
    let (status, problem) = world.owner.call("DELETE", &at, None).await;
    assert_eq!((status, &problem["code"]), (409, &json!("tool.in_use")));
    assert_eq!(
        problem["detail"],
        "Cannot delete tool. The following agents depend on it: alpha, beta. Please remove this \
         tool from these agents first."
    );
    assert_eq!(world.owner.get(&at).await["id"], probe["id"]);
    world.owner.delete(&binding(&one, &probe)).await;
    world.owner.delete(&path(&two)).await;
    world.owner.delete(&at).await;
    assert_eq!(world.owner.refused("GET", &at, None).await.0, 404);
}

// proves S-033, S-034
#[tokio::test(flavor = "multi_thread")]
async fn each_privilege_on_an_agent_is_for_what_it_says() {
    let world = World::start().await;
    let bot = agent(&world.owner, "bot", "a: 1").await;
    let probe = tool(&world.owner, "probe").await;
    let (at, enable) = (path(&bot), json!({"specification": NESTED}));
    let missing = (403, "grant.missing".to_owned());
    let not_there = (404, "object.not_found".to_owned());

    let user = world.principal("user", &["USAGE"]).await;
    let new = json!({"name": "mine", "specification": "a: 1"});
    assert_eq!(user.refused("POST", "/v1/agents", Some(new.clone())).await, missing);
    assert_eq!(user.refused("GET", &at, None).await, not_there);
    assert_eq!(user.get("/v1/agents").await["items"], json!([]));

    grant(&world, &user, "USAGE", "agent", &bot).await;
    assert_eq!(user.get(&at).await["id"], bot["id"]);
    assert_eq!(user.get("/v1/agents").await["items"][0]["id"], bot["id"]);
    let change = json!({"approval_action": "allow"});
    for (method, at, body) in [
        ("PUT", at.clone(), Some(enable.clone())),
        ("DELETE", at.clone(), None),
        ("POST", binding(&bot, &probe), None),
        ("PATCH", binding(&bot, &probe), Some(change)),
        ("DELETE", binding(&bot, &probe), None),
    ] {
        assert_eq!(user.refused(method, &at, body).await, missing, "{method} {at}");
    }

    grant(&world, &user, "MODIFY", "agent", &bot).await;
    let (status, now) = user.call("PUT", &at, Some(enable)).await;
    assert_eq!((status, &now["code_execution"]["enabled"]), (200, &json!(true)));
    assert_eq!(user.refused("DELETE", &at, None).await, missing);
    let bind = binding(&bot, &probe);
    assert_eq!(user.refused("POST", &bind, None).await, not_there, "the tool is not theirs");
    grant(&world, &user, "MODIFY", "tool", &probe).await;
    assert_eq!(user.refused("POST", &bind, None).await, missing, "to change is not to use");
    grant(&world, &user, "USAGE", "tool", &probe).await;
    assert_eq!(user.call("POST", &bind, None).await.0, 200);

    let maker = world.principal("maker", &["MODIFY"]).await;
    let own = maker.post("/v1/agents", new).await;
    assert_eq!(own["reach"]["owner"], maker.get("/v1/principals/me").await["id"]);
    maker.delete(&path(&own)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_says_whose_rights_its_code_has() {
    let world = World::start().await;
    let made = agent(&world.owner, "bot", NESTED).await;
    assert_eq!((&made["run_as"], &made["reach"]["owner"]), (&json!("owner"), &made["owner"]));
    let text = made["reach"]["text"].as_str().unwrap();
    assert!(text.contains("the rights of its owner, owner,"), "{text}");
    let body = json!({"specification": NESTED, "run_as": "caller"});
    let (_, now) = put(&world.owner, &made, body).await;
    assert!(now["reach"]["text"].as_str().unwrap().contains("the rights of its caller"), "{now}");
    let (_, now) = put(&world.owner, &made, json!({"specification": "a: 1"})).await;
    assert_eq!(now["run_as"], "caller", "rights do not grow by themselves");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_not_one_names_its_field_and_changes_nothing() {
    let world = World::start().await;
    let made = agent(&world.owner, "bot", NESTED).await;
    let with = |key: &str, value: Value| {
        let mut body = json!({"name": "other", "specification": "a: 1"});
        body[key] = value;
        body
    };
    let specification = |text: &str| with("specification", json!(text));
    for (body, at) in [
        (with("colour", json!("red")), "/colour"),
        (with("name", json!(7)), "/name"),
        (with("name", json!("")), "/name"),
        (with("name", json!("x".repeat(201))), "/name"),
        (with("name", json!("a\u{0}b")), "/name"),
        (json!({"specification": "a: 1"}), "/name"),
        (json!({"name": "other"}), "/specification"),
        (with("run_as", json!("root")), "/run_as"),
        (with("specification", json!(7)), "/specification"),
        (with("specification", json!(["a"])), "/specification"),
        (with("specification", json!(null)), "/specification"),
        (specification(""), "/specification"),
        (specification("a: [1"), "/specification"),
        (specification("a: 1\na: 2"), "/specification"),
        (specification("a: \u{0}"), "/specification"),
        (specification("a: 1\n---\nb: 2"), "/specification"),
        (specification("a: &a [*a]"), "/specification"),
        (specification("tools: {}"), "/specification/tools"),
        (specification(&"[".repeat(99_000)), "/specification"),
    ] {
        let (status, problem) = world.owner.call("POST", "/v1/agents", Some(body.clone())).await;
        assert_eq!(status, 400, "{problem}");
        assert_eq!(problem["errors"][0]["path"], at, "{problem}");
    }
    let twice = r#"{"name": "other", "specification": {"a": {"b": 1, "b": 2}}}"#;
    let post = world.owner.request("POST".parse().unwrap(), "/v1/agents");
    let answer = post.header("content-type", "application/json").body(twice).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    let (status, _) = put(&world.owner, &made, json!({"specification": "a: [1"})).await;
    assert_eq!(status, 400);
    assert_eq!(world.owner.get(&path(&made)).await, made);
    assert_eq!(world.owner.get("/v1/agents").await["items"].as_array().unwrap().len(), 1);
    let quoted = agent(&world.owner, "'; DROP TABLE agents; --", "a: '\" OR 1=1'").await;
    assert_eq!(world.owner.get(&path(&quoted)).await, quoted);
}
