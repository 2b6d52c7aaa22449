//! Named directories that outlive sessions.

use super::Routes;
use crate::extract::{Json, Path, Query};
use crate::files::{self, Octets, Upload};
use crate::problem::Problem;
use crate::{AppState, HttpCaller};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use service::{ObjectQuery, Page, StoreChange, StoreFile, StoreRequest, StoreView};
use std::sync::Arc;
use types::{Store, StoreId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(get, change, delete))
        .routes(routes!(read_file, write_file, delete_file))
}

/// Make a store
///
/// Code of an agent sees it if the agent's specification names it below
/// `tool_resources.code_execution.stores`, with `access: read` or `write`, and whoever the code runs
/// as has USAGE or MODIFY on it.
#[utoipa::path(
    post,
    path = "/stores",
    operation_id = "createStore",
    tag = "stores",
    request_body = StoreRequest,
    responses((status = 201, description = "It is there, and empty", body = Store))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Json(request): Json<StoreRequest>,
) -> Result<(StatusCode, Json<Store>), Problem> {
    Ok((StatusCode::CREATED, Json(app.service.create_store(&caller, request).await?)))
}

/// List stores, newest first
#[utoipa::path(
    get,
    path = "/stores",
    operation_id = "listStores",
    tag = "stores",
    params(ObjectQuery),
    responses((status = 200, description = "A part of the list", body = Page<Store>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Query(query): Query<ObjectQuery>,
) -> Result<Json<Page<Store>>, Problem> {
    Ok(Json(app.service.stores(&caller, query).await?))
}

/// A store, and the files in it
#[utoipa::path(
    get,
    path = "/stores/{store_id}",
    operation_id = "getStore",
    tag = "stores",
    params(("store_id" = StoreId, Path)),
    responses((status = 200, description = "As it is now", body = StoreView))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path(id): Path<StoreId>,
) -> Result<Json<StoreView>, Problem> {
    Ok(Json(app.service.store(&caller, id).await?))
}

/// Change the quota or the comment of a store
///
/// Sessions that are open keep the quota that they have begun with.
#[utoipa::path(
    patch,
    path = "/stores/{store_id}",
    operation_id = "updateStore",
    tag = "stores",
    params(("store_id" = StoreId, Path)),
    request_body = StoreChange,
    responses((status = 200, description = "As it is now", body = Store))
)]
async fn change(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path(id): Path<StoreId>,
    Json(change): Json<StoreChange>,
) -> Result<Json<Store>, Problem> {
    Ok(Json(app.service.change_store(&caller, id, change).await?))
}

/// Delete a store with everything in it
#[utoipa::path(
    delete,
    path = "/stores/{store_id}",
    operation_id = "deleteStore",
    tag = "stores",
    params(("store_id" = StoreId, Path)),
    responses((status = 204, description = "It is gone"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path(id): Path<StoreId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_store(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read a file of a store
#[utoipa::path(
    get,
    path = "/stores/{store_id}/files/{*path}",
    operation_id = "readStoreFile",
    tag = "stores",
    params(("store_id" = StoreId, Path), ("path" = String, Path, description = "relative to the store")),
    responses((status = 200, description = "Its bytes", body = Octets, content_type = "*/*"))
)]
async fn read_file(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path((id, path)): Path<(StoreId, String)>,
) -> Result<Response, Problem> {
    let (file, size) = app.service.read_store_file(&caller, id, path.clone()).await?;
    Ok(files::download(file, size, &path))
}

/// Write a file of a store, whole, in the place of one of the same name
#[utoipa::path(
    put,
    path = "/stores/{store_id}/files/{*path}",
    operation_id = "writeStoreFile",
    tag = "stores",
    params(("store_id" = StoreId, Path), ("path" = String, Path, description = "relative to the store")),
    request_body(content = Option<Octets>, content_type = "application/octet-stream"),
    responses((status = 201, description = "It is there", body = StoreFile))
)]
async fn write_file(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path((id, path)): Path<(StoreId, String)>,
    upload: Upload,
) -> Result<(StatusCode, Json<StoreFile>), Problem> {
    app.service.check_store_upload(&caller, id)?;
    let staged = upload.stage(&app.service).await?;
    let file = app.service.write_store_file(&caller, id, path, staged).await?;
    Ok((StatusCode::CREATED, Json(file)))
}

/// Delete a file of a store
#[utoipa::path(
    delete,
    path = "/stores/{store_id}/files/{*path}",
    operation_id = "deleteStoreFile",
    tag = "stores",
    params(("store_id" = StoreId, Path), ("path" = String, Path, description = "relative to the store")),
    responses((status = 204, description = "It is gone"))
)]
async fn delete_file(
    State(app): State<Arc<AppState>>,
    caller: HttpCaller,
    Path((id, path)): Path<(StoreId, String)>,
) -> Result<StatusCode, Problem> {
    app.service.delete_store_file(&caller, id, path).await?;
    Ok(StatusCode::NO_CONTENT)
}
