//! Bytes in and out: uploads go to a temporary file as they come, downloads from an open file as
//! they are taken. Neither is ever whole in memory, and nothing is unpacked or looked into.

use super::problem::Problem;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::{
    CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, future};
use http_body::Body as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use service::{Service, StagedFile};
use std::convert::Infallible;
use std::fs::File;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;
use types::{Error, ErrorCode};
use utoipa::ToSchema;

/// A client that sends nothing for so long has gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes a second. Slower than any line that people use, so that only time is meant to be taken.
const BYTES_PER_SECOND_MIN: u64 = 1024;
/// Of an upload that is refused, what comes within this time is thrown away.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
const CHUNK_BYTES: usize = 64 * 1024;
/// What may stand in a header as it is (RFC 5987).
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');

/// Any bytes, in the OpenAPI document.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it only describes what is never in memory")]
pub(crate) struct Octets(Vec<u8>);

/// The body of a request, not yet read.
pub(crate) struct Upload(Body);

/// Refuses a body that is said to be larger than a document before any of it is written.
pub(crate) fn check_size(service: &Service, body: &Body, besides: u64) -> Result<(), Error> {
    let most = service.document_bytes_max();
    if body.size_hint().lower() <= most.saturating_add(besides) {
        return Ok(());
    }
    let message = format!("an upload has at most {most} bytes");
    Err(Error::new(ErrorCode::RequestTooLarge, message))
}

impl<S: Send + Sync> FromRequest<S> for Upload {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Infallible> {
        Ok(Self(request.into_body()))
    }
}

impl Upload {
    pub(crate) async fn stage(self, service: &Service) -> Result<StagedFile, Problem> {
        check_size(service, &self.0, 0)?;
        stage(service, self.0.into_data_stream()).await
    }
}

/// Writes what comes to a temporary file, which is gone when it is not kept.
pub(crate) async fn stage<E: std::fmt::Display>(
    service: &Service,
    pieces: impl Stream<Item = Result<Bytes, E>>,
) -> Result<StagedFile, Problem> {
    let mut pieces = pin!(pieces);
    let mut staging = service.stage().await?;
    let began = Instant::now();
    let mut size = 0;
    while let Some(piece) = with_idle_timeout(pieces.next()).await? {
        let piece = piece.map_err(|error| {
            Error::new(ErrorCode::ArgsInvalid, format!("the upload broke off: {error}"))
        })?;
        size += piece.len() as u64;
        if began.elapsed() > IDLE_TIMEOUT + Duration::from_secs(size / BYTES_PER_SECOND_MIN) {
            return Err(client_timeout_error().into());
        }
        if let Err(refused) = staging.write(&piece).await {
            drop(staging);
            drain(pieces).await;
            return Err(refused.into());
        }
    }
    Ok(staging.finish().await?)
}

/// A client that still sends when the connection ends does not hear why.
async fn drain<T, E>(pieces: impl Stream<Item = Result<T, E>>) {
    let rest = pieces.take_while(|piece| future::ready(piece.is_ok())).for_each(|_| async {});
    // Whoever sends for longer than this hears nothing.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
}

/// The next thing that a client sends, if it comes soon enough.
pub(crate) async fn with_idle_timeout<T>(next: impl Future<Output = T>) -> Result<T, Error> {
    tokio::time::timeout(IDLE_TIMEOUT, next).await.map_err(|_| client_timeout_error())
}

fn client_timeout_error() -> Error {
    Error::new(ErrorCode::ArgsInvalid, "the upload was too slow, and was given up")
}

/// A file as something to be saved, never as something to be shown in this site's name.
pub(crate) fn download(file: File, size: u64, name: &str) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, content_type(name));
    headers.insert(CONTENT_LENGTH, size.into());
    headers.insert(CONTENT_DISPOSITION, content_disposition(name));
    headers
        .insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    // It may grow while it is read; what was announced is what is sent.
    let bytes = tokio::fs::File::from_std(file).take(size);
    let body = Body::from_stream(ReaderStream::with_capacity(bytes, CHUNK_BYTES));
    (headers, body).into_response()
}

/// What a browser would run is sent as bytes.
fn content_type(name: &str) -> HeaderValue {
    let mime = mime_guess::from_path(name).first_or_octet_stream();
    let passive = match (mime.type_().as_str(), mime.subtype().as_str()) {
        ("image", subtype) => !subtype.starts_with("svg"),
        ("audio" | "video", _) => true,
        ("text", "plain" | "csv") => true,
        ("application", "json" | "pdf" | "zip") => true,
        _ => false,
    };
    let mime = if passive { mime.essence_str() } else { "application/octet-stream" };
    HeaderValue::from_str(mime)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"))
}

pub(crate) fn content_disposition(name: &str) -> HeaderValue {
    let name = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or("file");
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || ".-_ ".contains(c) { c } else { '_' })
        .collect();
    let exact = utf8_percent_encode(name, PLAIN);
    HeaderValue::from_str(&format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{exact}"))
        .unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t33_a_name_is_one_header_whatever_is_in_it() {
        for name in [
            "a\r\nSet-Cookie: x=1",
            "a\"; filename=\"b",
            "Zürich ☃.csv",
            "\u{202e}cod.exe",
            "",
            "..",
            "a/b/c.csv",
        ] {
            let header = content_disposition(name);
            let text = header.to_str().unwrap();
            assert!(text.starts_with("attachment; filename=\""), "{text}");
            assert_eq!(text.matches('"').count(), 2, "{text}");
            assert!(!text.contains(['\r', '\n']), "{text}");
        }
        let text = content_disposition("a/Zürich 1.csv");
        assert_eq!(
            text,
            "attachment; filename=\"Z_rich 1.csv\"; filename*=UTF-8''Z%C3%BCrich%201.csv"
        );
    }

    #[test]
    fn t33_what_a_browser_would_run_is_sent_as_bytes() {
        for name in ["a.html", "a.svg", "a.xml", "a.js", "a.xhtml", "a", "a.unknown"] {
            assert_eq!(content_type(name), "application/octet-stream", "{name}");
        }
        for (name, mime) in [("a.png", "image/png"), ("a.csv", "text/csv"), ("a.txt", "text/plain")]
        {
            assert_eq!(content_type(name), mime);
        }
    }
}
