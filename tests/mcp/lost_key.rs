//! A key that is revoked while an approval of its call is pending: nothing runs, also after a decision.

use crate::approvals::{can_ask, ran, world};
use crate::over_http::{initialized, older};
use crate::test_server::{Api, World};
use crate::wire::{answer, post};
use reqwest::Response;
use serde_json::{Value, json};

/// A person who may answer for everything here, with two keys.
struct Ann {
    first: Api,
    first_path: String,
    second: Api,
}

impl Ann {
    async fn new(world: &World) -> Self {
        let owner = &world.owner;
        let ann = owner.post("/v1/principals", json!({"name": "ann", "kind": "user"})).await;
        let here = owner.get("/v1/principals/me").await["workspace"].clone();
        let all = json!({"kind": "workspace", "id": here});
        let grant = json!({"principal": ann["id"], "privilege": "OWNERSHIP", "object": all});
        owner.post("/v1/grants", grant).await;
        let key =
            async || owner.post("/v1/keys", json!({"name": "k", "principal": ann["id"]})).await;
        let (first, second) = (key().await, key().await);
        let api = |key: &Value| world.api(key["secret"].as_str().unwrap());
        let first_path = format!("/v1/keys/{}", first["id"].as_str().unwrap());
        Self { first: api(&first), first_path, second: api(&second) }
    }
}

fn danger() -> Value {
    json!({"name": "danger", "arguments": {"what": "it"}})
}

/// What the server says on the stream of a call until something is in it.
async fn heard(stream: &mut Response, until: &str) -> String {
    let mut said = String::new();
    while !said.contains(until) {
        let Some(chunk) = stream.chunk().await.unwrap() else { break };
        said += &String::from_utf8_lossy(&chunk);
    }
    said
}

/// The number of the question that the server asks in the middle of a call.
async fn question(stream: &mut Response) -> Value {
    let said = heard(stream, "elicitation/create").await;
    let messages = said.lines().filter_map(|line| line.strip_prefix("data:"));
    let mut messages = messages.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    messages.find(|message| message["method"] == "elicitation/create").unwrap()["id"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_the_middle_of_a_call_is_refused_when_its_key_is_lost() {
    for is_revoked in [false, true] {
        let world = world().await;
        let ann = Ann::new(&world).await;
        let session = initialized(&ann.first, &can_ask()).await;
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": danger()});
        let mut stream = older(&ann.first, Some(&session), &call).await;
        let asked = question(&mut stream).await;
        let yes =
            json!({"jsonrpc": "2.0", "id": asked, "result": {"action": "accept", "content": {}}});
        if is_revoked {
            world.owner.delete(&ann.first_path).await;
            assert_eq!(older(&ann.first, Some(&session), &yes).await.status(), 401);
        }
        // The session is hers; the call is that of the first key.
        assert_eq!(older(&ann.second, Some(&session), &yes).await.status(), 202);
        let said = heard(&mut stream, "\"id\":2").await;
        assert_eq!(said.contains("deleted it"), !is_revoked, "{said}");
        assert_eq!(ran(&world).await, usize::from(!is_revoked));
        let used = world.owner.get("/v1/approvals?state=used").await;
        assert_eq!(used["items"] != json!([]), !is_revoked, "{used}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_brought_later_is_refused_when_its_key_is_lost() {
    for is_revoked in [false, true] {
        let world = world().await;
        let ann = Ann::new(&world).await;
        let asked = answer(post(&ann.first, "tools/call", danger(), &can_ask()).await).await;
        let mut yes = danger();
        yes["requestState"] = asked["result"]["requestState"].clone();
        yes["inputResponses"] = json!({"approval": {"action": "accept", "content": {}}});
        if is_revoked {
            world.owner.delete(&ann.first_path).await;
            let refused = post(&ann.first, "tools/call", yes.clone(), &can_ask()).await;
            assert_eq!((refused.status().as_u16(), ran(&world).await), (401, 0));
        }
        // Another key of hers answers what is asked, and a question ends with the key that asked it.
        let done = answer(post(&ann.second, "tools/call", yes, &can_ask()).await).await;
        let outcome = (&done["result"]["isError"], ran(&world).await);
        assert_eq!(outcome, (&json!(is_revoked), usize::from(!is_revoked)), "{done}");
        let void = world.owner.get("/v1/approvals?state=void").await;
        assert_eq!(void["items"] != json!([]), is_revoked, "{void}");
    }
}
