//! For those who run the server: whether it is well, and what it has done.

use crate::extract::Json;
use crate::problem::Problem;
use crate::{AppState, HttpCaller};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use service::ReadinessStatus;
use std::sync::Arc;

#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
}

/// Open to everybody: that the process answers, and nothing that a connection would not tell.
pub(crate) async fn health(State(app): State<Arc<AppState>>) -> Json<Health> {
    let status = if app.service.is_stopping() { "stopping" } else { "ok" };
    Json(Health { status, version: env!("CARGO_PKG_VERSION") })
}

/// Open to everybody, as probes have no key: whether new work can be done. Answers are found anew every
/// few seconds at most, whoever asks.
pub(crate) async fn readiness(State(app): State<Arc<AppState>>) -> Response {
    let found = app.service.readiness().await;
    let status = match found.status {
        ReadinessStatus::Ready => StatusCode::OK,
        ReadinessStatus::Unready | ReadinessStatus::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(found)).into_response()
}

/// For owners of the workspace: it tells how much others use.
pub(crate) async fn metrics(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
) -> Result<Response, Problem> {
    app.service.require_operator(&caller)?;
    app.service.record_gauges();
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    Ok((kind, app.metrics.render()).into_response())
}
