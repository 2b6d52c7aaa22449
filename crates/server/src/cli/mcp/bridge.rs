//! A client on standard input and output, a server over HTTP, and messages from one to the other,
//! unread but for what HTTP has to know of them.

use crate::cli::Failure;
use crate::client::{Call, Client, Events};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

const PATH: &str = "/mcp";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// Messages that wait to be written; the server waits when the client does not read.
const WAITING: usize = 64;

struct Bridge {
    client: Client,
    out: mpsc::Sender<String>,
    /// What an older client has agreed on with the server.
    agreed: Mutex<Agreed>,
    /// Requests that are not answered, by their ids.
    open: Mutex<HashMap<String, AbortHandle>>,
}

#[derive(Default, Clone)]
struct Agreed {
    session: Option<HeaderValue>,
    version: Option<String>,
}

pub(super) async fn run(client: Client) -> Result<(), Failure> {
    let (out, lines) = mpsc::channel(WAITING);
    let bridge = Arc::new(Bridge { client, out, agreed: Mutex::default(), open: Mutex::default() });
    let writing = tokio::spawn(write(lines));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.trim().is_empty() {
            bridge.take(line).await;
        }
    }
    bridge.leave().await;
    drop(bridge);
    writing.abort();
    Ok(())
}

async fn write(mut lines: mpsc::Receiver<String>) {
    let mut out = tokio::io::stdout();
    while let Some(line) = lines.recv().await {
        let whole = format!("{line}\n");
        if out.write_all(whole.as_bytes()).await.is_err() || out.flush().await.is_err() {
            return;
        }
    }
}

impl Bridge {
    /// Requests are sent side by side; everything else in its order.
    async fn take(self: &Arc<Self>, line: String) {
        // What is not JSON has no number that could be answered.
        let Ok(message) = serde_json::from_str::<Value>(&line) else { return };
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        if message.get("id").is_some() && !method.is_empty() {
            let id = message["id"].to_string();
            let bridge = Arc::clone(self);
            let sent = tokio::spawn(async move { bridge.request(line, message).await });
            self.open().insert(id, sent.abort_handle());
            return;
        }
        if method == "notifications/cancelled" {
            // Over HTTP, a request is given up by hanging up.
            let request = self.open().remove(&message["params"]["requestId"].to_string());
            request.into_iter().for_each(|request| request.abort());
        }
        // Nobody waits for an answer to it.
        let _ = self.send(line, &message).await;
    }

    async fn request(self: Arc<Self>, line: String, message: Value) {
        if let Err(reason) = self.send(line, &message).await {
            self.say(problem(&message["id"], -32603, &reason)).await;
        }
        if self.agreed().session.is_some() && message["method"] == "initialize" {
            tokio::spawn(Arc::clone(&self).listen());
        }
        self.open().remove(&message["id"].to_string());
    }

    async fn send(&self, line: String, message: &Value) -> Result<(), String> {
        let call = Call {
            headers: self.headers(message),
            ..Call::post(PATH).bytes("application/json", line.into_bytes())
        };
        let answer = self.client.exchange(call).await.map_err(|error| error.to_string())?;
        if message["method"] == "initialize"
            && let Some(session) = answer.headers().get(SESSION)
        {
            self.agreed().session = Some(session.clone());
        }
        match Events::of(answer) {
            Ok(mut events) => {
                while let Some(data) = events.next().await.map_err(|error| error.to_string())? {
                    self.hand_on(data).await;
                }
            }
            Err(answer) => {
                let status = answer.status();
                let text = answer.text().await.map_err(|error| error.to_string())?;
                match serde_json::from_str::<Value>(&text) {
                    Ok(body) if body.get("jsonrpc").is_some() => self.hand_on(text).await,
                    Ok(body) if !status.is_success() => {
                        let said = body["detail"].as_str().unwrap_or("the server has refused");
                        return Err(format!("{status}: {said}"));
                    }
                    Err(_) if !status.is_success() => return Err(status.to_string()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A line of its own, whatever it was on the way.
    async fn hand_on(&self, data: String) {
        let Ok(message) = serde_json::from_str::<Value>(&data) else { return };
        if let Some(version) = message["result"]["protocolVersion"].as_str() {
            self.agreed().version = Some(version.to_owned());
        }
        self.say(message.to_string()).await;
    }

    /// What an older server says without being asked.
    async fn listen(self: Arc<Self>) {
        let call = Call { headers: self.headers(&Value::Null), ..Call::get(PATH) };
        let Ok(answer) = self.client.exchange(call).await else { return };
        let Ok(mut events) = Events::of(answer) else { return };
        while let Ok(Some(data)) = events.next().await {
            self.hand_on(data).await;
        }
    }

    async fn leave(&self) {
        if self.agreed().session.is_some() {
            let headers = self.headers(&Value::Null);
            let call = Call { headers, ..Call::new(Method::DELETE, PATH) };
            let _ = self.client.exchange(call).await;
        }
    }

    fn headers(&self, message: &Value) -> HeaderMap {
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        let mut headers = HeaderMap::from_iter([(reqwest::header::ACCEPT, accept)]);
        let begins = message["method"] == "initialize";
        let agreed = if begins { Agreed::default() } else { self.agreed().clone() };
        headers.extend(agreed.session.map(|session| (SESSION, session)));
        let params = &message["params"];
        let inline = params["_meta"][VERSION_KEY].as_str().map(str::to_owned);
        let named = [
            (VERSION, inline.or(agreed.version)),
            (METHOD, message["method"].as_str().map(str::to_owned)),
            (NAME, name(message["method"].as_str().unwrap_or_default(), params)),
        ];
        for (header, value) in named {
            headers.extend(value.and_then(|value| Some((header, encoded(&value)?))));
        }
        headers
    }

    async fn say(&self, line: String) {
        // Nobody may be reading any more.
        let _ = self.out.send(line).await;
    }

    fn agreed(&self) -> std::sync::MutexGuard<'_, Agreed> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request is about, for whoever routes it without reading it.
fn name(method: &str, params: &Value) -> Option<String> {
    let field = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    params[field].as_str().map(str::to_owned)
}

/// As it is where a header can have it, and as base64 where not.
fn encoded(value: &str) -> Option<HeaderValue> {
    let plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && value.trim() == value;
    let text =
        if plain { value.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(value)) };
    HeaderValue::from_str(&text).ok()
}

fn problem(id: &Value, code: i64, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string()
}
