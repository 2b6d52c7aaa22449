//! Attaching, naming or editing gives no rights of others: the principal that attaches a tool cannot decide
//! about its calls, an unrelated change by an owner confirms nothing, and neither a name nor a host can be
//! taken over. A maker has USAGE and MODIFY on the workspace, and nothing else.

use crate::approvals::{approval_of, settled};
use crate::delegated_rights::{
    IN_USE, INVALID, PAYROLL, PEEK, agent, at, confirm, integration, maker, payroll, reads,
    specification,
};
use crate::harness::wait;
use crate::installs::silent_index;
use crate::principals::{
    FORBIDDEN, NOT_THERE, NOTHING, Person, change, grant, id, items, on, refused,
};
use crate::test_server::{Api, World};
use serde_json::{Value, json};

const ALLOW: &str = "allow";
const REVIEW: &str = "review";

/// A tool that gives back `enon`, with its own approval action.
async fn tool(who: &Api, name: &str, action: &str) -> Value {
    let tool = json!({"type": "runPythonCode", "name": name, "description": "Peeks at a variable.",
        "approval_action": action, "configuration": {"pythonCode": PEEK}});
    who.post("/v1/tools", tool).await
}

async fn attach(who: &Api, agent: &Value, tool: &Value) -> String {
    let path = format!("{}/tools/{}", at("agents", agent), id(tool));
    who.post(&path, json!({})).await;
    path
}

/// Asks for a call through an agent, which has to wait for an answer.
async fn ask(who: &Api, tool: &Value, agent: &Value) -> Value {
    let call = json!({"arguments": {}, "agent_id": agent["id"]});
    let (status, record) =
        who.call("POST", &format!("{}/call", at("tools", tool)), Some(call)).await;
    assert_eq!((status, &record["status"]), (202, &json!("waiting_approval")), "{record}");
    record
}

async fn allowed(who: &Api, asker: &Api, record: &Value) {
    who.post(&approval_of(record), json!({"decision": "allow"})).await;
    let done = settled(asker, record).await;
    assert_eq!((&done["status"], &done["value"]), (&json!("succeeded"), &json!("enon")), "{done}");
}

async fn not_allowed(who: &Api, record: &Value) -> String {
    let allow = Some(json!({"decision": "allow"}));
    refused(who, "POST", &approval_of(record), allow, FORBIDDEN).await
}

#[tokio::test(flavor = "multi_thread")]
async fn t145_attaching_a_tool_under_review_to_an_agent_gives_no_right_to_approve_its_calls() {
    let world = World::start().await;
    let (ann, eve) = (maker(&world, "ann").await, maker(&world, "eve").await);
    let friend = Person::new(&world, "friend").await;
    let danger = tool(&ann, "danger", REVIEW).await;
    grant(&ann, &eve.id, "USAGE", &on("tool", &danger)).await;
    let mine = agent(&eve, "mine", "[]").await;
    let binding = attach(&eve, &mine, &danger).await;
    grant(&eve, &friend.id, "USAGE", &on("agent", &mine)).await;

    let record = ask(&friend, &danger, &mine).await;
    let allow = Some(json!({"decision": "allow"}));
    refused(&eve, "POST", &approval_of(&record), allow, NOT_THERE).await;
    assert_eq!(friend.get(&approval_of(&record)).await["state"], "pending");
    // The harmless twin: a principal who may change the tool decides.
    allowed(&ann, &friend, &record).await;

    // Where both ask, both are needed, and an owner of the workspace has both.
    change(&eve, &binding, json!({"approval_action": REVIEW})).await;
    let record = ask(&friend, &danger, &mine).await;
    for (who, needed) in [(&eve, &danger), (&ann, &mine)] {
        let said = not_allowed(who, &record).await;
        assert!(said.contains(&id(needed)), "it says on what: {said}");
    }
    allowed(&world.owner, &friend, &record).await;

    // What only the agent requires is decided by a principal who may change the agent.
    change(&ann, &at("tools", &danger), json!({"approval_action": ALLOW})).await;
    let record = ask(&friend, &danger, &mine).await;
    refused(&ann, "GET", &approval_of(&record), None, NOT_THERE).await;
    allowed(&eve, &friend, &record).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t173_the_owner_of_a_tool_denies_also_where_an_agent_asks_besides() {
    let world = World::start().await;
    let (ann, eve) = (maker(&world, "ann").await, maker(&world, "eve").await);
    let (friend, other) = (Person::new(&world, "friend").await, maker(&world, "other").await);
    let danger = tool(&ann, "danger", REVIEW).await;
    grant(&ann, &eve.id, "USAGE", &on("tool", &danger)).await;
    let mine = agent(&eve, "mine", "[]").await;
    let binding = attach(&eve, &mine, &danger).await;
    grant(&eve, &friend.id, "USAGE", &on("agent", &mine)).await;
    change(&eve, &binding, json!({"approval_action": REVIEW})).await;
    let deny = || Some(json!({"decision": "deny"}));
    for who in [&ann, &eve] {
        let record = ask(&friend, &danger, &mine).await;
        not_allowed(who, &record).await;
        refused(&other, "POST", &approval_of(&record), deny(), NOT_THERE).await;
        let (status, denied) = who.call("POST", &approval_of(&record), deny()).await;
        assert_eq!((status, &denied["state"]), (200, &json!("denied")), "{denied}");
        assert_eq!(settled(&friend, &record).await["status"], "denied");
    }
    // The harmless twin: a principal with both privileges allows.
    let record = ask(&friend, &danger, &mine).await;
    allowed(&world.owner, &friend, &record).await;
}

async fn put(who: &Api, path: &str, body: Value) -> Value {
    let (status, agent) = who.call("PUT", path, Some(body)).await;
    assert_eq!(status, 200, "{agent}");
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn t146_an_owners_other_change_does_not_confirm_what_an_editor_wrote() {
    let world = World::start().await;
    let (owner, editor) = (&world.owner, maker(&world, "editor").await);
    payroll(owner).await;
    let theirs = agent(owner, "theirs", PAYROLL).await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(owner, &editor.id, privilege, &on("agent", &theirs)).await;
    }
    let path = at("agents", &theirs);
    let plain = specification(PAYROLL, "[]");
    // The harmless twin: what no other principal has changed runs as its owner changes it.
    put(owner, &path, json!({"specification": format!("{plain}# a word\n")})).await;
    assert_eq!(reads(&editor, &theirs).await, "secret");

    let steered = format!("{plain}# steered\n");
    put(&editor, &path, json!({"specification": steered})).await;
    for unrelated in [
        json!({"specification": steered, "name": "other"}),
        json!({"specification": format!("{steered}# a word\n")}),
        json!({"specification": format!("{steered}# a word\n"), "run_as": "owner"}),
    ] {
        let now = put(owner, &path, unrelated.clone()).await;
        assert_eq!(now["author"], editor.id, "{unrelated}");
        assert!(now["warnings"].to_string().contains("confirmed"), "it is told: {now}");
        assert_eq!(reads(&editor, &theirs).await, "grant.missing", "{unrelated}");
    }
    // The harmless twin: the owner has read this version, and says so.
    confirm(owner, &path).await;
    assert_eq!(reads(&editor, &theirs).await, "secret");
    assert_eq!(owner.get(&path).await["warnings"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn t146_an_owners_other_change_does_not_confirm_what_an_editor_attached() {
    let world = World::start().await;
    let (owner, editor) = (&world.owner, maker(&world, "editor").await);
    let theirs = agent(owner, "theirs", "[]").await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(owner, &editor.id, privilege, &on("agent", &theirs)).await;
    }
    let (path, planted) = (at("agents", &theirs), tool(&editor, "planted", ALLOW).await);
    attach(&editor, &theirs, &planted).await;
    let other = format!("{}# a word\n", specification("[]", "[]"));
    put(owner, &path, json!({"specification": other, "name": "other"})).await;
    let call = json!({"arguments": {}, "agent_id": theirs["id"]});
    let call_path = format!("{}/call", at("tools", &planted));
    refused(&editor, "POST", &call_path, Some(call.clone()), FORBIDDEN).await;
    confirm(owner, &path).await;
    assert_eq!(editor.post(&call_path, call).await["value"], "enon");

    // The same holds for the code of a tool: to say where it runs is not to have read it.
    let of_owner = tool(owner, "of_owner", ALLOW).await;
    grant(owner, &editor.id, "MODIFY", &on("tool", &of_owner)).await;
    let path = at("tools", &of_owner);
    let code = json!({"pythonCode": PEEK.replace("none", "gone")});
    change(&editor, &path, json!({"configuration": code})).await;
    let changed = change(owner, &path, json!({"environment": "bare"})).await;
    assert_eq!(changed["author"], editor.id, "{changed}");
    let confirmed = confirm(owner, &path).await;
    assert_eq!(confirmed["author"], confirmed["owner"], "{confirmed}");
    let changed = change(owner, &path, json!({"environment": "bare"})).await;
    assert_eq!(changed["author"], confirmed["owner"], "{changed}");
}

/// A specification with a tool in it that leaves by an integration.
fn embedding(integration: &str) -> Value {
    let configuration = json!({"pythonCode": PEEK, "integrations": [integration]});
    let tool = json!({"type": "runPythonCode", "name": "peek", "description": "Peeks at a variable.",
        "configuration": configuration});
    json!({"name": "a", "specification": {"tools": [tool]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn t147_a_name_that_only_a_tool_in_a_specification_has_is_not_freed_for_others_to_take() {
    let world = World::start().await;
    let (owner, editor) = (&world.owner, maker(&world, "editor").await);
    let said = refused(owner, "POST", "/v1/agents", Some(embedding("way")), INVALID).await;
    assert!(said.contains("/specification/tools/0/configuration/integrations/0"), "{said}");
    let (_, way) = integration(owner, "way", json!("none")).await;
    let agent = owner.post("/v1/agents", embedding("way")).await;
    let said = refused(owner, "DELETE", &at("integrations", &way), None, IN_USE).await;
    assert!(said.contains("agent \"a\""), "{said}");
    // Nor does an editor add a tool that leaves by what they may not use.
    let (_, other) = integration(owner, "other", json!("none")).await;
    grant(owner, &editor.id, "MODIFY", &on("agent", &agent)).await;
    let path = at("agents", &agent);
    refused(&editor, "PUT", &path, Some(embedding("other")), INVALID).await;
    // The harmless twins: who may use it names it, and what is no longer named is deleted.
    grant(owner, &editor.id, "USAGE", &on("integration", &other)).await;
    put(&editor, &path, embedding("other")).await;
    owner.delete(&at("integrations", &way)).await;
    refused(owner, "DELETE", &at("integrations", &other), None, IN_USE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t148_a_name_that_a_deployment_under_way_has_is_not_freed_for_others_to_take() {
    let (listener, index) = silent_index();
    let world = World::under(&["env", &index], &[]).await;
    let owner = &world.owner;
    let (_, way) = integration(owner, "way", json!("none")).await;
    let files = json!([{"name": "handler.py", "text": "def handle(data): return data"},
        {"name": "requirements.txt", "text": "a-package-that-nobody-has==1.0\n"},
        {"name": "function.toml", "text": "integrations = [\"way\"]\n"}]);
    let (api, body) = (owner.clone(), json!({"name": "f", "files": files}));
    let deployed = tokio::spawn(async move { api.call("POST", "/v1/functions", Some(body)).await });
    let function = wait::until_some("it is deployed", async || {
        let found = items(owner, "/v1/functions").await;
        assert!(!deployed.is_finished(), "the index never answers: {found:?}");
        found.into_iter().find(|it| it["status"] == "deploying")
    });
    let function = function.await;
    let said = refused(owner, "DELETE", &at("integrations", &way), None, IN_USE).await;
    assert!(said.contains("function \"f\""), "{said}");
    // The harmless twin: without its index the deployment fails, and names nothing any more.
    drop(listener);
    let (status, problem) = deployed.await.unwrap();
    assert!(status >= 400, "{problem}");
    assert_eq!(owner.get(&at("functions", &function)).await["status"], "failed");
    owner.delete(&at("integrations", &way)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t149_a_principal_with_modify_cannot_change_where_a_secret_is_sent() {
    let world = World::start().await;
    let (owner, editor) = (&world.owner, maker(&world, "editor").await);
    let header = |host: &str, name: &str| json!({"header": {"host": host, "name": name}});
    let theirs = header("api.example", "X-Key");
    let new = json!({"name": "shop", "value": "some-key-of-ours", "inject": theirs});
    let secret = owner.post("/v1/secrets", new).await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(owner, &editor.id, privilege, &on("secret", &secret)).await;
    }
    let (path, value) = (at("secrets", &secret), "some-key-of-theirs");
    for elsewhere in [
        header("collect.example", "X-Key"),
        header("api.example", "X-Echo"),
        json!({"env": "SHOP"}),
        json!({"client": "openai"}),
    ] {
        let body = json!({"inject": elsewhere, "value": value});
        let said = refused(&editor, "PATCH", &path, Some(body), FORBIDDEN).await;
        assert!(said.contains("OWNERSHIP"), "{said}");
    }
    assert_eq!(owner.get(&path).await["inject"], secret["inject"]);
    assert_eq!(owner.get(&path).await["version"], 1, "nor was its value set");
    // The harmless twins: MODIFY sets the value, also beside the place as it is; its owner moves it.
    let put = editor.call("PUT", &format!("{path}/value"), Some(json!({"value": value}))).await;
    assert_eq!(put.0, 200, "{}", put.1);
    change(&editor, &path, json!({"inject": theirs, "value": value, "comment": "rotated"})).await;
    let moved = json!({"inject": header("new.example", "X-Key"), "value": "some-key-of-ours"});
    change(owner, &path, moved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t151_an_explanation_does_not_tell_whether_a_hidden_id_exists() {
    let world = World::start().await;
    let (ann, bob) = (maker(&world, "ann").await, Person::new(&world, "bob").await);
    let (of_ann, hidden) = (tool(&ann, "of_ann", ALLOW).await, agent(&ann, "hidden", "[]").await);
    let seen = agent(&ann, "seen", "[]").await;
    grant(&ann, &bob.id, "USAGE", &on("agent", &seen)).await;
    let explained = async |query: &str, hidden: &str| {
        let path = format!("/v1/explain?{}", query.replace("HIDDEN", hidden));
        let (status, problem) = bob.call("GET", &path, None).await;
        (status, problem["detail"].as_str().unwrap().replace(hidden, "HIDDEN"))
    };
    for (there, query) in [
        (id(&of_ann), "tool=HIDDEN".to_owned()),
        (id(&of_ann), format!("tool=HIDDEN&principal={NOTHING}")),
        (id(&of_ann), format!("tool=HIDDEN&principal={}", ann.id)),
        (id(&of_ann), format!("tool=HIDDEN&agent={NOTHING}")),
        (id(&of_ann), format!("tool=HIDDEN&agent={}", id(&hidden))),
        (id(&of_ann), format!("tool=HIDDEN&agent={}", id(&seen))),
        (id(&hidden), "agent=HIDDEN".to_owned()),
        (id(&hidden), format!("agent=HIDDEN&principal={NOTHING}")),
        (id(&hidden), format!("agent=HIDDEN&tool={NOTHING}")),
        (id(&hidden), format!("agent=HIDDEN&tool={}", id(&of_ann))),
    ] {
        let nowhere = "0198c0de-0000-7000-8000-00000000beef";
        let explanation = explained(&query, &there).await;
        assert_eq!(explanation, explained(&query, nowhere).await, "{query}");
        assert_eq!(explanation.0, 404, "{query}: {explanation:?}");
    }
    // A caller who may not ask about others does not learn which principals exist, either.
    for who in [&ann.id, NOTHING] {
        let path = format!("/v1/explain?agent={}&principal={who}", id(&seen));
        refused(&bob, "GET", &path, None, FORBIDDEN).await;
    }
    // The harmless twins: a caller who sees it gets the explanation, and an owner learns that no such principal exists.
    let explanation = bob.get(&format!("/v1/explain?agent={}", id(&seen))).await;
    assert_eq!(explanation["allowed"], true, "{explanation}");
    let path = format!("/v1/explain?agent={}&principal={NOTHING}", id(&seen));
    refused(&ann, "GET", &path, None, NOT_THERE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t311_an_editor_of_an_agent_makes_its_approval_actions_stricter_and_not_looser() {
    let world = World::start().await;
    let owner = &world.owner;
    let specification = "tools:\n  - tool_spec: {type: code_execution, name: code_execution}\n\
                         tool_resources:\n  code_execution: {approval_action: review}\n";
    let made = owner.post("/v1/agents", json!({"name": "a", "specification": specification})).await;
    let editor = Person::new(&world, "editor").await;
    for privilege in ["USAGE", "MODIFY"] {
        grant(owner, &editor.id, privilege, &on("agent", &made)).await;
    }
    let tool = tool(owner, "probe", ALLOW).await;
    let bound = attach(owner, &made, &tool).await;
    let code = format!("{}/tools/code_execution", at("agents", &made));
    let action = |action: &str| Some(json!({"approval_action": action}));
    refused(&editor, "PATCH", &code, action("allow"), FORBIDDEN).await;
    refused(&editor, "PATCH", &code, action("confirm"), FORBIDDEN).await;
    // Twins: the editor makes it stricter, also that of an attached tool, and the owner looser.
    for path in [&code, &bound] {
        let (status, set) = editor.call("PATCH", path, action("deny")).await;
        assert_eq!((status, &set["approval_action"]), (200, &json!("deny")), "{set}");
        refused(&editor, "PATCH", path, action("review"), FORBIDDEN).await;
        let (status, set) = owner.call("PATCH", path, action("allow")).await;
        assert_eq!((status, &set["approval_action"]), (200, &json!("allow")), "{set}");
    }
}
