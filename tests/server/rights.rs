//! Privileges on tools and agents: who may use, change and transfer them, and whose privileges their code has.

use crate::principals::{
    FORBIDDEN, NOT_THERE, OWNER_NEEDED, Person, change, grant, id, items, on, refused, role,
    ungrant, workspace,
};
use crate::test_server::{Api, World};
use serde_json::{Value, json};

const CODE: &str = "def handle() -> int:\n    \"\"\"Gives the answer.\"\"\"\n    return 42\n";
const SPECIFICATION: &str = "tools:\n  - tool_spec:\n      type: code_execution\n      name: \
                             code_execution\ntool_resources:\n  code_execution:\n";

async fn tool(owner: &Api, name: &str) -> Value {
    let body = json!({"type": "runPythonCode", "approval_action": "allow", "name": name, "description": "The answer.",
        "configuration": {"pythonCode": CODE}});
    owner.post("/v1/tools", body).await
}

async fn agent(owner: &Api, name: &str) -> Value {
    owner.post("/v1/agents", json!({"name": name, "specification": SPECIFICATION})).await
}

async fn attach(owner: &Api, agent: &Value, tool: &Value) {
    let path = format!("/v1/agents/{}/tools/{}", id(agent), id(tool));
    let (status, answer) = owner.call("POST", &path, None).await;
    assert_eq!(status, 200, "{answer}");
}

/// A principal who may create tools and agents.
async fn maker(world: &World, name: &str) -> Person {
    let person = Person::new(world, name).await;
    grant(&world.owner, &person.id, "MODIFY", &workspace(&world.owner).await).await;
    person
}

/// Offers something, and lets the other one accept it.
async fn hand_over(from: &Api, to: &Person, object: &Value) -> Value {
    let offer = json!({"principal": to.id, "object": object});
    let offer = from.post("/v1/ownership-offers", offer).await;
    to.post(&format!("/v1/ownership-offers/{}/accept", id(&offer)), json!({})).await
}

fn call_path(tool: &Value) -> String {
    format!("/v1/tools/{}/call", id(tool))
}

/// Through an agent, or directly.
async fn call(who: &Api, tool: &Value, agent: Option<&Value>) -> (u16, Value) {
    let agent = agent.map(|agent| agent["id"].clone());
    who.call("POST", &call_path(tool), Some(json!({"arguments": {}, "agent_id": agent}))).await
}

async fn answered(who: &Api, tool: &Value, agent: Option<&Value>) -> Value {
    let (status, record) = call(who, tool, agent).await;
    assert_eq!((status, &record["value"]), (200, &json!(42)), "{record}");
    record
}

async fn denied(who: &Api, tool: &Value, agent: Option<&Value>) {
    let (status, problem) = call(who, tool, agent).await;
    assert_eq!((status, problem["code"].as_str()), (403, Some("grant.missing")), "{problem}");
}

// proves S-032
#[tokio::test(flavor = "multi_thread")]
async fn without_a_grant_an_agent_is_not_invoked_and_no_sandbox_is_made() {
    let world = World::start().await;
    let owner = &world.owner;
    let (tool, agent) = (tool(owner, "answer").await, agent(owner, "helper").await);
    attach(owner, &agent, &tool).await;
    let ann = Person::new(&world, "ann").await;
    denied(&ann, &tool, Some(&agent)).await;
    denied(&ann, &tool, None).await;
    assert_eq!(items(owner, "/v1/executions").await, Vec::<Value>::new());
    let usage = grant(owner, &ann.id, "USAGE", &on("agent", &agent)).await;
    answered(&ann, &tool, Some(&agent)).await;
    // The agent may, and she may not without it.
    denied(&ann, &tool, None).await;
    ungrant(owner, &usage).await;
    denied(&ann, &tool, Some(&agent)).await;
    assert_eq!(items(owner, "/v1/executions").await.len(), 1);
}

// proves S-034, S-035
#[tokio::test(flavor = "multi_thread")]
async fn who_may_use_an_agent_may_not_change_it_and_the_other_way_round() {
    let world = World::start().await;
    let owner = &world.owner;
    let (tool, agent) = (tool(owner, "answer").await, agent(owner, "helper").await);
    attach(owner, &agent, &tool).await;
    let path = format!("/v1/agents/{}", id(&agent));
    let specification = || Some(json!({"specification": "models: {}\n"}));
    let (user, editor) = (Person::new(&world, "user").await, Person::new(&world, "editor").await);
    grant(owner, &user.id, "USAGE", &on("agent", &agent)).await;
    grant(owner, &editor.id, "MODIFY", &on("agent", &agent)).await;
    answered(&user, &tool, Some(&agent)).await;
    refused(&user, "PUT", &path, specification(), FORBIDDEN).await;
    denied(&editor, &tool, Some(&agent)).await;
    assert_eq!(editor.call("PUT", &path, specification()).await.0, 200);
    for who in [&user, &editor] {
        refused(who, "DELETE", &path, None, FORBIDDEN).await;
        let all =
            json!({"principal": who.id, "privilege": "OWNERSHIP", "object": on("agent", &agent)});
        refused(who, "POST", "/v1/grants", Some(all), FORBIDDEN).await;
    }
}

// proves S-036
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_may_everything_with_an_agent() {
    let world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, Person::new(&world, "bob").await);
    let (tool, agent) = (tool(&ann, "answer").await, agent(&ann, "helper").await);
    let path = format!("/v1/agents/{}", id(&agent));
    attach(&ann, &agent, &tool).await;
    answered(&ann, &tool, Some(&agent)).await;
    let usage = grant(&ann, &bob.id, "USAGE", &on("agent", &agent)).await;
    answered(&bob, &tool, Some(&agent)).await;
    let on_it = format!("/v1/grants?object_kind=agent&object_id={}", id(&agent));
    assert_eq!(items(&ann, &on_it).await.len(), 2);
    assert_eq!(items(&bob, &on_it).await, std::slice::from_ref(&usage));
    ungrant(&ann, &usage).await;
    denied(&bob, &tool, Some(&agent)).await;
    let specification = Some(json!({"specification": SPECIFICATION, "name": "other"}));
    assert_eq!(ann.call("PUT", &path, specification).await.1["name"], "other");
    ann.delete(&path).await;
    refused(&ann, "GET", &path, None, NOT_THERE).await;
    assert_eq!(items(&ann, &on_it).await, Vec::<Value>::new());
}

// proves S-039
#[tokio::test(flavor = "multi_thread")]
async fn code_of_an_agent_has_the_rights_of_its_owner_and_not_of_the_caller() {
    let world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, maker(&world, "bob").await);
    let (of_ann, of_bob) = (tool(&ann, "of_ann").await, tool(&bob, "of_bob").await);
    let agent = agent(&ann, "helper").await;
    attach(&ann, &agent, &of_ann).await;
    // An owner of the workspace may attach what the agent's owner may not use.
    attach(&world.owner, &agent, &of_bob).await;
    grant(&ann, &bob.id, "USAGE", &on("agent", &agent)).await;
    let record = answered(&bob, &of_ann, Some(&agent)).await;
    assert_eq!((&record["principal"], &record["run_as"]), (&json!(bob.id), &json!(ann.id)));
    denied(&bob, &of_ann, None).await;
    denied(&bob, &of_bob, Some(&agent)).await;
    answered(&bob, &of_bob, None).await;
}

// proves S-040
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_given_away_reaches_what_its_new_owner_reaches() {
    let world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, maker(&world, "bob").await);
    let tool = tool(&ann, "answer").await;
    let agent = agent(&ann, "helper").await;
    attach(&ann, &agent, &tool).await;
    let eve = Person::new(&world, "eve").await;
    grant(&ann, &eve.id, "USAGE", &on("agent", &agent)).await;
    answered(&eve, &tool, Some(&agent)).await;
    hand_over(&ann, &bob, &on("agent", &agent)).await;
    denied(&eve, &tool, Some(&agent)).await;
    grant(&ann, &bob.id, "USAGE", &on("tool", &tool)).await;
    // What others were granted has ended with the change, and it runs as its callers at first.
    denied(&eve, &tool, Some(&agent)).await;
    grant(&bob, &eve.id, "USAGE", &on("agent", &agent)).await;
    denied(&eve, &tool, Some(&agent)).await;
    let own = json!({"specification": SPECIFICATION, "run_as": "owner"});
    let path = format!("/v1/agents/{}", id(&agent));
    assert_eq!(bob.call("PUT", &path, Some(own)).await.0, 200);
    // And she has written and attached what it has, until its new owner confirms that.
    denied(&eve, &tool, Some(&agent)).await;
    let read_at = bob.get(&path).await["updated_at"].clone();
    bob.post(&format!("{path}/confirm"), json!({"updated_at": read_at})).await;
    assert_eq!(answered(&eve, &tool, Some(&agent)).await["run_as"], json!(bob.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_has_one_owner_who_gives_it_away_whole() {
    let world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, Person::new(&world, "bob").await);
    let tool = tool(&ann, "answer").await;
    let path = format!("/v1/tools/{}", id(&tool));
    let object = on("tool", &tool);
    let ownership = hand_over(&ann, &bob, &object).await;
    assert_eq!(bob.get(&path).await["owner"], json!(bob.id));
    assert_eq!(bob.get(&path).await["configuration"], tool["configuration"]);
    answered(&bob, &tool, None).await;
    // She has kept nothing, and he cannot throw it away.
    refused(&ann, "GET", &path, None, NOT_THERE).await;
    let back = json!({"principal": ann.id, "privilege": "OWNERSHIP", "object": object});
    refused(&ann, "POST", "/v1/grants", Some(back), FORBIDDEN).await;
    let grant_path = format!("/v1/grants/{}", id(&ownership));
    refused(&bob, "DELETE", &grant_path, None, OWNER_NEEDED).await;
    let problem = refused(&world.owner, "DELETE", &bob.path(), None, OWNER_NEEDED).await;
    assert!(problem.contains("1 tool"), "{problem}");
    bob.delete(&path).await;
    world.owner.delete(&bob.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_role_owns_its_members_own() {
    let world = World::start().await;
    let owner = &world.owner;
    let (tool, makers) = (tool(owner, "answer").await, role(owner, "makers").await);
    grant(owner, &id(&makers), "OWNERSHIP", &on("tool", &tool)).await;
    let ann = Person::new(&world, "ann").await;
    denied(&ann, &tool, None).await;
    change(owner, &ann.path(), json!({"roles": ["makers"]})).await;
    answered(&ann, &tool, None).await;
    ann.delete(&format!("/v1/tools/{}", id(&tool))).await;
}

async fn explain(who: &Api, query: &str) -> Value {
    who.get(&format!("/v1/explain?{query}")).await
}

fn sentences(list: &Value) -> String {
    list.as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn why_a_call_is_refused_is_explained_and_what_would_be_needed() {
    let world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, Person::new(&world, "bob").await);
    let tool = tool(&ann, "answer").await;
    let query = format!("tool={}", id(&tool));
    // A principal who may change it gets the reason why they may not use it.
    grant(&ann, &bob.id, "MODIFY", &on("tool", &tool)).await;
    let explanation = explain(&bob, &query).await;
    assert_eq!(explanation["allowed"], false);
    assert_eq!(explanation["because"], json!([]));
    let needed = format!("bob needs USAGE on tool {}", id(&tool));
    assert_eq!(explanation["missing"], json!([needed]));
    denied(&bob, &tool, None).await;
    let usage = grant(&ann, &bob.id, "USAGE", &on("tool", &tool)).await;
    let explanation = explain(&bob, &query).await;
    assert_eq!((&explanation["allowed"], &explanation["missing"]), (&json!(true), &json!([])));
    assert!(sentences(&explanation["because"]).contains(&id(&usage)), "{explanation}");
    assert_eq!(
        (&explanation["run_as"], &explanation["approval"]),
        (&json!(bob.id), &json!("allow"))
    );
    assert_eq!((&explanation["network"], &explanation["secrets"]), (&json!([]), &json!([])));
    assert_eq!(explanation["environment"], "bare");
    let record = answered(&bob, &tool, None).await;
    assert_eq!(record["limits"], explanation["limits"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_named_as_the_reason() {
    let world = World::start().await;
    let owner = &world.owner;
    let (tool, runners) = (tool(owner, "answer").await, role(owner, "runners").await);
    grant(owner, &id(&runners), "USAGE", &on("tool", &tool)).await;
    let ann = Person::new(&world, "ann").await;
    change(owner, &ann.path(), json!({"roles": ["runners"]})).await;
    let query = format!("tool={}&principal={}", id(&tool), ann.id);
    let because = sentences(&explain(owner, &query).await["because"]);
    assert!(because.contains("to the role runners"), "{because}");
}

/// A principal who enables code execution sees with whose privileges it would run, and which they are.
// proves S-042
#[tokio::test(flavor = "multi_thread")]
async fn what_the_owner_of_an_agent_reaches_is_told_with_the_agent() {
    let world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, Person::new(&world, "bob").await);
    let (own, other) = (tool(&ann, "own").await, tool(&world.owner, "other").await);
    let agent = agent(&ann, "helper").await;
    attach(&ann, &agent, &own).await;
    attach(&world.owner, &agent, &other).await;
    grant(&ann, &bob.id, "USAGE", &on("agent", &agent)).await;
    let view = bob.get(&format!("/v1/agents/{}", id(&agent))).await;
    assert_eq!(view["code_execution"]["enabled"], true);
    assert_eq!(
        (&view["reach"]["owner"], &view["reach"]["owner_name"]),
        (&json!(ann.id), &json!("ann"))
    );
    assert!(view["reach"]["text"].as_str().unwrap().contains("rights of its owner, ann"), "{view}");
    let explanation = explain(&ann, &format!("agent={}&principal={}", id(&agent), bob.id)).await;
    assert_eq!((&explanation["allowed"], &explanation["run_as"]), (&json!(true), &json!(ann.id)));
    let because = sentences(&explanation["because"]);
    let reached = |tool: &Value| because.contains(&format!("ann has USAGE on tool {}", id(tool)));
    assert!(reached(&own) && !reached(&other), "{because}");
    // The same for one tool, before it is called.
    for (tool, allowed) in [(&own, true), (&other, false)] {
        let query = format!("agent={}&tool={}", id(&agent), id(tool));
        assert_eq!(explain(&bob, &query).await["allowed"], allowed);
        assert_eq!(call(&bob, tool, Some(&agent)).await.0 == 200, allowed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_is_what_a_call_finds() {
    let world = World::start().await;
    let owner = &world.owner;
    let (tool, agent) = (tool(owner, "answer").await, agent(owner, "helper").await);
    let path = format!("/v1/agents/{}/tools/{}", id(&agent), id(&tool));
    let query = format!("agent={}&tool={}", id(&agent), id(&tool));
    let explanation = explain(owner, &query).await;
    assert!(sentences(&explanation["missing"]).contains("must be attached"), "{explanation}");
    assert_eq!(call(owner, &tool, Some(&agent)).await.0, 403);
    attach(owner, &agent, &tool).await;
    for (action, status) in [("allow", 200), ("review", 202), ("deny", 403)] {
        change(owner, &path, json!({"approval_action": action})).await;
        let explanation = explain(owner, &query).await;
        assert_eq!(
            (&explanation["approval"], &explanation["allowed"]),
            (&json!(action), &json!(action != "deny"))
        );
        let waits = sentences(&explanation["steps"]).contains("a principal other than owner");
        assert_eq!(waits, action == "review", "{explanation}");
        assert_eq!(call(owner, &tool, Some(&agent)).await.0, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explanations_about_others_are_for_owners() {
    let world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, Person::new(&world, "bob").await);
    let of_ann = tool(&ann, "of_ann").await;
    let about =
        |person: &Person| format!("/v1/explain?tool={}&principal={}", id(&of_ann), person.id);
    refused(&bob, "GET", &about(&ann), None, NOT_THERE).await;
    grant(&ann, &bob.id, "USAGE", &on("tool", &of_ann)).await;
    refused(&bob, "GET", &about(&ann), None, FORBIDDEN).await;
    for who in [&ann.api, &world.owner] {
        assert_eq!(who.get(&about(&bob)).await["allowed"], true);
    }
    refused(&bob, "GET", "/v1/explain", None, (400, "args.invalid")).await;
    let nothing = "/v1/explain?tool=0198c0de-0000-7000-8000-000000000000";
    refused(&bob, "GET", nothing, None, NOT_THERE).await;
}
