//! The REST door: requests in, operations of the service, answers out.
//!
//! Everything below `/v1`, and `/mcp`, needs a key or a token; there is no way to add a route there that
//! does not. The OpenAPI document is made from the same handlers that the router has.

mod agents;
mod body;
mod execution;
mod files;
mod form;
mod guard;
mod idempotency;
mod limits;
mod listener;
mod openapi;
mod pages;
mod problem;
mod record;
mod resource;
mod routes;
mod silence;
mod sse;
mod told;
mod unread;
mod written;

pub(crate) use guard::Names;
pub(crate) use limits::Bounds;
pub(crate) use listener::serve;
pub(crate) use openapi::document;
pub(crate) use resource::Resource;

use agent::Agents;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use limits::{Limits, Place};
use mcp::{Asker, Door, Fixtures, Sessions};
use metrics_exporter_prometheus::PrometheusHandle;
use problem::Problem;
use service::{Caller, Service};
use std::ops::Deref;
use std::sync::Arc;
use types::{Code, Fault};

/// What every handler can use.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) service: Arc<Service>,
    pub(crate) agents: Arc<Agents>,
    pub(crate) names: Arc<Names>,
    pub(crate) limits: Limits,
    pub(crate) metrics: PrometheusHandle,
    /// Where an issuer is trusted.
    pub(crate) resource: Option<Resource>,
}

impl App {
    pub(crate) fn new(
        service: Arc<Service>,
        agents: Arc<Agents>,
        names: Names,
        bounds: Bounds,
        metrics: PrometheusHandle,
        resource: Option<Resource>,
    ) -> Arc<Self> {
        let (names, limits) = (Arc::new(names), Limits::new(bounds));
        Arc::new(Self { service, agents, names, limits, metrics, resource })
    }
}

pub(crate) fn router(app: Arc<App>, door: Door) -> Router {
    let (known, document) = routes::all().split_for_parts();
    let known = known
        .route("/metrics", get(routes::operation::metrics))
        .route_layer(from_fn_with_state(Arc::clone(&app), idempotency::once))
        .route_layer(from_fn_with_state(Arc::clone(&app), guard::authenticate));
    let sessions = Arc::new(Sessions::new(mcp::SessionLimits::new(app.limits.mcp_sessions())));
    let agents = Router::new()
        .route_service("/mcp", mcp::http(door, &sessions))
        .route_layer(from_fn_with_state(sessions, agents::own_session))
        .route_layer(from_fn_with_state(Arc::clone(&app), guard::authenticate));
    let metadata = app.resource.as_ref().map_or_else(Router::new, Resource::router);
    pages::router(&openapi::finished(document))
        .merge(metadata)
        .route("/healthz", get(routes::operation::health))
        .route("/readyz", get(routes::operation::readiness))
        .merge(known)
        .merge(agents)
        .fallback(|| async { not_here() })
        .method_not_allowed_fallback(|| async { no_such_method() })
        // Every body has a bound of its own, where it is read.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(&app.names), guard::receive))
        .with_state(app)
}

/// The same door and the same guard for the conformance suite, which has no way to send a key: all
/// that it can reach was made for it.
pub(crate) fn conformance(names: Names, fixtures: Fixtures) -> Router {
    Router::new()
        .route_service(
            "/mcp",
            mcp::http(
                fixtures,
                &Sessions::new(mcp::SessionLimits::new(mcp::SESSIONS_PER_PRINCIPAL)),
            ),
        )
        .layer(from_fn_with_state(Arc::new(names), guard::receive))
}

fn not_here() -> Problem {
    Fault::new(Code::ObjectNotFound, "there is nothing at this path")
        .hint("/docs lists every operation")
        .into()
}

fn no_such_method() -> Problem {
    let fault = Fault::new(Code::ArgsInvalid, "this path does not take that method")
        .hint("/docs lists every operation");
    Problem::from(fault).answered(StatusCode::METHOD_NOT_ALLOWED)
}

/// Who is asking, and their place among the requests of the key; only requests that have passed
/// [`guard::authenticate`] have one.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    caller: Arc<Caller>,
    place: Arc<Place>,
}

impl Known {
    fn new(caller: Caller, place: Place) -> Self {
        Self { caller: Arc::new(caller), place: Arc::new(place) }
    }

    pub(crate) fn place(&self) -> Arc<Place> {
        Arc::clone(&self.place)
    }

    /// The same, for the door to agents.
    fn asker(&self) -> Asker {
        Asker { caller: Arc::clone(&self.caller), place: Some(self.place()) }
    }
}

impl Deref for Known {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Known {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let missing = || Fault::new(Code::AuthMissing, "there is no API key in the request");
        parts.extensions.get::<Self>().cloned().ok_or_else(|| missing().into())
    }
}
