//! A client of the REST API: of a server over HTTP, or of the service embedded in this process.
//!
//! A request is an [`ApiRequest`], which is built first and sent afterwards. The key is only sent
//! to the configured server: redirects are not followed. Every status other than success is an
//! error.

mod sse;

pub(crate) use sse::EventStream;

use api::InProcessApi;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Body, Method, Request, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Timeout for connecting only. The duration of a response depends on the request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum page size of the server.
const PAGE_SIZE: usize = 200;

/// Path of the operation that reads a file which an execution produced.
const ASSETS: &str = "/v1/assets/";

/// Returns the path of an asset, from the URL in an answer. Its host is not used, so that the key
/// never follows a URL to another server.
pub(crate) fn asset_path(url: &str) -> Option<String> {
    let path = url.split(['?', '#']).next()?;
    Some(path[path.find(ASSETS)?..].to_owned())
}

/// One request, before it is sent.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// Path that starts with a slash, percent-encoded.
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: ApiRequestBody,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiRequestBody {
    Empty,
    Bytes {
        kind: String,
        bytes: Vec<u8>,
    },
    /// A form with a part for each file.
    Files(Vec<PathBuf>),
}

impl ApiRequest {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        let (query, headers) = (Vec::new(), HeaderMap::new());
        Self { method, path: path.into(), query, headers, body: ApiRequestBody::Empty }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    pub(crate) fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    pub(crate) fn patch(path: impl Into<String>) -> Self {
        Self::new(Method::PATCH, path)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// Adds a query parameter, if it has a value.
    pub(crate) fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name.to_owned(), value.to_string())));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.bytes("application/json", body.to_string().into_bytes())
    }

    pub(crate) fn bytes(mut self, kind: &str, bytes: Vec<u8>) -> Self {
        self.body = ApiRequestBody::Bytes { kind: kind.to_owned(), bytes };
        self
    }
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("invalid server URL {0:?}; use one such as http://127.0.0.1:7117")]
    Address(String),
    #[error(
        "the API key contains characters that are not allowed in a header; use the key as `belljar key new` printed it"
    )]
    Key,
    #[error("cannot read {path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
    #[error(
        "cannot connect to {server}: {reason} (start a server with `belljar serve`, or set its URL with --server or BELLJAR_URL)"
    )]
    Unreachable { server: String, reason: String },
    #[error("the response was interrupted: {reason}")]
    Interrupted { reason: String },
    #[error("unexpected response ({status}) from {server}; check that it is a Belljar server")]
    UnexpectedResponse { server: String, status: StatusCode },
    #[error("{0}")]
    Problem(Box<ApiProblem>),
}

/// Error response of a server (RFC 9457).
#[derive(Debug, Deserialize)]
pub(crate) struct ApiProblem {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) detail: String,
    pub(crate) hint: Option<String>,
    #[serde(default)]
    pub(crate) errors: Vec<ApiProblemDetail>,
    /// Results of the statements in SQL that ran before the error.
    #[serde(default)]
    pub(crate) statements: Vec<Value>,
}

/// One detail of an error response.
#[derive(Debug, Deserialize)]
pub(crate) struct ApiProblemDetail {
    pub(crate) path: Option<String>,
    pub(crate) message: String,
    pub(crate) line: Option<u64>,
    pub(crate) column: Option<u64>,
    pub(crate) hint: Option<String>,
}

impl std::fmt::Display for ApiProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

/// A client of one server, or of the embedded service, with one API key.
#[derive(Debug)]
pub(crate) struct ApiClient {
    http: reqwest::Client,
    transport: Transport,
    /// URL of the server, without a slash at the end.
    server: String,
    authorization: HeaderValue,
}

/// How requests reach the API.
#[derive(Debug)]
enum Transport {
    Network,
    InProcess(InProcessApi),
}

impl ApiClient {
    pub(crate) fn new(server: &str, key: &str) -> Result<Self, ClientError> {
        Self::with_transport(Transport::Network, server, key)
    }

    /// Creates a client of the API of this process, which expects `server` as its host.
    pub(crate) fn in_process(
        api: InProcessApi,
        server: &str,
        key: &str,
    ) -> Result<Self, ClientError> {
        Self::with_transport(Transport::InProcess(api), server, key)
    }

    fn with_transport(transport: Transport, server: &str, key: &str) -> Result<Self, ClientError> {
        let url = Url::parse(server).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| ClientError::Address(server.to_owned()))?;
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| ClientError::Key)?;
        authorization.set_sensitive(true);
        let builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT);
        // A network proxy cannot reach this machine.
        let builder = if is_loopback(&url) { builder.no_proxy() } else { builder };
        let server = server.trim_end_matches('/').to_owned();
        let http = builder.build().map_err(|error| unreachable_error(&server, &error))?;
        Ok(Self { http, transport, server, authorization })
    }

    /// Sends a request and returns the response with any status.
    pub(crate) async fn send_unchecked(&self, call: ApiRequest) -> Result<Response, ClientError> {
        let query =
            form_urlencoded::Serializer::new(String::new()).extend_pairs(call.query).finish();
        let mark = if query.is_empty() { "" } else { "?" };
        let url = format!("{}{}{mark}{query}", self.server, call.path);
        let request = self.http.request(call.method, url);
        let request = request.header(AUTHORIZATION, self.authorization.clone());
        let request = with_body(request, call.body).await?.headers(call.headers);
        let request = request.build().map_err(|error| unreachable_error(&self.server, &error))?;
        let response = match &self.transport {
            Transport::Network => self.http.execute(request).await,
            Transport::InProcess(api) => send_in_process(api, request).await,
        };
        response.map_err(|error| unreachable_error(&self.server, &error))
    }

    /// Sends a request and returns a successful response, or an error.
    pub(crate) async fn send(&self, call: ApiRequest) -> Result<Response, ClientError> {
        let answer = self.send_unchecked(call).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| read_error(&error))?;
        let unexpected =
            |_| ClientError::UnexpectedResponse { server: self.server.clone(), status };
        let problem: ApiProblem = serde_json::from_slice(&bytes).map_err(unexpected)?;
        Err(ClientError::Problem(Box::new(problem)))
    }

    /// Sends a request and returns the JSON of the response, or null if the body is empty.
    pub(crate) async fn json(&self, call: ApiRequest) -> Result<Value, ClientError> {
        let answer = self.send(call).await?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| read_error(&error))?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        let unexpected =
            |_| ClientError::UnexpectedResponse { server: self.server.clone(), status };
        serde_json::from_slice(&bytes).map_err(unexpected)
    }

    /// Sends a request and returns the text of the response.
    pub(crate) async fn text(&self, call: ApiRequest) -> Result<String, ClientError> {
        let answer = self.send(call).await?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| read_error(&error))?;
        let unexpected =
            |_| ClientError::UnexpectedResponse { server: self.server.clone(), status };
        String::from_utf8(bytes.into()).map_err(unexpected)
    }

    /// Returns the newest entries of a list, across pages, and whether there are more.
    pub(crate) async fn list(
        &self,
        path: &str,
        query: &[(String, String)],
        max: usize,
    ) -> Result<(Vec<Value>, bool), ClientError> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let limit = PAGE_SIZE.min(max - items.len()).max(1);
            let mut call = ApiRequest::get(path).query("limit", Some(limit));
            call = call.query("cursor", cursor.as_ref());
            call.query.extend_from_slice(query);
            let mut page = self.json(call).await?;
            if let Some(more) = page["items"].as_array_mut() {
                items.append(more);
            }
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() || items.len() >= max {
                items.truncate(max);
                return Ok((items, cursor.is_some()));
            }
        }
    }
}

async fn send_in_process(api: &InProcessApi, request: Request) -> reqwest::Result<Response> {
    let response = api.send(request.try_into()?).await;
    Ok(response.map(|body| Body::wrap_stream(body.into_data_stream())).into())
}

async fn with_body(
    request: RequestBuilder,
    body: ApiRequestBody,
) -> Result<RequestBuilder, ClientError> {
    Ok(match body {
        ApiRequestBody::Empty => request,
        ApiRequestBody::Bytes { kind, bytes } => request.header(CONTENT_TYPE, kind).body(bytes),
        ApiRequestBody::Files(paths) => {
            let mut form = reqwest::multipart::Form::new();
            for path in paths {
                let added = form.file("file", &path).await;
                form = added.map_err(|error| ClientError::File { path, error })?;
            }
            request.multipart(form)
        }
    })
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn unreachable_error(server: &str, error: &reqwest::Error) -> ClientError {
    // After connecting, the request may have reached the server.
    if error.is_connect() {
        ClientError::Unreachable { server: server.to_owned(), reason: root_cause(error) }
    } else {
        read_error(error)
    }
}

pub(super) fn read_error(error: &reqwest::Error) -> ClientError {
    ClientError::Interrupted { reason: root_cause(error) }
}

/// The innermost cause, which is the most specific: `Connection refused`.
fn root_cause(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
