//! Responses of the fake hosts: as much of each API as its client needs, and invalid ones.

use super::host::{Line, Seen};
use crate::harness::wait_blocking;
use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Between two parts of an answer that is streamed.
pub(super) const PAUSE: Duration = Duration::from_millis(400);

pub(super) fn openai(seen: &Seen, line: &mut Line) -> io::Result<()> {
    if seen.json()["stream"] == json!(true) {
        let part = |content: &str| {
            json!({"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m",
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": content}}]})
        };
        let parts = [part("from "), part("openai")].map(|it| format!("data: {it}\n\n"));
        return streamed(line, &parts, "data: [DONE]\n\n");
    }
    line.json(&json!({"id": "c", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "from openai"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}))
}

pub(super) fn anthropic(seen: &Seen, line: &mut Line) -> io::Result<()> {
    let message = |content: Value| {
        json!({"id": "m", "type": "message", "role": "assistant", "model": "m",
            "content": content, "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 1, "output_tokens": 1}})
    };
    if seen.json()["stream"] != json!(true) {
        return line.json(&message(json!([{"type": "text", "text": "from anthropic"}])));
    }
    let event =
        |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let text = |text: &str| {
        event(json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}}))
    };
    let begun = event(json!({"type": "message_start", "message": message(json!([]))}))
        + &event(json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}));
    let end = event(json!({"type": "content_block_stop", "index": 0}))
        + &event(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 2}}))
        + &event(json!({"type": "message_stop"}));
    streamed(line, &[begun + &text("from "), text("anthropic")], &end)
}

/// Events, with a pause after each, so that a client can tell whether they came one by one.
fn streamed(line: &mut Line, parts: &[String], end: &str) -> io::Result<()> {
    line.head("200 OK", "Content-Type: text/event-stream\r\n")?;
    for part in parts {
        line.say(part)?;
        wait_blocking::slow_peer(PAUSE);
    }
    line.say(end)
}

/// A chat in the form of OpenAI, which others have as well.
fn completion(line: &mut Line, text: &str) -> io::Result<()> {
    line.json(&json!({"id": "c", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}))
}

pub(super) fn groq(_: &Seen, line: &mut Line) -> io::Result<()> {
    completion(line, "from groq")
}

pub(super) fn mistral(_: &Seen, line: &mut Line) -> io::Result<()> {
    completion(line, "from mistral")
}

pub(super) fn together(_: &Seen, line: &mut Line) -> io::Result<()> {
    completion(line, "from together")
}

pub(super) fn cohere(_: &Seen, line: &mut Line) -> io::Result<()> {
    line.json(&json!({"id": "c", "finish_reason": "COMPLETE",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "from cohere"}]}}))
}

pub(super) fn gemini(_: &Seen, line: &mut Line) -> io::Result<()> {
    line.json(&json!({"candidates": [{"finishReason": "STOP",
        "content": {"role": "model", "parts": [{"text": "from gemini"}]}}]}))
}

/// The audience of access tokens for the platform.
pub(super) const AUDIENCE: &str = "https://platform.example";

/// The subject of an access token for the platform.
fn subject(authorization: &str) -> Option<String> {
    let claims = authorization.strip_prefix("Bearer ")?.split('.').nth(1)?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    let is_meant = claims["aud"].as_array()?.iter().any(|audience| audience == AUDIENCE);
    claims["sub"].as_str().filter(|_| is_meant).map(str::to_owned)
}

/// Shows assets to those whose token it knows; each has one of their own, and one has none. Says back
/// the token if asked to.
pub(super) fn cognite(seen: &Seen, line: &mut Line) -> io::Result<()> {
    if seen.path == "/echo" {
        return line.content("text/plain", seen.header("authorization"));
    }
    let asset = |who: &str| {
        json!({"instanceType": "node", "space": "assets", "externalId": format!("pump-of-{who}"),
            "version": 1, "createdTime": 0, "lastUpdatedTime": 0, "properties": {"cdf_cdm": {
                "CogniteAsset/v1": {"name": format!("Pump of {who}"), "description": "It pumps."}}}})
    };
    let assets = match seen.header("authorization") {
        "Bearer cdf-token-of-ann" => vec![asset("ann")],
        "Bearer cdf-token-of-bob" => vec![asset("bob")],
        "Bearer cdf-token-of-eve" => vec![],
        token if subject(token).is_some() => vec![asset(&subject(token).unwrap())],
        _ => {
            let body = r#"{"error": {"code": 401, "message": "Unauthorized"}}"#;
            let length = body.len();
            let headers = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
            line.head("401 Unauthorized", &headers)?;
            return line.say(body);
        }
    };
    line.json(&json!({"items": assets}))
}

/// Says back the headers that it was sent, or plays a trick.
pub(super) fn shop(seen: &Seen, line: &mut Line) -> io::Result<()> {
    if let Some(played) = trick(seen, line) {
        return played;
    }
    let said = seen.headers.iter().map(|(name, value)| (name.clone(), json!(value)));
    line.json(&Value::Object(said.collect()))
}

/// A page, a bucket, a socket, a repository, and tricks.
pub(super) fn site(repository: &Path, seen: &Seen, line: &mut Line) -> io::Result<()> {
    if let Some(played) = trick(seen, line) {
        return played;
    }
    let (path, _) = split(seen);
    match path.strip_prefix("/repository.git/").map(|file| std::fs::read(repository.join(file))) {
        Some(Ok(content)) => return line.content("text/plain", content),
        Some(Err(_)) => return line.head("404 Not Found", "Content-Length: 0\r\n"),
        None => {}
    }
    match path {
        "/socket" => socket(seen, line),
        "/bucket" => line.content("application/xml", BUCKET),
        _ => line.content("text/plain", "here"),
    }
}

fn split(seen: &Seen) -> (&str, &str) {
    seen.path.split_once('?').unwrap_or((&seen.path, ""))
}

/// What a host does that is broken or hostile.
fn trick(seen: &Seen, line: &mut Line) -> Option<io::Result<()>> {
    let mut lie = |length: usize, said: &str| {
        line.head("200 OK", &format!("Content-Type: text/plain\r\nContent-Length: {length}\r\n"))?;
        line.say(said)
    };
    Some(match split(seen) {
        ("/short", _) => lie(1_000, "not as much"),
        ("/long", _) => lie(4, "here, and more\r\nHTTP/1.1 200 OK\r\n\r\n"),
        ("/redirect", to) => {
            line.head("302 Found", &format!("Location: {to}\r\nContent-Length: 0\r\n"))
        }
        ("/silence", _) => loop {
            std::thread::park();
        },
        _ => return None,
    })
}

const BUCKET: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><Prefix></Prefix>
<KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>
<Contents><Key>report.csv</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>"e"</ETag>
<Size>3</Size><StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>"#;

/// A WebSocket that says each short message back.
fn socket(seen: &Seen, line: &mut Line) -> io::Result<()> {
    let key = format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", seen.header("sec-websocket-key"));
    let accept = STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes()));
    line.say(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ))?;
    loop {
        let [kind, length] = line.hear()?;
        let mask: [u8; 4] = line.hear()?;
        let mut frame = vec![kind, length & 0x7f];
        for place in 0..usize::from(length & 0x7f) {
            let [byte] = line.hear()?;
            frame.push(byte ^ mask[place % 4]);
        }
        line.say(frame)?;
        if kind & 0x0f == 8 {
            return Ok(());
        }
    }
}
