//! Documents: upload, use in sandboxes, and retention.

use crate::harness::wait;
use crate::test_server::{Api, World, printed};
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

async fn upload(api: &Api, files: &[(&str, &[u8])]) -> (u16, Value) {
    let mut form = Form::new();
    for (name, content) in files {
        form = form.part("file", Part::bytes(content.to_vec()).file_name((*name).to_owned()));
    }
    let sent = api.request(Method::POST, "/v1/documents").multipart(form).send().await.unwrap();
    let status = sent.status().as_u16();
    (status, serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap_or(Value::Null))
}

// proves U-012, U-013, U-016
#[tokio::test(flavor = "multi_thread")]
async fn documents_are_kept_and_only_those_that_were_named_are_in_the_sandbox() {
    let world = World::start().await;
    let files: [(&str, &[u8]); 2] = [("sales.csv", b"a,b\n1,2\n"), ("other.json", b"{}")];
    let (status, kept) = upload(&world.owner, &files).await;
    assert_eq!(status, 201, "{kept}");
    let sales = &kept["items"][0];
    assert_eq!((&sales["name"], &sales["size"]), (&json!("sales.csv"), &json!(8)));
    let code = "import os\nprint(sorted(os.listdir('/home/uploaded_files')), open('/home/uploaded_files/sales.csv').read())";
    let request = json!({"code": code, "files": [{"document_id": sales["id"]}]});
    let record = world.owner.post("/v1/execute", request).await;
    assert_eq!(printed(&record), "['sales.csv'] a,b\n1,2\n\n", "{record}");
    assert_eq!(record["files_out"], json!([]), "an input is not an output");
    let path = format!("/v1/documents/{}", sales["id"].as_str().unwrap());
    let bytes = world.owner.request(Method::GET, &format!("{path}/content")).send().await.unwrap();
    assert_eq!(bytes.bytes().await.unwrap(), &b"a,b\n1,2\n"[..]);
    world.owner.delete(&path).await;
    assert_eq!(world.owner.refused("GET", &path, None).await.0, 404);
    let gone = Some(json!({"code": "1", "files": [{"document_id": sales["id"]}]}));
    let error = world.owner.refused("POST", "/v1/execute", gone).await;
    assert_eq!(error, (404, "object.not_found".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_come_in_as_text_base64_and_documents_and_equal_names_stay_apart() {
    let world = World::start().await;
    let files = json!([
        {"name": "a.txt", "text": "one"},
        {"name": "a.txt", "base64": "dHdv"},
        {"name": "d/b.txt", "text": "three"},
    ]);
    let code = "print(open('a.txt').read(), open('a-1.txt').read(), open('d/b.txt').read())";
    let record = world.owner.post("/v1/execute", json!({"code": code, "files": files})).await;
    assert_eq!(printed(&record), "one two three\n");
    assert_eq!(record["files_in"], json!(["a.txt", "a-1.txt", "d/b.txt"]));
    for (file, path) in [
        (json!({"name": "x"}), "/files/0"),
        (json!({"text": "x"}), "/files/0/name"),
        (json!({"name": "x", "text": "x", "base64": "eA=="}), "/files/0"),
        (json!({"name": "x", "base64": "!"}), "/files/0/base64"),
    ] {
        let request = json!({"code": "1", "files": [file]});
        let (status, problem) = world.owner.call("POST", "/v1/execute", Some(request)).await;
        assert_eq!((status, &problem["errors"][0]["path"]), (400, &json!(path)));
    }
}

/// A web server that returns the same file for every request.
fn file_server() -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).unwrap();
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-type: text/csv\r\n\r\nx,y\n1";
        stream.write_all(answer.as_bytes()).unwrap();
    });
    (port, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_is_fetched_by_the_server_where_it_is_allowed_and_nowhere_else() {
    let (port, served) = file_server();
    let world = World::with(&["--fetch-from", &format!("127.0.0.1:{port}")]).await;
    let url = format!("http://127.0.0.1:{port}/data/table.csv");
    let kept = world.owner.post("/v1/documents", json!({"urls": [url]})).await;
    let file = &kept["items"][0];
    assert_eq!(
        (&file["name"], &file["source"], &file["size"]),
        (&json!("table.csv"), &json!("url"), &json!(5))
    );
    served.join().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let port = other.local_addr().unwrap().port();
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        "file:///etc/passwd".into(),
    ] {
        let error =
            world.owner.refused("POST", "/v1/documents", Some(json!({"urls": [url]}))).await;
        assert_eq!(error, (422, "file.fetch_failed".into()), "{url}");
        let in_run = Some(json!({"code": "1", "files": [{"url": url}]}));
        let error = world.owner.refused("POST", "/v1/execute", in_run).await;
        assert_eq!(error, (422, "file.fetch_failed".into()), "{url}");
    }
    assert!(other.accept().is_err(), "nobody came");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused_and_leaves_nothing() {
    let world = World::with(&["--document-mib", "1", "--workspace-mib", "2"]).await;
    let (status, problem) = upload(&world.owner, &[("big", &vec![0; (1 << 20) + 1])]).await;
    assert_eq!((status, &problem["code"]), (413, &json!("request.too_large")));
    for _ in 0..2 {
        assert_eq!(upload(&world.owner, &[("fits", &vec![0; 1 << 20])]).await.0, 201);
    }
    let (status, problem) = upload(&world.owner, &[("more", b"x")]).await;
    assert_eq!((status, &problem["code"]), (413, &json!("quota.exceeded")));
    let record = world.owner.execute("open('out.bin', 'wb').write(b'x' * 1000)").await;
    assert_eq!(record["status"], "succeeded");
    assert_eq!(record["warnings"][0]["code"], "quota.exceeded");
    assert_eq!(record["files_out"][0]["url"], Value::Null);
    let listed = world.owner.get("/v1/documents").await;
    for document in listed["items"].as_array().unwrap() {
        world.owner.delete(&format!("/v1/documents/{}", document["id"].as_str().unwrap())).await;
    }
    assert_eq!(upload(&world.owner, &[("again", b"x")]).await.0, 201);
    let staging = std::fs::read_dir(world.data.path().join("db/staging")).unwrap();
    assert_eq!(staging.count(), 0, "nothing temporary is left");
}

// proves U-006, U-011
#[tokio::test(flavor = "multi_thread")]
async fn documents_and_sessions_of_another_principal_cannot_be_used() {
    let world = World::start().await;
    let (_, kept) = upload(&world.owner, &[("mine.txt", b"secret")]).await;
    let other = world.principal("other", &["USAGE"]).await;
    let request = Some(json!({"code": "1", "files": [{"document_id": kept["items"][0]["id"]}]}));
    assert_eq!(
        other.refused("POST", "/v1/execute", request).await,
        (404, "object.not_found".into())
    );
    let session = world.owner.session().await;
    let path = format!("/v1/sessions/{session}/execute");
    let error = other.refused("POST", &path, Some(json!({"code": "1"}))).await;
    assert_eq!(error, (404, "session.not_found".into()));
    assert_eq!(other.execute("1").await["value"], 1);
    let record = world.owner.execute("2").await;
    let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
    assert_eq!(other.refused("GET", &path, None).await.0, 404);
    assert_eq!(other.get("/v1/executions").await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_deleted_whole_although_the_client_disconnects() {
    let world = World::start().await;
    let names: Vec<String> = (0..20).map(|number| format!("{number}.txt")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
    let (status, kept) = upload(&world.owner, &files).await;
    assert_eq!(status, 201, "{kept}");
    for (round, document) in (0..).zip(kept["items"].as_array().unwrap()) {
        let path = format!("/v1/documents/{}", document["id"].as_str().unwrap());
        let delete = world.owner.request(Method::DELETE, &path).send();
        let _ = tokio::time::timeout(Duration::from_micros(500 + 200 * round), delete).await;
    }
    let rows = async || world.owner.get("/v1/documents").await["items"].as_array().unwrap().len();
    let left = async || (rows().await, world.blobs());
    let (rows, blobs) = wait::at_rest(Duration::from_secs(1), "the documents", left).await;
    assert!(rows < names.len(), "none was deleted");
    assert_eq!(blobs, rows, "no bytes without a row");
}
