//! For those who run the server: whether it is well, and what it has done.

use crate::http::problem::Problem;
use crate::http::{App, Known};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;

#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
}

/// Open to everybody: it tells nothing that a connection would not.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Json<Health> {
    let status = if app.service.is_stopping() { "stopping" } else { "ok" };
    Json(Health { status, version: env!("CARGO_PKG_VERSION") })
}

/// For owners of the workspace: it tells how much others use.
pub(crate) async fn metrics(
    State(app): State<Arc<App>>,
    caller: Known,
) -> Result<Response, Problem> {
    app.service.require_operator(&caller)?;
    app.service.gauge();
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    Ok((kind, app.metrics.render()).into_response())
}
