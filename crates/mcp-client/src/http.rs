//! The transport Streamable HTTP: each message is a POST, and its response has the messages of the
//! server, as one JSON text or as a stream of events. The stream for other messages of the server
//! is never opened.

use crate::error::McpClientError;
use crate::inbox::Inbox;
use bytes::Bytes;
use egress::{OutboundClient, OutboundResponse};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use std::io;
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Limit of a session id, in bytes: a signed token is shorter.
const SESSION_BYTES_MAX: usize = 1_024;
/// How long the end of a session may take; the server forgets it by itself otherwise.
const DELETE_TIME_MAX: Duration = Duration::from_secs(2);

pub(crate) struct HttpTransport {
    exchange: Arc<HttpExchange>,
    receiver: mpsc::Receiver<ServerJsonRpcMessage>,
}

struct HttpExchange {
    client: OutboundClient,
    inbox: Arc<Inbox>,
    sender: mpsc::Sender<ServerJsonRpcMessage>,
    session: Mutex<Option<HeaderValue>>,
}

impl HttpTransport {
    pub(crate) fn new(client: OutboundClient, inbox: Arc<Inbox>) -> Self {
        let (sender, receiver) = Inbox::channel();
        let session = Mutex::default();
        Self { exchange: Arc::new(HttpExchange { client, inbox, sender, session }), receiver }
    }
}

impl Transport<RoleClient> for HttpTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let exchange = Arc::clone(&self.exchange);
        async move {
            exchange.post(message).await.map_err(|error| {
                exchange.inbox.fail(error);
                io::Error::other("see the inbox")
            })
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.receiver.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        // The session is of no further use, whatever the server answers.
        let _ = timeout(DELETE_TIME_MAX, self.exchange.delete_session()).await;
        Ok(())
    }
}

impl HttpExchange {
    async fn post(&self, message: ClientJsonRpcMessage) -> Result<(), McpClientError> {
        let request = self.inbox.note_sent(&message);
        let body = serde_json::to_vec(&message)
            .map_err(|_| McpClientError::not_mcp("the request cannot be written"))?;
        let response = self.client.send(Method::POST, self.headers(), body.into()).await?;
        let Some(request) = request else {
            let is_taken = response.status.is_success();
            return if is_taken { Ok(()) } else { Err(status(response.status)) };
        };
        if response.status != StatusCode::OK {
            return Err(status(response.status));
        }
        self.keep_session(&response.headers);
        match content_type(&response.headers) {
            JSON => self.read_json(response).await?,
            EVENTS => self.read_events(response, &request).await?,
            other => return Err(McpClientError::not_mcp(&format!("its type is {other:?}"))),
        }
        match self.inbox.is_open(&request) {
            true => Err(McpClientError::Closed(self.inbox.refused())),
            false => Ok(()),
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, BOTH);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        session.into_iter().for_each(|session| drop(headers.insert(SESSION, session)));
        let version = self.inbox.version().and_then(|version| version.parse().ok());
        version.into_iter().for_each(|version| drop(headers.insert(VERSION, version)));
        headers
    }

    /// Keeps the first id; a server cannot change the session later.
    fn keep_session(&self, headers: &HeaderMap) {
        let Some(id) = headers.get(SESSION).filter(|id| id.len() <= SESSION_BYTES_MAX) else {
            return;
        };
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.get_or_insert_with(|| id.clone());
    }

    async fn read_json(&self, mut response: OutboundResponse) -> Result<(), McpClientError> {
        let mut text = Vec::new();
        while let Some(part) = response.chunk().await? {
            self.inbox.count_bytes(part.len())?;
            text.extend_from_slice(&part);
        }
        self.deliver(text).await
    }

    /// Reads events until the one that answers the request.
    async fn read_events(
        &self,
        mut response: OutboundResponse,
        request: &RequestId,
    ) -> Result<(), McpClientError> {
        let mut events = SseReader::default();
        while let Some(part) = response.chunk().await? {
            self.inbox.count_bytes(part.len())?;
            for data in events.push(&part) {
                self.deliver(data).await?;
                if !self.inbox.is_open(request) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn deliver(&self, text: Vec<u8>) -> Result<(), McpClientError> {
        if let Some(message) = self.inbox.accept(text).await? {
            // The SDK has gone if there is no receiver.
            let _ = self.sender.try_send(message);
        }
        Ok(())
    }

    async fn delete_session(&self) -> Result<(), McpClientError> {
        let headers = self.headers();
        if headers.contains_key(SESSION) {
            self.client.send(Method::DELETE, headers, Bytes::new()).await?;
        }
        Ok(())
    }
}

fn status(status: StatusCode) -> McpClientError {
    McpClientError::Status(status.as_u16())
}

fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim()
}

/// Splits a stream into the data of its events. Its memory is bounded, because the bytes of the
/// connection are.
#[derive(Debug, Default)]
struct SseReader {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

impl SseReader {
    fn push(&mut self, part: &[u8]) -> Vec<Vec<u8>> {
        let mut events = Vec::new();
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if !piece.ends_with(b"\n") {
                continue;
            }
            let line = take(&mut self.line);
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            events.extend(self.end_line(line));
        }
        events
    }

    /// The data of the event that ends with this line, if one does.
    fn end_line(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        if line.is_empty() {
            let data = take(&mut self.data);
            // An event without data only keeps the stream open.
            return (take(&mut self.has_data) && !data.is_empty()).then_some(data);
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
            self.has_data = true;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(parts: &[&str]) -> Vec<String> {
        let mut reader = SseReader::default();
        let events = parts.iter().flat_map(|part| reader.push(part.as_bytes()));
        events.map(|event| String::from_utf8(event).unwrap_or_default()).collect()
    }

    #[test]
    fn events_are_read_wherever_the_stream_is_cut() {
        let stream =
            ": hello\r\nid: 1\r\ndata: {\"a\":\r\ndata:1}\r\n\r\ndata:\n\nevent: x\ndata: b\n\n";
        let whole = events(&[stream]);
        assert_eq!(whole, ["{\"a\":\n1}", "b"]);
        for cut in 0..stream.len() {
            let (first, second) = stream.split_at(cut);
            assert_eq!(events(&[first, second]), whole, "{cut}");
        }
        assert_eq!(events(&["data: an event that does not end\n"]), Vec::<String>::new());
    }
}
