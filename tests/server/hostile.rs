//! Hostile requests: from pages of other sites, and malformed ones.

use crate::document::{Document, Fill, Operation, Request};
use crate::principals::NOTHING;
use crate::raw::{self, Answer, authority};
use crate::routes_deny::{MODEL, furnish, nothing, seen};
use crate::test_server::World;
use reqwest::Method;
use serde_json::{Value, json};

const JSON: &str = "application/json";

/// What a page can make a browser send, and what a client without manners can.
struct Disguise {
    method: Option<&'static str>,
    target: String,
    headers: Vec<String>,
    refused: u16,
}

fn disguises(ours: &str, path: &str) -> Vec<Disguise> {
    let port = ours.rsplit(':').next().unwrap();
    let plain = |headers: &[String], refused: u16| Disguise {
        method: None,
        target: path.to_owned(),
        headers: headers.to_vec(),
        refused,
    };
    let host = format!("Host: {ours}");
    let origin = |origin: &str| plain(&[host.clone(), format!("Origin: {origin}")], 403);
    let called = |name: String| plain(&[format!("Host: {name}")], 421);
    let upgrade = ["Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"];
    let upgrade = upgrade.iter().map(|line| (*line).to_owned());
    let foreign = [host.clone(), "Origin: http://evil.example".to_owned()];
    let preflight = ["Access-Control-Request-Method: POST".to_owned(), foreign[1].clone()];
    vec![
        origin("http://evil.example"),
        origin("null"),
        origin("http://127.0.0.1:1"),
        origin(&format!("http://localhost.evil.example:{port}")),
        origin(&format!("http://{ours}@evil.example")),
        origin(&format!("file://{ours}")),
        origin(""),
        plain(&[host.clone(), format!("Origin: http://{ours}"), foreign[1].clone()], 403),
        called("evil.example".to_owned()),
        called(format!("evil.example:{port}")),
        called(format!("127.0.0.1.nip.io:{port}")),
        called("localhost:1".to_owned()),
        called("localhost".to_owned()),
        called(String::new()),
        plain(&[], 421),
        plain(&[host.clone(), "Host: evil.example".to_owned()], 421),
        plain(&[host.clone(), host.clone()], 421),
        Disguise {
            target: format!("http://evil.example{path}"),
            ..plain(std::slice::from_ref(&host), 421)
        },
        Disguise { method: Some("OPTIONS"), ..plain(&[&[host][..], &preflight].concat(), 403) },
        Disguise {
            method: Some("GET"),
            ..plain(&foreign.iter().cloned().chain(upgrade).collect::<Vec<_>>(), 403)
        },
    ]
}

/// Everything that is served, with and without a key.
fn targets(document: &Document) -> Vec<(String, Request)> {
    let page = |path: &str| {
        let request = Request { path: path.to_owned(), body: None };
        ("GET".to_owned(), request)
    };
    let operation = |operation: &Operation| {
        let request = document.request(operation, &Fill::own(&nothing()));
        (operation.method.clone(), request)
    };
    let pages = ["/", "/docs", "/docs/docs.js", "/openapi.json", "/healthz", "/metrics", "/none"];
    let operations = document.operations();
    pages.iter().map(|path| page(path)).chain(operations.iter().map(operation)).collect()
}

fn never_shared(answer: &Answer) {
    assert!(!answer.head.contains("access-control-allow"), "{}", answer.head);
    assert_ne!(answer.status, 101, "{}", answer.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn t56_pages_of_other_sites_reach_nothing() {
    let world = World::start().await;
    let ours = authority(world.address()).to_owned();
    let key = format!("Authorization: Bearer {}", world.owner.key);
    let document = Document::of(&world).await;
    for (method, request) in targets(&document) {
        let (kind, body) = request.body.clone().unwrap_or_default();
        let body = String::from_utf8(body).unwrap();
        let with = |mut headers: Vec<String>| {
            headers.extend([key.clone(), format!("Content-Type: {kind}")]);
            headers
        };
        for disguise in disguises(&ours, &request.path) {
            let method = disguise.method.unwrap_or(&method);
            let headers = with(disguise.headers.clone());
            let sent = raw::request(method, &disguise.target, &headers, &body);
            let answer = raw::send(world.address(), &sent).await;
            let context = format!("{}: {answer:?}", String::from_utf8_lossy(&sent));
            assert_eq!(answer.status, disguise.refused, "{context}");
            assert_eq!(answer.code(), "request.refused", "{context}");
            assert!(answer.body.contains(&format!("\"status\":{}", answer.status)), "{context}");
            never_shared(&answer);
        }
        if method != "GET" || request.path.ends_with("/events") {
            continue;
        }
        // The twins: no page at all, and a page of our own, by every name that we have.
        let port = ours.rsplit(':').next().unwrap();
        for name in [&ours, &format!("localhost:{port}"), &format!("LOCALHOST:{port}")] {
            for origin in [None, Some(format!("Origin: http://{name}"))] {
                let mut headers = with(vec![format!("Host: {name}")]);
                headers.extend(origin);
                let sent = raw::request(&method, &request.path, &headers, "");
                let answer = raw::send(world.address(), &sent).await;
                assert!(![403, 421].contains(&answer.status), "{answer:?}");
                never_shared(&answer);
            }
        }
    }
    let left = world.owner.get("/v1/sessions").await;
    assert_eq!(left["items"], json!([]), "nothing of it has happened");
}

#[tokio::test(flavor = "multi_thread")]
async fn t56_what_a_form_of_a_page_can_send_is_not_json() {
    let world = World::start().await;
    let document = Document::of(&world).await;
    let mut tried = 0;
    for operation in document.operations() {
        let request = document.request(&operation, &Fill::own(&nothing()));
        let Some((JSON, body)) = request.body.as_ref().map(|(kind, body)| (&**kind, body)) else {
            continue;
        };
        for kind in ["text/plain", "application/x-www-form-urlencoded", "text/json", ""] {
            let method: Method = operation.method.parse().unwrap();
            let mut sent = world.owner.request(method, &request.path).body(body.clone());
            if !kind.is_empty() {
                sent = sent.header("content-type", kind);
            }
            let answer = sent.send().await.unwrap();
            let status = answer.status().as_u16();
            let problem: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
            let context = format!("{} {kind:?}: {status} {problem}", operation.id);
            assert_eq!((status, &problem["code"]), (400, &json!("args.invalid")), "{context}");
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried}");
}

/// Bodies that are wrong for every operation, and what they are refused with.
fn wrong_bodies() -> Vec<(&'static str, Vec<u8>, u16)> {
    let deep = format!("{{\"x\": {}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let large = format!("{{\"x\": \"{}\"}}", "a".repeat(10 * 1024 * 1024));
    vec![
        ("nothing", Vec::new(), 400),
        ("half of it", b"{\"name\"".to_vec(), 400),
        ("an array", b"[]".to_vec(), 400),
        ("an array of fields", b"[null, null]".to_vec(), 400),
        ("null", b"null".to_vec(), 400),
        ("a text", b"\"name\"".to_vec(), 400),
        ("a number", b"1".to_vec(), 400),
        ("two of them", b"{} {}".to_vec(), 400),
        ("a comment", b"{/**/}".to_vec(), 400),
        ("bytes that are no text", b"{\"name\": \"\xff\xfe\"}".to_vec(), 400),
        ("a NUL", b"{\"name\": \"a\0b\"}".to_vec(), 400),
        ("half of a pair", b"{\"name\": \"\\ud800\"}".to_vec(), 400),
        ("a number beyond numbers", b"{\"name\": 1e999}".to_vec(), 400),
        ("not a number", b"{\"name\": NaN}".to_vec(), 400),
        ("a key twice", b"{\"name\": \"a\", \"name\": \"b\"}".to_vec(), 400),
        ("a key twice, further in", b"{\"limits\": {\"a\": 1, \"a\": 1}}".to_vec(), 400),
        ("depth", deep.into_bytes(), 400),
        ("10 MiB", large.into_bytes(), 413),
        ("a field that is not there", b"{\"is_admin\": true}".to_vec(), 400),
        ("the way to prototypes", b"{\"__proto__\": {\"x\": 1}}".to_vec(), 400),
    ]
}

/// Values that no field of this kind can have.
fn wrong_values(kind: &str) -> Vec<&'static str> {
    match kind {
        "string" => vec!["1", "true", "[]", "{}"],
        "integer" => {
            vec!["\"1\"", "-1", "1.5", "1e999", "18446744073709551616", "true", "[]", "{}"]
        }
        "boolean" => vec!["\"true\"", "1", "[]", "{}"],
        "array" => vec!["{}", "1", "\"x\"", "[[[]]]"],
        "object" => vec!["1", "\"x\"", "true", "[]", "[null]"],
        _ => vec!["1e999"],
    }
}

async fn send(
    world: &World,
    operation: &Operation,
    path: &str,
    kind: &str,
    body: Vec<u8>,
) -> (u16, Value) {
    let method: Method = operation.method.parse().unwrap();
    let request = world.owner.request(method, path).header("content-type", kind).body(body);
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let refused = status >= 400;
    let typed = answer.headers()["content-type"] == "application/problem+json";
    assert_eq!(typed, refused, "{} {path}: {status}", operation.id);
    (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn t57_bodies_that_cannot_be_are_refused_and_change_nothing() {
    let world = World::with(&MODEL).await;
    let document = Document::of(&world).await;
    let things = furnish(&world, &world.owner).await;
    let before = seen(&document, &world.owner, &things).await;
    let mut tried = 0;
    for operation in document.operations() {
        let request = document.request(&operation, &Fill::own(&things));
        let Some((JSON, _)) = request.body.as_ref().map(|(kind, body)| (&**kind, body)) else {
            continue;
        };
        let path = request.path.split('?').next().unwrap();
        for (what, body, expected) in wrong_bodies() {
            let (status, problem) = send(&world, &operation, path, JSON, body).await;
            let context = format!("{} with {what}: {status} {problem}", operation.id);
            assert_eq!(status, expected, "{context}");
            if expected == 400 {
                assert!(problem["errors"][0]["path"].is_string(), "{context}");
            }
            tried += 1;
        }
    }
    assert!(tried > 300, "{tried}");
    let after = seen(&document, &world.owner, &things).await;
    assert_eq!(after, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn t57_every_field_is_refused_by_its_name_when_it_is_of_another_kind() {
    let world = World::with(&MODEL).await;
    let document = Document::of(&world).await;
    let things = furnish(&world, &world.owner).await;
    let before = seen(&document, &world.owner, &things).await;
    let mut tried = 0;
    for operation in document.operations() {
        let request = document.request(&operation, &Fill::own(&things));
        let path = request.path.split('?').next().unwrap();
        for (field, kind) in document.fields(&operation) {
            for value in wrong_values(&kind) {
                let body = format!("{{\"{field}\": {value}}}");
                let (status, problem) =
                    send(&world, &operation, path, JSON, body.clone().into()).await;
                let context = format!("{} {body}: {status} {problem}", operation.id);
                assert!([400, 422].contains(&status), "{context}");
                let paths = problem["errors"].as_array().unwrap_or_else(|| panic!("{context}"));
                let named = |error: &Value| {
                    error["path"].as_str().is_some_and(|path| {
                        path.starts_with(&format!("/{field}")) || value == "1e999"
                    })
                };
                assert!(paths.iter().any(named), "{context}");
                tried += 1;
            }
        }
    }
    assert!(tried > 150, "{tried}");
    let after = seen(&document, &world.owner, &things).await;
    assert_eq!(after, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn t57_ids_queries_and_headers_that_cannot_be_are_refused() {
    let world = World::start().await;
    let document = Document::of(&world).await;
    let long = "x".repeat(8_000);
    let ids = ["x", "0", "%00", "%2e%2e", "'%20OR%201=1%20--", "%ff", "-1", &long, "{}", "null"];
    for operation in document.operations() {
        let request = document.request(&operation, &Fill::own(&nothing()));
        let kind = request.body.as_ref().map_or(JSON, |(kind, _)| kind);
        for id in ids {
            let path = request.path.replace(NOTHING, id);
            if path == request.path {
                continue;
            }
            let body = request.body.clone().map(|(_, body)| body).unwrap_or_default();
            let (status, problem) = send(&world, &operation, &path, kind, body).await;
            assert!([400, 404, 405].contains(&status), "{} {path}: {problem}", operation.id);
        }
        if operation.method != "GET" || operation.streams {
            continue;
        }
        let path = request.path.split('?').next().unwrap();
        for (query, named) in [
            ("limit=0", "query/limit"),
            ("limit=201", "query/limit"),
            ("limit=-1", "query/limit"),
            ("limit=1e3", "query/limit"),
            ("limit=99999999999999999999", "query/limit"),
            ("limit=", "query/limit"),
            ("limit=1&limit=2", "query/limit"),
            ("cursor=x", "query/cursor"),
            ("cursor=%27%20OR%201=1", "query/cursor"),
            ("cursor=%00", "query/cursor"),
            ("status=evil", "query/status"),
            ("state=evil", "query/state"),
            ("sandbox_id=evil", "query/sandbox_id"),
            ("is_admin=1", "query/is_admin"),
        ] {
            let name = query.split('=').next().unwrap();
            let known = operation.has_query(name) || name == "is_admin";
            if !known || !operation.has_query("limit") {
                continue;
            }
            let target = format!("{path}?{query}");
            let (status, problem) = world.owner.call("GET", &target, None).await;
            assert_eq!(status, 400, "{target}: {problem}");
            assert_eq!(problem["errors"][0]["path"], named, "{target}: {problem}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t57_headers_that_cannot_be_are_refused() {
    let world = World::start().await;
    let record = world.owner.execute("1").await;
    let path = format!("/v1/executions/{}/events", record["id"].as_str().unwrap());
    for value in ["-1", "x", "1.5", "1e3", "18446744073709551616", ""] {
        let request = world.owner.request(Method::GET, &path).header("last-event-id", value);
        assert_eq!(request.send().await.unwrap().status(), 400, "{value:?}");
    }
    let far = world.owner.request(Method::GET, &path).header("last-event-id", u64::MAX.to_string());
    let far = far.send().await.unwrap();
    assert_eq!((far.status().as_u16(), far.text().await.unwrap().as_str()), (200, ""));
    let long = "x".repeat(256);
    for key in ["", " ", "a b", "a\tb", "é", long.as_str()] {
        let request = world.owner.request(Method::POST, "/v1/sessions").body("{}");
        let request = request.header("content-type", JSON).header("idempotency-key", key);
        assert_eq!(request.send().await.unwrap().status(), 400, "{key:?}");
    }
    let two = world.owner.request(Method::POST, "/v1/sessions").body("{}");
    let two = two.header("content-type", JSON).header("idempotency-key", "a");
    assert_eq!(two.header("idempotency-key", "b").send().await.unwrap().status(), 400);
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let request = world.owner.request(method.parse().unwrap(), "/v1/sessions/x");
        let answer = request.header("idempotency-key", "a").send().await.unwrap();
        assert!([400, 405].contains(&answer.status().as_u16()), "{method}");
    }
    assert_eq!(world.owner.get("/v1/sessions").await["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn t57_quotes_are_only_letters() {
    let world = World::start().await;
    let evil = "x'); DROP TABLE keys; --\"`${}";
    let made = world.owner.post("/v1/principals", json!({"name": evil, "kind": "user"})).await;
    assert_eq!(made["name"], evil);
    let (_, found) = world.owner.call("GET", "/v1/tools?search=%27%29%3B%20%25_", None).await;
    assert_eq!(found["items"], json!([]));
    let session = json!({"name": evil, "key": evil});
    let opened = world.owner.post("/v1/sessions", session.clone()).await;
    let again = world.owner.post("/v1/sessions", session).await;
    assert_eq!(opened["sandbox_id"], again["sandbox_id"]);
    assert_eq!(world.owner.execute("1").await["value"], 1, "the keys are still there");
}
