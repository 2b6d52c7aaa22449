//! A real server in its own data directory, and a client that sends plain HTTP to it.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a world that cannot be set up fails its test"
)]
#![allow(unreachable_pub, reason = "a test binary has no outside")]

use crate::harness::{self, wait_blocking};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::Duration;
use tempfile::TempDir;

const ANYWHERE: &str = "127.0.0.1:0";

/// An option for a server on which each kind of work has its own environment, as without options.
pub const BY_KIND: &str = "--environment=default";

/// A server that is killed when the test is over.
pub struct World {
    server: Option<Server>,
    program: Vec<String>,
    options: Vec<String>,
    pub data: TempDir,
    environments: Option<TempDir>,
    /// The owner of the first workspace.
    pub owner: Api,
}

struct Server {
    process: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl World {
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    pub async fn with(options: &[&str]) -> Self {
        Self::under(&[], options).await
    }

    /// With environments of its own, for tests that change them. What they are made from is shared.
    pub async fn with_own_environments() -> Self {
        let environments = harness::own_data();
        let place = environments.path().to_str().unwrap().to_owned();
        let world = Self::with(&["--data", &place]).await;
        Self { environments: Some(environments), ..world }
    }

    /// Started by a program that becomes it, such as `prlimit`.
    pub async fn under(program: &[&str], options: &[&str]) -> Self {
        build_bare();
        let data = tempfile::tempdir().unwrap();
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let (program, options): (Vec<String>, Vec<String>) = (owned(program), owned(options));
        let (server, address, key) = start(data.path(), ANYWHERE, &program, &options);
        let owner = Api::new(&address, key.as_deref().unwrap());
        Self { server: Some(server), program, options, data, environments: None, owner }
    }

    /// Where its environments are.
    pub fn environments(&self) -> &str {
        self.environments.as_ref().unwrap().path().to_str().unwrap()
    }

    pub fn address(&self) -> &str {
        &self.owner.address
    }

    /// The same server for a client with another key, or without one.
    pub fn api(&self, key: &str) -> Api {
        Api::new(self.address(), key)
    }

    pub fn pid(&self) -> u32 {
        self.server.as_ref().unwrap().process.id()
    }

    /// Kills the server at once, as a crash would.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Asks the server to stop, and waits until it has; tells its exit code.
    pub async fn stop(&mut self) -> Option<i32> {
        let mut server = self.server.take().unwrap();
        let pid = rustix::process::Pid::from_child(&server.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = tokio::task::spawn_blocking(move || server.process.wait()).await;
        status.unwrap().unwrap().code()
    }

    /// Starts it again on the same data; it has another address then.
    pub async fn again(&mut self) {
        self.start_at(ANYWHERE);
    }

    /// Starts it again on the same data and at the same address, as an operator would.
    pub async fn again_there(&mut self) {
        let place = self.address().replace("http://", "");
        self.start_at(&place);
    }

    fn start_at(&mut self, place: &str) {
        let (server, address, key) = start(self.data.path(), place, &self.program, &self.options);
        assert_eq!(key, None, "the owner's key is shown once");
        self.server = Some(server);
        self.owner = Api::new(&address, &self.owner.key);
    }

    /// A start on the same data that must fail: its exit code, and what it has logged. A server that
    /// starts nevertheless is ended, and fails the test.
    pub fn refused_start(&self) -> (Option<i32>, String) {
        let mut start = harness::belljar(&["serve", "--listen", ANYWHERE, "--environment", "bare"])
            .env("BELLJAR_RECORDS", self.data.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let has_ended = || start.try_wait().unwrap().is_some();
        let is_refused = wait_blocking::soon(wait_blocking::PATIENCE, has_ended);
        if !is_refused {
            start.kill().unwrap();
        }
        let output = start.wait_with_output().unwrap();
        assert!(is_refused, "the start is not refused: {}", harness::stderr(&output));
        (output.status.code(), harness::stderr(&output))
    }

    pub fn database(&self) -> PathBuf {
        self.data.path().join("db/belljar.sqlite3")
    }

    /// How many files have their bytes here.
    pub fn blobs(&self) -> usize {
        blobs(self.data.path())
    }

    /// What was logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data.path().join("log")).unwrap()
    }

    /// A principal of the first workspace with these privileges on it, and a key.
    pub async fn principal(&self, name: &str, privileges: &[&str]) -> Api {
        self.owner.principal(name, privileges).await
    }
}

/// `nobody`, who owns nothing else on this machine.
const NOBODY: u32 = 65_534;

/// A directory of an ordinary user, and the words that start a program as that user with its data there.
/// If the tests do not run as root, the user who runs them.
pub struct OrdinaryUser {
    pub home: TempDir,
    pub program: Vec<String>,
}

impl OrdinaryUser {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().display();
        let mut program = vec!["env".to_owned(), format!("HOME={at}")];
        program
            .extend([format!("BELLJAR_DATA={at}/data"), format!("BELLJAR_RECORDS={at}/records")]);
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
            chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
            program.push("setpriv".to_owned());
            program.extend(user.into_iter().chain(["--clear-groups".to_owned()]));
        }
        Self { home, program }
    }

    /// A server of that user.
    pub async fn world(&self, options: &[&str]) -> World {
        let words: Vec<&str> = self.program.iter().map(String::as_str).collect();
        World::under(&words, options).await
    }
}

/// How many files have their bytes in these records.
pub fn blobs(records: &Path) -> usize {
    let directories = std::fs::read_dir(records.join("db/files")).unwrap();
    directories
        .map(|directory| std::fs::read_dir(directory.unwrap().path()).map_or(0, Iterator::count))
        .sum()
}

pub fn build_bare() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let built = harness::exec(&["--env", "bare", "pass"]);
        assert!(built.status.success(), "{}", harness::stderr(&built));
    });
}

fn start(
    data: &Path,
    place: &str,
    program: &[String],
    options: &[String],
) -> (Server, String, Option<String>) {
    let log = std::fs::File::options().create(true).append(true).open(data.join("log")).unwrap();
    let binary = harness::binary().into_os_string();
    let mut words = program.iter().map(Into::into).chain([binary]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["serve", "--listen", place]).args(options);
    command.args(environments(options));
    command
        // Built environments are shared by all worlds; records and files are a world's own.
        .env("BELLJAR_DATA", harness::data())
        .env("BELLJAR_RECORDS", data)
        .env_remove("BELLJAR_PYTHON")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let server = Server { process };
    let (mut address, mut key) = (None, None);
    // The line about the documentation is the last one.
    for line in lines.by_ref().map_while(Result::ok) {
        if let Some(found) = line.strip_prefix("Belljar listens on ") {
            address = Some(found.to_owned());
        } else if line.starts_with("bj_") {
            key = Some(line);
        } else if line.contains("/docs") {
            break;
        }
    }
    let log = || std::fs::read_to_string(data.join("log")).unwrap_or_default();
    (server, address.unwrap_or_else(|| panic!("it did not start: {}", log())), key)
}

/// The options for all work in one environment, that of `--environment` or else `bare`, as far as a
/// test does not say otherwise: most tests need no packages.
fn environments(options: &[String]) -> Vec<String> {
    if options.iter().any(|option| option == BY_KIND) {
        return Vec::new();
    }
    let named = options.iter().position(|option| option == "--environment");
    let name = named.map_or("bare", |at| &options[at + 1]);
    let mut added = Vec::new();
    if named.is_none() {
        added.extend(["--environment".to_owned(), name.to_owned()]);
    }
    for kind in ["run_python_code", "code_runner", "code_execution"] {
        let prefix = format!("{kind}=");
        if !options.iter().any(|option| option.split(',').any(|one| one.starts_with(&prefix))) {
            added.extend(["--environment-for".to_owned(), format!("{prefix}{name}")]);
        }
    }
    added
}

/// The API with one key.
#[derive(Clone)]
pub struct Api {
    client: Client,
    pub address: String,
    pub key: String,
}

impl Api {
    pub fn new(address: &str, key: &str) -> Self {
        let mut headers = HeaderMap::new();
        if !key.is_empty() {
            let value = HeaderValue::from_str(&format!("Bearer {key}")).unwrap();
            headers.insert("authorization", value);
        }
        let client = Client::builder()
            .default_headers(headers)
            .no_proxy()
            .timeout(Duration::from_secs(60))
            .build()
            .unwrap();
        Self { client, address: address.to_owned(), key: key.to_owned() }
    }

    /// A principal of the workspace of this owner with these privileges on it, and a key.
    pub async fn principal(&self, name: &str, privileges: &[&str]) -> Self {
        let me = self.get("/v1/principals/me").await;
        let workspace = me["workspace"].as_str().unwrap().to_owned();
        let new = json!({"name": name, "kind": "service"});
        let principal = self.post("/v1/principals", new).await;
        for privilege in privileges {
            let object = json!({"kind": "workspace", "id": workspace});
            let grant =
                json!({"principal": principal["id"], "privilege": privilege, "object": object});
            self.post("/v1/grants", grant).await;
        }
        let key = json!({"name": name, "principal": principal["id"]});
        let key = self.post("/v1/keys", key).await;
        Self::new(&self.address, key["secret"].as_str().unwrap())
    }

    /// A request for a path of this server, or for a whole URL.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let server = if path.starts_with("http") { "" } else { &self.address };
        self.client.request(method, format!("{server}{path}"))
    }

    /// Status and body, whatever they are; what is not JSON is null.
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut request = self.request(method.parse().unwrap(), path);
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(serde_json::to_vec(&body).unwrap());
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, json_of(response).await)
    }

    pub async fn get(&self, path: &str) -> Value {
        self.must("GET", path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.must("POST", path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) {
        self.must("DELETE", path, None).await;
    }

    async fn must(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.call(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// The code of the refusal that this must be.
    pub async fn refused(&self, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
        let (status, answer) = self.call(method, path, body).await;
        assert!(status >= 400, "{method} {path} was not refused: {answer}");
        (status, answer["code"].as_str().unwrap_or_default().to_owned())
    }

    pub async fn execute(&self, code: &str) -> Value {
        self.post("/v1/execute", json!({"code": code})).await
    }

    pub async fn session(&self) -> String {
        let session = self.post("/v1/sessions", json!({})).await;
        session["sandbox_id"].as_str().unwrap().to_owned()
    }

    pub async fn run(&self, session: &str, code: &str) -> Value {
        self.post(&format!("/v1/sessions/{session}/execute"), json!({"code": code})).await
    }
}

async fn json_of(response: Response) -> Value {
    let bytes = response.bytes().await.unwrap();
    serde_json::from_slice(&bytes).unwrap_or(Value::Null)
}

/// What a record printed on standard output.
pub fn printed(execution: &Value) -> String {
    let pieces = execution["output"].as_array().unwrap().iter();
    let stdout = pieces.filter(|piece| piece["stream"] == "stdout");
    stdout.map(|piece| piece["text"].as_str().unwrap()).collect()
}

/// The events of a stream: number, name and data.
pub async fn events(response: Response) -> Vec<(u64, String, Value)> {
    assert_eq!(response.status(), StatusCode::OK);
    parse_events(&response.text().await.unwrap())
}

pub fn parse_events(text: &str) -> Vec<(u64, String, Value)> {
    let frames = text.split("\n\n").filter(|frame| frame.contains("data:"));
    let field = |frame: &str, name: &str| -> String {
        let prefix = format!("{name}: ");
        let line = frame.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_default().to_owned()
    };
    frames
        .map(|frame| {
            let data = serde_json::from_str(&field(frame, "data")).unwrap();
            (field(frame, "id").parse().unwrap(), field(frame, "event"), data)
        })
        .collect()
}
