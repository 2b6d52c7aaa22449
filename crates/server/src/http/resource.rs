//! What a client that has no token yet is told: whose tokens are taken here, and for what (RFC 9728).
//!
//! Open to everybody, and only there if the operator trusts an issuer. It names no scopes: what
//! somebody may do is decided by grants, whatever a token says.

use super::App;
use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use serde_json::json;
use service::Issuer;
use std::sync::Arc;

const METADATA: &str = "/.well-known/oauth-protected-resource";
/// Where clients look that know only the address of the door for agents.
const METADATA_OF_MCP: &str = "/.well-known/oauth-protected-resource/mcp";

/// This server, as those see it who get tokens for it.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    metadata: String,
    challenge: HeaderValue,
}

impl Resource {
    pub(crate) fn new(issuer: &Issuer) -> Self {
        let metadata = json!({
            "resource": issuer.audience(),
            "authorization_servers": [issuer.name()],
            "bearer_methods_supported": ["header"],
            "resource_name": "Belljar",
        });
        let address = issuer.beside_audience(METADATA_OF_MCP);
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

    pub(crate) fn router(&self) -> Router<Arc<App>> {
        let metadata = self.metadata.clone();
        let told = move || async move { ([(CONTENT_TYPE, "application/json")], metadata) };
        Router::new().route(METADATA, get(told.clone())).route(METADATA_OF_MCP, get(told))
    }
}
