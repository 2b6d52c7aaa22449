//! Signed URLs of files in requests: who reads what, without an API key or an access token.

use super::AppState;
use super::problem::Problem;
use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::http::header::AUTHORIZATION;
use service::{Caller, FileRef, has_signature};

/// The only routes that a signed URL opens.
const ROUTES: [&str; 2] = ["/v1/assets/{execution_id}/{*filename}", "/v1/documents/{id}/content"];

/// The file that the signature of a request names. The handler reads this file and no other.
#[derive(Debug, Clone)]
pub(crate) struct SignedFile(pub(crate) FileRef);

/// The caller of a signed URL; `None` for a request that must have a key or a token. A request with
/// an `Authorization` header is one of these, whatever its URL says.
pub(crate) fn identify(app: &AppState, request: &mut Request) -> Result<Option<Caller>, Problem> {
    let route = request.extensions().get::<MatchedPath>();
    let is_file = route.is_some_and(|route| ROUTES.contains(&route.as_str()));
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_file || !is_read || request.headers().contains_key(AUTHORIZATION) {
        return Ok(None);
    }
    let query = request.uri().query().filter(|query| has_signature(query));
    let Some(query) = query else { return Ok(None) };
    let (caller, file) = app.service.authenticate_file_url(request.uri().path(), query)?;
    request.extensions_mut().insert(SignedFile(file));
    Ok(Some(caller))
}
