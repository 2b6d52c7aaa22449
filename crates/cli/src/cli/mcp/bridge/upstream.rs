//! Sends messages to the server with the required HTTP headers, and holds the session of a legacy
//! client. If the server has lost the session, as after a restart, the bridge repeats the
//! `initialize` request of the client; the client must not notice.

use crate::client::{ApiClient, ApiRequest, ClientError, EventStream};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};
use types::{Error, ErrorCode};

const PATH: &str = "/mcp";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

pub(super) struct McpUpstream {
    client: ApiClient,
    session: watch::Sender<Option<LegacySession>>,
    /// Held by the task that initializes again; the others wait for the session.
    initializing: Mutex<()>,
}

/// The session of a legacy client.
#[derive(Clone)]
pub(super) struct LegacySession {
    /// The `initialize` request of the client.
    initialize: Value,
    session: Option<HeaderValue>,
    version: String,
}

pub(super) type LegacySessionReceiver = watch::Receiver<Option<LegacySession>>;

/// Why a request has no response of the server.
#[derive(Debug, thiserror::Error)]
pub(super) enum McpUpstreamError {
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("{status}: {detail}")]
    Rejected { status: StatusCode, detail: String },
    #[error("the server did not respond in time; check that it is running")]
    Timeout,
    #[error(
        "the server closed the connection without a response; the request may have taken effect"
    )]
    NoResponse,
}

impl McpUpstreamError {
    pub(super) fn to_error(&self) -> Error {
        let code = match self {
            Self::Client(ClientError::Interrupted { .. }) | Self::NoResponse => {
                ErrorCode::ExecutionInterrupted
            }
            Self::Client(_) | Self::Rejected { .. } | Self::Timeout => {
                ErrorCode::SandboxUnreachable
            }
        };
        Error::new(code, self.to_string())
    }
}

impl McpUpstream {
    pub(super) fn new(client: ApiClient) -> Self {
        Self { client, session: watch::Sender::default(), initializing: Mutex::default() }
    }

    pub(super) fn watch_session(&self) -> LegacySessionReceiver {
        self.session.subscribe()
    }

    fn current_session(&self) -> Option<LegacySession> {
        self.session.borrow().clone()
    }

    pub(super) async fn request(
        &self,
        line: Vec<u8>,
        message: &Value,
    ) -> Result<McpResponse, McpUpstreamError> {
        if message["method"] == "initialize" {
            return Ok(McpResponse::Whole(Some(self.initialize(message).await?)));
        }
        let legacy = self.current_session();
        let answer = self.post(line.clone(), message, legacy.as_ref()).await?;
        match legacy {
            Some(lost) if lost.session.is_some() && answer.status() == StatusCode::NOT_FOUND => {
                self.reinitialize(lost).await?;
                // Safe to repeat: without a session the server did nothing.
                McpResponse::from_response(
                    self.post(line, message, self.current_session().as_ref()).await?,
                )
                .await
            }
            _ => McpResponse::from_response(answer).await,
        }
    }

    /// Sends a notification, which has no response.
    pub(super) async fn notify(
        &self,
        line: Vec<u8>,
        message: &Value,
    ) -> Result<(), McpUpstreamError> {
        self.post(line, message, self.current_session().as_ref()).await?;
        Ok(())
    }

    pub(super) async fn listen(&self) -> Result<McpResponse, McpUpstreamError> {
        let headers = request_headers(&Value::Null, self.current_session().as_ref());
        McpResponse::from_response(
            self.client.send_unchecked(ApiRequest { headers, ..ApiRequest::get(PATH) }).await?,
        )
        .await
    }

    pub(super) async fn close_session(&self) {
        if let Some(legacy) = self.current_session().filter(|legacy| legacy.session.is_some()) {
            let headers = request_headers(&Value::Null, Some(&legacy));
            // The server may have ended already.
            let _ = self
                .client
                .send_unchecked(ApiRequest { headers, ..ApiRequest::delete(PATH) })
                .await;
        }
    }

    async fn initialize(&self, request: &Value) -> Result<Value, McpUpstreamError> {
        let answer = self.post(request.to_string().into_bytes(), request, None).await?;
        let session = answer.headers().get(SESSION).cloned();
        let mut answer = McpResponse::from_response(answer).await?;
        let response = loop {
            let response = answer.next_message().await?.ok_or(McpUpstreamError::NoResponse)?;
            if response["id"] == request["id"] {
                break response;
            }
        };
        if let Some(version) = response["result"]["protocolVersion"].as_str() {
            let (request, version) = (request.clone(), version.to_owned());
            self.session.send_replace(Some(LegacySession {
                initialize: request,
                session,
                version,
            }));
        }
        Ok(response)
    }

    async fn reinitialize(&self, lost: LegacySession) -> Result<(), McpUpstreamError> {
        let _beginning = self.initializing.lock().await;
        // Another task may have noticed it first.
        if self.current_session().is_some_and(|legacy| legacy.session == lost.session) {
            self.initialize(&lost.initialize).await?;
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            self.notify(initialized.to_string().into_bytes(), &initialized).await?;
        }
        Ok(())
    }

    async fn post(
        &self,
        line: Vec<u8>,
        message: &Value,
        legacy: Option<&LegacySession>,
    ) -> Result<Response, ClientError> {
        let headers = request_headers(message, legacy);
        let call = ApiRequest { headers, ..ApiRequest::post(PATH).bytes("application/json", line) };
        self.client.send_unchecked(call).await
    }
}

/// The response to one request, message by message.
pub(super) enum McpResponse {
    Stream(EventStream),
    Whole(Option<Value>),
}

impl McpResponse {
    async fn from_response(answer: Response) -> Result<Self, McpUpstreamError> {
        let answer = match EventStream::from_response(answer) {
            Ok(events) => return Ok(Self::Stream(events)),
            Err(answer) => answer,
        };
        let status = answer.status();
        let broken = |error: reqwest::Error| ClientError::Interrupted { reason: error.to_string() };
        let text = answer.text().await.map_err(broken)?;
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        if body.get("jsonrpc").is_some() {
            return Ok(Self::Whole(Some(body)));
        }
        if status.is_success() {
            return Ok(Self::Whole(None));
        }
        let detail =
            body["detail"].as_str().unwrap_or("the server rejected the request").to_owned();
        Err(McpUpstreamError::Rejected { status, detail })
    }

    /// Returns the next message, or `None` at the end.
    pub(super) async fn next_message(&mut self) -> Result<Option<Value>, McpUpstreamError> {
        match self {
            Self::Whole(message) => Ok(message.take()),
            Self::Stream(events) => {
                while let Some(data) = events.next_data().await? {
                    // Some events only keep the connection alive.
                    if let Ok(message) = serde_json::from_str(&data) {
                        return Ok(Some(message));
                    }
                }
                Ok(None)
            }
        }
    }
}

fn request_headers(message: &Value, legacy: Option<&LegacySession>) -> HeaderMap {
    let accept = HeaderValue::from_static("application/json, text/event-stream");
    let mut headers = HeaderMap::from_iter([(ACCEPT, accept)]);
    let session = legacy.and_then(|legacy| legacy.session.clone());
    headers.extend(session.map(|session| (SESSION, session)));
    let params = &message["params"];
    let inline = params["_meta"][VERSION_KEY].as_str();
    let method = message["method"].as_str();
    let named = [
        (VERSION, inline.or(legacy.map(|legacy| legacy.version.as_str()))),
        (METHOD, method),
        (NAME, subject_name(method.unwrap_or_default(), params)),
    ];
    for (header, value) in named {
        headers.extend(value.and_then(|value| Some((header, encode_header_value(value)?))));
    }
    headers
}

/// Returns the subject of a request, for proxies that route by header.
fn subject_name<'a>(method: &str, params: &'a Value) -> Option<&'a str> {
    let field = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    params[field].as_str()
}

/// Encodes a header value: unchanged if it is valid in a header, otherwise as base64.
fn encode_header_value(value: &str) -> Option<HeaderValue> {
    let plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && value.trim() == value;
    let text =
        if plain { value.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(value)) };
    HeaderValue::from_str(&text).ok()
}
