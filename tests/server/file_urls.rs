//! URLs of documents and of files that code made: absolute, signed, and valid for a limited time.

use crate::clocked::ClockedServer;
use crate::harness::browser::{self, Bar};
use crate::principals::{grant, id, workspace};
use crate::test_server::{Api, World};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// A client that has nothing but a URL.
fn stranger() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

async fn open(method: Method, url: &str) -> Response {
    stranger().request(method, url).send().await.unwrap()
}

/// Status and body of a URL that a stranger opens.
async fn opened(url: &str) -> (u16, String) {
    let answer = open(Method::GET, url).await;
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn refused(url: &str) -> (u16, Value) {
    let (status, body) = opened(url).await;
    (status, serde_json::from_str(&body).unwrap_or_default())
}

fn url_of(file: &Value) -> String {
    file["url"].as_str().unwrap_or_else(|| panic!("no URL: {file}")).to_owned()
}

fn plain(url: &str) -> String {
    url.split('?').next().unwrap().to_owned()
}

/// The record of a run that has made these files.
async fn made(api: &Api, files: &[(&str, &str)]) -> Value {
    let write = |(name, text): &(&str, &str)| format!("open({name:?}, 'w').write({text:?})\n");
    let record = api.execute(&files.iter().map(write).collect::<String>()).await;
    assert_eq!(record["status"], "succeeded", "{record}");
    record
}

async fn document(api: &Api, name: &str, text: &str) -> Value {
    let part = format!(
        "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{text}\r\n--b--\r\n"
    );
    let request = api.request(Method::POST, "/v1/documents");
    let request = request.header("content-type", "multipart/form-data; boundary=b").body(part);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 201);
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    answer["items"][0].clone()
}

// proves U-071
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_about_a_file_has_an_absolute_url_that_works_without_a_key() {
    let world = World::start().await;
    let record = made(&world.owner, &[("ä b.csv", "1")]).await;
    let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
    let listed = world.owner.get("/v1/executions").await["items"][0].clone();
    let read = world.owner.get(&path).await;
    let events = world.owner.request(Method::GET, &format!("{path}/events"));
    let events = events.send().await.unwrap().text().await.unwrap();
    let event = events.split("event: file\ndata: ").nth(1).unwrap().lines().next().unwrap();
    let event: Value = serde_json::from_str(event).unwrap();
    let files = [&record, &read, &listed].map(|record| record["files_out"][0].clone());
    for file in files.iter().chain([&event]) {
        let url = url_of(file);
        assert!(url.starts_with(&format!("{}/v1/assets/", world.address())), "{url}");
        assert_eq!(opened(&url).await, (200, "1".to_owned()), "{url}");
        assert_eq!(opened(&plain(&url)).await.0, 401, "the plain URL needs a key");
        let mine = world.owner.request(Method::GET, &plain(&url)).send().await.unwrap();
        assert_eq!(mine.status(), 200);
    }
    let uploaded = document(&world.owner, "table.csv", "x,y").await;
    let one = world.owner.get(&format!("/v1/documents/{}", uploaded["id"].as_str().unwrap())).await;
    let all = world.owner.get("/v1/documents").await["items"][0].clone();
    for document in [uploaded, one, all] {
        let url = url_of(&document);
        assert!(url.starts_with(&format!("{}/v1/documents/", world.address())), "{url}");
        assert_eq!(opened(&url).await, (200, "x,y".to_owned()), "{url}");
    }
}

// proves U-072
#[tokio::test(flavor = "multi_thread")]
async fn t255_an_altered_url_opens_nothing_and_tells_nothing() {
    let world = World::start().await;
    let record = made(&world.owner, &[("a.csv", "mine"), ("b.csv", "other")]).await;
    let other_run = made(&world.owner, &[("a.csv", "third")]).await;
    let url = url_of(&record["files_out"][0]);
    let (id, other) = (record["id"].as_str().unwrap(), other_run["id"].as_str().unwrap());
    let expires: u64 =
        url.split("expires=").nth(1).unwrap().split('&').next().unwrap().parse().unwrap();
    let last = url.chars().next_back().unwrap();
    let altered_end = format!("{}{}", &url[..url.len() - 1], if last == 'A' { 'E' } else { 'A' });
    let document = document(&world.owner, "d.csv", "document").await;
    let query = url.split_once('?').unwrap().1;
    let mut answers = Vec::new();
    for altered in [
        altered_end,
        url.replace(&format!("expires={expires}"), &format!("expires={}", expires + 1)),
        url.replace("a.csv", "b.csv"),
        url.replace("a.csv", "none.csv"),
        url.replace(id, other),
        url.replace("&key=", "&key=0"),
        url.replace("&key=", "&principal="),
        format!("{url}&expires={expires}"),
        format!("{url}&x=1"),
        format!("{}?{query}", plain(&url_of(&document))),
        format!("{}?signature=", plain(&url)),
    ] {
        let (status, problem) = refused(&altered).await;
        assert_eq!((status, &problem["code"]), (401, &json!("auth.missing")), "{altered}");
        answers.push(problem["detail"].clone());
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "one answer: {answers:?}");
    // The signature of a file opens no other operation, and changes nothing.
    for path in ["/v1/executions", "/v1/documents", "/v1/keys", "/v1/principals/me", "/metrics"] {
        assert_eq!(opened(&format!("{}{path}?{query}", world.address())).await.0, 401, "{path}");
    }
    let signed = url_of(&document);
    for method in [Method::DELETE, Method::PUT, Method::POST] {
        let status = open(method.clone(), &signed).await.status().as_u16();
        assert!(matches!(status, 401 | 405), "{method}: {status}");
        let whole = signed.replace("/content", "");
        let status = open(method.clone(), &whole).await.status().as_u16();
        assert!(matches!(status, 401 | 405), "{method}: {status}");
    }
    assert_eq!(opened(&signed).await, (200, "document".to_owned()));
    assert_eq!(opened(&url).await, (200, "mine".to_owned()));
}

/// A key of the principal of this API.
async fn second_key(api: &Api) -> (Api, Value) {
    let key = api.post("/v1/keys", json!({"name": "second"})).await;
    (Api::new(&api.address, key["secret"].as_str().unwrap()), key)
}

// proves U-072
#[tokio::test(flavor = "multi_thread")]
async fn t257_a_url_ends_with_the_file_the_key_the_right_and_the_principal() {
    let mut world = World::start().await;
    let ann = world.principal("ann", &["USAGE"]).await;
    let record = made(&ann, &[("a.csv", "hers")]).await;
    let path = format!("/v1/executions/{}", record["id"].as_str().unwrap());
    // It survives a restart, because the key of the signatures does.
    let url = url_of(&record["files_out"][0]);
    assert_eq!(world.stop().await, Some(0));
    world.again_there().await;
    assert_eq!(opened(&url).await, (200, "hers".to_owned()));

    // The file.
    let gone = document(&ann, "gone.csv", "x").await;
    assert_eq!(opened(&url_of(&gone)).await.0, 200);
    ann.delete(&format!("/v1/documents/{}", gone["id"].as_str().unwrap())).await;
    assert_eq!(refused(&url_of(&gone)).await.0, 404);

    // The key that it was made for, and no other key of the same principal.
    let (second, key) = second_key(&ann).await;
    let by_second = url_of(&second.get(&path).await["files_out"][0]);
    assert_eq!(opened(&by_second).await.0, 200);
    ann.delete(&format!("/v1/keys/{}", key["id"].as_str().unwrap())).await;
    let (status, problem) = refused(&by_second).await;
    assert_eq!((status, &problem["code"]), (401, &json!("auth.missing")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("have ended"), "{problem}");
    assert_eq!(opened(&url).await.0, 200);

    // The right of another reader.
    let bob = world.principal("bob", &["USAGE"]).await;
    let me = bob.get("/v1/principals/me").await;
    let here = workspace(&world.owner).await;
    let granted = grant(&world.owner, &id(&me), "OWNERSHIP", &here).await;
    let for_bob = url_of(&bob.get(&path).await["files_out"][0]);
    assert_eq!(opened(&for_bob).await, (200, "hers".to_owned()));
    world.owner.delete(&format!("/v1/grants/{}", id(&granted))).await;
    assert_eq!(refused(&for_bob).await.0, 404);

    // The principal.
    let ann_id = id(&ann.get("/v1/principals/me").await);
    world.owner.delete(&format!("/v1/principals/{ann_id}")).await;
    assert_eq!(refused(&url).await.0, 401);
}

// proves U-072
#[tokio::test(flavor = "multi_thread")]
async fn a_url_expires_after_a_day_and_does_not_say_then_whether_its_file_exists() {
    let server = ClockedServer::start().await;
    let (kept, gone) =
        (document(&server.owner, "a.csv", "a").await, document(&server.owner, "b.csv", "b").await);
    // It ends at a full hour.
    server.clock.advance(DAY - HOUR);
    assert_eq!(opened(&url_of(&kept)).await, (200, "a".to_owned()));
    let path = format!("/v1/documents/{}", gone["id"].as_str().unwrap());
    server.owner.delete(&path).await;
    server.clock.advance(HOUR);
    let (status, problem) = refused(&url_of(&kept)).await;
    assert_eq!((status, &problem["code"]), (401, &json!("auth.missing")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().starts_with("the URL expired at "), "{problem}");
    let told = |problem: &Value| (problem["detail"].clone(), problem["hint"].clone());
    let (status, other) = refused(&url_of(&gone)).await;
    assert_eq!((status, told(&other)), (401, told(&problem)));
    // The next answer has a new one.
    let again = server.owner.get(&format!("/v1/documents/{}", kept["id"].as_str().unwrap())).await;
    assert_eq!(opened(&url_of(&again)).await, (200, "a".to_owned()));
    server.stop().await;
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).unwrap_or_else(|| panic!("{name}: {headers:?}")).to_str().unwrap()
}

// proves U-073
#[tokio::test(flavor = "multi_thread")]
async fn t256_files_come_with_their_type_and_without_any_rights() {
    let world = World::start().await;
    let names = ["page.html", "drawing.svg", "image.png", "table.csv", "program.js"];
    let record = made(&world.owner, &names.map(|name| (name, "0123456789"))).await;
    let files = record["files_out"].as_array().unwrap();
    for (name, kind, disposition) in [
        ("page.html", "text/html", "attachment"),
        ("drawing.svg", "image/svg+xml", "attachment"),
        ("image.png", "image/png", "inline"),
        ("table.csv", "text/csv", "attachment"),
        ("program.js", "application/octet-stream", "attachment"),
    ] {
        let url = url_of(files.iter().find(|file| file["name"] == name).unwrap());
        let whole = open(Method::GET, &url).await;
        let headers = whole.headers().clone();
        assert_eq!(header(&headers, "content-type"), kind);
        assert!(header(&headers, "content-disposition").starts_with(disposition), "{headers:?}");
        assert_eq!(header(&headers, "x-content-type-options"), "nosniff");
        assert_eq!(header(&headers, "cross-origin-resource-policy"), "cross-origin");
        assert_eq!(header(&headers, "referrer-policy"), "no-referrer");
        let policy = header(&headers, "content-security-policy");
        assert!(policy.starts_with("sandbox; default-src 'none'; "), "{policy}");
        assert!(!policy.contains("script") && !policy.contains("allow-"), "{policy}");
        assert!(headers.get("set-cookie").is_none());
        assert_eq!(whole.text().await.unwrap(), "0123456789");
        let head = open(Method::HEAD, &url).await;
        assert_eq!((head.status().as_u16(), header(head.headers(), "content-length")), (200, "10"));
        assert_eq!(head.text().await.unwrap(), "");
    }
    let url = url_of(&files[0]);
    for (range, status, body, part) in [
        ("bytes=2-4", 206, "234", "bytes 2-4/10"),
        ("bytes=-1", 206, "9", "bytes 9-9/10"),
        ("bytes=5-999", 206, "56789", "bytes 5-9/10"),
    ] {
        let answer = stranger().get(&url).header("range", range).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), header(answer.headers(), "content-range")),
            (status, part)
        );
        assert_eq!(
            header(answer.headers(), "content-security-policy").split(';').next(),
            Some("sandbox")
        );
        assert_eq!(answer.text().await.unwrap(), body);
    }
    let beyond = stranger().get(&url).header("range", "bytes=10-").send().await.unwrap();
    assert_eq!(
        (beyond.status().as_u16(), header(beyond.headers(), "content-range")),
        (416, "bytes */10")
    );
    let many = stranger().get(&url).header("range", "bytes=0-1,3-4").send().await.unwrap();
    assert_eq!(
        (many.status().as_u16(), many.text().await.unwrap()),
        (200, "0123456789".to_owned())
    );
    // A page of this site that has a key gets no file for other sites.
    let mine = world.owner.request(Method::GET, &plain(&url)).send().await.unwrap();
    assert_eq!(header(mine.headers(), "cross-origin-resource-policy"), "same-origin");
}

// proves U-074
#[tokio::test(flavor = "multi_thread")]
async fn t258_the_operator_says_where_files_are_and_no_request_does() {
    let world = World::with(&[
        "--public-url",
        "https://files.example/belljar/",
        "--public-host",
        "other.example",
        "--file-url-seconds",
        "60",
    ])
    .await;
    let created = document(&world.owner, "a.csv", "a").await;
    let path = format!("/v1/documents/{}", created["id"].as_str().unwrap());
    for (name, value) in [
        ("host", "other.example"),
        ("host", "files.example"),
        ("x-forwarded-host", "evil.example"),
        ("forwarded", "host=evil.example;proto=http"),
    ] {
        let read = world.owner.request(Method::GET, &path).header(name, value);
        let read: Value =
            serde_json::from_str(&read.send().await.unwrap().text().await.unwrap()).unwrap();
        let url = url_of(&read);
        assert!(url.starts_with("https://files.example/belljar/v1/documents/"), "{name}: {url}");
        // What the proxy of the operator forwards.
        let here = url.replace("https://files.example/belljar", world.address());
        let forwarded = stranger().get(&here).header("host", "files.example").send().await.unwrap();
        assert_eq!(
            (forwarded.status().as_u16(), forwarded.text().await.unwrap()),
            (200, "a".to_owned())
        );
    }
    let evil = world.owner.request(Method::GET, &path).header("host", "evil.example");
    assert_eq!(evil.send().await.unwrap().status(), 421);
    let unspecified = World::with(&[]).await;
    let url = url_of(&document(&unspecified.owner, "a.csv", "a").await);
    assert!(url.starts_with(&format!("{}/", unspecified.address())), "{url}");
}

// proves P-080
#[tokio::test(flavor = "multi_thread")]
async fn t259_a_url_of_this_server_is_read_with_the_rights_of_the_caller_and_never_fetched() {
    let world = World::start().await;
    let ann = world.principal("ann", &["USAGE"]).await;
    let bob = world.principal("bob", &["USAGE"]).await;
    let record = made(&ann, &[("sales.csv", "1,2")]).await;
    let asset = url_of(&record["files_out"][0]);
    let table = url_of(&document(&ann, "table.csv", "3,4").await);
    let port = world.address().rsplit(':').next().unwrap();
    let localhost = asset.replace("127.0.0.1", "localhost");
    assert!(localhost.contains(&format!("localhost:{port}")));
    // The address is on the loopback, which no fetch may reach.
    for url in [asset.clone(), plain(&asset), format!("{asset}x"), localhost] {
        let run = json!({"code": "open('sales.csv').read()", "files": [{"url": url}]});
        let done = ann.post("/v1/execute", run.clone()).await;
        assert_eq!((&done["value"], &done["files_in"]), (&json!("1,2"), &json!(["sales.csv"])));
        assert_eq!(bob.refused("POST", "/v1/execute", Some(run)).await.0, 404, "{url}");
    }
    for url in [table.clone(), plain(&table)] {
        let run = json!({"code": "open('table.csv').read()", "files": [{"url": url}]});
        assert_eq!(ann.post("/v1/execute", run.clone()).await["value"], "3,4");
        assert_eq!(bob.refused("POST", "/v1/execute", Some(run)).await.0, 404, "{url}");
        let copied = ann.post("/v1/documents", json!({"urls": [url]})).await["items"][0].clone();
        assert_eq!((&copied["name"], &copied["source_url"]), (&json!("table.csv"), &json!(url)));
        assert_eq!(opened(&url_of(&copied)).await, (200, "3,4".to_owned()));
        let urls = Some(json!({"urls": [url]}));
        assert_eq!(bob.refused("POST", "/v1/documents", urls).await.0, 404);
    }
    for wrong in [
        format!("{}/v1/keys", world.address()),
        format!("{}/healthz", world.address()),
        asset.replace("http://", "http://me@"),
        asset.replace(port, "9"),
        asset.replace("http://", "https://"),
    ] {
        let run = Some(json!({"code": "1", "files": [{"url": wrong}]}));
        let error = ann.refused("POST", "/v1/execute", run).await;
        assert_eq!(error, (422, "file.fetch_failed".into()), "{wrong}");
    }
    assert_eq!(bob.get("/v1/executions").await["items"], json!([]), "nothing has run");
}

/// An image of pixels, and a drawing with a style and a script, 40 by 30 pixels each.
const IMAGES: &str = r#"
import struct, zlib

def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

rows = zlib.compress((b'\0' + b'\x12\x34\x56' * 40) * 30)
head = struct.pack('>IIBBBBB', 40, 30, 8, 2, 0, 0, 0)
with open('a.png', 'wb') as file:
    file.write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + chunk(b'IDAT', rows) + chunk(b'IEND', b''))
with open('b.svg', 'w') as file:
    file.write("""<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><style>rect { fill: #654321 }</style>
<rect width="40" height="30"/><script>document.querySelector('rect').style.fill = '#ff0000'</script></svg>""")
"#;

// proves U-075
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_shows_images_by_their_urls() {
    let world = World::start().await;
    let record = world.owner.execute(IMAGES).await;
    assert_eq!(record["status"], "succeeded", "{record}");
    let urls = ["a.png", "b.svg"].map(|name| {
        let files = record["files_out"].as_array().unwrap();
        url_of(files.iter().find(|file| file["name"] == name).unwrap())
    });
    let shown = async |urls: [String; 2]| {
        let images = urls.map(|url| format!("<img src=\"{}\">", url.replace('&', "&amp;")));
        let page = tempfile::Builder::new().suffix(".html").tempfile().unwrap();
        std::fs::write(page.path(), format!("<!doctype html>{}", images.join(" "))).unwrap();
        tokio::task::spawn_blocking(move || browser::picture_of(page.path())).await.unwrap()
    };
    let whole = |bars: &[Bar]| matches!(bars, [bar] if (bar.width(), bar.height) == (40, 30));
    let picture = shown(urls.clone()).await;
    let bars = ["123456", "654321"].map(|colour| picture.bars(colour));
    assert!(bars.iter().all(|bars| whole(bars)), "{bars:?}");
    assert_eq!(picture.bars("ff0000"), [], "the script of the drawing has not run");
    // The browser has no key, and nothing else that opens a plain URL.
    let picture = shown(urls.map(|url| plain(&url))).await;
    assert_eq!((picture.bars("123456"), picture.bars("654321")), (Vec::new(), Vec::new()));
}
