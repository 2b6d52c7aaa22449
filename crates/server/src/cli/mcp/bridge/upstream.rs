//! The server's side: messages with the headers that HTTP has to have, and the session of an older
//! client. A server that has lost it, as in a restart, is told again what the client said at the
//! beginning; the client must not notice.

use crate::client::{Call, Client, ClientError, Events};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};
use types::{Code, Fault};

const PATH: &str = "/mcp";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

pub(super) struct Upstream {
    client: Client,
    agreed: watch::Sender<Option<Agreed>>,
    /// Held by the one who begins again; the others wait for the session.
    beginning: Mutex<()>,
}

/// What an older client and the server have agreed on.
#[derive(Clone)]
pub(super) struct Agreed {
    /// The client's own words.
    hello: Value,
    session: Option<HeaderValue>,
    version: String,
}

pub(super) type Agreements = watch::Receiver<Option<Agreed>>;

/// Why a request has no answer of the server's.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("{status}: {said}")]
    Refused { status: StatusCode, said: String },
    #[error("the server has said nothing for too long; is it running?")]
    Late,
    #[error("the server has ended without an answer; what was asked may have been done")]
    Silent,
}

impl Unanswered {
    pub(super) fn fault(&self) -> Fault {
        let code = match self {
            Self::Client(ClientError::Interrupted { .. }) | Self::Silent => {
                Code::ExecutionInterrupted
            }
            Self::Client(_) | Self::Refused { .. } | Self::Late => Code::SandboxUnreachable,
        };
        Fault::new(code, self.to_string())
    }
}

impl Upstream {
    pub(super) fn new(client: Client) -> Self {
        Self { client, agreed: watch::Sender::default(), beginning: Mutex::default() }
    }

    pub(super) fn agreements(&self) -> Agreements {
        self.agreed.subscribe()
    }

    fn agreed(&self) -> Option<Agreed> {
        self.agreed.borrow().clone()
    }

    pub(super) async fn ask(&self, line: Vec<u8>, message: &Value) -> Result<Answer, Unanswered> {
        if message["method"] == "initialize" {
            return Ok(Answer::Whole(Some(self.begin(message).await?)));
        }
        let agreed = self.agreed();
        let answer = self.post(line.clone(), message, agreed.as_ref()).await?;
        match agreed {
            Some(lost) if lost.session.is_some() && answer.status() == StatusCode::NOT_FOUND => {
                self.begin_again(lost).await?;
                // Nothing was done: there was no session to do it in.
                Answer::of(self.post(line, message, self.agreed().as_ref()).await?).await
            }
            _ => Answer::of(answer).await,
        }
    }

    /// For what has no answer.
    pub(super) async fn tell(&self, line: Vec<u8>, message: &Value) -> Result<(), Unanswered> {
        self.post(line, message, self.agreed().as_ref()).await?;
        Ok(())
    }

    pub(super) async fn listen(&self) -> Result<Answer, Unanswered> {
        let headers = headers(&Value::Null, self.agreed().as_ref());
        Answer::of(self.client.exchange(Call { headers, ..Call::get(PATH) }).await?).await
    }

    pub(super) async fn leave(&self) {
        if let Some(agreed) = self.agreed().filter(|agreed| agreed.session.is_some()) {
            let headers = headers(&Value::Null, Some(&agreed));
            // It may have gone before us.
            let _ = self.client.exchange(Call { headers, ..Call::delete(PATH) }).await;
        }
    }

    async fn begin(&self, hello: &Value) -> Result<Value, Unanswered> {
        let answer = self.post(hello.to_string().into_bytes(), hello, None).await?;
        let session = answer.headers().get(SESSION).cloned();
        let mut answer = Answer::of(answer).await?;
        let told = loop {
            let told = answer.next().await?.ok_or(Unanswered::Silent)?;
            if told["id"] == hello["id"] {
                break told;
            }
        };
        if let Some(version) = told["result"]["protocolVersion"].as_str() {
            let (hello, version) = (hello.clone(), version.to_owned());
            self.agreed.send_replace(Some(Agreed { hello, session, version }));
        }
        Ok(told)
    }

    async fn begin_again(&self, lost: Agreed) -> Result<(), Unanswered> {
        let _beginning = self.beginning.lock().await;
        // Somebody else may have noticed it first.
        if self.agreed().is_some_and(|agreed| agreed.session == lost.session) {
            self.begin(&lost.hello).await?;
            let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            self.tell(begun.to_string().into_bytes(), &begun).await?;
        }
        Ok(())
    }

    async fn post(
        &self,
        line: Vec<u8>,
        message: &Value,
        agreed: Option<&Agreed>,
    ) -> Result<Response, ClientError> {
        let headers = headers(message, agreed);
        let call = Call { headers, ..Call::post(PATH).bytes("application/json", line) };
        self.client.exchange(call).await
    }
}

/// What a server says to one request, message by message.
pub(super) enum Answer {
    Stream(Events),
    Whole(Option<Value>),
}

impl Answer {
    async fn of(answer: Response) -> Result<Self, Unanswered> {
        let answer = match Events::of(answer) {
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
        let said = body["detail"].as_str().unwrap_or("the server has refused").to_owned();
        Err(Unanswered::Refused { status, said })
    }

    /// None when all is said.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, Unanswered> {
        match self {
            Self::Whole(message) => Ok(message.take()),
            Self::Stream(events) => {
                while let Some(data) = events.next().await? {
                    // Some events only keep the line alive.
                    if let Ok(message) = serde_json::from_str(&data) {
                        return Ok(Some(message));
                    }
                }
                Ok(None)
            }
        }
    }
}

fn headers(message: &Value, agreed: Option<&Agreed>) -> HeaderMap {
    let accept = HeaderValue::from_static("application/json, text/event-stream");
    let mut headers = HeaderMap::from_iter([(ACCEPT, accept)]);
    let session = agreed.and_then(|agreed| agreed.session.clone());
    headers.extend(session.map(|session| (SESSION, session)));
    let params = &message["params"];
    let inline = params["_meta"][VERSION_KEY].as_str();
    let method = message["method"].as_str();
    let named = [
        (VERSION, inline.or(agreed.map(|agreed| agreed.version.as_str()))),
        (METHOD, method),
        (NAME, name(method.unwrap_or_default(), params)),
    ];
    for (header, value) in named {
        headers.extend(value.and_then(|value| Some((header, encoded(value)?))));
    }
    headers
}

/// What a request is about, for whoever routes it without reading it.
fn name<'a>(method: &str, params: &'a Value) -> Option<&'a str> {
    let field = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    params[field].as_str()
}

/// As it is where a header can have it, and as base64 where not.
fn encoded(value: &str) -> Option<HeaderValue> {
    let plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && value.trim() == value;
    let text =
        if plain { value.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(value)) };
    HeaderValue::from_str(&text).ok()
}
