//! Uploads and downloads. An upload streams into a temporary file, a download streams from an open
//! file. Neither is ever whole in memory, and the server unpacks and inspects nothing.

use super::byte_range::ByteRange;
use super::problem::Problem;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, future};
use http_body::Body as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use service::{Service, StagedFile};
use std::convert::Infallible;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;
use types::{Error, ErrorCode};
use utoipa::ToSchema;

/// A client that sends nothing for this long is considered gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum upload rate. Slower than any real link, so a slower client only wants to hold resources.
const BYTES_PER_SECOND_MIN: u64 = 1024;
/// How long the rest of a rejected upload is read and discarded.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
const CHUNK_BYTES: usize = 64 * 1024;
/// What a file can do in a browser: an SVG has its own styles, images and fonts, and nothing else.
const FILE_POLICY: &str =
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:";
/// Characters that need no percent-encoding in a header (RFC 5987).
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');

/// Binary content.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it only describes the body, which is never held in memory")]
pub(crate) struct Octets(Vec<u8>);

/// The unread body of a request.
pub(crate) struct Upload(Body);

/// Rejects a body whose declared length exceeds a document's limit, before any of it is written.
pub(crate) fn check_size(service: &Service, body: &Body, besides: u64) -> Result<(), Error> {
    check_body_size(body, service.document_bytes_max().saturating_add(besides))
}

/// Rejects a body whose declared length exceeds a limit.
pub(crate) fn check_body_size(body: &Body, bytes_max: u64) -> Result<(), Error> {
    if body.size_hint().lower() <= bytes_max {
        return Ok(());
    }
    let message = format!("an upload can have at most {bytes_max} bytes");
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

/// Streams a body into a temporary file, which is deleted unless the caller persists it.
pub(crate) async fn stage<E: std::fmt::Display>(
    service: &Service,
    chunks: impl Stream<Item = Result<Bytes, E>>,
) -> Result<StagedFile, Problem> {
    let mut chunks = pin!(chunks);
    let mut staging = service.stage().await?;
    let began = Instant::now();
    let mut size = 0;
    while let Some(chunk) = with_idle_timeout(chunks.next()).await? {
        let chunk = chunk.map_err(|error| {
            Error::new(ErrorCode::ArgsInvalid, format!("the upload was interrupted: {error}"))
        })?;
        size += chunk.len() as u64;
        if began.elapsed() > IDLE_TIMEOUT + Duration::from_secs(size / BYTES_PER_SECOND_MIN) {
            return Err(client_timeout_error().into());
        }
        if let Err(error) = staging.write(&chunk).await {
            drop(staging);
            drain(chunks).await;
            return Err(error.into());
        }
    }
    Ok(staging.finish().await?)
}

/// Discards the rest of a rejected upload: a client that is still sending when the connection
/// closes does not read the error.
async fn drain<T, E>(chunks: impl Stream<Item = Result<T, E>>) {
    let rest = chunks.take_while(|chunk| future::ready(chunk.is_ok())).for_each(|_| async {});
    // A client that sends for longer than this does not get the error.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
}

/// Awaits the next part of an upload, with [`IDLE_TIMEOUT`].
pub(crate) async fn with_idle_timeout<T>(next: impl Future<Output = T>) -> Result<T, Error> {
    tokio::time::timeout(IDLE_TIMEOUT, next).await.map_err(|_| client_timeout_error())
}

fn client_timeout_error() -> Error {
    Error::new(ErrorCode::ArgsInvalid, "the upload was too slow and was aborted")
}

/// Sends a whole file; see `download_range`.
pub(crate) fn download(file: File, size: u64, name: &str) -> Response {
    let body = file_body(file, size);
    (file_headers(name, size), body).into_response()
}

/// The same for a content in memory.
pub(crate) fn download_bytes(content: Vec<u8>, name: &str) -> Response {
    (file_headers(name, content.len() as u64), Body::from(content)).into_response()
}

/// Sends a file, or the part of it that was requested. A browser shows it only if it is an image,
/// and never with the origin of this site: scripts do not run in it, and it loads nothing.
pub(crate) fn download_range(
    mut file: File,
    size: u64,
    name: &str,
    range: ByteRange,
) -> Result<Response, Error> {
    let mut response = match range {
        ByteRange::Whole => download(file, size, name),
        ByteRange::Part { first, length } => {
            file.seek(SeekFrom::Start(first)).map_err(|error| unreadable_error(name, &error))?;
            let mut headers = file_headers(name, length);
            let last = first + length - 1;
            headers.insert(CONTENT_RANGE, content_range(&format!("bytes {first}-{last}/{size}")));
            (StatusCode::PARTIAL_CONTENT, headers, file_body(file, length)).into_response()
        }
        ByteRange::Unsatisfiable => {
            let message = format!("no byte of the file is in the range; it has {size} bytes");
            let problem = Problem::from(Error::new(ErrorCode::ArgsInvalid, message));
            let mut response =
                problem.with_status(StatusCode::RANGE_NOT_SATISFIABLE).into_response();
            response.headers_mut().insert(CONTENT_RANGE, content_range(&format!("bytes */{size}")));
            response
        }
    };
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    Ok(response)
}

fn file_headers(name: &str, length: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mime = content_type(name);
    headers.insert(CONTENT_DISPOSITION, content_disposition(name, is_shown(&mime)));
    headers.insert(CONTENT_TYPE, mime);
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(FILE_POLICY));
    headers
}

/// The file may grow while it is read; only the announced length is sent.
fn file_body(file: File, length: u64) -> Body {
    let bytes = tokio::fs::File::from_std(file).take(length);
    Body::from_stream(ReaderStream::with_capacity(bytes, CHUNK_BYTES))
}

fn content_range(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("bytes */*"))
}

fn unreadable_error(name: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorCode::DatabaseUnavailable, format!("{name:?} cannot be read: {error}"))
}

/// Types that a page of this site could load as a program or a style sheet, or that no one knows,
/// become `application/octet-stream`. What is active only as a page of its own is sent as what it
/// is, and as an attachment.
fn content_type(name: &str) -> HeaderValue {
    let mime = mime_guess::from_path(name).first_or_octet_stream();
    let (kind, subtype) = (mime.type_().as_str(), mime.subtype().as_str());
    let is_office = ["vnd.openxmlformats-officedocument.", "vnd.oasis.opendocument.", "vnd.ms-"];
    let is_sent = match kind {
        "image" | "audio" | "video" | "font" => true,
        "text" => matches!(subtype, "plain" | "csv" | "html" | "markdown" | "tab-separated-values"),
        "application" => {
            matches!(subtype, "json" | "pdf" | "zip")
                || is_office.iter().any(|prefix| subtype.starts_with(prefix))
        }
        _ => false,
    };
    let mime = if is_sent { mime.essence_str() } else { "application/octet-stream" };
    HeaderValue::from_str(mime)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"))
}

/// Images that are pixels only. An SVG can be shown by an `<img>`, which ignores the disposition,
/// but not as a page.
fn is_shown(mime: &HeaderValue) -> bool {
    ["image/png", "image/jpeg", "image/gif", "image/webp"].iter().any(|shown| mime == shown)
}

pub(crate) fn content_disposition(name: &str, is_shown: bool) -> HeaderValue {
    let name = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or("file");
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || ".-_ ".contains(c) { c } else { '_' })
        .collect();
    let exact = utf8_percent_encode(name, PLAIN);
    let kind = if is_shown { "inline" } else { "attachment" };
    HeaderValue::from_str(&format!("{kind}; filename=\"{plain}\"; filename*=UTF-8''{exact}"))
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
            let header = content_disposition(name, false);
            let text = header.to_str().unwrap();
            assert!(text.starts_with("attachment; filename=\""), "{text}");
            assert_eq!(text.matches('"').count(), 2, "{text}");
            assert!(!text.contains(['\r', '\n']), "{text}");
        }
        let text = content_disposition("a/Zürich 1.csv", false);
        assert_eq!(
            text,
            "attachment; filename=\"Z_rich 1.csv\"; filename*=UTF-8''Z%C3%BCrich%201.csv"
        );
    }

    fn is_inline(disposition: &str) -> bool {
        assert!(disposition.starts_with("inline; ") || disposition.starts_with("attachment; "));
        disposition.starts_with("inline; ")
    }

    #[test]
    fn t33_what_a_browser_would_run_is_sent_as_bytes() {
        for name in ["a.xml", "a.js", "a.mjs", "a.css", "a.wasm", "a.xhtml", "a", "a.unknown"] {
            assert_eq!(content_type(name), "application/octet-stream", "{name}");
        }
        let xlsx = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
        for (name, mime, shown) in [
            ("a.png", "image/png", true),
            ("a.csv", "text/csv", false),
            ("a.txt", "text/plain", false),
            ("a.xlsx", xlsx, false),
            ("a.html", "text/html", false),
            ("a.svg", "image/svg+xml", false),
        ] {
            let headers = file_headers(name, 1);
            let disposition = headers[CONTENT_DISPOSITION].to_str().unwrap();
            assert_eq!(
                (headers[CONTENT_TYPE].to_str().unwrap(), shown),
                (mime, is_inline(disposition))
            );
            assert!(headers[CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("sandbox; "));
        }
    }
}
