//! No principal gains rights of another one: ownership needs the consent of the recipient, code uses only
//! what its author may use as well, and a name in use cannot be taken over. A maker has USAGE and MODIFY on
//! the workspace, and nothing else.

use crate::harness::wait;
use crate::principals::{
    FORBIDDEN, ME, NOT_THERE, Person, grant, id, items, on, refused, ungrant, workspace,
};
use crate::test_server::{Api, World};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

pub(crate) const IN_USE: (u16, &str) = (409, "object.in_use");
pub(crate) const INVALID: (u16, &str) = (400, "args.invalid");
const CANARY: &str = "sk-canary-4711-0815-abcdef";
/// Backwards, so that redaction does not find it.
pub(crate) const PEEK: &str = "import os\n\ndef handle() -> str:\n    \"\"\"Reads a variable.\"\"\"\n    \
                    return os.environ.get('TOKEN', 'none')[::-1]\n";

pub(crate) async fn maker(world: &World, name: &str) -> Person {
    let person = Person::new(world, name).await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(&world.owner, &person.id, privilege, &workspace(&world.owner).await).await;
    }
    person
}

pub(crate) fn specification(volumes: &str, integrations: &str) -> String {
    format!(
        "tools:\n  - tool_spec: {{type: code_execution, name: code_execution}}\n\
         tool_resources:\n  code_execution:\n    environment: bare\n    volumes: {volumes}\n    \
         external_access_integrations: {integrations}\n"
    )
}

pub(crate) const PAYROLL: &str = "[{name: payroll, access: read}]";

pub(crate) async fn agent(who: &Api, name: &str, volumes: &str) -> Value {
    let new = json!({"name": name, "specification": specification(volumes, "[]")});
    who.post("/v1/agents", new).await
}

/// A volume of the owner's with a file in it.
pub(crate) async fn payroll(owner: &Api) -> Value {
    let volume = owner.post("/v1/volumes", json!({"name": "payroll"})).await;
    let path = format!("/v1/volumes/{}/files/a.txt", id(&volume));
    let put = owner.request(reqwest::Method::PUT, &path).body("secret").send().await.unwrap();
    assert_eq!(put.status(), 201);
    volume
}

/// What code of an agent reads in the volume, or the code of the refusal.
pub(crate) async fn reads(who: &Api, agent: &Value) -> String {
    let (status, session) =
        who.call("POST", "/v1/sessions", Some(json!({"agent_id": agent["id"]}))).await;
    if status != 201 {
        return session["code"].as_str().unwrap().to_owned();
    }
    let session = session["sandbox_id"].as_str().unwrap().to_owned();
    let read = who.run(&session, "open('/mnt/payroll/a.txt').read()").await;
    read["value"].as_str().unwrap_or_else(|| panic!("{read}")).to_owned()
}

pub(crate) fn at(kind: &str, record: &Value) -> String {
    format!("/v1/{kind}/{}", id(record))
}

async fn offer(who: &Api, to: &str, object: &Value) -> Value {
    who.post("/v1/ownership-offers", json!({"principal": to, "object": object})).await
}

async fn accept(who: &Api, offer: &Value) -> Value {
    who.post(&format!("/v1/ownership-offers/{}/accept", id(offer)), json!({})).await
}

pub(crate) async fn confirm(who: &Api, path: &str) -> Value {
    let now = who.get(path).await["updated_at"].clone();
    who.post(&format!("{path}/confirm"), json!({"updated_at": now})).await
}

async fn audited(owner: &Api) -> Vec<String> {
    let lines = items(owner, "/v1/audit?limit=200").await;
    lines.iter().map(|line| line["action"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t93_a_maker_does_not_make_an_owner_of_the_workspace_run_their_code() {
    let world = World::start().await;
    let (owner, maker) = (&world.owner, maker(&world, "maker").await);
    let boss = owner.get(ME).await["id"].as_str().unwrap().to_owned();
    let volume = payroll(owner).await;
    let once = grant(owner, &maker.id, "USAGE", &on("volume", &volume)).await;
    let mine = agent(&maker, "mine", PAYROLL).await;
    ungrant(owner, &once).await;
    let object = on("agent", &mine);
    for privilege in ["USAGE", "MODIFY"] {
        grant(&maker, &maker.id, privilege, &object).await;
    }
    assert_eq!(reads(&maker, &mine).await, "grant.missing");
    let give = json!({"principal": boss, "privilege": "OWNERSHIP", "object": object});
    refused(&maker, "POST", "/v1/grants", Some(give), FORBIDDEN).await;
    let offered = offer(&maker, &boss, &object).await;
    assert_eq!(maker.get(&at("agents", &mine)).await["owner"], maker.id, "until it is accepted");
    assert_eq!(reads(&maker, &mine).await, "grant.missing");
    let path = format!("/v1/ownership-offers/{}/accept", id(&offered));
    refused(&maker, "POST", &path, None, FORBIDDEN).await;

    // Accepted, it has only the privileges of its callers, and its author has none on it.
    accept(owner, &offered).await;
    assert_eq!(reads(&maker, &mine).await, "grant.missing");
    refused(&maker, "GET", &at("agents", &mine), None, NOT_THERE).await;
    let now = owner.get(&at("agents", &mine)).await;
    assert_eq!((&now["owner"], &now["run_as"]), (&json!(boss), &json!("caller")));
    assert_eq!(now["author"], maker.id);
    assert_eq!(reads(owner, &mine).await, "grant.missing", "the maker wrote it");
    grant(owner, &maker.id, "USAGE", &object).await;
    assert_eq!(reads(&maker, &mine).await, "grant.missing");

    // The harmless twin: its owner has read it, and says that it has their rights.
    confirm(owner, &at("agents", &mine)).await;
    assert_eq!(reads(owner, &mine).await, "secret");
    assert_eq!(reads(&maker, &mine).await, "grant.missing", "it runs as its caller");
    let own = json!({"specification": specification(PAYROLL, "[]"), "run_as": "owner"});
    assert_eq!(owner.call("PUT", &at("agents", &mine), Some(own)).await.0, 200);
    assert_eq!(reads(&maker, &mine).await, "secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn t93_an_offer_is_listed_withdrawn_declined_and_survives_a_restart() {
    let mut world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, Person::new(&world, "bob").await);
    let eve = Person::new(&world, "eve").await;
    let tool = json!({"type": "runPythonCode", "approval_action": "allow", "name": "t", "description": "Peeks at a variable.",
        "configuration": {"pythonCode": PEEK}});
    let tool = ann.post("/v1/tools", tool).await;
    let object = on("tool", &tool);
    let path = |offer: &Value| format!("/v1/ownership-offers/{}", id(offer));
    let first = offer(&ann, &bob.id, &object).await;
    for who in [&ann.api, &bob.api, &world.owner] {
        assert_eq!(items(who, "/v1/ownership-offers").await, std::slice::from_ref(&first));
    }
    assert_eq!(items(&eve, "/v1/ownership-offers").await, Vec::<Value>::new());
    refused(&eve, "POST", &format!("{}/accept", path(&first)), None, NOT_THERE).await;
    refused(&eve, "DELETE", &path(&first), None, NOT_THERE).await;
    ann.delete(&path(&first)).await;
    refused(&bob, "POST", &format!("{}/accept", path(&first)), None, NOT_THERE).await;
    let second = offer(&ann, &bob.id, &object).await;
    bob.delete(&path(&second)).await;
    // Another offer of the same thing takes the place of the one before.
    let third = offer(&ann, &eve.id, &object).await;
    let fourth = offer(&ann, &bob.id, &object).await;
    refused(&eve, "POST", &format!("{}/accept", path(&third)), None, NOT_THERE).await;
    let body = json!({"principal": ann.id, "object": object});
    refused(&ann, "POST", "/v1/ownership-offers", Some(body), INVALID).await;
    let here = json!({"principal": bob.id, "object": workspace(&world.owner).await});
    refused(&world.owner, "POST", "/v1/ownership-offers", Some(here), INVALID).await;
    world.kill();
    world.again_there().await;
    let owned = accept(&bob, &fourth).await;
    assert_eq!((&owned["principal"], &owned["privilege"]), (&json!(bob.id), &json!("OWNERSHIP")));
    assert_eq!(bob.get(&at("tools", &tool)).await["owner"], bob.id);
    refused(&ann, "GET", &at("tools", &tool), None, NOT_THERE).await;
    assert_eq!(items(&bob, "/v1/ownership-offers").await, Vec::<Value>::new());
    let lines = audited(&world.owner).await;
    for (action, times) in [
        ("ownership.offer", 4),
        ("ownership.withdraw", 1),
        ("ownership.decline", 1),
        ("ownership.accept", 1),
    ] {
        assert_eq!(lines.iter().filter(|line| *line == action).count(), times, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t93_an_offer_of_a_former_owner_is_void() {
    let world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, Person::new(&world, "bob").await);
    let eve = Person::new(&world, "eve").await;
    let agent = agent(&ann, "a", "[]").await;
    let stale = offer(&ann, &bob.id, &on("agent", &agent)).await;
    grant(&world.owner, &eve.id, "OWNERSHIP", &on("agent", &agent)).await;
    let path = format!("/v1/ownership-offers/{}/accept", id(&stale));
    refused(&bob, "POST", &path, None, NOT_THERE).await;
    assert_eq!(eve.get(&at("agents", &agent)).await["owner"], eve.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn t93_what_an_editor_writes_has_the_rights_of_the_owner_when_the_owner_confirms_it() {
    let world = World::start().await;
    let (owner, editor) = (&world.owner, maker(&world, "editor").await);
    payroll(owner).await;
    let theirs = agent(owner, "theirs", PAYROLL).await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(owner, &editor.id, privilege, &on("agent", &theirs)).await;
    }
    assert_eq!(reads(&editor, &theirs).await, "secret", "as its owner wrote it");
    let path = at("agents", &theirs);
    let read_at = owner.get(&path).await["updated_at"].clone();
    let other = format!("{}# steered\n", specification(PAYROLL, "[]"));
    assert_eq!(editor.call("PUT", &path, Some(json!({"specification": other}))).await.0, 200);
    assert_eq!(reads(&editor, &theirs).await, "grant.missing");
    let explanation = owner.get(&format!("/v1/explain?agent={}", id(&theirs))).await;
    assert_eq!(explanation["allowed"], false, "{explanation}");
    let stale = json!({"updated_at": read_at});
    refused(owner, "POST", &format!("{path}/confirm"), Some(stale), IN_USE).await;
    let now = json!({"updated_at": owner.get(&path).await["updated_at"]});
    refused(&editor, "POST", &format!("{path}/confirm"), Some(now), FORBIDDEN).await;
    confirm(owner, &path).await;
    assert_eq!(reads(&editor, &theirs).await, "secret");

    // A tool that another principal attaches is confirmed as well.
    let tool = json!({"type": "runPythonCode", "approval_action": "allow", "name": "t", "description": "Peeks at a variable.",
        "configuration": {"pythonCode": PEEK}});
    let tool = editor.post("/v1/tools", tool).await;
    editor.post(&format!("{path}/tools/{}", id(&tool)), json!({})).await;
    let call = json!({"arguments": {}, "agent_id": theirs["id"]});
    let call_path = format!("{}/call", at("tools", &tool));
    refused(&editor, "POST", &call_path, Some(call.clone()), FORBIDDEN).await;
    confirm(owner, &path).await;
    assert_eq!(editor.post(&call_path, call).await["value"], "enon");
}

/// An integration without rules that allows these secrets.
pub(crate) async fn integration(who: &Api, name: &str, secrets: Value) -> (u16, Value) {
    let new = json!({"name": name, "allowed_network_rules": [], "allowed_secrets": secrets});
    who.call("POST", "/v1/integrations", Some(new)).await
}

async fn peek(who: &Api, name: &str, integration: &str) -> Value {
    let configuration = json!({"pythonCode": PEEK, "integrations": [integration]});
    let tool = json!({"type": "runPythonCode", "approval_action": "allow", "name": name, "description": "Peeks at a variable.",
        "configuration": configuration});
    who.post("/v1/tools", tool).await
}

async fn seen(who: &Api, tool: &Value) -> String {
    let record = who.post(&format!("{}/call", at("tools", tool)), json!({"arguments": {}})).await;
    let value = record["value"].as_str().unwrap_or_else(|| panic!("{record}"));
    value.chars().rev().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t94_a_makers_tool_has_no_secret_of_its_callers_that_the_maker_may_not_use() {
    let world = World::start().await;
    let (owner, maker) = (&world.owner, maker(&world, "maker").await);
    let token = owner.post("/v1/secrets", json!({"name": "TOKEN", "value": CANARY})).await;
    let (status, problem) = integration(&maker, "mine", json!("all")).await;
    assert_eq!((status, &problem["code"]), (403, &json!("grant.missing")), "{problem}");
    let (_, mine) = integration(&maker, "mine", json!("none")).await;
    let all = Some(json!({"allowed_secrets": "all"}));
    refused(&maker, "PATCH", &at("integrations", &mine), all, FORBIDDEN).await;
    // An owner of the workspace says `all`, and lets the maker leave by it.
    let (status, all) = integration(owner, "all", json!("all")).await;
    assert_eq!(status, 201, "{all}");
    grant(owner, &maker.id, "USAGE", &on("integration", &all)).await;
    let tool = peek(&maker, "peek", "all").await;
    assert_eq!(seen(owner, &tool).await, "none", "whoever wrote it may not use the secret");
    let explanation = owner.get(&format!("/v1/explain?tool={}", id(&tool))).await;
    assert_eq!(explanation["secrets"], json!([]), "{explanation}");
    // Nor in a session that has it.
    let session = owner.post("/v1/sessions", json!({"integrations": ["all"]})).await;
    let call = json!({"arguments": {}, "sandbox_id": session["sandbox_id"]});
    let path = format!("{}/call", at("tools", &tool));
    refused(owner, "POST", &path, Some(call.clone()), FORBIDDEN).await;
    // The harmless twins: the owner's own tool, one that the owner has confirmed, and a maker who may.
    let own = peek(owner, "own", "all").await;
    assert_eq!(seen(owner, &own).await, CANARY);
    let usage = grant(owner, &maker.id, "USAGE", &on("secret", &token)).await;
    assert_eq!(seen(owner, &tool).await, CANARY);
    assert_eq!(owner.post(&path, call).await["value"], CANARY.chars().rev().collect::<String>());
    owner.delete(&format!("/v1/grants/{}", id(&usage))).await;
    assert_eq!(seen(owner, &tool).await, "none");
    confirm(owner, &at("tools", &tool)).await;
    assert_eq!(seen(owner, &tool).await, CANARY);
    // What is only said about a tool does not change who has written it.
    let (_, said) = owner
        .call("PATCH", &at("tools", &own), Some(json!({"description": "Peeks once more."})))
        .await;
    assert_eq!(said["author"], owner.get(ME).await["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn t95_a_secret_or_a_tool_that_is_handed_over_gains_nothing_by_it() {
    let world = World::start().await;
    let (owner, maker) = (&world.owner, maker(&world, "maker").await);
    let boss = owner.get(ME).await["id"].as_str().unwrap().to_owned();
    let header = json!({"header": {"host": "collect.example", "name": "X-Key", "env": "COLLECT"}});
    let new = json!({"name": "collect", "value": "some-key-of-theirs", "inject": header});
    let secret = maker.post("/v1/secrets", new).await;
    let code = "import os\n'COLLECT' in os.environ";
    assert_eq!(owner.execute(code).await["value"], false);
    let object = on("secret", &secret);
    let give = json!({"principal": boss, "privilege": "OWNERSHIP", "object": object});
    refused(&maker, "POST", "/v1/grants", Some(give), FORBIDDEN).await;
    accept(owner, &offer(&maker, &boss, &object).await).await;
    assert_eq!(owner.get(&at("secrets", &secret)).await["owner"], boss);
    assert_eq!(owner.execute(code).await["value"], false, "its owner has not set it");
    let comment = Some(json!({"comment": "theirs"}));
    assert_eq!(owner.call("PATCH", &at("secrets", &secret), comment).await.0, 200);
    assert_eq!(owner.execute(code).await["value"], false, "nor by a comment");
    // The harmless twin: the new owner sets it.
    let value = Some(json!({"value": "some-key-of-ours"}));
    let path = format!("{}/value", at("secrets", &secret));
    assert_eq!(owner.call("PUT", &path, value).await.0, 200);
    assert_eq!(owner.execute(code).await["value"], true);

    // A tool reaches the hosts that its author may reach, also with another owner.
    let (_, way) = integration(owner, "way", json!("none")).await;
    let usage = grant(owner, &maker.id, "USAGE", &on("integration", &way)).await;
    let tool = peek(&maker, "peek", "way").await;
    owner.delete(&format!("/v1/grants/{}", id(&usage))).await;
    accept(owner, &offer(&maker, &boss, &on("tool", &tool)).await).await;
    let call = json!({"arguments": {}});
    let path = format!("{}/call", at("tools", &tool));
    let said = refused(owner, "POST", &path, Some(call.clone()), FORBIDDEN).await;
    assert!(said.contains("the author of this code"), "{said}");
    confirm(owner, &at("tools", &tool)).await;
    assert_eq!(owner.post(&path, call).await["value"], "enon");
}

#[tokio::test(flavor = "multi_thread")]
async fn t96_an_editor_does_not_widen_what_an_agent_may() {
    let world = World::start().await;
    let (owner, editor) = (&world.owner, maker(&world, "editor").await);
    let volume = payroll(owner).await;
    let (_, way) = integration(owner, "way", json!("none")).await;
    let plain =
        json!({"name": "a", "specification": specification("[]", "[]"), "run_as": "caller"});
    let agent = owner.post("/v1/agents", plain).await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(owner, &editor.id, privilege, &on("agent", &agent)).await;
    }
    let path = at("agents", &agent);
    let put = async |specification: String, run_as: Option<&str>| {
        let body = json!({"specification": specification, "run_as": run_as});
        editor.call("PUT", &path, Some(body)).await
    };
    let none = specification("[]", "[]");
    let installs = format!("{none}    artifact_repositories: [pypi]\n");
    for (specification, run_as, refusal) in [
        (none.clone(), Some("owner"), FORBIDDEN),
        (specification(PAYROLL, "[]"), None, INVALID),
        (specification("[]", "[way]"), None, INVALID),
        (installs, None, FORBIDDEN),
    ] {
        let (status, problem) = put(specification.clone(), run_as).await;
        let code = problem["code"].as_str().unwrap_or_default();
        assert_eq!((status, code), refusal, "{specification}: {problem}");
    }
    // The harmless twins: an edit, what the editor may use, and what the owner has written already.
    assert_eq!(put(format!("{none}# a word\n"), Some("caller")).await.0, 200);
    grant(owner, &editor.id, "USAGE", &on("volume", &volume)).await;
    grant(owner, &editor.id, "USAGE", &on("integration", &way)).await;
    let (status, problem) = put(specification(PAYROLL, "[way]"), None).await;
    assert_eq!(status, 200, "{problem}");
    let (status, problem) =
        put(specification("[{name: payroll, access: write}]", "[]"), None).await;
    assert_eq!(status, 403, "reading is not writing: {problem}");
    let own = json!({"specification": specification(PAYROLL, "[way]"), "run_as": "owner"});
    assert_eq!(owner.call("PUT", &path, Some(own)).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn t97_a_name_that_is_used_is_not_freed_for_others_to_take() {
    let world = World::start().await;
    let owner = &world.owner;
    let unmade = json!({"name": "early", "specification": specification(PAYROLL, "[]")});
    refused(owner, "POST", "/v1/agents", Some(unmade), INVALID).await;
    let volume = payroll(owner).await;
    // A name in another spelling is the same name.
    let escaped = specification("[{name: \"p\\u0061yroll\", access: read}]", "[]");
    let agent = owner.post("/v1/agents", json!({"name": "a", "specification": escaped})).await;
    let files = json!([{"name": "handler.py", "text": "def handle(data): return data"}]);
    let function = owner.post("/v1/functions", json!({"name": "f", "files": files})).await;
    let tool = json!({"type": "callFunction", "name": "calls_f", "description": "Calls the function.",
        "configuration": {"externalId": "f"}});
    let tool = owner.post("/v1/tools", tool).await;
    let secret = owner.post("/v1/secrets", json!({"name": "TOKEN", "value": CANARY})).await;
    let (_, way) = integration(owner, "way", json!(["TOKEN"])).await;
    for (path, user) in [
        (at("volumes", &volume), "agent \"a\""),
        (at("functions", &function), "tool \"calls_f\""),
        (at("secrets", &secret), "integration \"way\""),
    ] {
        let said = refused(owner, "DELETE", &path, None, IN_USE).await;
        assert!(said.contains(user), "{said}");
        assert_eq!(owner.call("GET", &path, None).await.0, 200);
    }
    // The harmless twins: what is no longer named is deleted, and so is a secret of one's own.
    let own = json!({"name": "TOKEN", "value": CANARY, "scope": "caller"});
    let own = owner.post("/v1/secrets", own).await;
    owner.delete(&at("secrets", &own)).await;
    let without = json!({"specification": specification("[]", "[]")});
    assert_eq!(owner.call("PUT", &at("agents", &agent), Some(without)).await.0, 200);
    owner.delete(&at("volumes", &volume)).await;
    owner.delete(&at("tools", &tool)).await;
    owner.delete(&at("functions", &function)).await;
    owner.delete(&at("integrations", &way)).await;
    owner.delete(&at("secrets", &secret)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t98_a_tool_in_a_session_says_that_earlier_code_may_have_decided_its_result() {
    let world = World::start().await;
    let owner = &world.owner;
    let code =
        "import math\n\ndef handle() -> float:\n    \"\"\"A root.\"\"\"\n    return math.sqrt(4)\n";
    let tool = json!({"type": "runPythonCode", "approval_action": "allow", "name": "root", "description": "Computes a root.",
        "configuration": {"pythonCode": code}});
    let tool = owner.post("/v1/tools", tool).await;
    let session = owner.session().await;
    owner.run(&session, "import math; math.sqrt = lambda x: 42.0").await;
    let path = format!("{}/call", at("tools", &tool));
    let call = json!({"arguments": {}, "sandbox_id": session});
    let record = owner.post(&path, call).await;
    assert_eq!(record["value"], 42.0);
    assert_eq!(record["warnings"][0]["code"], "tool.unisolated", "{record}");
    let kept = owner.get(&at("executions", &record)).await;
    assert_eq!(kept["warnings"][0]["code"], "tool.unisolated", "{kept}");
    let apart = owner.post(&path, json!({"arguments": {}})).await;
    assert_eq!((&apart["value"], &apart["warnings"]), (&json!(2.0), &json!([])), "{apart}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t99_an_explanation_is_about_what_its_reader_sees() {
    let world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, Person::new(&world, "bob").await);
    integration(&ann, "way", json!("none")).await;
    let tool = peek(&ann, "peek", "way").await;
    let agent = agent(&ann, "a", "[]").await;
    for query in [
        format!("tool={}", id(&tool)),
        format!("agent={}", id(&agent)),
        format!("tool={}&principal={}", id(&tool), ann.id),
        format!("tool={}&agent={}", id(&tool), id(&agent)),
    ] {
        refused(&bob, "GET", &format!("/v1/explain?{query}"), None, NOT_THERE).await;
    }
    // The harmless twins: a caller who sees an agent gets the explanation of it and its tools.
    let both = format!("/v1/explain?tool={}&agent={}", id(&tool), id(&agent));
    grant(&ann, &bob.id, "USAGE", &on("agent", &agent)).await;
    assert_eq!(bob.get(&format!("/v1/explain?agent={}", id(&agent))).await["allowed"], true);
    refused(&bob, "GET", &both, None, NOT_THERE).await;
    ann.post(&format!("{}/tools/{}", at("agents", &agent), id(&tool)), json!({})).await;
    assert_eq!(bob.get(&both).await["allowed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn t99_the_environment_of_a_function_is_for_that_function_alone() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    let files = json!([{"name": "handler.py", "text": "import six\ndef handle(data): return 'six'"},
        {"name": "requirements.txt", "text": "six==1.16.0\n"}]);
    let function = owner.post("/v1/functions", json!({"name": "f", "files": files})).await;
    let environment = function["deployed"]["environment"].as_str().unwrap().to_owned();
    assert!(environment.starts_with("fn-"), "{function}");
    let other = owner.post("/v1/workspaces", json!({"name": "other"})).await;
    let other = world.api(other["key"]["secret"].as_str().unwrap());
    let listed = other.get("/v1/environments").await;
    assert!(!listed.to_string().contains("fn-"), "{listed}");
    let path = format!("/v1/environments/{environment}");
    assert_eq!(other.call("GET", &path, None).await.0, 404);
    assert_eq!(owner.get(&path).await["status"], "ready", "the operator looks after them");
    for who in [owner, &other] {
        for (path, mut body) in [
            ("/v1/execute", json!({"code": "1"})),
            ("/v1/sessions", json!({})),
            (
                "/v1/tools",
                json!({"type": "runPythonCode", "approval_action": "allow", "name": "t", "description": "Peeks at a variable.",
                "configuration": {"pythonCode": PEEK}}),
            ),
        ] {
            body["environment"] = json!(environment);
            let (status, problem) = who.call("POST", path, Some(body)).await;
            assert_eq!(status, 400, "{path}: {problem}");
            let none = json!({"code": "1", "environment": "none-such"});
            let (_, problem) = who.call("POST", "/v1/execute", Some(none)).await;
            assert!(!problem.to_string().contains(&environment), "{problem}");
        }
    }
    // The harmless twin: the function runs in it.
    let call = owner.post(&format!("{}/call", at("functions", &function)), json!({})).await;
    let record = format!("/v1/executions/{}", id(&call));
    let is_over = async || !owner.get(&record).await["ended_at"].is_null();
    wait::until("the call has ended", is_over).await;
    assert_eq!(owner.get(&record).await["value"], "six");
}

#[tokio::test(flavor = "multi_thread")]
async fn t99_files_of_a_volume_are_for_the_server_and_its_sandboxes() {
    let world = World::start().await;
    let owner = &world.owner;
    payroll(owner).await;
    let base = world.data.path().join("volumes");
    let mode = std::fs::metadata(&base).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "other users of the host cannot enter: {mode:o}");
    let agent = agent(owner, "a", PAYROLL).await;
    assert_eq!(reads(owner, &agent).await, "secret", "and code can read it");
}

#[tokio::test(flavor = "multi_thread")]
async fn t168_a_maker_neither_pins_nor_finds_what_they_cannot_see() {
    let world = World::start().await;
    let (owner, eve) = (&world.owner, maker(&world, "eve").await);
    let volume = payroll(owner).await;
    let (_, way) = integration(owner, "way", json!("none")).await;
    let embedded = |integration: &str| {
        json!({"tools": [{"type": "runPythonCode", "name": "peek",
            "description": "Peeks at a variable.",
            "configuration": {"pythonCode": PEEK, "integrations": [integration]}}]})
    };
    let agent = |specification: Value| json!({"name": "a", "specification": specification});
    let tool = |integration: &str| {
        json!({"type": "runPythonCode", "approval_action": "allow", "name": "t", "description": "Peeks at a variable.",
            "configuration": {"pythonCode": PEEK, "integrations": [integration]}})
    };
    let with_volume = |name: &str| {
        agent(json!(specification(&format!("[{{name: {name}, access: read}}]"), "[]")))
    };
    let plain = eve.post("/v1/agents", agent(json!(specification("[]", "[]")))).await;
    let own = at("agents", &plain);
    // The same answer, but for the name that they wrote themselves.
    let same = async |method: &str, path: &str, hidden: Value, unknown: Value| {
        let (status, response) = eve.call(method, path, Some(hidden)).await;
        let (of_unknown, twin) = eve.call(method, path, Some(unknown)).await;
        assert!(status == of_unknown && [400, 422].contains(&status), "{response}");
        let response = response.to_string().replace("payroll", "nothing").replace("way", "nothing");
        assert_eq!(response, twin.to_string());
    };
    for (method, path) in [("POST", "/v1/agents"), ("PUT", own.as_str())] {
        same(method, path, agent(embedded("way")), agent(embedded("nothing"))).await;
        same(method, path, with_volume("payroll"), with_volume("nothing")).await;
    }
    same("POST", "/v1/tools", tool("way"), tool("nothing")).await;
    // The harmless twins: with USAGE it is theirs to name, and what is named is not deleted.
    grant(owner, &eve.id, "USAGE", &on("volume", &volume)).await;
    grant(owner, &eve.id, "USAGE", &on("integration", &way)).await;
    let named = json!({"name": "named", "specification": embedded("way")});
    let named = eve.post("/v1/agents", named).await;
    assert_eq!(eve.call("PUT", &own, Some(with_volume("payroll"))).await.0, 200);
    eve.post("/v1/tools", tool("way")).await;
    refused(owner, "DELETE", &at("volumes", &volume), None, IN_USE).await;
    // What an agent names already stays after another change, also by a principal without the privilege.
    let other = maker(&world, "other").await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(owner, &other.id, privilege, &on("agent", &named)).await;
    }
    let renamed = json!({"name": "b", "specification": embedded("way")});
    assert_eq!(other.call("PUT", &at("agents", &named), Some(renamed)).await.0, 200);
}
