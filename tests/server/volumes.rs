//! Volumes: visible to code of an agent whose specification names them, with the privileges of its owner, and to
//! no other.

use crate::harness::wait;
use crate::principals::{Person, id};
use crate::test_server::{Api, World};
use reqwest::{Method, RequestBuilder};
use rusqlite::Connection;
use serde_json::{Value, json};

fn specification(volumes: &str) -> String {
    format!(
        "tools:\n  - tool_spec: {{type: code_execution, name: code_execution}}\n\
         tool_resources:\n  code_execution:\n    environment: bare\n    volumes: {volumes}\n"
    )
}

async fn agent(owner: &Api, name: &str, volumes: &str) -> String {
    let agent = json!({"name": name, "specification": specification(volumes)});
    id(&owner.post("/v1/agents", agent).await)
}

async fn session(who: &Api, agent: &str) -> String {
    let session = who.post("/v1/sessions", json!({"agent_id": agent})).await;
    assert_eq!(session["agent"], agent);
    session["sandbox_id"].as_str().unwrap().to_owned()
}

async fn says(who: &Api, session: &str, code: &str) -> Value {
    let path = format!("/v1/sessions/{session}/execute");
    let record = who.post(&path, json!({"code": code})).await;
    assert_eq!(record["status"], "succeeded", "{record}");
    record["value"].clone()
}

async fn volume(owner: &Api, name: &str) -> String {
    id(&owner.post("/v1/volumes", json!({"name": name, "quota_bytes": 1_000_000})).await)
}

// proves S-029
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_survives_sessions_and_is_seen_as_the_specification_says() {
    let world = World::start().await;
    let volume = volume(&world.owner, "notes").await;
    let writer = agent(&world.owner, "w", "[{name: notes, access: write, path: /mnt/a/b}]").await;
    let reader = agent(&world.owner, "r", "[{name: notes, access: read}]").await;
    let without = agent(&world.owner, "n", "[]").await;

    let first = session(&world.owner, &writer).await;
    says(&world.owner, &first, "open('/mnt/a/b/x.txt', 'w').write('kept')").await;
    world.owner.call("DELETE", &format!("/v1/sessions/{first}"), None).await;

    let second = session(&world.owner, &reader).await;
    let read = "open('/mnt/notes/x.txt').read()";
    assert_eq!(says(&world.owner, &second, read).await, "kept");
    let write = json!({"code": "open('/mnt/notes/x.txt', 'w')"});
    let path = format!("/v1/sessions/{second}/execute");
    let record = world.owner.post(&path, write).await;
    assert_eq!(record["error"]["code"], "python.OSError", "{record}");

    let third = session(&world.owner, &without).await;
    assert_eq!(
        says(&world.owner, &third, "import os; os.listdir('/mnt')").await,
        json!(["conversation"])
    );
    let plain = world.owner.session().await;
    assert_eq!(world.owner.run(&plain, "import os; os.listdir('/mnt')").await["value"], json!([]));

    let shown = world.owner.get(&format!("/v1/volumes/{volume}")).await;
    assert_eq!((&shown["used_bytes"], &shown["files"][0]["name"]), (&json!(4), &json!("x.txt")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_are_those_of_the_owner_of_the_agent() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let me = world.owner.get("/v1/principals/me").await;
    let grant = |privilege: &str, object: Value| json!({"principal": ann.id, "privilege": privilege, "object": object});
    let here = json!({"kind": "workspace", "id": me["workspace"]});
    // MODIFY makes tools and agents, and nothing of what others own.
    world.owner.post("/v1/grants", grant("USAGE", here)).await;
    let owners = volume(&world.owner, "notes").await;
    let agent = agent(&world.owner, "a", "[{name: notes, access: write}]").await;
    let it = json!({"kind": "agent", "id": agent});
    let opened = json!({"agent_id": agent});
    let error = ann.refused("POST", "/v1/sessions", Some(opened.clone())).await;
    assert_eq!(error, (403, "grant.missing".into()), "the agent is not hers to use");
    world.owner.post("/v1/grants", grant("USAGE", it.clone())).await;
    // She has no right on the volume, and the agent lends her its owner's.
    let hers = session(&ann, &agent).await;
    says(&ann, &hers, "open('/mnt/notes/x', 'w').write('1')").await;
    let unseen = ann.refused("GET", &format!("/v1/volumes/{owners}"), None).await;
    assert_eq!(unseen, (404, "object.not_found".into()));

    // An agent that is hers has her rights, and she answers for what its specification asks for.
    world.owner.post("/v1/grants", grant("OWNERSHIP", it)).await;
    let volumes = specification("[{name: notes, access: write}]");
    let hers = json!({"specification": volumes, "run_as": "owner"});
    assert_eq!(ann.call("PUT", &format!("/v1/agents/{agent}"), Some(hers)).await.0, 200);
    let error = ann.refused("POST", "/v1/sessions", Some(opened.clone())).await;
    assert_eq!(error, (403, "grant.missing".into()));
    let on_volume = json!({"kind": "volume", "id": owners});
    world.owner.post("/v1/grants", grant("USAGE", on_volume.clone())).await;
    let error = ann.refused("POST", "/v1/sessions", Some(opened)).await;
    assert_eq!(error, (403, "grant.missing".into()), "reading is not writing");
    world.owner.post("/v1/grants", grant("MODIFY", on_volume)).await;
    session(&ann, &agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_its_volume_is_not_made_and_without_code_execution_opens_no_session() {
    let world = World::start().await;
    let early = specification("[{name: nothing, access: read}]");
    let early = json!({"name": "a", "specification": early});
    let error = world.owner.refused("POST", "/v1/agents", Some(early)).await;
    assert_eq!(error, (400, "args.invalid".into()), "somebody else could make the volume");
    let silent = json!({"name": "silent", "specification": "instructions: be kind\n"});
    let silent = id(&world.owner.post("/v1/agents", silent).await);
    let error =
        world.owner.refused("POST", "/v1/sessions", Some(json!({"agent_id": silent}))).await;
    assert_eq!(error.1, "tool.unavailable");
    for volumes in ["{}", "[{name: a}]", "[{name: a, access: read, path: /etc}]"] {
        let bad = json!({"name": "bad", "specification": specification(volumes)});
        assert_eq!(world.owner.refused("POST", "/v1/agents", Some(bad)).await.0, 400, "{volumes}");
    }
}

async fn put(who: &Api, path: &str, bytes: Vec<u8>) -> u16 {
    who.request(Method::PUT, path).body(bytes).send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_put_and_got_within_the_quota() {
    let world = World::start().await;
    let volume = volume(&world.owner, "data").await;
    let at = |name: &str| format!("/v1/volumes/{volume}/files/{name}");
    assert_eq!(put(&world.owner, &at("in/a.csv"), b"a,b\n".to_vec()).await, 201);
    let answer = world.owner.request(Method::GET, &at("in/a.csv")).send().await.unwrap();
    assert_eq!(answer.bytes().await.unwrap().as_ref(), b"a,b\n");
    assert_eq!(put(&world.owner, &at("big"), vec![0; 1_000_001]).await, 413);
    assert_eq!(put(&world.owner, &at("in"), vec![0; 1]).await, 400, "it is a directory");
    let (status, _) = world.owner.call("DELETE", &at("in/a.csv"), None).await;
    assert_eq!(status, 204);
    let gone = world.owner.refused("GET", &at("in/a.csv"), None).await;
    assert_eq!(gone, (404, "file.not_found".into()));
    let agent = world.principal("robot", &["USAGE"]).await;
    assert_eq!(put(&agent, &at("x"), vec![1]).await, 404, "it is not there for others");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_deleted_leaves_nothing_and_its_name_is_free() {
    let world = World::start().await;
    let first = volume(&world.owner, "notes").await;
    put(&world.owner, &format!("/v1/volumes/{first}/files/a"), vec![1]).await;
    let again = json!({"name": "notes"});
    let taken = world.owner.refused("POST", "/v1/volumes", Some(again)).await;
    assert_eq!(taken, (409, "name.taken".into()));
    let (status, _) = world.owner.call("DELETE", &format!("/v1/volumes/{first}"), None).await;
    assert_eq!(status, 204);
    let left = std::fs::read_dir(world.data.path().join("volumes/all")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".database", ".shared", ".staging"]);
    volume(&world.owner, "notes").await;
    let much = json!({"name": "much", "quota_bytes": 1_u64 << 50});
    assert_eq!(world.owner.refused("POST", "/v1/volumes", Some(much)).await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_grant_ends_the_use_of_a_volume_in_an_open_session() {
    let world = World::start().await;
    let ann = Person::new(&world, "ann").await;
    let volume = volume(&world.owner, "notes").await;
    let me = world.owner.get("/v1/principals/me").await;
    let here = json!({"kind": "workspace", "id": me["workspace"]});
    let it = json!({"kind": "volume", "id": volume});
    let text = specification("[{name: notes, access: write}]");
    let agent = json!({"name": "a", "specification": text, "run_as": "caller"});
    let agent = id(&world.owner.post("/v1/agents", agent).await);
    let its = json!({"kind": "agent", "id": agent});
    let mut grants = Vec::new();
    for (privilege, object) in [("USAGE", &here), ("USAGE", &its), ("MODIFY", &it), ("USAGE", &it)]
    {
        let grant = json!({"principal": ann.id, "privilege": privilege, "object": object});
        grants.push(id(&world.owner.post("/v1/grants", grant).await));
    }
    let opened = session(&ann, &agent).await;
    says(&ann, &opened, "open('/mnt/notes/x', 'w').write('1')").await;
    world.owner.call("DELETE", &format!("/v1/grants/{}", grants[2]), None).await;
    let path = format!("/v1/sessions/{opened}/execute");
    let code = Some(json!({"code": "open('/mnt/notes/x').read()"}));
    let error = ann.refused("POST", &path, code.clone()).await;
    assert_eq!(error, (403, "grant.missing".into()));
    let files = format!("/v1/sessions/{opened}/files");
    assert_eq!(ann.refused("GET", &files, None).await, (403, "grant.missing".into()));
    let reset = ann.refused("POST", &format!("/v1/sessions/{opened}/reset"), None).await;
    assert_eq!(reset, (403, "grant.missing".into()));
    // The agent asks for less, and the session has less once it is reset.
    let less = json!({"specification": specification("[{name: notes, access: read}]")});
    let (status, answer) =
        world.owner.call("PUT", &format!("/v1/agents/{agent}"), Some(less)).await;
    assert_eq!(status, 200, "{answer}");
    let error = ann.refused("POST", &path, code).await;
    assert_eq!(error.1, "session.lost");
    ann.call("POST", &format!("/v1/sessions/{opened}/reset"), None).await;
    assert_eq!(says(&ann, &opened, "open('/mnt/notes/x').read()").await, "1");
    // Without the agent, no tool of hers runs in its session either.
    world.owner.call("DELETE", &format!("/v1/grants/{}", grants[1]), None).await;
    let tool = json!({
        "name": "peeks", "description": "Looks.", "tool_type": "code_runner", "environment": "bare",
        "configuration": {"type": "CodeRunner", "runtime": "python", "code": "def run(input):\n    return open('/mnt/notes/x').read()\n"},
    });
    let tool = id(&world.owner.post("/v1/tools", tool).await);
    let grant =
        json!({"principal": ann.id, "privilege": "USAGE", "object": {"kind": "tool", "id": tool}});
    world.owner.post("/v1/grants", grant).await;
    let call = Some(json!({"arguments": {}, "sandbox_id": opened}));
    let error = ann.refused("POST", &format!("/v1/tools/{tool}/call"), call).await;
    assert_eq!(error, (403, "grant.missing".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_volume_has_its_audit_entry_although_the_client_disconnects() {
    let world = World::start().await;
    let volume = volume(&world.owner, "notes").await;
    let path = format!("/v1/volumes/{volume}/files/a");
    let lines = async |action: &str| -> Vec<Value> {
        let audit = world.owner.get(&format!("/v1/audit?action={action}")).await;
        audit["items"].as_array().unwrap().iter().map(|line| line["detail"].clone()).collect()
    };
    let records = Connection::open(world.database()).unwrap();
    // Leaves when the change has been made and its line cannot be written yet.
    let leave = async |request: RequestBuilder, status_after: u16, action: &str| {
        records.execute_batch("BEGIN IMMEDIATE").unwrap();
        let sent = tokio::spawn(request.send());
        let is_made = async || world.owner.call("GET", &path, None).await.0 == status_after;
        wait::until("the change is made", is_made).await;
        assert_eq!(lines(action).await, Vec::<Value>::new());
        assert!(!sent.is_finished(), "it was answered before its line was written");
        sent.abort();
        records.execute_batch("ROLLBACK").unwrap();
        wait::until("the change has its line", async || lines(action).await == ["a"]).await;
        assert_eq!(world.owner.call("GET", &path, None).await.0, status_after);
    };
    let write = world.owner.request(Method::PUT, &path).body(vec![1; 500_000]);
    leave(write, 200, "volume.write").await;
    leave(world.owner.request(Method::DELETE, &path), 404, "volume.remove").await;
    // The twin: one line for each change of a client that waits, too.
    put(&world.owner, &path, vec![2]).await;
    assert_eq!(lines("volume.write").await, ["a", "a"]);
}
