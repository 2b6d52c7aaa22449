//! Environments that the operator adds to a server, and all principals use by name.

use crate::harness::{self, wait};
use crate::test_server::{Api, World};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MINE: &str = "/v1/environments/mine";
const VERSION: &str = "import importlib.metadata; importlib.metadata.version('six')";

async fn put(api: &Api, requirements: &str) -> (u16, Value) {
    api.call("PUT", MINE, Some(json!({"requirements": requirements}))).await
}

async fn version(api: &Api) -> Value {
    let body = json!({"code": VERSION, "environment": "mine"});
    let (status, record) = api.call("POST", "/v1/execute", Some(body)).await;
    assert_eq!((status, &record["status"]), (200, &json!("succeeded")), "{record}");
    record["value"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_is_added_and_used_by_its_name_everywhere() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    let (status, made) = put(owner, "six==1.16.0\n").await;
    assert_eq!((status, &made["status"]), (201, &json!("ready")), "{made}");
    assert_eq!(made["packages"], json!([{"name": "six", "version": "1.16.0"}]));
    assert!(made["lock"].as_str().unwrap().contains("--hash=sha256:"));
    assert_eq!(made["origin"], "custom");

    assert_eq!(version(owner).await, "1.16.0");
    let session = owner.post("/v1/sessions", json!({"environment": "mine"})).await;
    assert_eq!(session["environment"], "mine");
    let code = "def handle(x: int) -> str:\n    \"\"\"Tells.\n\n    Args:\n        x: a number\n    \
                \"\"\"\n    import six\n    return six.__version__\n";
    let tool = json!({"name": "t", "type": "runPythonCode", "environment": "mine",
        "configuration": {"pythonCode": code}});
    let (status, tool) = owner.call("POST", "/v1/tools/validate", Some(tool)).await;
    assert_eq!(status, 200, "{tool}");

    let listed = owner.get("/v1/environments").await;
    let names = listed["items"].as_array().unwrap().iter().map(|it| it["name"].clone());
    let expected = ["default", "atlas", "cortex", "coderunner", "bare", "mine"];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let unknown = json!({"code": "1", "environment": "yours"});
    let (status, problem) = owner.call("POST", "/v1/execute", Some(unknown)).await;
    assert_eq!(status, 400);
    assert_eq!(problem["errors"][0]["path"], "/environment");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operator_changes_environments_and_all_principals_see_them() {
    let world = World::with_own_environments().await;
    let ann = world.principal("ann", &["USAGE"]).await;
    assert_eq!(put(&ann, "").await.0, 403);
    assert_eq!(ann.call("DELETE", "/v1/environments/bare", None).await.0, 403);
    assert_eq!(put(&world.owner, "").await.0, 201);
    assert_eq!(ann.get(MINE).await["status"], "ready");
    let other = world.owner.post("/v1/workspaces", json!({"name": "other"})).await;
    let theirs = world.api(other["key"]["secret"].as_str().unwrap());
    assert_eq!(put(&theirs, "").await.0, 403, "an owner of another workspace runs no server");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_build_is_reported_by_line_and_the_old_one_stays_in_use() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    put(owner, "six==1.16.0").await;
    for (body, expected) in [
        (json!({"requirements": "six\nno-such-package-of-belljar"}), "line 2"),
        (json!({"requirements": "six\n-r /etc/passwd"}), "line 2"),
        (json!({"requirements": "six @ https://127.0.0.1/six.whl"}), "line 1"),
        (json!({"definition": "name = \"mine\"\npakages = []"}), "line 2"),
        (json!({"definition": "name = \"other\""}), "`other`"),
        (json!({"script": "print(1)"}), "PEP 723"),
        (json!({"requirements": "six", "python": "/bin/sh"}), "version such as 3.12"),
        (json!({"requirements": "six", "python": "3.99"}), "uv python install"),
        (json!({"requirements": "six", "python": "3.10"}), "CPython 3.10 is not supported"),
        (json!({"requirements": "six", "lock": "six==1.16.0"}), "no sha256"),
        (json!({"requirements": "six", "script": ""}), "one of"),
        (json!({"definition": "name = \"mine\"\npreload = [\"not_there\"]"}), "not_there"),
    ] {
        let (status, problem) = owner.call("PUT", MINE, Some(body.clone())).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!((400..=503).contains(&status) && detail.contains(expected), "{body}: {problem}");
        assert_eq!(version(owner).await, "1.16.0", "{body}");
    }
    let shown = owner.get(MINE).await;
    assert_eq!(shown["status"], "ready", "{shown}");
    assert!(shown["error"]["message"].as_str().unwrap().contains("not_there"), "{shown}");
    put(owner, "six==1.16.0").await;
    assert_eq!(owner.get(MINE).await["error"], json!(null), "it is mended");
    let shipped = json!({"requirements": "six"});
    assert_eq!(owner.call("PUT", "/v1/environments/default", Some(shipped)).await.0, 400);
}

/// Without waiting for it.
async fn begin(api: &Api, requirements: &str) -> Value {
    let request = api.request("PUT".parse().unwrap(), MINE).header("prefer", "respond-async");
    let body = json!({ "requirements": requirements }).to_string();
    let answer =
        request.header("content-type", "application/json").body(body).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 202);
    assert_eq!(answer.headers()["location"], MINE);
    let shown: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(shown["status"], "building");
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_order_stays_however_long_the_one_before_takes() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    begin(owner, "six==1.16.0\nidna\npackaging\n").await;
    let (status, made) = put(owner, "").await;
    assert_eq!((status, &made["packages"]), (201, &json!([])), "{made}");
    let is_last = async || {
        let shown = owner.get(MINE).await;
        shown["status"] == "ready" && shown["packages"] == json!([])
    };
    wait::stays(Duration::from_secs(3), "the last order is served", is_last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_while_it_is_built_does_not_come_back() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    begin(owner, "six==1.16.0").await;
    let (status, answer) = owner.call("DELETE", MINE, None).await;
    assert_eq!(status, 204, "{answer}");
    let is_gone = async || owner.call("GET", MINE, None).await.0 == 404;
    wait::stays(Duration::from_secs(3), "it is gone", is_gone).await;
}

/// As another program would that has not tried whether it starts.
fn preload(world: &World, module: &str) {
    let path = format!("{}/definitions/mine.json", world.environments());
    let mut kept: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    kept["definition"] =
        format!("name = \"mine\"\npackages = [\"six\"]\npreload = [\"{module}\"]").into();
    let aside = format!("{path}.new");
    std::fs::write(&aside, kept.to_string()).unwrap();
    std::fs::rename(aside, path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_has_become_one_that_does_not_start_is_told() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    put(owner, "six==1.16.0").await;
    preload(&world, "not_there");
    let status_once_told = async |wanted: bool| {
        let status = async || {
            assert_eq!(version(owner).await, "1.16.0");
            let shown = owner.get(MINE).await;
            let message = shown["error"]["message"].as_str().unwrap_or_default();
            (message.contains("not_there") == wanted).then(|| shown["status"].clone())
        };
        wait::until_some(&format!("it is told: {wanted}"), status).await
    };
    assert_eq!(status_once_told(true).await, "ready");
    preload(&world, "six");
    status_once_told(false).await;
    let loaded = json!({"code": "import sys; 'six' in sys.modules", "environment": "mine"});
    let is_served = async || owner.post("/v1/execute", loaded.clone()).await["value"] == true;
    wait::until("the new one serves", is_served).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_in_progress_can_be_polled() {
    let world = World::with_own_environments().await;
    let begun = begin(&world.owner, "six==1.16.0").await;
    assert!(begun["progress"].is_string(), "{begun}");
    let built = wait::until_some("it is built", async || {
        let shown = world.owner.get(MINE).await;
        let is_building = shown["status"] == "building";
        assert!(!is_building || shown["progress"].is_string(), "{shown}");
        (!is_building).then_some(shown)
    });
    assert_eq!(built.await["status"], "ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_loses_no_request_and_no_session() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    put(owner, "six==1.16.0").await;
    let session = owner.post("/v1/sessions", json!({"environment": "mine"})).await;
    let inside = format!("/v1/sessions/{}/execute", session["sandbox_id"].as_str().unwrap());
    owner.post(&inside, json!({"code": "import six; kept = six.__version__"})).await;

    let over = Arc::new(AtomicBool::new(false));
    let asked = tokio::spawn({
        let (owner, over) = (owner.clone(), Arc::clone(&over));
        async move {
            let mut seen = Vec::new();
            while !over.load(Ordering::Relaxed) {
                seen.push(version(&owner).await);
            }
            seen
        }
    });
    assert_eq!(put(owner, "six==1.17.0").await.0, 200);
    over.store(true, Ordering::Relaxed);
    let seen = asked.await.unwrap();
    assert!(seen.len() > 1, "{seen:?}");
    assert!(seen.iter().all(|it| it == "1.16.0" || it == "1.17.0"), "{seen:?}");
    assert_eq!(version(owner).await, "1.17.0");

    let code = "import importlib; [kept, importlib.reload(six).__version__]";
    let record = owner.post(&inside, json!({"code": code})).await;
    assert_eq!(record["value"], json!(["1.16.0", "1.16.0"]), "it keeps what it was opened with");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_program_builds_in_the_same_place_is_served_soon() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    put(owner, "six==1.16.0").await;
    assert_eq!(version(owner).await, "1.16.0");
    let file = world.data.path().join("mine.txt");
    std::fs::write(&file, "six==1.17.0").unwrap();
    let place = world.environments();
    let mut build = harness::belljar(&["env", "build", file.to_str().unwrap(), "--data", place]);
    let built = tokio::task::spawn_blocking(move || build.output().unwrap()).await.unwrap();
    assert!(built.status.success(), "{}", harness::stderr(&built));
    wait::until("the new one serves", async || version(owner).await == "1.17.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_removed_is_gone_but_for_what_runs_in_it() {
    let world = World::with_own_environments().await;
    let owner = &world.owner;
    put(owner, "six==1.16.0").await;
    let session = owner.post("/v1/sessions", json!({"environment": "mine"})).await;
    assert_eq!(owner.call("DELETE", MINE, None).await.0, 204);
    assert_eq!(owner.call("GET", MINE, None).await.0, 404);
    assert_eq!(owner.call("DELETE", MINE, None).await.0, 404);
    let body = json!({"code": "1", "environment": "mine"});
    assert_eq!(owner.call("POST", "/v1/execute", Some(body)).await.0, 400);
    let inside = format!("/v1/sessions/{}/execute", session["sandbox_id"].as_str().unwrap());
    let record = owner.post(&inside, json!({"code": VERSION})).await;
    assert_eq!(record["value"], "1.16.0");
}
