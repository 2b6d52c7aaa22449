//! Bodies that are either JSON, or a file with the other fields in the query.

use super::extract::{self, JSON_BYTES_MAX, Query};
use super::problem::Problem;
use super::rate_limit::BodyMemoryPermit;
use axum::extract::{FromRequestParts, Request};
use axum::http::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;
use service::RequestError;
use std::sync::Arc;
use types::{Error, ErrorCode};

/// `kinds` are the content types of the file, the preferred one first.
pub(crate) async fn json_or_file<T: Send + 'static, Q: DeserializeOwned>(
    request: Request,
    kinds: &[&str],
    from_json: fn(&[u8]) -> Result<T, Problem>,
    from_file: impl FnOnce(Q, Vec<u8>) -> Result<T, RequestError>,
) -> Result<T, Problem> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim().to_owned();
    if extract::is_json(&kind) {
        if request.uri().query().is_some_and(|query| !query.is_empty()) {
            let message = "is only for file uploads; with JSON, put it into the body";
            return Err(extract::invalid_field("query".to_owned(), message));
        }
        let charge = request.extensions().get::<Arc<BodyMemoryPermit>>().cloned();
        let bytes =
            extract::read_body(request.into_body(), JSON_BYTES_MAX, charge.as_deref()).await?;
        return extract::parse_off_thread(bytes, from_json).await;
    }
    if !kinds.iter().any(|known| kind.eq_ignore_ascii_case(known)) {
        let preferred = kinds.first().copied().unwrap_or_default();
        let message = format!("Content-Type must be application/json or {preferred}");
        return Err(Error::new(ErrorCode::ArgsInvalid, message)
            .hint("set the header Content-Type")
            .into());
    }
    let (mut parts, content) = request.into_parts();
    let Query(query) = Query::from_request_parts(&mut parts, &()).await?;
    let charge = parts.extensions.get::<Arc<BodyMemoryPermit>>().cloned();
    Ok(from_file(query, extract::read_body(content, JSON_BYTES_MAX, charge.as_deref()).await?)?)
}
