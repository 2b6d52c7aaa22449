//! Health, readiness and metrics, for the operator.

use crate::AppState;
use crate::extract::Json;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use service::{ReadinessStatus, RequestCaller};
use std::sync::Arc;

#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
}

/// Public: says only that the process responds, which an open connection shows too.
pub(crate) async fn health(State(app): State<Arc<AppState>>) -> Json<Health> {
    let status = if app.service.is_stopping() { "stopping" } else { "ok" };
    Json(Health { status, version: env!("CARGO_PKG_VERSION") })
}

/// Public, since probes have no key: whether the server can start new work. Cached for a few
/// seconds, so that frequent requests cost nothing.
pub(crate) async fn readiness(State(app): State<Arc<AppState>>) -> Response {
    let found = app.service.readiness().await;
    let status = match found.status {
        ReadinessStatus::Ready => StatusCode::OK,
        ReadinessStatus::Unready | ReadinessStatus::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(found)).into_response()
}

/// For owners of the workspace only: metrics show how much other principals use.
pub(crate) async fn metrics(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
) -> Result<Response, Problem> {
    app.service.require_operator(&caller)?;
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    Ok((kind, app.service.render_metrics() + &app.metrics.render()).into_response())
}
