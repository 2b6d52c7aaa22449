//! Sessions over REST: what they keep, for whom, and how they end.

use crate::harness::{self, wait};
use crate::test_server::{Api, OrdinaryUser, World, printed};
use reqwest::Method;
use serde_json::json;
use std::time::Duration;

// proves S-017, S-018, S-019, S-020, S-021, S-024
#[tokio::test(flavor = "multi_thread")]
async fn a_session_remembers_imports_variables_functions_and_files() {
    let world = World::start().await;
    let session = world.owner.session().await;
    world
        .owner
        .run(
            &session,
            "import math\nx = 2\ndef double(y): return 2 * y\nopen('f', 'w').write('kept')",
        )
        .await;
    let failed = world.owner.run(&session, "1 / 0").await;
    assert_eq!(failed["status"], "failed");
    let code = "print(math.floor(double(x)), open('f').read())";
    assert_eq!(printed(&world.owner.run(&session, code).await), "4 kept\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wants_nothing_in_particular_sends_nothing() {
    let world = World::start().await;
    let (status, session) = world.owner.call("POST", "/v1/sessions", None).await;
    assert_eq!((status, &session["status"]), (201, &json!("ready")), "{session}");
    let (status, problem) = world.owner.call("POST", "/v1/execute", None).await;
    assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!("/code")), "{problem}");
}

// proves S-022, S-023, U-053, C-131
#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_share_nothing_and_a_fresh_run_neither() {
    let world = World::start().await;
    let (one, other) = (world.owner.session().await, world.owner.session().await);
    world.owner.run(&one, "x = 1\nopen('f', 'w').write('a')").await;
    let code = "import os\nprint(os.listdir(), 'x' in globals())";
    assert_eq!(printed(&world.owner.run(&other, code).await), "[] False\n");
    assert_eq!(printed(&world.owner.execute(code).await), "[] False\n");
    assert_eq!(printed(&world.owner.run(&one, code).await), "['f'] True\n");
}

// proves S-025, U-010
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_session_is_gone_and_says_so() {
    let world = World::start().await;
    let session = world.owner.session().await;
    world.owner.delete(&format!("/v1/sessions/{session}")).await;
    let path = format!("/v1/sessions/{session}/execute");
    let error = world.owner.refused("POST", &path, Some(json!({"code": "1"}))).await;
    assert_eq!(error, (404, "session.not_found".into()));
    let record = world.owner.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!(record["status"], "closed");
    let bob = world.principal("bob", &["USAGE"]).await;
    for (who, other) in [(&world.owner, world.owner.session().await), (&bob, bob.session().await)] {
        assert_ne!(other, session, "a session has an id of its own");
        let asked = json!({"sandbox_id": session});
        assert_eq!(who.refused("POST", "/v1/sessions", Some(asked)).await.0, 400);
        assert_eq!(who.refused("POST", &path, Some(json!({"code": "1"}))).await.0, 404);
    }
    let never = "/v1/sessions/00000000-0000-0000-0000-000000000000/execute";
    let error = world.owner.refused("POST", never, Some(json!({"code": "1"}))).await;
    assert_eq!(error, (404, "session.not_found".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_has_one_session_under_its_key() {
    let world = World::start().await;
    let first = world.owner.post("/v1/sessions", json!({"key": "chat-1"})).await;
    let (status, second) =
        world.owner.call("POST", "/v1/sessions", Some(json!({"key": "chat-1"}))).await;
    assert_eq!((status, &second["sandbox_id"]), (200, &first["sandbox_id"]));
    let other = world.owner.post("/v1/sessions", json!({"key": "chat-2"})).await;
    assert_ne!(other["sandbox_id"], first["sandbox_id"]);
    let found = world.owner.get("/v1/sessions?key=chat-1").await;
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}

// proves U-055
#[tokio::test(flavor = "multi_thread")]
async fn a_session_does_one_thing_at_a_time() {
    let world = World::start().await;
    let session = world.owner.session().await;
    let slow = world.owner.clone();
    let id = session.clone();
    let running = tokio::spawn(async move { slow.run(&id, "import time\ntime.sleep(30)").await });
    let path = format!("/v1/sessions/{session}");
    wait::until("it runs", async || world.owner.get(&path).await["status"] == "busy").await;
    let second = Some(json!({"code": "1"}));
    let error = world.owner.refused("POST", &format!("{path}/execute"), second).await;
    assert_eq!(error, (409, "session.busy".into()));
    let interrupted = world.owner.post(&format!("{path}/interrupt"), json!({})).await;
    assert_eq!(interrupted["interrupted"], true);
    assert_eq!(running.await.unwrap()["status"], "cancelled");
    assert_eq!(printed(&world.owner.run(&session, "print(1)").await), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_session_are_written_listed_read_and_deleted() {
    let world = World::start().await;
    let session = world.owner.session().await;
    let path = format!("/v1/sessions/{session}/files");
    let put = world.owner.request(reqwest::Method::PUT, &format!("{path}/data/in.csv"));
    let answer = put.body("a,b\n1,2\n").send().await.unwrap();
    assert_eq!(answer.status(), 201);
    let run = world.owner.run(&session, "print(open('data/in.csv').read())").await;
    assert_eq!(printed(&run), "a,b\n1,2\n\n");
    assert_eq!(world.owner.get(&path).await["files"], json!([{"name": "data/in.csv", "size": 8}]));
    let get = world.owner.request(reqwest::Method::GET, &format!("{path}/data/in.csv"));
    let answer = get.send().await.unwrap();
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    assert!(answer.headers()["content-disposition"].to_str().unwrap().starts_with("attachment"));
    assert_eq!(answer.text().await.unwrap(), "a,b\n1,2\n");
    world.owner.delete(&format!("{path}/data/in.csv")).await;
    let error = world.owner.refused("GET", &format!("{path}/data/in.csv"), None).await;
    assert_eq!(error, (404, "file.not_found".into()));
    for trick in ["..%2f..%2fetc%2fpasswd", "%2e%2e/x", "a%00b", "a//b"] {
        let error = world.owner.refused("GET", &format!("{path}/{trick}"), None).await;
        assert!(error.0 == 400 || error.0 == 404, "{trick}: {error:?}");
    }
}

// proves S-028, U-049, U-050
#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_took_is_said_and_a_reset_goes_on() {
    let mut world = World::start().await;
    let session = world.owner.session().await;
    world.owner.run(&session, "x = 1").await;
    let again = world.owner.run(&session, "x + 1").await;
    assert_eq!((&again["value"], &again["sandbox_id"]), (&json!(2), &json!(session)));
    world.kill();
    world.again().await;
    let path = format!("/v1/sessions/{session}");
    assert_eq!(world.owner.get(&path).await["status"], "lost");
    let execute = format!("{path}/execute");
    let error = world.owner.refused("POST", &execute, Some(json!({"code": "x"}))).await;
    assert_eq!(error, (410, "session.lost".into()));
    let reset = world.owner.post(&format!("{path}/reset"), json!({})).await;
    assert_eq!((&reset["status"], &reset["generation"]), (&json!("ready"), &json!(2)));
    let run = world.owner.run(&session, "'x' in globals()").await;
    assert_eq!((&run["value"], &run["generation"]), (&json!(false), &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_change_a_session_at_once_both_have_their_way() {
    let world = World::start().await;
    let path = format!("/v1/sessions/{}", world.owner.session().await);
    for round in 0..20 {
        let (name, key) = (format!("name-{round}"), format!("key-{round}"));
        let one = world.owner.call("PATCH", &path, Some(json!({"name": name})));
        let other = world.owner.call("PATCH", &path, Some(json!({"key": key})));
        let (one, other) = tokio::join!(one, other);
        assert_eq!((one.0, other.0), (200, 200));
        let session = world.owner.get(&path).await;
        assert_eq!((&session["name"], &session["key"]), (&json!(name), &json!(key)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_go_on_with_a_lost_conversation_at_once_are_in_the_same_session() {
    let mut world = World::start().await;
    let chat = || Some(json!({"key": "chat"}));
    let first = world.owner.post("/v1/sessions", json!({"key": "chat"})).await;
    world.kill();
    world.again().await;
    let one = world.owner.call("POST", "/v1/sessions", chat());
    let other = world.owner.call("POST", "/v1/sessions", chat());
    let (one, other) = tokio::join!(one, other);
    for (status, session) in [one, other] {
        assert_eq!((status, &session["sandbox_id"]), (200, &first["sandbox_id"]), "{session}");
        assert_eq!((&session["status"], &session["generation"]), (&json!("ready"), &json!(2)));
    }
    world.owner.run(first["sandbox_id"].as_str().unwrap(), "x = 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_closed_although_the_client_disconnects() {
    let world = World::start().await;
    for round in 0..10 {
        let session = world.owner.post("/v1/sessions", json!({"key": "chat"})).await;
        assert_eq!(session["status"], "ready", "{session}");
        let path = format!("/v1/sessions/{}", session["sandbox_id"].as_str().unwrap());
        let close = world.owner.request(Method::DELETE, &path).send();
        let _ = tokio::time::timeout(Duration::from_millis(1 + round / 2), close).await;
        let status = async || world.owner.get(&path).await["status"].clone();
        let status = wait::at_rest(Duration::from_millis(300), "the session", status).await;
        // It may have gone before it was heard; then nothing has happened.
        assert!(status == "closed" || status == "ready", "{status}");
    }
}

/// Takes 200 MiB as soon as there is a file `go`, and says so a while later.
const HUNGRY: &str = "import os, time\n\
                      while not os.path.exists('go'): time.sleep(0.02)\n\
                      kept = bytearray(b'x') * (200 << 20)\n\
                      time.sleep(1); open('held', 'w').close(); time.sleep(600)";

/// A session with these two memory limits, of its birth and of its only run, in MiB, that has left a
/// process with this mark on its command line, which was told to take its memory.
async fn with_hungry_child(api: &Api, birth: u64, run: u64, mark: &str) -> String {
    let limits = |mib: u64| json!({"memory_bytes": mib << 20});
    let session = api.post("/v1/sessions", json!({"limits": limits(birth)})).await;
    let session = session["sandbox_id"].as_str().unwrap().to_owned();
    let at = format!("/v1/sessions/{session}");
    let code = format!(
        "import subprocess, sys\nx = 7\n\
         child = subprocess.Popen([sys.executable, '-c', {HUNGRY:?}, {mark:?}])"
    );
    let request = json!({"code": code, "limits": limits(run)});
    assert_eq!(api.post(&format!("{at}/execute"), request).await["status"], "succeeded");
    let put = api.request(Method::PUT, &format!("{at}/files/go"));
    assert_eq!(put.body("go").send().await.unwrap().status(), 201);
    session
}

fn runs(mark: &str) -> bool {
    harness::descendants_of(std::process::id()).iter().any(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn t143_between_runs_a_session_without_a_cgroup_has_the_limits_of_its_last_run() {
    let user = OrdinaryUser::new();
    let world = user.world(&[]).await;
    let api = &world.owner;
    let over = with_hungry_child(api, 512, 128, "t143-over").await;
    wait::until("the process was ended", async || !runs("t143-over")).await;
    let record = api.run(&over, "print(x)").await;
    assert_eq!(record["error"]["code"], "sandbox.crashed", "{record}");
    let record = api.run(&over, "import os\nprint('x' in globals(), os.listdir())").await;
    assert_eq!((printed(&record).as_str(), &record["generation"]), ("False []\n", &json!(2)));
    // The twin: spawned with less than its child takes, and with more in its last run.
    let within = with_hungry_child(api, 128, 512, "t143-within").await;
    let at = format!("/v1/sessions/{within}");
    wait::until("the child holds its memory", async || {
        let files = api.get(&format!("{at}/files")).await;
        files["files"].as_array().unwrap().iter().any(|file| file["name"] == "held")
    })
    .await;
    assert!(runs("t143-within"));
    assert_eq!(printed(&api.run(&within, "print(x)").await), "7\n");
}
