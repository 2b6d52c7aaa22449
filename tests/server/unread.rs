//! T203, T211, T212: responses that clients do not read. What is left unread of each is chosen by the
//! window of an HTTP/2 stream, which only a client of frames can hold still.

use crate::harness::wait;
use crate::output::{gives_back, memory, workspace};
use crate::raw::{authority, connect, frame};
use crate::test_server::{Api, World, events};
use reqwest::Method;
use serde_json::json;
use std::collections::HashMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const MIB: u64 = 1024 * 1024;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_OF_STREAM: u8 = 1;
const END_OF_HEADERS: u8 = 4;
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// An HTTP/2 connection whose client gives each stream a window of its choice.
struct Http2 {
    stream: TcpStream,
    authority: String,
    requests: u32,
    /// Responses that have begun.
    begun: usize,
    /// Streams that the server has broken off.
    broken_off: usize,
    /// Bytes of each response.
    read: HashMap<u32, u64>,
}

impl Http2 {
    async fn connect(world: &World, window: u32) -> Self {
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let initial_window = [&[0, 4], &window.to_be_bytes()[..]].concat();
        sent.extend(frame(SETTINGS, 0, 0, &initial_window));
        // That of the whole connection never limits.
        sent.extend(frame(WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - 65_535).to_be_bytes()));
        let mut stream = connect(world.address()).await;
        stream.write_all(&sent).await.unwrap();
        let authority = authority(world.address()).to_owned();
        Self { stream, authority, requests: 0, begun: 0, broken_off: 0, read: HashMap::new() }
    }

    /// Sends the same request many times.
    async fn request(&mut self, request: &Request<'_>, count: u32) {
        let headers = request.headers(&self.authority);
        let mut sent = Vec::new();
        for _ in 0..count {
            let stream = 2 * self.requests + 1;
            self.requests += 1;
            sent.extend(frame(HEADERS, END_OF_HEADERS, stream, &headers));
            sent.extend(frame(DATA, END_OF_STREAM, stream, request.body.as_bytes()));
        }
        self.stream.write_all(&sent).await.unwrap();
    }

    /// Reads frames until it holds.
    async fn read_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let reading = async {
            while !holds(self) {
                self.read_frame().await;
            }
        };
        assert!(timeout(PATIENCE, reading).await.is_ok(), "waited in vain until {what}");
    }

    async fn read_frame(&mut self) {
        let mut head = [0; 9];
        let read = self.stream.read_exact(&mut head).await;
        assert!(read.is_ok(), "{read:?}, {} begun, {} broken off", self.begun, self.broken_off);
        let bytes = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; bytes as usize];
        self.stream.read_exact(&mut payload).await.unwrap();
        match head[3] {
            DATA => *self.read.entry(stream).or_default() += u64::from(bytes),
            HEADERS => self.begun += 1,
            RST_STREAM => self.broken_off += 1,
            // A client that does not answer is taken for dead.
            PING if head[4] == 0 => {
                self.stream.write_all(&frame(PING, ACK, 0, &payload)).await.unwrap();
            }
            GOAWAY => panic!("the server ends the connection: {payload:?}"),
            _ => {}
        }
    }

    /// Gives each stream a larger window.
    async fn widen(&mut self, bytes: u32) {
        for number in 0..self.requests {
            let update = frame(WINDOW_UPDATE, 0, 2 * number + 1, &bytes.to_be_bytes());
            self.stream.write_all(&update).await.unwrap();
        }
    }
}

struct Request<'a> {
    method: &'a str,
    path: &'a str,
    key: &'a str,
    body: String,
    /// Besides those that each request has.
    headers: &'a [(&'a str, &'a str)],
}

impl<'a> Request<'a> {
    fn get(path: &'a str, key: &'a str) -> Self {
        Self { method: "GET", path, key, body: String::new(), headers: &[] }
    }

    /// As a block of literals without compression.
    fn headers(&self, authority: &str) -> Vec<u8> {
        let bearer = format!("Bearer {}", self.key);
        let always = [
            (":method", self.method),
            (":scheme", "http"),
            (":path", self.path),
            (":authority", authority),
            ("authorization", &bearer),
        ];
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let literal = |(name, value): &(&str, &str)| [vec![0], text(name), text(value)].concat();
        always.iter().chain(&ALL_HEADERS).chain(self.headers).flat_map(literal).collect()
    }
}

/// Headers of each request; MCP needs both.
const ALL_HEADERS: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

const LIST: &str = "/v1/executions?limit=200";

/// Executions whose list has some nine million bytes.
async fn make_long_list(api: &Api) {
    for _ in 0..3 {
        let long = format!("1\n#{}", "x".repeat(3_000_000));
        assert_eq!(api.execute(&long).await["value"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t203_lists_that_a_client_never_reads_have_a_limit_and_come_back_when_it_leaves() {
    const UNREAD: u32 = 30;
    let world = World::start().await;
    let greedy = world.principal("greedy", &["USAGE"]).await;
    let neighbour = world.principal("neighbour", &["USAGE"]).await;
    make_long_list(&greedy).await;
    make_long_list(&neighbour).await;
    assert_eq!(greedy.get(LIST).await["items"].as_array().unwrap().len(), 3);
    let before = memory(&world, "RssAnon");
    let mut unread = Http2::connect(&world, 0).await;
    unread.request(&Request::get(LIST, &greedy.key), UNREAD).await;
    unread.read_until("all have begun", |it| it.begun == UNREAD as usize).await;
    // Thirty lists have 270 MB; a key may leave 64 MiB unread.
    gives_back(&world, before, 128 * MIB).await;
    let (status, problem) = greedy.call("GET", LIST, None).await;
    assert_eq!((status, &problem["code"]), (429, &json!("rate.exceeded")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("unread responses"), "{problem}");
    assert_eq!(greedy.execute("1").await["value"], 1);
    assert_eq!(neighbour.get(LIST).await["items"].as_array().unwrap().len(), 3);
    drop(unread);
    let is_back = async || greedy.call("GET", LIST, None).await.0 == 200;
    wait::until("the list can be read again", is_back).await;
    gives_back(&world, before, 64 * MIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t203_a_response_counts_until_the_client_has_taken_its_last_byte() {
    const UNREAD: u32 = 7;
    let world = World::start().await;
    let greedy = world.principal("greedy", &["USAGE"]).await;
    make_long_list(&greedy).await;
    let whole = greedy.request(Method::GET, LIST).send().await.unwrap().bytes().await.unwrap();
    let length = whole.len() as u64;
    let mut unread = Http2::connect(&world, u32::try_from(length - 1).unwrap()).await;
    unread.request(&Request::get(LIST, &greedy.key), UNREAD).await;
    let all_have = |bytes: u64| {
        move |it: &Http2| {
            it.read.len() == UNREAD as usize && it.read.values().all(|read| *read == bytes)
        }
    };
    unread.read_until("each lacks one byte", all_have(length - 1)).await;
    let (status, problem) = greedy.call("GET", LIST, None).await;
    assert_eq!((status, &problem["code"]), (429, &json!("rate.exceeded")), "{problem}");
    // The twin: a client that takes it after a while gets it whole, and may ask again.
    unread.widen(1).await;
    unread.read_until("each is whole", all_have(length)).await;
    let is_back = async || greedy.call("GET", LIST, None).await.0 == 200;
    wait::until("the list can be read again", is_back).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t211_streams_of_large_events_that_a_client_never_reads_have_a_limit() {
    const UNREAD: u32 = 40;
    const RESULT_BYTES: usize = 5_000_000;
    let world = World::start().await;
    let greedy = world.principal("greedy", &["USAGE"]).await;
    let neighbour = world.principal("neighbour", &["USAGE"]).await;
    let shows = format!("display('x' * {RESULT_BYTES})");
    let mut paths = Vec::new();
    for api in [&greedy, &neighbour] {
        let body = json!({"code": shows, "limits": {"result_bytes": 6 * MIB}});
        let record = api.post("/v1/execute", body).await;
        assert_eq!(record["results"].as_array().unwrap().len(), 1, "{}", record["warnings"]);
        paths.push(format!("/v1/executions/{}/events", record["id"].as_str().unwrap()));
    }
    let mut unread = Http2::connect(&world, 1).await;
    unread.request(&Request::get(&paths[0], &greedy.key), UNREAD).await;
    // Thirteen such events fit into what a key may leave unread.
    let most_are_ended = |it: &Http2| it.broken_off >= UNREAD as usize - 13;
    unread.read_until("most streams are broken off", most_are_ended).await;
    assert_eq!(unread.begun, UNREAD as usize);
    // The twins: another key reads all, and this one too when the first has left.
    let has_result = async |api: &Api, path: &str| {
        let response = api.request(Method::GET, path).send().await.unwrap();
        let all = events(response).await;
        all.iter()
            .any(|(_, name, event)| name == "result" && event.to_string().len() > RESULT_BYTES)
    };
    assert!(has_result(&neighbour, &paths[1]).await);
    drop(unread);
    let is_back = async || greedy.call("GET", LIST, None).await.0 == 200;
    wait::until("requests are admitted again", is_back).await;
    assert!(has_result(&greedy, &paths[0]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn t211_mcp_resources_that_a_client_never_reads_have_a_limit() {
    const UNREAD: u32 = 40;
    let world = World::start().await;
    let greedy = world.principal("greedy", &["USAGE"]).await;
    let record = greedy.execute(r"open('large.bin', 'wb').write(b'\xff' * 5_000_000)").await;
    let uri = format!("belljar://executions/{}/files/large.bin", record["id"].as_str().unwrap());
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let params = json!({"uri": uri, "_meta": meta});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params});
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "resources/read"),
        ("mcp-name", &uri),
    ];
    let body = call.to_string();
    let read = Request { method: "POST", path: "/mcp", key: &greedy.key, body, headers: &headers };
    let mut unread = Http2::connect(&world, 0).await;
    unread.request(&read, UNREAD).await;
    // Ten such messages fit into what a key may leave unread.
    let most_are_ended = |it: &Http2| it.broken_off >= UNREAD as usize - 10;
    unread.read_until("most streams are broken off", most_are_ended).await;
    drop(unread);
    // The twin: a client that reads gets the whole message, as soon as there is memory for it.
    let is_whole = async || {
        let mut request = greedy.request(Method::POST, "/mcp").body(read.body.clone());
        for (name, value) in read.headers.iter().chain(&ALL_HEADERS) {
            request = request.header(*name, *value);
        }
        let message = request.send().await.unwrap().bytes().await;
        message.is_ok_and(|message| message.len() > 6_600_000)
    };
    wait::until("the message is whole", is_whole).await;
}

/// A tool with this many bytes of code.
async fn make_tool(api: &Api, name: &str, bytes: usize) -> String {
    let code = format!("def run(input: dict) -> int:\n    return 1\n#{}", "x".repeat(bytes));
    let tool = json!({"name": name, "description": "Long.", "tool_type": "code_runner",
        "environment": "bare", "configuration": {"code": code}});
    let id = api.post("/v1/tools", tool).await["id"].as_str().unwrap().to_owned();
    format!("/v1/tools/{id}")
}

/// Leaves responses unread until it is dropped.
struct UnreadResponses(JoinHandle<()>);

impl UnreadResponses {
    /// Sends the same request many times, and returns when all responses have begun.
    async fn begin(world: &World, request: &Request<'_>, count: u32) -> Self {
        let mut connection = Http2::connect(world, 0).await;
        connection.request(request, count).await;
        connection.read_until("all have begun", |it| it.begun == count as usize).await;
        assert_eq!(connection.broken_off, 0);
        // A client that answers no pings would lose the connection.
        Self(tokio::spawn(async move {
            loop {
                connection.read_frame().await;
            }
        }))
    }
}

impl Drop for UnreadResponses {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t212_unread_responses_that_had_to_be_sent_do_not_starve_another_workspace() {
    let world = World::start().await;
    let (second, other) = (workspace(&world, "second").await, workspace(&world, "other").await);
    let own_tool = make_tool(&other, "large", 100_000).await;
    let mut unread = Vec::new();
    // Two workspaces leave as much unread as they may, in three keys: a megabyte in each response.
    let key = async |name| world.principal(name, &["USAGE", "MODIFY"]).await;
    let (one, two, three) = (key("one").await, key("two").await, key("three").await);
    for (api, name) in [(&one, "one"), (&two, "two"), (&second, "second")] {
        let tool = make_tool(api, name, 1_000_000).await;
        unread.push(UnreadResponses::begin(&world, &Request::get(&tool, &api.key), 62).await);
    }
    // A third key of the first has what must be sent in any case: more than the server has left.
    let tool = make_tool(&three, "three", 1_000_000).await;
    let body = json!({"description": "Again."}).to_string();
    let patch = Request { method: "PATCH", path: &tool, key: &three.key, body, headers: &[] };
    let sent = UnreadResponses::begin(&world, &patch, 90).await;
    let (status, large) = other.call("GET", &own_tool, None).await;
    assert_eq!(status, 200, "{large}");
    assert!(large.to_string().len() > 100_000);
    // That key is not heard again before it reads.
    let (status, problem) = three.call("GET", "/v1/tools", None).await;
    assert_eq!((status, &problem["code"]), (429, &json!("rate.exceeded")), "{problem}");
    drop(sent);
    let is_back = async || three.call("GET", "/v1/tools", None).await.0 == 200;
    wait::until("it is heard again", is_back).await;
}
