//! A model provider on loopback that plays a written script over the real wire: OpenAI's chat
//! completions and responses, Anthropic's messages and Gemini's, each as a stream.
//!
//! A turn is one of `agent::ScriptTurn`, and may also say how it goes wrong:
//!
//! - `fail: {status, message, retry_after?, location?}` answers with that error;
//! - `raw: "…"` is the body instead of one in the format of the wire;
//! - `flood: "…"` is such a body that is sent again and again without an end;
//! - `pieces_ms: 20` waits before each piece;
//! - `hang: true` never answers;
//! - `cut: true` ends the connection in the middle.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::unwrap_used, reason = "a harness that cannot set up a test has to fail it")]
#![allow(unreachable_pub, reason = "a test binary has no outside")]

use super::wait;
#[path = "model/wires.rs"]
mod wires;

use agent::{ModelResponse, ModelStopReason, ScriptTurn, ScriptedCall, TokenUsage};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use wires::Wire;

/// Runs in a thread of its own, so that tests of every kind can use it.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    played: Arc<Played>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a client has sent.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

impl ModelServer {
    /// The script is YAML.
    pub fn start(script: &str) -> Self {
        let options = serde_saphyr::options! { strict_booleans: true };
        let turns = serde_saphyr::from_str_with_options(script, options).unwrap();
        let played = Arc::new(Played { turns, ..Played::default() });
        let app = Router::new().fallback(play).with_state(Arc::clone(&played));
        let (stop, stopped) = oneshot::channel();
        let (bound, address) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                bound.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    served = axum::serve(listener, app) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        let address = address.recv().unwrap();
        Self { address, played, stop: Some(stop), thread: Some(thread) }
    }

    /// As `OPENAI_BASE_URL` has it.
    pub fn url(&self) -> String {
        format!("{}/v1", self.host())
    }

    /// As `ANTHROPIC_BASE_URL`, `GEMINI_BASE_URL` and `OLLAMA_HOST` have it.
    pub fn host(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.played.requests.lock().unwrap().clone()
    }

    /// How many clients have left before their answer was at its end.
    pub fn left(&self) -> usize {
        self.played.left.load(Ordering::SeqCst)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[derive(Debug, Default)]
struct Played {
    turns: Vec<WireTurn>,
    requests: Mutex<Vec<Request>>,
    left: AtomicUsize,
}

/// A turn, and how it goes wrong.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WireTurn {
    expect: Option<String>,
    say: String,
    calls: Vec<ScriptedCall>,
    tokens: TokenUsage,
    stop: ModelStopReason,
    fail: Option<Fail>,
    raw: Option<String>,
    flood: Option<String>,
    pieces_ms: u64,
    hang: bool,
    cut: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    status: u16,
    #[serde(default)]
    message: String,
    retry_after: Option<u64>,
    location: Option<String>,
}

impl WireTurn {
    fn answer(&self, number: usize) -> ModelResponse {
        let Self { expect, say, calls, tokens, stop, .. } = self.clone();
        ScriptTurn { expect, say, calls, tokens, stop }.response(number)
    }
}

async fn play(
    State(played): State<Arc<Played>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return refused(400, "the request is not JSON");
    };
    let number = {
        let mut requests = played.requests.lock().unwrap();
        requests.push(Request { path: uri.path().to_owned(), headers, body: body.clone() });
        requests.len() - 1
    };
    let Some(wire) = Wire::of(uri.path()) else {
        return refused(404, &format!("nothing is played at {}", uri.path()));
    };
    let Some(turn) = played.turns.get(number).cloned() else {
        return refused(400, &format!("the script has ended after {number} turns"));
    };
    if let Some(expected) = &turn.expect
        && !wire.last_message(&body).contains(expected)
    {
        return refused(400, &format!("turn {}: the script expects {expected:?}", number + 1));
    }
    let leaving = Leaving(Arc::clone(&played));
    if turn.hang {
        let () = std::future::pending().await;
    }
    if let Some(fail) = &turn.fail {
        leaving.at_the_end();
        return fail.response();
    }
    stream_of(wire, turn, number, &body, leaving)
}

fn refused(status: u16, message: &str) -> Response {
    let message = message.to_owned();
    Fail { status, message, retry_after: None, location: None }.response()
}

impl Fail {
    fn response(&self) -> Response {
        let mut response =
            Response::builder().status(self.status).header("content-type", "application/json");
        if let Some(seconds) = self.retry_after {
            response = response.header("retry-after", seconds);
        }
        if let Some(location) = &self.location {
            response = response.header("location", location);
        }
        let body = json!({"type": "error", "error": {"type": "error", "message": self.message}});
        response.body(Body::from(body.to_string())).unwrap()
    }
}

/// Counts a client that leaves before `at_the_end`.
#[derive(Debug)]
struct Leaving(Arc<Played>);

impl Leaving {
    fn at_the_end(self) {
        self.0.left.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }
}

fn stream_of(
    wire: Wire,
    turn: WireTurn,
    number: usize,
    body: &Value,
    leaving: Leaving,
) -> Response {
    let mut pieces = match turn.raw.as_ref().or(turn.flood.as_ref()) {
        Some(raw) => vec![raw.clone()],
        None => wire.pieces(&turn.answer(number), body),
    };
    if turn.cut {
        pieces.truncate(pieces.len().div_ceil(2));
    }
    let pause = Duration::from_millis(turn.pieces_ms);
    let stream = stream::unfold((0, Some(leaving)), move |(sent, leaving)| {
        let piece = match &turn.flood {
            Some(flood) => Some(flood.clone()),
            None => pieces.get(sent).cloned(),
        };
        let cut = turn.cut;
        async move {
            let leaving = leaving?;
            wait::slow_peer(pause).await;
            match piece {
                Some(piece) => Some((Ok(Bytes::from(piece)), (sent + 1, Some(leaving)))),
                None if cut => {
                    leaving.at_the_end();
                    Some((Err(io::Error::other("cut")), (sent, None)))
                }
                None => {
                    leaving.at_the_end();
                    None
                }
            }
        }
    });
    let kind = "text/event-stream";
    Response::builder().header("content-type", kind).body(Body::from_stream(stream)).unwrap()
}
