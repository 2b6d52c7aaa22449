//! The models that callers can choose.

use super::Routes;
use crate::AppState;
use crate::extract::Json;
use agent::ModelView;
use axum::Extension;
use axum::extract::State;
use service::{Page, RequestCaller};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list))
}

/// List the models that can be chosen
///
/// The default model first, then all models of each provider as `provider/*`. The list comes from
/// the settings of the operator; no provider is asked.
#[utoipa::path(
    get,
    path = "/models",
    operation_id = "listModels",
    tag = "catalog",
    responses((status = 200, description = "The complete list", body = Page<ModelView>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    _caller: Extension<RequestCaller>,
) -> Json<Page<ModelView>> {
    Json(Page { items: app.agents.model_views(), next_cursor: None })
}
