//! Hostile files: by their names, by their contents, by the URL to fetch them from, and by never ending.

use crate::harness::wait;
use crate::raw::{self, authority, connect};
use crate::test_server::{Api, World};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

const MIB: usize = 1024 * 1024;

/// A form as it goes over the wire: of each file the line after `filename=`, and its bytes.
fn form(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut form = Vec::new();
    for (name, content) in files {
        let head = format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename={name}\r\n\r\n"
        );
        form.extend_from_slice(head.as_bytes());
        form.extend_from_slice(content);
        form.extend_from_slice(b"\r\n");
    }
    form.extend_from_slice(b"--b--\r\n");
    form
}

async fn upload(api: &Api, files: &[(&str, &[u8])]) -> (u16, Value) {
    let request = api.request(Method::POST, "/v1/documents").body(form(files));
    let request = request.header("content-type", "multipart/form-data; boundary=b");
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
}

async fn documents(api: &Api) -> Vec<Value> {
    api.get("/v1/documents").await["items"].as_array().unwrap().clone()
}

async fn download(api: &Api, path: &str) -> Response {
    let answer = api.request(Method::GET, path).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer
}

/// Saved, or shown as an image without rights, whatever it is called.
fn is_only_bytes(answer: &Response, kind: &str) {
    let headers = answer.headers();
    let one = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let value = values.next().unwrap_or_else(|| panic!("{name}: {headers:?}")).to_str();
        assert!(values.next().is_none(), "{headers:?}");
        value.unwrap()
    };
    let shown = if kind == "image/png" { "inline" } else { "attachment" };
    assert!(one("content-disposition").starts_with(&format!("{shown}; filename=\"")));
    assert_eq!(one("x-content-type-options"), "nosniff");
    let policy = one("content-security-policy");
    assert!(policy.starts_with("sandbox; default-src 'none'; "), "{policy}");
    assert!(!policy.contains("script") && !policy.contains("allow-"), "{policy}");
    assert_eq!(one("content-type"), kind);
    assert!(headers.get("set-cookie").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn t33_a_document_is_called_what_a_file_can_be_called() {
    let world = World::start().await;
    for (sent, name, kind) in [
        ("\"../../../etc/passwd\"", "passwd", "application/octet-stream"),
        ("\"C:\\\\x\\\\page.html\"", "page.html", "text/html"),
        ("\"a%0d%0aSet-Cookie: x=1.txt\"", "a%0d%0aSet-Cookie: x=1.txt", "text/plain"),
        ("\"\u{202e}gpj.svg\"", "\u{202e}gpj.svg", "image/svg+xml"),
        ("\"a;b=c.csv\"", "a;b=c.csv", "text/csv"),
    ] {
        let (status, kept) = upload(&world.owner, &[(sent, b"<script>")]).await;
        assert_eq!(status, 201, "{sent}: {kept}");
        assert_eq!(kept["items"][0]["name"], name);
        let id = kept["items"][0]["id"].as_str().unwrap();
        let answer = download(&world.owner, &format!("/v1/documents/{id}/content")).await;
        is_only_bytes(&answer, kind);
    }
    let before = documents(&world.owner).await;
    let long = format!("\"{}\"", "x".repeat(300));
    for sent in ["\"\"", "\".\"", "\"..\"", "\"a/\"", "\"a\tb\"", "\"a\u{7f}\"", &long] {
        let (status, problem) = upload(&world.owner, &[(sent, b"x")]).await;
        assert_eq!(status, 400, "{sent}: {problem}");
    }
    assert_eq!(documents(&world.owner).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn t33_what_code_calls_its_files_stays_in_its_place() {
    let world = World::start().await;
    let code = "for name in ['a\"b.html', \"x'; y.svg\", '%2e%2e%2fup', 'Set-Cookie: a=b', '☃.png']:\n    open(name, 'w').write('<script>')";
    let record = world.owner.execute(code).await;
    assert_eq!(record["status"], "succeeded", "{record}");
    let files = record["files_out"].as_array().unwrap();
    assert_eq!(files.len(), 5, "{record}");
    for file in files {
        let answer = download(&world.owner, file["url"].as_str().unwrap()).await;
        let name = file["name"].as_str().unwrap();
        is_only_bytes(
            &answer,
            match name.rsplit('.').next() {
                Some("png") => "image/png",
                Some("html") => "text/html",
                Some("svg") => "image/svg+xml",
                _ => "application/octet-stream",
            },
        );
        assert_eq!(answer.bytes().await.unwrap(), "<script>");
    }
    let id = record["id"].as_str().unwrap();
    for name in ["..%2f..%2fdb%2fapproval.key", "%2e%2e", "%00", "nothing"] {
        let error = world.owner.refused("GET", &format!("/v1/assets/{id}/{name}"), None).await;
        assert!([400, 404].contains(&error.0), "{name}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_session_is_below_its_working_directory_or_nowhere() {
    let world = World::start().await;
    let session = world.owner.session().await;
    let long = "x".repeat(300);
    for name in
        ["%2e%2e%2fx", "a%2f..%2f..%2fx", "%2fetc%2fpasswd", "a%00b", "%2e", "a%2f%2fb", &long]
    {
        let path = format!("/v1/sessions/{session}/files/{name}");
        for method in ["PUT", "GET", "DELETE"] {
            let request = world.owner.request(method.parse().unwrap(), &path).body("x");
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            assert!([400, 404].contains(&status), "{method} {name}: {status}");
        }
    }
    world.owner.run(&session, "import os\nos.symlink('/etc/passwd', 'link')").await;
    let path = format!("/v1/sessions/{session}/files");
    assert!(world.owner.refused("GET", &format!("{path}/link"), None).await.0 < 500);
    let written = world.owner.request(Method::PUT, &format!("{path}/d/ok.txt")).body("fine");
    assert_eq!(written.send().await.unwrap().status(), 201);
    let record = world
        .owner
        .run(&session, "import os\nsorted(os.listdir('.')), open('d/ok.txt').read()")
        .await;
    assert_eq!(record["value"], json!([["d", "link"], "fine"]), "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_one_form_are_kept_all_or_none() {
    let world = World::with(&["--workspace-mib", "8"]).await;
    let five = vec![7; 5 * MIB];
    let many = vec![("\"x\"", b"".as_slice()); 101];
    for (files, refused) in [
        (vec![("\"good\"", b"x".as_slice()), ("\"..\"", b"x")], (400, "args.invalid")),
        (vec![("\"one\"", five.as_slice()), ("\"two\"", &five)], (413, "quota.exceeded")),
        (many, (413, "request.too_large")),
        (vec![], (400, "args.missing")),
    ] {
        // Not all of it may be heard, and then the connection ends.
        let (status, problem) = upload(&world.api(&world.owner.key), &files).await;
        assert_eq!((status, problem["code"].as_str().unwrap()), refused, "{problem}");
        assert_eq!(documents(&world.owner).await, Vec::<Value>::new());
    }
    let (status, kept) = upload(&world.owner, &[("\"one\"", &five), ("\"two\"", b"x")]).await;
    assert_eq!((status, kept["items"].as_array().unwrap().len()), (201, 2), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_break_off_leave_nothing() {
    let world = World::with(&["--workspace-mib", "2"]).await;
    let whole = form(&[("\"a\"", &vec![7; MIB])]);
    let head = format!(
        "POST /v1/documents HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n",
        authority(world.address()),
        world.owner.key,
        whole.len()
    );
    for cut in [10, MIB / 2, whole.len() - 3, whole.len(), whole.len(), whole.len()] {
        let mut stream = connect(world.address()).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(&whole[..cut]).await;
        drop(stream);
    }
    let staged = || fs::read_dir(world.data.path().join("db/staging")).unwrap().count();
    let left = async || (staged(), world.blobs(), documents(&world.owner).await.len());
    let left = wait::at_rest(Duration::from_secs(1), "what was sent", left).await;
    // A complete upload may be kept although its client disconnected, and is counted then.
    let (staged, blobs, kept) = left;
    assert_eq!((staged, blobs), (0, kept), "no bytes without a row");
    assert!(kept <= 2);
}

/// Of the server: what it has in memory now, and the most that it ever had, in KiB.
fn resident(world: &World) -> (usize, usize) {
    let status = fs::read_to_string(format!("/proc/{}/status", world.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    (field("VmRSS"), field("VmHWM"))
}

#[tokio::test(flavor = "multi_thread")]
async fn t34_what_is_in_a_file_is_never_unpacked_and_never_whole_in_memory() {
    let world = World::start().await;
    let code = "import zipfile, gzip\n\
        with zipfile.ZipFile('bomb.zip', 'w', zipfile.ZIP_DEFLATED) as z: z.writestr('zeros', bytes(150_000_000))\n\
        open('bomb.csv.gz', 'wb').write(gzip.compress(bytes(150_000_000)))\n\
        open('deep.svg', 'w').write('<!DOCTYPE x [<!ENTITY a \"aaaa\">' + ''.join(f'<!ENTITY b{i} \"&a;&a;\">' for i in range(30)) + ']><svg>&b9;</svg>')";
    let record = world.owner.execute(code).await;
    assert_eq!(record["status"], "succeeded", "{record}");
    let (before, _) = resident(&world);
    let mut bombs = Vec::new();
    for file in record["files_out"].as_array().unwrap() {
        let bytes = download(&world.owner, file["url"].as_str().unwrap()).await.bytes().await;
        let bytes = bytes.unwrap();
        let name = format!("{:?}", file["name"].as_str().unwrap());
        let (status, kept) = upload(&world.owner, &[(&name, &bytes)]).await;
        assert_eq!((status, &kept["items"][0]["size"]), (201, &file["size"]));
        assert_eq!(kept["items"][0]["sha256"], file["sha256"]);
        bombs.push(json!({"document_id": kept["items"][0]["id"]}));
    }
    assert_eq!(bombs.len(), 3);
    let ran = world.owner.post("/v1/execute", json!({"code": "1", "files": bombs})).await;
    assert_eq!(ran["status"], "succeeded", "{ran}");
    // A large file passes through as well.
    let large = vec![7; 64 * MIB];
    let (status, kept) = upload(&world.owner, &[("\"large\"", &large)]).await;
    assert_eq!(status, 201);
    let path = format!("/v1/documents/{}/content", kept["items"][0]["id"].as_str().unwrap());
    assert_eq!(download(&world.owner, &path).await.bytes().await.unwrap().len(), 64 * MIB);
    let (_, most) = resident(&world);
    assert!(most < before + 16 * 1024, "from {before} KiB to {most} KiB");
}

/// A server that redirects every request.
fn redirecting(to: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let answer = format!(
                "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn no_url_reaches_the_inner_network() {
    let wire = TcpListener::bind("127.0.0.1:0").unwrap();
    wire.set_nonblocking(true).unwrap();
    let port = wire.local_addr().unwrap().port();
    let away = redirecting(format!("http://127.0.0.1:{port}/secret"));
    let world = World::with(&["--fetch-from", &format!("127.0.0.1:{away}")]).await;
    let own = authority(world.address());
    let hosts = [
        "127.0.0.1",
        "localhost",
        "LOCALHOST.",
        "[::1]",
        "0",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::]",
        "user:pw@127.0.0.1",
        "127.0.0.1%2f",
        "①27.0.0.1",
        "localtest.me",
    ];
    let mut urls: Vec<String> =
        hosts.iter().map(|host| format!("http://{host}:{port}/x.csv")).collect();
    urls.extend([
        format!("http://127.0.0.1:{away}/moved"),
        format!("http://{own}/v1/keys"),
        format!("gopher://127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "data:text/plain,x".to_owned(),
        format!("http://127.0.0.1:{port}\\@example.com/"),
    ]);
    let session = world.owner.session().await;
    for url in &urls {
        let file = json!([{"url": url}]);
        for (path, body) in [
            ("/v1/documents".to_owned(), json!({"urls": [url]})),
            ("/v1/execute".to_owned(), json!({"code": "1", "files": file})),
            ("/v1/sessions".to_owned(), json!({"files": file})),
            (format!("/v1/sessions/{session}/execute"), json!({"code": "1", "files": file})),
        ] {
            let error = world.owner.refused("POST", &path, Some(body)).await;
            assert_eq!(error, (422, "file.fetch_failed".to_owned()), "{path} {url}");
        }
    }
    assert!(wire.accept().is_err(), "somebody came");
    assert_eq!(documents(&world.owner).await, Vec::<Value>::new());
    assert_eq!(world.owner.get("/v1/executions").await["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn t59_a_client_that_does_not_read_its_response_is_disconnected() {
    let world = World::start().await;
    let (_, kept) = upload(&world.owner, &[("\"large\"", &vec![7; 32 * MIB])]).await;
    let path = format!("/v1/documents/{}/content", kept["items"][0]["id"].as_str().unwrap());
    let one = json!({"name": "one", "concurrency": 1});
    let key = world.owner.post("/v1/keys", one).await["secret"].as_str().unwrap().to_owned();
    let headers =
        [format!("Host: {}", authority(world.address())), format!("Authorization: Bearer {key}")];
    let mut stalled = connect(world.address()).await;
    stalled.write_all(&raw::request("GET", &path, &headers, "")).await.unwrap();
    let api = world.api(&key);
    let me = "/v1/principals/me";
    wait::until("its place is taken", async || api.call("GET", me, None).await.0 == 429).await;
    assert_eq!(api.refused("GET", me, None).await, (429, "rate.exceeded".to_owned()));
    let is_free = async || api.call("GET", me, None).await.0 == 200;
    wait::within(Duration::from_secs(90), "its place is free", is_free).await;
    drop(stalled);
}
