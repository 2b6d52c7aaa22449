//! Principals of the first workspace, their grants, and the refusals that they get.

use crate::test_server::{Api, World};
use serde_json::{Value, json};
use std::ops::Deref;

pub(crate) type Problem = (u16, &'static str);

pub(crate) const UNKNOWN: Problem = (401, "auth.missing");
pub(crate) const FORBIDDEN: Problem = (403, "grant.missing");
pub(crate) const NOT_THERE: Problem = (404, "object.not_found");
pub(crate) const OWNER_NEEDED: Problem = (409, "owner.needed");

pub(crate) const ME: &str = "/v1/principals/me";
pub(crate) const NOTHING: &str = "0198c0de-0000-7000-8000-000000000000";

/// A principal in the first workspace, with a key that was created for them.
pub(crate) struct Person {
    pub(crate) id: String,
    pub(crate) key: Value,
    pub(crate) api: Api,
}

impl Deref for Person {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

impl Person {
    /// Who was granted nothing.
    pub(crate) async fn new(world: &World, name: &str) -> Self {
        let new = json!({"name": name, "kind": "user"});
        let id = id(&world.owner.post("/v1/principals", new).await);
        let key = world.owner.post("/v1/keys", json!({"name": name, "principal": id})).await;
        let api = world.api(key["secret"].as_str().unwrap());
        Self { id, key, api }
    }

    pub(crate) fn path(&self) -> String {
        format!("/v1/principals/{}", self.id)
    }

    pub(crate) fn key_path(&self) -> String {
        format!("/v1/keys/{}", id(&self.key))
    }
}

pub(crate) fn id(record: &Value) -> String {
    record["id"].as_str().unwrap_or_else(|| panic!("{record} has no id")).to_owned()
}

pub(crate) async fn items(who: &Api, path: &str) -> Vec<Value> {
    who.get(path).await["items"].as_array().unwrap().clone()
}

pub(crate) async fn change(who: &Api, path: &str, change: Value) -> Value {
    let (status, answer) = who.call("PATCH", path, Some(change)).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

/// Gives the sentence of the refusal.
pub(crate) async fn refused(
    who: &Api,
    method: &str,
    path: &str,
    body: Option<Value>,
    expected: Problem,
) -> String {
    let (status, problem) = who.call(method, path, body).await;
    let code = problem["code"].as_str().unwrap_or_default();
    assert_eq!((status, code), expected, "{method} {path}: {problem}");
    problem["detail"].as_str().unwrap().to_owned()
}

/// Refused for one field, which is named.
pub(crate) async fn invalid(who: &Api, method: &str, path: &str, body: Value, field: &str) {
    let (status, problem) = who.call(method, path, Some(body)).await;
    let named = &problem["errors"][0]["path"];
    assert_eq!((status, named.as_str()), (400, Some(field)), "{method} {path}: {problem}");
}

pub(crate) async fn workspace(owner: &Api) -> Value {
    json!({"kind": "workspace", "id": owner.get(ME).await["workspace"]})
}

pub(crate) fn on(kind: &str, record: &Value) -> Value {
    json!({"kind": kind, "id": record["id"]})
}

pub(crate) async fn grant(owner: &Api, to: &str, privilege: &str, object: &Value) -> Value {
    let body = json!({"principal": to, "privilege": privilege, "object": object});
    owner.post("/v1/grants", body).await
}

pub(crate) async fn ungrant(owner: &Api, grant: &Value) {
    owner.delete(&format!("/v1/grants/{}", id(grant))).await;
}

pub(crate) async fn role(owner: &Api, name: &str) -> Value {
    owner.post("/v1/principals", json!({"name": name, "kind": "role"})).await
}
