//! What a client that has no token yet is told: whose tokens are taken here, and for what (RFC 9728).
//!
//! Open to everybody, and only there if the operator trusts an issuer. It names no scopes: what
//! somebody may do is decided by grants, whatever a token says.

use super::AppState;
use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use serde_json::json;
use service::Issuer;
use std::sync::Arc;

const METADATA: &str = "/.well-known/oauth-protected-resource";
/// Where clients look that know only the address of the door for agents.
const MCP_METADATA: &str = "/.well-known/oauth-protected-resource/mcp";

/// This server, as those see it who get tokens for it.
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
        // What is written as a URL is ASCII; without it a client has to look for itself.
        let challenge = HeaderValue::try_from(challenge);
        let challenge = challenge.unwrap_or(HeaderValue::from_static("Bearer"));
        Self { metadata: metadata.to_string(), challenge }
    }

    /// `WWW-Authenticate` of whoever is not known.
    pub(crate) fn challenge(&self) -> HeaderValue {
        self.challenge.clone()
    }

    pub(crate) fn router(&self) -> Router<Arc<AppState>> {
        let metadata = self.metadata.clone();
        let told = move || async move { ([(CONTENT_TYPE, "application/json")], metadata) };
        Router::new().route(METADATA, get(told.clone())).route(MCP_METADATA, get(told))
    }
}
