//! Everything that a server sends passes through an [`Inbox`], which bounds and judges it before the
//! SDK sees it.

use crate::error::McpClientError;
use rmcp::model::{
    ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerRequest,
    ServerResult,
};
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use types::JsonSize;

/// Limit of all bytes of one connection: a long list of tools, or a result with some images.
const CONNECTION_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Limit of the messages of one connection: progress every tenth of a second for more than a minute.
pub(crate) const MESSAGES_MAX: usize = 1_000;
/// Limit of the requests that a server makes. All are refused, so that an honest server stops soon.
const PEER_REQUESTS_MAX: usize = 16;
/// Limit of the memory of one parsed message: small values take much more than their text.
const MESSAGE_MEMORY_MAX: usize = 64 * 1024 * 1024;
/// A longer message is parsed on a thread that serves no requests.
const PARSED_AT_ONCE_BYTES: usize = 64 * 1024;
/// The versions of the protocol that begin with `initialize`.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What of a message is forwarded to the SDK.
pub(crate) type Accepted = Option<ServerJsonRpcMessage>;

#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
}

#[derive(Debug, Default)]
struct InboxState {
    bytes: usize,
    messages: usize,
    peer_requests: usize,
    /// The requests without a response.
    open: Vec<RequestId>,
    /// The negotiated version of the protocol.
    version: Option<String>,
    /// The method of a request that was refused, for the message about what happens next.
    refused: Option<String>,
    /// The first failure, which explains every later one.
    failure: Option<McpClientError>,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default() }
    }

    /// The channel to the SDK. It never is full, because messages are counted before.
    pub(crate) fn channel()
    -> (mpsc::Sender<ServerJsonRpcMessage>, mpsc::Receiver<ServerJsonRpcMessage>) {
        mpsc::channel(MESSAGES_MAX)
    }

    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a message of the client; returns its id if it is a request.
    pub(crate) fn note_sent(&self, message: &ClientJsonRpcMessage) -> Option<RequestId> {
        let JsonRpcMessage::Request(request) = message else { return None };
        self.state().open.push(request.id.clone());
        Some(request.id.clone())
    }

    pub(crate) fn is_open(&self, id: &RequestId) -> bool {
        self.state().open.contains(id)
    }

    pub(crate) fn version(&self) -> Option<String> {
        self.state().version.clone()
    }

    pub(crate) fn refused(&self) -> Option<String> {
        self.state().refused.clone()
    }

    /// Notes why the connection ends.
    pub(crate) fn fail(&self, error: McpClientError) {
        self.state().failure.get_or_insert(error);
    }

    pub(crate) fn take_failure(&self) -> Option<McpClientError> {
        self.state().failure.take()
    }

    /// Counts bytes as they arrive.
    pub(crate) fn count_bytes(&self, bytes: usize) -> Result<(), McpClientError> {
        let mut state = self.state();
        state.bytes = state.bytes.saturating_add(bytes);
        match state.bytes > CONNECTION_BYTES_MAX {
            true => Err(McpClientError::TooMuch { what: "more bytes", max: CONNECTION_BYTES_MAX }),
            false => Ok(()),
        }
    }

    /// Parses and judges a message.
    pub(crate) async fn accept(&self, text: Vec<u8>) -> Result<Accepted, McpClientError> {
        {
            let mut state = self.state();
            state.messages += 1;
            if state.messages > MESSAGES_MAX {
                return Err(McpClientError::TooMuch { what: "more messages", max: MESSAGES_MAX });
            }
        }
        let message = match text.len() > PARSED_AT_ONCE_BYTES {
            false => parse(&text)?,
            true => spawn_blocking(move || parse(&text))
                .await
                .map_err(|_| McpClientError::not_mcp("it cannot be read"))??,
        };
        self.check(message)
    }

    fn check(&self, message: ServerJsonRpcMessage) -> Result<Accepted, McpClientError> {
        let mut state = self.state();
        match &message {
            // Progress and logs are of no use here.
            JsonRpcMessage::Notification(_) => return Ok(None),
            JsonRpcMessage::Request(request) => {
                if !matches!(request.request, ServerRequest::PingRequest(_)) {
                    state.refused = Some(method(&message));
                }
                state.peer_requests += 1;
                if state.peer_requests > PEER_REQUESTS_MAX {
                    return Err(McpClientError::TooMuch {
                        what: "more requests of its own",
                        max: PEER_REQUESTS_MAX,
                    });
                }
            }
            JsonRpcMessage::Response(response) => {
                state.close(&response.id)?;
                if let ServerResult::InitializeResult(result) = &response.result {
                    let version = result.protocol_version.as_str();
                    if !VERSIONS.contains(&version) {
                        return Err(McpClientError::Version(crate::error::printable(version)));
                    }
                    state.version = Some(version.to_owned());
                }
            }
            JsonRpcMessage::Error(error) => match &error.id {
                Some(id) => state.close(id)?,
                None => return Err(McpClientError::refused(&error.error)),
            },
        }
        Ok(Some(message))
    }
}

impl InboxState {
    fn close(&mut self, id: &RequestId) -> Result<(), McpClientError> {
        let known = self.open.iter().position(|open| open == id);
        let known = known.ok_or(McpClientError::UnknownId)?;
        self.open.swap_remove(known);
        Ok(())
    }
}

fn parse(text: &[u8]) -> Result<ServerJsonRpcMessage, McpClientError> {
    let text = str::from_utf8(text).map_err(|_| McpClientError::not_mcp("it is not UTF-8"))?;
    if JsonSize::measure(text).memory_bytes > MESSAGE_MEMORY_MAX {
        return Err(McpClientError::TooMuch {
            what: "a message that takes more memory",
            max: MESSAGE_MEMORY_MAX,
        });
    }
    serde_json::from_str(text).map_err(|_| McpClientError::not_mcp(text))
}

fn method(message: &ServerJsonRpcMessage) -> String {
    let value = serde_json::to_value(message).unwrap_or_default();
    let method = value.get("method").and_then(Value::as_str).unwrap_or("a request");
    crate::error::printable(method)
}
