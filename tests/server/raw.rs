//! HTTP as it is on the wire, for requests that no decent client would send.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Lower case, one a line.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn code(&self) -> String {
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// `127.0.0.1:1234` of `http://127.0.0.1:1234`.
pub(crate) fn authority(address: &str) -> &str {
    address.strip_prefix("http://").unwrap()
}

pub(crate) async fn connect(address: &str) -> TcpStream {
    TcpStream::connect(authority(address)).await.unwrap()
}

/// Sends these bytes and reads to the end of the connection, which the request should ask for.
pub(crate) async fn send(address: &str, request: &[u8]) -> Answer {
    let mut stream = connect(address).await;
    // The server may have said no and closed before it has heard everything.
    let _ = stream.write_all(request).await;
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    let read = tokio::time::timeout(Duration::from_secs(60), reading).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(read.is_ok(), "the connection stays open: {text}");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {text:?}"));
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// A request with these header lines and nothing else, and an end of the connection after it.
pub(crate) fn request(method: &str, target: &str, headers: &[String], body: &str) -> Vec<u8> {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = if body.is_empty() { String::new() } else { content_length(body) };
    format!("{method} {target} HTTP/1.1\r\n{lines}{length}Connection: close\r\n\r\n{body}").into()
}

fn content_length(body: &str) -> String {
    format!("Content-Length: {}\r\n", body.len())
}
