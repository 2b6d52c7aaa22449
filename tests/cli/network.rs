//! `belljar network`, and code that reaches hosts through the rules and integrations it creates.

use crate::harness::{self, stderr, stdout, wait};
use crate::remote::{answer, belljar, failure};
use crate::test_server::{Api, World};
use crate::web_server::{RESOLVED, Site};
use serde_json::json;

/// An integration `to_site` that opens the site, made at the command line.
async fn opened(api: &Api, site: &Site) {
    let values: Vec<String> = serde_json::from_value(site.values()).unwrap();
    let rule = ["network", "rule", "new", "site", "--json"].into_iter();
    answer(api, &rule.chain(values.iter().map(String::as_str)).collect::<Vec<_>>()).await;
    answer(api, &["network", "integration", "new", "to_site", "--rule", "site", "--json"]).await;
}

// proves S-055
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_made_replaced_listed_shown_and_deleted() {
    let world = World::start().await;
    let api = &world.owner;
    let new = ["network", "rule", "new", "hub", "github.com", "*.github.com:80", "--comment", "c"];
    let made = answer(api, &[&new[..], &["--json"]].concat()).await;
    assert_eq!((&made["mode"], &made["type"]), (&json!("EGRESS"), &json!("HOST_PORT")));
    assert_eq!(made["value_list"], json!(["github.com", "*.github.com:80"]));
    assert!(
        failure(api, 1, &new)
            .await
            .contains("name \"hub\" is already used by another network rule")
    );
    let wrong = ["network", "rule", "new", "bad", "https://github.com"];
    assert!(failure(api, 1, &wrong).await.contains("https://github.com"));
    let set = ["network", "rule", "set", "hub", "api.github.com", "--json"];
    let replaced = answer(api, &set).await;
    assert_eq!(
        (&replaced["value_list"], &replaced["comment"]),
        (&json!(["api.github.com"]), &json!("c"))
    );
    assert_eq!(answer(api, &["network", "rule", "show", "hub", "--json"]).await, replaced);
    let listed = stdout(&belljar(api, &["network", "rule", "ls"]).await);
    assert!(listed.contains("hub") && listed.contains("api.github.com"), "{listed}");
    answer(api, &["network", "integration", "new", "to_hub", "--rule", "hub", "--json"]).await;
    assert!(failure(api, 1, &["network", "rule", "rm", "hub"]).await.contains("to_hub"));
    answer(api, &["network", "integration", "rm", "to_hub"]).await;
    answer(api, &["network", "rule", "rm", "hub"]).await;
    assert!(failure(api, 1, &["network", "rule", "show", "hub"]).await.contains("hub"));
}

#[tokio::test(flavor = "multi_thread")]
async fn code_leaves_by_the_integrations_that_are_named_and_all_of_it_is_listed() {
    let (world, site) = (World::with(&RESOLVED).await, Site::start());
    let api = &world.owner;
    opened(api, &site).await;
    let code = site.read("site.test");
    let run = ["exec", "--env", "bare"];
    let without = belljar(api, &[&run[..], &[&code]].concat()).await;
    assert!(stderr(&without).contains("site.test"), "{}", stderr(&without));
    let with = belljar(api, &[&run[..], &["--integration", "to_site", &code]].concat()).await;
    assert_eq!(stdout(&with), "'here'\n", "{}", stderr(&with));
    let unknown = [&run[..], &["--integration", "nobody", &code]].concat();
    assert!(failure(api, 1, &unknown).await.contains("nobody"));

    answer(api, &["network", "disable", "to_site", "--json"]).await;
    let off = belljar(api, &[&run[..], &["--integration", "to_site", &code]].concat()).await;
    let said = stderr(&off);
    assert!(said.contains("integration to_site is disabled"), "{said}");
    answer(api, &["network", "enable", "to_site", "--json"]).await;

    let opened = ["session", "new", "--env", "bare", "--key", "talk", "--integration", "to_site"];
    answer(api, &[&opened[..], &["--json"]].concat()).await;
    for (code, said) in [(code.as_str(), "'here'\n"), ("x = 1", ""), ("x + 1", "2\n")] {
        let ran = belljar(api, &["exec", "--session", "talk", code]).await;
        assert_eq!(stdout(&ran), said, "{}", stderr(&ran));
    }
    assert_eq!(site.asked(), 2);

    let log = |more: &'static [&'static str]| {
        let args = [&["network", "log", "--json", "--host", "site.test"][..], more].concat();
        async move { answer(api, &args).await.as_array().map_or(0, Vec::len) }
    };
    wait::until("all attempts are logged", async || log(&[]).await >= 4).await;
    assert_eq!((log(&[]).await, log(&["--denied"]).await), (4, 2));
    let listed = stdout(&belljar(api, &["network", "log"]).await);
    assert!(
        listed.contains("to_site") && listed.contains("is not allowed: integration to_site"),
        "{listed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn code_of_an_agent_runs_in_a_session_that_is_opened_for_it() {
    let (world, site) = (World::with(&RESOLVED).await, Site::start());
    let api = &world.owner;
    opened(api, &site).await;
    let specification = "tools:\n  - tool_spec: {type: code_execution, name: code_execution}\n\
        tool_resources:\n  code_execution:\n    environment: bare\n    \
        external_access_integrations: [to_site]\n";
    api.post("/v1/agents", json!({"name": "bot", "specification": specification})).await;
    let session = answer(api, &["session", "new", "--agent", "bot", "--json"]).await;
    let id = session["sandbox_id"].as_str().unwrap();
    let ran = belljar(api, &["exec", "--session", id, &site.read("site.test")]).await;
    assert_eq!(stdout(&ran), "'here'\n", "{}", stderr(&ran));
    failure(api, 1, &["session", "new", "--agent", "nobody"]).await;
}

// proves S-061
#[tokio::test(flavor = "multi_thread")]
async fn an_integration_is_filled_emptied_switched_and_deleted() {
    let world = World::start().await;
    let api = &world.owner;
    answer(api, &["network", "rule", "new", "hub", "github.com", "--json"]).await;
    let inwards = json!({"name": "in", "mode": "INGRESS", "value_list": ["github.com"]});
    assert_eq!(api.refused("POST", "/v1/network-rules", Some(inwards)).await.0, 400);
    let unknown = ["network", "integration", "new", "to_hub", "--rule", "in"];
    assert!(failure(api, 1, &unknown).await.contains("network rule \"in\" not found"));
    for name in ["ONE", "TWO"] {
        api.post("/v1/secrets", json!({"name": name, "value": "some-value"})).await;
    }
    let change = |args: &'static [&'static str]| {
        let args = [&["network", "integration"][..], args, &["--json"]].concat();
        async move {
            let made = answer(api, &args).await;
            (made["allowed_network_rules"].clone(), made["allowed_secrets"].clone())
        }
    };
    let full = (json!(["hub"]), json!(["ONE", "TWO"]));
    let new = &["new", "to_hub", "--rule", "hub", "--secret", "ONE", "--secret", "TWO"];
    assert_eq!(change(new).await, full);
    assert_eq!(change(&["set", "to_hub", "--comment", "c"]).await, full);
    assert_eq!(change(&["set", "to_hub", "--no-rules"]).await, (json!([]), full.1.clone()));
    assert_eq!(change(&["set", "to_hub", "--no-secrets"]).await, (json!([]), json!("none")));
    assert_eq!(change(&["set", "to_hub", "--all-secrets"]).await, (json!([]), json!("all")));
    let both = ["network", "integration", "set", "to_hub", "--no-secrets", "--secret", "ONE"];
    failure(api, 2, &both).await;
    assert_eq!(
        change(&["set", "to_hub", "--rule", "hub", "--secret", "ONE"]).await.1,
        json!(["ONE"])
    );

    let shown = async || answer(api, &["network", "integration", "show", "to_hub", "--json"]).await;
    assert_eq!((&shown().await["enabled"], &shown().await["comment"]), (&json!(true), &json!("c")));
    failure(api, 1, &["secret", "rm", "ONE"]).await;
    let listed = stdout(&belljar(api, &["network", "integration", "ls"]).await);
    assert!(listed.contains("ONE"), "{listed}");
    answer(api, &["network", "disable", "to_hub"]).await;
    assert_eq!(shown().await["enabled"], false);
    answer(api, &["network", "integration", "rm", "to_hub"]).await;
    failure(api, 1, &["network", "integration", "show", "to_hub"]).await;
    assert!(
        failure(api, 1, &["network", "integration", "rm", "internet"])
            .await
            .contains("cannot be deleted")
    );
}

#[test]
fn without_a_server_there_are_no_integrations_and_it_is_said_why() {
    let here = |args: &[&str]| {
        let mut command = harness::belljar(args);
        let output = command.env_remove("BELLJAR_URL").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        stderr(&output)
    };
    for args in [["exec", "--integration", "x", "1"], ["exec", "--session", "x", "1"]] {
        let said = here(&args);
        assert!(said.contains(args[1]) && said.contains("BELLJAR_URL"), "{said}");
    }
    let said = here(&["session", "--integration", "x"]);
    assert!(said.contains("belljar session new --integration"), "{said}");
}
