//! MCP messages as they are sent, over both transports and in both revisions.

#![allow(unreachable_pub, reason = "a test binary has no outside")]

use crate::harness;
use crate::test_server::Api;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio as Pipe};

pub const LEGACY: &str = "2025-11-25";
pub const MODERN: &str = "2026-07-28";

/// A client that started `belljar mcp` and speaks to it.
pub struct Stdio {
    pub process: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    next: u64,
    /// What came before an answer.
    pub notes: Vec<Value>,
}

impl Stdio {
    pub fn start(options: &[&str]) -> Self {
        Self::with(options, &[])
    }

    pub fn with(options: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut client = Self::silent(options, variables);
        let hello = client.request("initialize", hello(&json!({})));
        assert_eq!(hello["result"]["protocolVersion"], LEGACY, "{hello}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    /// With a server behind it.
    pub fn before(api: &Api) -> Self {
        Self::with(&[], &[("BELLJAR_URL", &api.address), ("BELLJAR_API_KEY", &api.key)])
    }

    /// One that has not said hello.
    pub fn silent(options: &[&str], variables: &[(&str, &str)]) -> Self {
        let environment: &[&str] =
            if options.contains(&"--env") { &[] } else { &["--env", "bare"] };
        let mut process = harness::belljar(&[&["mcp"], environment, options].concat())
            .envs(variables.iter().copied())
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .stderr(Pipe::null())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let output = process.stdout.take().map(BufReader::new);
        Self { process, input, output, next: 0, notes: Vec::new() }
    }

    pub fn send(&mut self, message: &Value) {
        self.line(&message.to_string());
    }

    pub fn line(&mut self, line: &str) {
        self.bytes(format!("{line}\n").as_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    pub fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.as_mut().unwrap().read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not the protocol: {line:?}"))
    }

    pub fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.notes.push(message);
        }
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// The result of a tool.
    pub fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": name, "arguments": arguments}))["result"].clone()
    }

    /// Says no more, and hears what is still said.
    pub fn hear_out(&mut self) -> Vec<Value> {
        self.input = None;
        let lines = self.output.take().unwrap().lines();
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
    }

    /// Says no more, and waits for its end.
    pub fn leave(mut self) -> Option<i32> {
        self.input = None;
        self.process.wait().unwrap().code()
    }

    /// Neither speaks nor listens any more.
    pub fn vanish(mut self) -> Option<i32> {
        self.output = None;
        self.leave()
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn hello(capabilities: &Value) -> Value {
    let client = json!({"name": "test", "version": "1"});
    json!({"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": client})
}

/// What every request of the current revision carries.
pub fn modern(mut params: Value, capabilities: &Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    params
}

/// A request of the current revision over HTTP, which carries all that is needed.
pub async fn post(api: &Api, method: &str, params: Value, capabilities: &Value) -> Response {
    let name = params.get("name").or(params.get("uri")).or(params.get("taskId")).cloned();
    let params = modern(params, capabilities);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut request = api
        .request(Method::POST, "/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", method);
    if let Some(name) = name.as_ref().and_then(Value::as_str) {
        request = request.header("mcp-name", name);
    }
    request.body(body.to_string()).send().await.unwrap()
}

/// The answer, in whichever form it came.
pub async fn answer(response: Response) -> Value {
    let text = response.text().await.unwrap();
    let frames = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let messages = frames.map(str::trim).chain([text.as_str()]);
    let mut messages = messages.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    messages.find(|message| message.get("id").is_some()).unwrap_or_else(|| panic!("{text}"))
}

pub async fn asked(api: &Api, method: &str, params: Value) -> Value {
    answer(post(api, method, params, &json!({})).await).await
}

pub async fn called(api: &Api, name: &str, arguments: Value) -> Value {
    asked(api, "tools/call", json!({"name": name, "arguments": arguments})).await["result"].clone()
}
