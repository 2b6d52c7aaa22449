//! Raw HTTP, for requests that no correct client would send.

use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
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

/// One connection that is kept: a client with a pool may at any time ask for another one.
pub(crate) struct Kept {
    stream: BufReader<TcpStream>,
    headers: String,
}

impl Kept {
    pub(crate) async fn open(address: &str, key: &str) -> Self {
        let headers = format!("Host: {}\r\nAuthorization: Bearer {key}\r\n", authority(address));
        Self { stream: BufReader::new(connect(address).await), headers }
    }

    pub(crate) async fn post(&mut self, target: &str, kind: &str, body: &str) -> (u16, Value) {
        let (headers, length) = (&self.headers, content_length(body));
        let request = format!(
            "POST {target} HTTP/1.1\r\n{headers}Content-Type: {kind}\r\n{length}\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.stream.read_line(&mut head).await.unwrap(), 0, "it was closed: {head}");
        }
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        self.stream.read_exact(&mut body).await.unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }
}

/// A frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
