//! Secrets as variables: only for code that may use them, through an integration that allows them, and redacted
//! in all output.

use crate::harness::wait;
use crate::principals::{Person, change, grant, id, on, ungrant, workspace};
use crate::test_server::{Api, World};
use serde_json::{Value, json};

const CANARY: &str = "sk-canary-4711-0815-abcdef";
/// Backwards, so that redaction does not find it.
const READ: &str = "import os; os.environ.get('TOKEN', 'none')[::-1]";

async fn integration(owner: &Api, name: &str, secrets: Value) -> Value {
    let new = json!({"name": name, "allowed_network_rules": [], "allowed_secrets": secrets, "enabled": true});
    let (status, made) = owner.call("POST", "/v1/integrations", Some(new)).await;
    assert_eq!(status, 201, "{made}");
    made
}

async fn secret(who: &Api, value: &str, scope: &str) -> Value {
    who.post("/v1/secrets", json!({"name": "TOKEN", "value": value, "scope": scope})).await
}

fn backwards(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value}")).chars().rev().collect()
}

async fn seen(who: &Api, integrations: &[&str]) -> String {
    let record = who.post("/v1/execute", json!({"code": READ, "integrations": integrations})).await;
    backwards(&record["value"])
}

// proves S-071
#[tokio::test(flavor = "multi_thread")]
async fn a_variable_is_for_code_of_those_who_may_use_it_by_an_integration_that_allows_it() {
    let world = World::start().await;
    let (owner, ann) = (&world.owner, Person::new(&world, "ann").await);
    grant(owner, &ann.id, "USAGE", &workspace(owner).await).await;
    let token = secret(owner, CANARY, "workspace").await;
    for (name, secrets) in [("all", json!("all")), ("some", json!(["TOKEN"])), ("other", json!([]))]
    {
        let made = integration(owner, name, secrets).await;
        grant(owner, &ann.id, "USAGE", &on("integration", &made)).await;
    }
    assert_eq!(seen(owner, &["all"]).await, CANARY);
    assert_eq!(seen(owner, &["other", "some"]).await, CANARY);
    assert_eq!(seen(owner, &["other"]).await, "none");
    assert_eq!(seen(owner, &[]).await, "none");
    assert_eq!(seen(&ann, &["all"]).await, "none", "she may not use it");
    let usage = grant(owner, &ann.id, "USAGE", &on("secret", &token)).await;
    assert_eq!(seen(&ann, &["all"]).await, CANARY);
    // Her own has precedence, for her alone.
    secret(&ann, "of-ann-alone", "caller").await;
    assert_eq!(seen(&ann, &["all"]).await, "of-ann-alone");
    assert_eq!(seen(owner, &["all"]).await, CANARY);
    ungrant(owner, &usage).await;
    let replaced = json!({"value": "another-value"});
    owner.call("PUT", &format!("/v1/secrets/{}/value", id(&token)), Some(replaced)).await;
    assert_eq!(seen(owner, &["all"]).await, "another-value");
    owner.post("/v1/secrets/rotate", json!({})).await;
    assert_eq!(seen(owner, &["all"]).await, "another-value", "a new key changes nothing");
    assert_eq!(seen(&ann, &["all"]).await, "of-ann-alone");
    let moved = json!({"inject": {"env": "OTHER"}, "value": "another-value"});
    change(owner, &format!("/v1/secrets/{}", id(&token)), moved).await;
    assert_eq!(seen(owner, &["all"]).await, "none");
}

#[tokio::test(flavor = "multi_thread")]
async fn t43_an_exposed_secret_does_not_come_back_from_a_session_nor_from_a_fresh_sandbox() {
    let world = World::start().await;
    let owner = &world.owner;
    secret(owner, CANARY, "workspace").await;
    integration(owner, "all", json!("all")).await;
    let tells = "import os\nvalue = os.environ['TOKEN']\nprint('it is', value)\n[value, value.encode().hex()]";
    let clean = json!(["[redacted:TOKEN]", "[redacted:TOKEN]"]);
    let fresh = owner.post("/v1/execute", json!({"code": tells, "integrations": ["all"]})).await;
    assert_eq!(fresh["value"], clean, "{fresh}");
    let session = owner.post("/v1/sessions", json!({"integrations": ["all"]})).await;
    let session = session["sandbox_id"].as_str().unwrap().to_owned();
    assert_eq!(owner.run(&session, tells).await["value"], clean);
    let raised = owner.run(&session, "raise ValueError(value)").await;
    assert_eq!(raised["error"]["message"], "[redacted:TOKEN]");
    let shown = owner.run(&session, "{'of a cell': value}").await;
    assert!(!format!("{fresh}{raised}{shown}{}", world.log()).contains(CANARY));
    // What code tries to reach is on record as well.
    let reaches = "import socket\ntry:\n    socket.create_connection((value + '.example.com', 443))\nexcept OSError as error:\n    print(error)";
    let reached = owner.run(&session, reaches).await;
    let log = owner.get("/v1/network/log").await;
    assert!(!format!("{reached}{log}").contains(CANARY), "{reached} {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_names_what_code_could_read() {
    let world = World::start().await;
    let owner = &world.owner;
    secret(owner, CANARY, "workspace").await;
    let openai = json!({"name": "openai", "value": CANARY, "inject": {"client": "openai"}});
    owner.post("/v1/secrets", openai).await;
    integration(owner, "all", json!("all")).await;
    let specification = "tools:\n  - tool_spec: {type: code_execution, name: code_execution}\n\
        tool_resources:\n  code_execution:\n    external_access_integrations: [all]\n";
    let agent = json!({"name": "a", "specification": specification});
    let agent = id(&owner.post("/v1/agents", agent).await);
    let explanation = owner.get(&format!("/v1/explain?agent={agent}")).await;
    assert_eq!(explanation["secrets"], json!(["TOKEN"]), "{explanation}");
    let variables = json!([{"name": "OWN", "value": "of-the-tool"}]);
    let tool = json!({"name": "t", "tool_type": "code_runner", "configuration":
        {"code": "def run(input):\n    return 1\n", "env_variables": variables}});
    let tool = id(&owner.post("/v1/tools", tool).await);
    let explanation = owner.get(&format!("/v1/explain?tool={tool}")).await;
    assert_eq!(explanation["secrets"], json!(["OWN"]), "{explanation}");
    assert!(!explanation.to_string().contains(CANARY));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_names_each_host_once_and_what_it_names_stays() {
    let world = World::start().await;
    let owner = &world.owner;
    let token = id(&secret(owner, CANARY, "workspace").await);
    let header = json!({"header": {"host": "api.openai.com", "name": "X-Organisation"}});
    for (name, inject) in [("openai", json!({"client": "openai"})), ("organisation", header)] {
        owner.post("/v1/secrets", json!({"name": name, "value": CANARY, "inject": inject})).await;
    }
    for name in ["one", "two"] {
        let rule = json!({"name": name, "value_list": ["github.com", format!("{name}.test")]});
        owner.post("/v1/network-rules", rule).await;
    }
    let both =
        json!({"name": "i", "allowed_network_rules": ["one", "two"], "allowed_secrets": ["TOKEN"]});
    owner.post("/v1/integrations", both).await;
    let specification = "tools:\n  - tool_spec: {type: code_execution, name: code_execution}\n\
        tool_resources:\n  code_execution:\n    external_access_integrations: [i]\n";
    let agent = json!({"name": "a", "specification": specification});
    let agent = format!("/v1/explain?agent={}", id(&owner.post("/v1/agents", agent).await));
    let agent_record = owner.get(&agent).await;
    let hosts = json!(["github.com", "one.test", "two.test", "https://api.openai.com:443"]);
    assert_eq!(agent_record["network"], hosts, "{agent_record}");
    assert_eq!((&agent_record["secrets"], &agent_record["notes"]), (&json!(["TOKEN"]), &json!([])));
    let used = owner.refused("DELETE", &format!("/v1/secrets/{token}"), None).await;
    assert_eq!(used, (409, "object.in_use".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_integration_allows_secrets_that_are_there() {
    let world = World::start().await;
    let new = json!({"name": "i", "allowed_network_rules": [], "allowed_secrets": ["NOBODY"]});
    let (status, problem) = world.owner.call("POST", "/v1/integrations", Some(new)).await;
    assert_eq!(status, 400, "{problem}");
    assert!(problem.to_string().contains("NOBODY"), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_the_secrets_of_its_owner_after_a_reset_and_no_other_principal_can_use_them()
 {
    let world = World::start().await;
    let (owner, ann) = (&world.owner, Person::new(&world, "ann").await);
    grant(owner, &ann.id, "USAGE", &workspace(owner).await).await;
    let all = integration(owner, "all", json!("all")).await;
    grant(owner, &ann.id, "USAGE", &on("integration", &all)).await;
    secret(owner, "of-the-owner-alone", "caller").await;
    let session = ann.post("/v1/sessions", json!({"integrations": ["all"]})).await;
    let session = session["sandbox_id"].as_str().unwrap().to_owned();
    owner.post(&format!("/v1/sessions/{session}/reset"), json!({})).await;
    assert_eq!(backwards(&ann.run(&session, READ).await["value"]), "none");
    assert_eq!(owner.run(&session, "1").await["value"], 1, "there is nothing of her own in it");

    secret(&ann, "of-ann-alone", "caller").await;
    ann.post(&format!("/v1/sessions/{session}/reset"), json!({})).await;
    assert_eq!(backwards(&ann.run(&session, READ).await["value"]), "of-ann-alone");
    let path = format!("/v1/sessions/{session}/execute");
    let error = owner.refused("POST", &path, Some(json!({"code": READ}))).await;
    assert_eq!(error, (403, "grant.missing".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_a_session_can_read_and_may_not_any_more_stops_it_until_it_is_reset() {
    let world = World::start().await;
    let (owner, ann) = (&world.owner, Person::new(&world, "ann").await);
    grant(owner, &ann.id, "USAGE", &workspace(owner).await).await;
    let token = secret(owner, CANARY, "workspace").await;
    let all = integration(owner, "all", json!("all")).await;
    grant(owner, &ann.id, "USAGE", &on("integration", &all)).await;
    let usage = grant(owner, &ann.id, "USAGE", &on("secret", &token)).await;
    let session = ann.post("/v1/sessions", json!({"integrations": ["all"]})).await;
    let session = session["sandbox_id"].as_str().unwrap().to_owned();
    assert_eq!(backwards(&ann.run(&session, READ).await["value"]), CANARY);
    ungrant(owner, &usage).await;
    let path = format!("/v1/sessions/{session}/execute");
    let error = ann.refused("POST", &path, Some(json!({"code": READ}))).await;
    assert_eq!(error.1, "session.lost");
    ann.post(&format!("/v1/sessions/{session}/reset"), json!({})).await;
    assert_eq!(backwards(&ann.run(&session, READ).await["value"]), "none");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_author_of_a_secret_opens_no_host_to_others() {
    let world = World::start().await;
    let (owner, maker) = (&world.owner, Person::new(&world, "maker").await);
    for privilege in ["USAGE", "MODIFY"] {
        grant(owner, &maker.id, privilege, &workspace(owner).await).await;
    }
    let header = json!({"header": {"host": "collect.example", "name": "X-Key", "env": "COLLECT"}});
    let new = json!({"name": "collect", "value": "some-key-of-theirs", "inject": header});
    maker.post("/v1/secrets", new).await;
    let code = "import os\n'COLLECT' in os.environ, 'HTTPS_PROXY' in os.environ";
    assert_eq!(maker.execute(code).await["value"], json!([true, true]), "their own code has it");
    assert_eq!(owner.execute(code).await["value"], json!([false, false]));
    integration(owner, "named", json!(["collect"])).await;
    let run = json!({"code": code, "integrations": ["named"]});
    assert_eq!(
        owner.post("/v1/execute", run).await["value"],
        json!([true, true]),
        "if they say so"
    );
}

/// Code has no credential, and cannot find one out by what is taken out of its guesses.
#[tokio::test(flavor = "multi_thread")]
async fn guesses_of_a_credential_come_back_as_they_are() {
    let world = World::start().await;
    let header = json!({"header": {"host": "api.example.com", "name": "X-Key", "env": "KEY"}});
    let new = json!({"name": "shop", "value": CANARY, "inject": header});
    world.owner.post("/v1/secrets", new).await;
    let guesses = format!("[{CANARY:?}[:end] for end in range(1, {})]", CANARY.len() + 1);
    let said = world.owner.execute(&guesses).await["value"].clone();
    let whole: Vec<_> = (1..=CANARY.len()).map(|end| json!(&CANARY[..end])).collect();
    assert_eq!(said, json!(whole));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_a_caller_do_not_reach_the_author_of_the_tool_that_they_call() {
    let world = World::start().await;
    let (owner, ann) = (&world.owner, Person::new(&world, "ann").await);
    grant(owner, &ann.id, "USAGE", &workspace(owner).await).await;
    let all = integration(owner, "all", json!("all")).await;
    grant(owner, &ann.id, "USAGE", &on("integration", &all)).await;
    secret(&ann, "of-ann-alone", "caller").await;
    let code = "import os\n\ndef handle(): return os.environ.get('TOKEN', 'none')[::-1]\n";
    let files = json!([{"name": "handler.py", "text": code},
        {"name": "function.toml", "text": "name = \"peek\"\nintegrations = [\"all\"]\n"}]);
    let function = owner.post("/v1/functions", json!({"files": files})).await;
    grant(owner, &ann.id, "USAGE", &on("function", &function)).await;
    let calls = format!("/v1/functions/{}/call", id(&function));
    let called = ann.post(&calls, json!({})).await;
    let at = format!("/v1/executions/{}", id(&called));
    let over = async || Some(ann.get(&at).await).filter(|record| !record["ended_at"].is_null());
    let record = wait::until_some("the call has ended", over).await;
    assert_eq!(record["value"], "enon", "{record}");
    assert_eq!(seen(&ann, &["all"]).await, "of-ann-alone", "her own code has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_ones_own_opens_no_host_to_those_who_may_make_no_rules() {
    let world = World::with(&["--resolve", "public.test=192.0.66.2"]).await;
    let header = json!({"header": {"host": "public.test", "name": "X-Key"}});
    let new = json!({"name": "own", "value": "a-key-of-mine", "scope": "caller", "inject": header});
    let code = "import urllib.request\nurllib.request.urlopen('https://public.test/', timeout=1)";
    for (name, privileges, allowed) in
        [("ann", &["USAGE"][..], false), ("bob", &["USAGE", "MODIFY"][..], true)]
    {
        let who = world.principal(name, privileges).await;
        let kept = who.post("/v1/secrets", new.clone()).await;
        let warned = if allowed { Value::Null } else { json!("secret.host_closed") };
        assert_eq!(kept["warnings"][0]["code"], warned, "{name}: {kept}");
        let path = format!("/v1/secrets/{}", id(&kept));
        let (_, changed) = who.call("PATCH", &path, Some(json!({"comment": "c"}))).await;
        assert_eq!(changed["warnings"][0]["code"], warned, "{name}: {changed}");
        let execution = who.execute(code).await;
        let attempt = &execution["network"][0];
        assert_eq!(attempt["allowed"], allowed, "{name}: {execution}");
    }
}
