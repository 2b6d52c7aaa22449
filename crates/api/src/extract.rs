//! Extractors: JSON bodies, paths and queries become values, and errors name the field; and values
//! become JSON responses.
//!
//! A body is limited in size, time and depth before it is parsed. A key that occurs twice in an
//! object is rejected, since two parsers could disagree about its value. Bodies in memory count
//! against their API key, and large bodies are parsed off the server threads.

use super::problem::Problem;
use super::rate_limit::BodyMemoryPermit;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http_body::Body as _;
use serde::Serialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use service::{ErrorDetail, RequestError};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use types::{Error, ErrorCode};

/// Enough for code, arguments and small files as text; clients upload larger data as documents.
pub(crate) const JSON_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A client on a slow link sends a megabyte in this time; a hostile client holds memory no longer.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// A body that is too large is read and discarded up to this multiple of its limit.
const DISCARD_FACTOR: usize = 4;
/// The depth limit of a tool's arguments plus the objects around them.
const DEPTH_MAX: usize = 96;
/// Values and names in one body. Each takes up to a hundred bytes of memory, whatever its size on
/// the wire.
const NODES_MAX: usize = 250_000;
/// A body up to this size parses in less than a millisecond, so it is parsed in place.
pub(crate) const SMALL_BYTES_MAX: usize = 64 * 1024;
/// Limits how many larger bodies are parsed at once, each on its own thread.
static LARGE_BODY_READERS: Semaphore = Semaphore::const_new(2);

/// A JSON body of a request or a response. axum's own type would enable `raw_value` of serde_json
/// (decision 0039).
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => {
                let message = format!("the response cannot be serialized as JSON: {error}");
                let problem = Problem::from(Error::new(ErrorCode::ValueNotJson, message));
                problem.with_status(StatusCode::INTERNAL_SERVER_ERROR).into_response()
            }
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let kind =
            request.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
        if kind.is_none() && request.method() == Method::POST && request.body().is_end_stream() {
            // An absent body means the defaults; missing required fields are still reported.
            return Ok(Self(from_json(b"{}")?));
        }
        if !kind.is_some_and(is_json) {
            let error = Error::new(ErrorCode::ArgsInvalid, "Content-Type must be application/json");
            return Err(error.hint("set the header `Content-Type: application/json`").into());
        }
        let charge = request.extensions().get::<Arc<BodyMemoryPermit>>().cloned();
        let bytes = read_body(request.into_body(), JSON_BYTES_MAX, charge.as_deref()).await?;
        Ok(Self(parse_off_thread(bytes, from_json).await?))
    }
}

/// Parses a body, off the server threads if it is large.
pub(crate) async fn parse_off_thread<T: Send + 'static>(
    bytes: Vec<u8>,
    reader: impl FnOnce(&[u8]) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    if bytes.len() <= SMALL_BYTES_MAX {
        return reader(&bytes);
    }
    let unread = || Error::new(ErrorCode::SandboxUnreachable, "the request body could not be read");
    let _permit = LARGE_BODY_READERS.acquire().await.map_err(|_| unread())?;
    let reading = tokio::task::spawn_blocking(move || reader(&bytes));
    reading.await.map_err(|_| unread())?
}

pub(crate) fn is_json(kind: &str) -> bool {
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// Reads a whole body within the limits of size and time.
pub(crate) async fn read_body(
    body: Body,
    bytes_max: usize,
    charge: Option<&BodyMemoryPermit>,
) -> Result<Vec<u8>, Problem> {
    let error = match tokio::time::timeout(BODY_TIMEOUT, collect(body, bytes_max, charge)).await {
        Ok(Ok(CollectedBody::Whole(bytes))) => return Ok(bytes),
        Ok(Ok(CollectedBody::Refused(error))) => error,
        Ok(Ok(CollectedBody::TooLarge)) => Error::new(
            ErrorCode::RequestTooLarge,
            format!("the request body exceeds {bytes_max} bytes"),
        )
        .hint("upload large files as documents and refer to them by document_id"),
        Ok(Err(_)) => {
            Error::new(ErrorCode::ArgsInvalid, "the request body ended before its Content-Length")
        }
        Err(_) => {
            let message =
                format!("the request body was not received within {} s", BODY_TIMEOUT.as_secs());
            Error::new(ErrorCode::ArgsInvalid, message)
        }
    };
    Err(error.into())
}

/// Result of reading a body.
enum CollectedBody {
    Whole(Vec<u8>),
    TooLarge,
    Refused(Error),
}

/// Reads a body. Discards a part of one that is too large, since a client that is still sending
/// when the connection closes does not read the error.
async fn collect(
    body: Body,
    bytes_max: usize,
    charge: Option<&BodyMemoryPermit>,
) -> Result<CollectedBody, axum::Error> {
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut size) = (Vec::new(), 0);
    while let Some(chunk) = chunks.next().await.transpose()? {
        size += chunk.len();
        if size <= bytes_max {
            if let Some(Err(error)) = charge.map(|charge| charge.add(chunk.len())) {
                return Ok(CollectedBody::Refused(error));
            }
            bytes.extend_from_slice(&chunk);
        } else if size <= bytes_max.saturating_mul(DISCARD_FACTOR) {
            bytes = Vec::new();
            charge.iter().for_each(|charge| charge.give_back());
        } else {
            break;
        }
    }
    Ok(if size <= bytes_max { CollectedBody::Whole(bytes) } else { CollectedBody::TooLarge })
}

/// Rejects a body with more values than fit into memory, before it is deserialized.
pub(crate) fn check_nodes(bytes: &[u8]) -> Result<(), Problem> {
    let (mut nodes, mut in_text, mut is_escaped) = (0, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b',' | b':' | b'[' | b'{' if !in_text => nodes += 1,
            _ => {}
        }
    }
    if nodes <= NODES_MAX {
        return Ok(());
    }
    let message = format!("the request body has more than {NODES_MAX} JSON values and names");
    let error = Error::new(ErrorCode::RequestTooLarge, message);
    Err(error.hint("upload large data as documents and refer to them by document_id").into())
}

pub(crate) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    check_object(bytes)?;
    from_checked(bytes)
}

/// Rejects a body that is not one JSON object within the limits, before it is deserialized.
pub(crate) fn check_object(bytes: &[u8]) -> Result<(), Problem> {
    check_nodes(bytes)?;
    let mut path = Vec::new();
    let mut shape = serde_json::Deserializer::from_slice(bytes);
    JsonShapeVisitor { depth: 0, path: &mut path }
        .deserialize(&mut shape)
        .and_then(|()| shape.end())
        .map_err(|error| invalid_field(json_pointer(&path), &error.to_string()))?;
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        // serde would also deserialize a struct from an array, which the API does not offer.
        return Err(invalid_field(String::new(), "must be a JSON object"));
    }
    Ok(())
}

/// Deserializes a body that passed [`check_object`].
pub(crate) fn from_checked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let reader = &mut serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let mut path = String::new();
        for segment in error.path() {
            use serde_path_to_error::Segment;
            match segment {
                Segment::Seq { index } => path += &format!("/{index}"),
                Segment::Map { key } => path += &format!("/{}", escape_pointer_token(key)),
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        let message = error.into_inner().to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        // The path already has a field that is present; a missing field is only in the message.
        path += &field_in_message(message)
            .map(|name| format!("/{}", escape_pointer_token(name)))
            .unwrap_or_default();
        invalid_field(path, message)
    })
}

/// The name of a missing field, from serde's error message.
fn field_in_message(message: &str) -> Option<&str> {
    let mut about = ["missing field `", "duplicate field `"].iter();
    about.find_map(|about| message.strip_prefix(about)?.split('`').next())
}

/// An error about one field.
pub(crate) fn invalid_field(path: String, message: &str) -> Problem {
    let about = if path.is_empty() { "the request body".to_owned() } else { path.clone() };
    let error = Error::new(ErrorCode::ArgsInvalid, format!("{about}: {message}"));
    let detail =
        ErrorDetail { path: Some(path), message: message.to_owned(), ..ErrorDetail::default() };
    RequestError { error: Box::new(error), details: vec![detail] }.into()
}

fn escape_pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn json_pointer(path: &[String]) -> String {
    path.iter().map(|key| format!("/{}", escape_pointer_token(key))).collect()
}

/// Visits JSON without keeping it; checks its depth and that no key occurs twice.
struct JsonShapeVisitor<'a> {
    depth: usize,
    path: &'a mut Vec<String>,
}

impl JsonShapeVisitor<'_> {
    fn nested<E: serde::de::Error>(&mut self) -> Result<JsonShapeVisitor<'_>, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom(format!("JSON is nested deeper than {DEPTH_MAX} levels")));
        }
        Ok(JsonShapeVisitor { depth: self.depth + 1, path: self.path })
    }
}

impl<'de> DeserializeSeed<'de> for JsonShapeVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonShapeVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0usize;
        loop {
            self.path.push(index.to_string());
            if items.next_element_seed(self.nested()?)?.is_none() {
                self.path.pop();
                return Ok(());
            }
            self.path.pop();
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.path.push(key.clone());
            if !seen.insert(key) {
                return Err(serde::de::Error::custom("duplicate key"));
            }
            entries.next_value_seed(self.nested()?)?;
            self.path.pop();
        }
        Ok(())
    }
}

/// Parameters in the path, such as an id.
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => {
                let message = rejection.body_text();
                let message = message.trim_start_matches("Invalid URL: ");
                Err(invalid_field("path".to_owned(), message))
            }
        }
    }
}

/// Query parameters.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes());
        let reader = serde_urlencoded::Deserializer::new(pairs);
        match serde_path_to_error::deserialize(reader) {
            Ok(value) => Ok(Self(value)),
            Err(error) => {
                let path = error.path().to_string();
                let message = error.into_inner().to_string();
                let field = field_in_message(&message).unwrap_or(&path);
                Err(invalid_field(format!("query/{field}"), &message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::Value;

    /// Something that JSON has no form for: an object whose names are not texts.
    fn unwritable() -> std::collections::BTreeMap<Vec<u8>, u8> {
        [(vec![1], 1)].into()
    }

    #[tokio::test]
    async fn t188_a_response_that_cannot_be_written_is_an_error_and_no_half_of_one() {
        let response = Json(unwritable()).into_response();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&problem["status"], &problem["code"]), (&500.into(), &"value.not_json".into()));
        let written = Json(Value::from(7)).into_response();
        assert_eq!(written.status(), StatusCode::OK);
        assert_eq!(axum::body::to_bytes(written.into_body(), 10).await.unwrap(), "7");
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "only its reading is of interest")]
        number: u64,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[expect(dead_code, reason = "only its reading is of interest")]
        inner: Inner,
        #[serde(default)]
        #[expect(dead_code, reason = "only its reading is of interest")]
        any: Value,
    }

    fn path(text: &str) -> String {
        let problem = from_json::<Outer>(text.as_bytes()).unwrap_err();
        let problem = serde_json::to_value(problem).unwrap();
        problem["errors"][0]["path"].as_str().unwrap().to_owned()
    }

    #[test]
    fn what_is_wrong_is_named_by_its_place() {
        assert!(from_json::<Outer>(br#"{"inner": {"number": 1}, "any": [{}]}"#).is_ok());
        assert_eq!(path(r#"{"inner": {"number": "1"}}"#), "/inner/number");
        assert_eq!(path(r#"{"inner": {"number": -1}}"#), "/inner/number");
        assert_eq!(path(r#"{"inner": {"numbr": 1}}"#), "/inner/numbr");
        assert_eq!(path(r#"{"inner": {}}"#), "/inner/number");
        assert_eq!(path(r#"{"any": 1, "a/b~c": 1}"#), "/a~1b~0c");
        assert_eq!(path(r#"{"inner": {"number": 1}} x"#), "");
        assert_eq!(path(r#"{"any": [1, {"x": {"y": 1, "y": 2}}]}"#), "/any/1/x/y");
    }

    #[test]
    fn depth_is_bounded_before_anything_is_built() {
        let deep = |levels: usize| {
            format!(
                r#"{{"inner": {{"number": 1}}, "any": {}{}}}"#,
                "[".repeat(levels),
                "]".repeat(levels)
            )
        };
        assert!(from_json::<Outer>(deep(DEPTH_MAX - 1).as_bytes()).is_ok());
        let problem = from_json::<Outer>(deep(DEPTH_MAX).as_bytes()).unwrap_err();
        assert!(serde_json::to_string(&problem).unwrap().contains("nested deeper"));
        assert!(from_json::<Outer>(deep(1_000_000).as_bytes()).is_err());
    }

    #[tokio::test]
    async fn t108_a_large_body_is_parsed_off_the_serving_thread_and_a_small_one_in_place() {
        let here = std::thread::current().id();
        let parsed_on = async |bytes: usize| {
            let reader = |_: &[u8]| Ok(std::thread::current().id());
            parse_off_thread(vec![b' '; bytes], reader).await.unwrap()
        };
        assert_ne!(parsed_on(SMALL_BYTES_MAX + 1).await, here);
        assert_eq!(parsed_on(SMALL_BYTES_MAX).await, here);
    }

    #[test]
    fn t108_a_body_of_many_values_is_refused_before_they_are_made_and_a_long_text_is_not() {
        let body = |any: &str| format!(r#"{{"inner": {{"number": 1}}, "any": {any}}}"#);
        let many = |count: usize| format!("[{}0]", "0,".repeat(count));
        assert!(from_json::<Outer>(body(&many(200_000)).as_bytes()).is_ok());
        for any in [many(300_000), format!("[{}[]]", "[],".repeat(200_000))] {
            let problem = from_json::<Outer>(body(&any).as_bytes()).unwrap_err();
            assert!(serde_json::to_string(&problem).unwrap().contains("250000 JSON values"));
        }
        let text = format!("\"{}\"", r#"[{,:\"\\"#.repeat(300_000));
        assert!(from_json::<Outer>(body(&text).as_bytes()).is_ok());
    }
}
