//! Environments: a Python and its packages. The operator manages them; every principal can use
//! them.

use super::Routes;
use crate::AppState;
use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::sse::ResponseMode;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use service::{EnvironmentRequest, Page, RequestCaller};
use std::sync::Arc;
use types::Environment;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get, put, delete))
}

/// List the environments that code can run in
#[utoipa::path(
    get,
    path = "/environments",
    operation_id = "listEnvironments",
    tag = "environments",
    responses((status = 200, description = "The complete list", body = Page<Environment>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
) -> Result<Json<Page<Environment>>, Problem> {
    let items = app.service.environments(&caller).await?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// Get an environment, with its definition, its lock and the exact versions of its packages
#[utoipa::path(
    get,
    path = "/environments/{name}",
    operation_id = "getEnvironment",
    tag = "environments",
    params(("name" = String, Path)),
    responses((status = 200, description = "The environment with its status", body = Environment))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(name): Path<String>,
) -> Result<Json<Environment>, Problem> {
    Ok(Json(app.service.environment_named(&caller, &name).await?))
}

/// Create or rebuild an environment (operator only)
///
/// The server locks, installs and starts the packages before the name refers to them. Until then,
/// and if any step fails, the previous environment stays in use; running sandboxes keep theirs. The
/// response comes when the build is done, which takes seconds to minutes, or at once with `Prefer:
/// respond-async`. The build continues if the client disconnects.
#[utoipa::path(
    put,
    path = "/environments/{name}",
    operation_id = "putEnvironment",
    tag = "environments",
    params(
        ("name" = String, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async` to get a response at \
                                                           once"),
    ),
    request_body = EnvironmentRequest,
    responses(
        (status = 200, description = "Rebuilt", body = Environment),
        (status = 201, description = "Built", body = Environment),
        (status = 202, description = "Build started; `Location` has its status", body = Environment),
    )
)]
async fn put(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(name): Path<String>,
    mode: ResponseMode,
    Json(request): Json<EnvironmentRequest>,
) -> Result<Response, Problem> {
    let build = app.service.put_environment(&caller, &name, request).await?;
    let location = [(LOCATION, format!("/v1/environments/{name}"))];
    if mode == ResponseMode::Async {
        let environment = app.service.environment_named(&caller, &name).await?;
        return Ok((StatusCode::ACCEPTED, location, Json(environment)).into_response());
    }
    let status = if build.new { StatusCode::CREATED } else { StatusCode::OK };
    let environment = build.wait().await?;
    Ok((status, location, Json(environment)).into_response())
}

/// Delete an environment; of a built-in one, only the built files (operator only)
///
/// Sandboxes that run in it continue.
#[utoipa::path(
    delete,
    path = "/environments/{name}",
    operation_id = "deleteEnvironment",
    tag = "environments",
    params(("name" = String, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    app.service.remove_environment(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
