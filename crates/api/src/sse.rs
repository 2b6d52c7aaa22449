//! Server-sent events (SSE). Each event has an id from which a client can resume the stream.

use super::AppState;
use super::problem::Problem;
use super::response_memory::ReservedResponse;
use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, future, stream as streams};
use serde::{Serialize, Serializer};
use service::{FileUrlSigner, NumberedEvent, RequestCaller};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::Event;

/// Shorter than the idle timeout of common proxies between server and browser.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Interval between checks for a revoked key. Output can come in thousands of events a second, so
/// the stream does not check before each one.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn event_stream(
    events: impl Stream<Item = NumberedEvent> + Send + 'static,
    urls: FileUrlSigner,
) -> Response {
    sse_response(events.map(move |(number, event)| {
        let event = urls.sign_event(event);
        (number, event_name(&event), SharedEvent(event))
    }))
}

/// An event that several streams send.
struct SharedEvent(Arc<Event>);

impl Serialize for SharedEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// An item with an id, an event name, and a JSON form.
pub(crate) fn sse_response<T: Serialize>(
    items: impl Stream<Item = (u64, &'static str, T)> + Send + 'static,
) -> Response {
    let frames = items.map(|(number, name, item)| {
        let data = serde_json::to_string(&item).unwrap_or_default();
        Ok::<Frame, Infallible>(Frame::default().id(number.to_string()).event(name).data(data))
    });
    Sse::new(frames).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// An item whose JSON is shared by many streams instead of copied for each. The JSON must be one
/// line.
pub(crate) fn shared_sse_response(
    items: impl Stream<Item = (u64, &'static str, Arc<String>)> + Send + 'static,
) -> Response {
    let frames = streams::unfold(items.boxed(), |mut items| async move {
        // The pending read survives this call: the stream keeps it.
        let frame = match tokio::time::timeout(KEEP_ALIVE, items.next()).await {
            Ok(Some((number, name, json))) => vec![
                Bytes::from(format!("id: {number}\nevent: {name}\ndata: ")),
                Bytes::from_owner(SharedText(json)),
                Bytes::from_static(b"\n\n"),
            ],
            Ok(None) => return None,
            Err(_) => vec![Bytes::from_static(b":\n\n")],
        };
        Some((streams::iter(frame.into_iter().map(Ok::<Bytes, Infallible>)), items))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(frames.flatten())).into_response()
}

struct SharedText(Arc<String>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Ends a stream when the API key that opened it is no longer valid. The stream checks the key
/// before it sends an event or a keep-alive comment.
pub(crate) fn until_key_revoked(
    response: Response,
    app: Arc<AppState>,
    caller: RequestCaller,
) -> Response {
    let kind = response.headers().get(CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != "text/event-stream") {
        return response;
    }
    let mut looked = Instant::now();
    response.map(|body| {
        Body::from_stream(body.into_data_stream().take_while(move |_| {
            let seen = looked.elapsed() < KEY_CHECK_INTERVAL;
            if !seen {
                looked = Instant::now();
            }
            future::ready(seen || app.service.refresh_caller(&caller).is_some())
        }))
    })
}

fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Status { .. } => "status",
        Event::Output(_) => "output",
        Event::Result(_) => "result",
        Event::File(_) => "file",
        Event::Approval { .. } => "approval",
        Event::Plan { .. } => "plan",
        Event::Text { .. } => "text",
        Event::Answer { .. } => "answer",
        Event::Round(_) => "round",
        Event::Tool(_) => "tool",
        Event::Error(_) => "error",
        Event::End { .. } => "end",
    }
}

/// Id of the last event that the client has received; zero if none.
pub(crate) struct LastEventId(pub(crate) u64);

impl<S: Send + Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(given) = parts.headers.get("last-event-id") else {
            return Ok(Self(0));
        };
        let number = given.to_str().ok().and_then(|text| text.trim().parse().ok());
        number.map(Self).ok_or_else(|| {
            super::extract::invalid_field(
                "header/Last-Event-ID".to_owned(),
                "must be the number of an event",
            )
        })
    }
}

/// The response form that the client requests for an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseMode {
    /// The finished record.
    Record,
    /// A stream of events while the execution runs.
    Stream,
    /// 202 with the location of the record: `Prefer: respond-async`.
    Async,
}

impl<S: Send + Sync> FromRequestParts<S> for ResponseMode {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // An execution can run for long. Its response takes memory from the budget of its output.
        if let Some(ReservedResponse(memory)) = parts.extensions.get() {
            memory.give_back();
        }
        let has = |name: &str, word: &str| {
            let values = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            let mut words = values.flat_map(|value| value.split(','));
            words.any(|one| one.split(';').next().unwrap_or_default().trim() == word)
        };
        Ok(if has("prefer", "respond-async") {
            Self::Async
        } else if has(ACCEPT.as_str(), "text/event-stream") {
            Self::Stream
        } else {
            Self::Record
        })
    }
}
