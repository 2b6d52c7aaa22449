//! OAuth protected resource metadata (RFC 9728): tells a client without a token which issuer to
//! use.
//!
//! It needs no authentication and exists only if the operator trusts an issuer. It lists no scopes:
//! grants decide what a principal may do, whatever the token says.

use super::AppState;
use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use serde_json::json;
use service::Issuer;
use std::sync::Arc;

const METADATA: &str = "/.well-known/oauth-protected-resource";
/// Path for clients that know only the URL of the MCP server.
const MCP_METADATA: &str = "/.well-known/oauth-protected-resource/mcp";

/// This server as an OAuth protected resource.
#[derive(Debug, Clone)]
pub struct ProtectedResource {
    metadata: String,
    challenge: HeaderValue,
}

impl ProtectedResource {
    pub fn new(issuer: &Issuer) -> Self {
        let metadata = json!({
            "resource": issuer.audience(),
            "authorization_servers": [issuer.name()],
            "bearer_methods_supported": ["header"],
            "resource_name": "Belljar",
        });
        let address = issuer.audience_url_with_path(MCP_METADATA);
        let challenge = format!("Bearer resource_metadata=\"{address}\"");
        // A URL is ASCII, so this cannot fail; without the header a client uses the well-known
        // path.
        let challenge = HeaderValue::try_from(challenge);
        let challenge = challenge.unwrap_or(HeaderValue::from_static("Bearer"));
        Self { metadata: metadata.to_string(), challenge }
    }

    /// The `WWW-Authenticate` header of a 401 response.
    pub(crate) fn challenge(&self) -> HeaderValue {
        self.challenge.clone()
    }

    pub(crate) fn router(&self) -> Router<Arc<AppState>> {
        let metadata = self.metadata.clone();
        let respond = move || async move { ([(CONTENT_TYPE, "application/json")], metadata) };
        Router::new().route(METADATA, get(respond.clone())).route(MCP_METADATA, get(respond))
    }
}
