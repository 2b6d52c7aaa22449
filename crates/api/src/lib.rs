//! The REST API: turns HTTP requests into operations of the service, and results into responses.
//!
//! Everything below `/v1`, and `/mcp`, requires an API key or an access token; a route cannot be
//! added there without it. The OpenAPI document is generated from the handlers of the router.

mod byte_range;
mod console;
mod execution_response;
mod extract;
mod files;
mod guard;
mod idempotency;
mod idle_connections;
mod in_process;
mod json_or_file;
mod listener;
mod mcp_sessions;
mod metrics;
mod multipart;
mod openapi;
mod problem;
mod protected_resource;
mod rate_limit;
mod record_response;
#[cfg(test)]
#[path = "../../../tests/harness/reference.rs"]
mod reference;
mod response_body;
mod response_memory;
mod routes;
mod signed_url;
mod sse;
mod trace_format;
mod unread_body;
mod upload_form;

pub use guard::AllowedHosts;
use guard::Receiver;
pub use in_process::InProcessApi;
pub use listener::serve;
pub use openapi::document;
pub use protected_resource::ProtectedResource;
pub use rate_limit::RequestLimits;

use agent::Agents;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use mcp::{McpServer, McpSessions};
use metrics::HttpMetrics;
use problem::Problem;
use rate_limit::RateLimiter;
use service::Service;
use std::sync::Arc;
use types::{Error, ErrorCode};

/// Characters of a path in an error.
const SHOWN_PATH_CHARS_MAX: usize = 200;

/// State shared by all handlers.
#[derive(Debug)]
pub struct AppState {
    pub(crate) service: Arc<Service>,
    pub(crate) agents: Arc<Agents>,
    pub(crate) allowed_hosts: Arc<AllowedHosts>,
    pub(crate) rate_limiter: RateLimiter,
    pub(crate) metrics: Arc<HttpMetrics>,
    /// Present if the operator trusts an OAuth issuer.
    pub(crate) resource: Option<ProtectedResource>,
}

impl AppState {
    pub fn new(
        service: Arc<Service>,
        agents: Arc<Agents>,
        allowed_hosts: AllowedHosts,
        limits: RequestLimits,
        resource: Option<ProtectedResource>,
    ) -> Arc<Self> {
        Arc::new(Self {
            service,
            agents,
            allowed_hosts: Arc::new(allowed_hosts),
            rate_limiter: RateLimiter::new(limits),
            metrics: Arc::default(),
            resource,
        })
    }

    fn receiver(&self) -> Receiver {
        Receiver {
            allowed_hosts: Arc::clone(&self.allowed_hosts),
            metrics: Arc::clone(&self.metrics),
        }
    }
}

pub fn router(app: Arc<AppState>, mcp_server: McpServer) -> Router {
    let (routes, document) = routes::all().split_for_parts();
    let routes = routes
        .route("/metrics", get(routes::operation::metrics))
        .route_layer(from_fn_with_state(Arc::clone(&app), idempotency::handle_idempotent))
        .route_layer(from_fn_with_state(Arc::clone(&app), guard::authenticate));
    let sessions =
        Arc::new(McpSessions::new(mcp::SessionLimits::new(app.rate_limiter.mcp_sessions())));
    let mcp = Router::new()
        .route_service("/mcp", mcp::streamable_http_service(mcp_server, &sessions))
        .route_layer(from_fn_with_state(sessions, mcp_sessions::check_session_owner))
        .route_layer(from_fn_with_state(Arc::clone(&app), guard::authenticate));
    let metadata = app.resource.as_ref().map_or_else(Router::new, ProtectedResource::router);
    console::router(&openapi::complete_document(document))
        .merge(metadata)
        .route("/healthz", get(routes::operation::health))
        .route("/readyz", get(routes::operation::readiness))
        .merge(routes)
        .merge(mcp)
        .fallback(|uri: Uri| async move { not_found(uri.path()) })
        .method_not_allowed_fallback(|method: Method, uri: Uri| async move {
            method_not_allowed(&method, uri.path())
        })
        // Each handler limits its body where it reads it.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.receiver(), guard::receive))
        .with_state(app)
}

/// `router` behind the outermost layer alone: allowed hosts and origins, and no authentication.
pub fn with_host_guard(router: Router, allowed_hosts: AllowedHosts) -> Router {
    let receiver = Receiver { allowed_hosts: Arc::new(allowed_hosts), metrics: Arc::default() };
    router.layer(from_fn_with_state(receiver, guard::receive))
}

fn not_found(path: &str) -> Problem {
    Error::new(ErrorCode::ObjectNotFound, format!("no operation at {}", shown_path(path)))
        .hint("see /docs for all operations")
        .into()
}

fn method_not_allowed(method: &Method, path: &str) -> Problem {
    let message = format!("{method} is not allowed for {}", shown_path(path));
    let error = Error::new(ErrorCode::ArgsInvalid, message).hint("see /docs for all operations");
    Problem::from(error).with_status(StatusCode::METHOD_NOT_ALLOWED)
}

/// The beginning of a path, which can be as long as a header.
fn shown_path(path: &str) -> String {
    path.chars().take(SHOWN_PATH_CHARS_MAX).collect()
}
