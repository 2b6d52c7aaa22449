//! Volumes: named directories that outlive sessions.

use super::Routes;
use crate::AppState;
use crate::extract::{Json, Path, Query};
use crate::files::{self, Octets, Upload};
use crate::problem::Problem;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use service::{
    ObjectQuery, Page, RequestCaller, VolumeChange, VolumeFile, VolumeRequest, VolumeView,
};
use std::sync::Arc;
use types::{Volume, VolumeId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(get, change, delete))
        .routes(routes!(read_file, write_file, delete_file))
}

/// Create a volume
///
/// Code of an agent can use it if the agent's specification lists it in
/// `tool_resources.code_execution.volumes`, with `access: read` or `write`, and the principal that
/// the code runs as has USAGE or MODIFY on it.
#[utoipa::path(
    post,
    path = "/volumes",
    operation_id = "createVolume",
    tag = "volumes",
    request_body = VolumeRequest,
    responses((status = 201, description = "Created, and empty", body = Volume))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Json(request): Json<VolumeRequest>,
) -> Result<(StatusCode, Json<Volume>), Problem> {
    Ok((StatusCode::CREATED, Json(app.service.create_volume(&caller, request).await?)))
}

/// List volumes, newest first
#[utoipa::path(
    get,
    path = "/volumes",
    operation_id = "listVolumes",
    tag = "volumes",
    params(ObjectQuery),
    responses((status = 200, description = "One page of the list", body = Page<Volume>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ObjectQuery>,
) -> Result<Json<Page<Volume>>, Problem> {
    Ok(Json(app.service.volumes(&caller, query).await?))
}

/// Get a volume and the list of its files
#[utoipa::path(
    get,
    path = "/volumes/{volume_id}",
    operation_id = "getVolume",
    tag = "volumes",
    params(("volume_id" = VolumeId, Path)),
    responses((status = 200, description = "Its current state", body = VolumeView))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<VolumeId>,
) -> Result<Json<VolumeView>, Problem> {
    Ok(Json(app.service.volume(&caller, id).await?))
}

/// Change the quota or the comment of a volume
///
/// Open sessions keep the quota that they started with.
#[utoipa::path(
    patch,
    path = "/volumes/{volume_id}",
    operation_id = "updateVolume",
    tag = "volumes",
    params(("volume_id" = VolumeId, Path)),
    request_body = VolumeChange,
    responses((status = 200, description = "Its current state", body = Volume))
)]
async fn change(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<VolumeId>,
    Json(change): Json<VolumeChange>,
) -> Result<Json<Volume>, Problem> {
    Ok(Json(app.service.change_volume(&caller, id, change).await?))
}

/// Delete a volume and all of its files
#[utoipa::path(
    delete,
    path = "/volumes/{volume_id}",
    operation_id = "deleteVolume",
    tag = "volumes",
    params(("volume_id" = VolumeId, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<VolumeId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_volume(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read a file of a volume
#[utoipa::path(
    get,
    path = "/volumes/{volume_id}/files/{*path}",
    operation_id = "readVolumeFile",
    tag = "volumes",
    params(("volume_id" = VolumeId, Path), ("path" = String, Path, description = "relative to the volume")),
    responses((status = 200, description = "The content of the file", body = Octets, content_type = "*/*"))
)]
async fn read_file(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, path)): Path<(VolumeId, String)>,
) -> Result<Response, Problem> {
    let (file, size) = app.service.read_volume_file(&caller, id, path.clone()).await?;
    Ok(files::download(file, size, &path))
}

/// Write a whole file of a volume, replacing one with the same name
#[utoipa::path(
    put,
    path = "/volumes/{volume_id}/files/{*path}",
    operation_id = "writeVolumeFile",
    tag = "volumes",
    params(("volume_id" = VolumeId, Path), ("path" = String, Path, description = "relative to the volume")),
    request_body(content = Option<Octets>, content_type = "application/octet-stream"),
    responses((status = 201, description = "Created", body = VolumeFile))
)]
async fn write_file(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, path)): Path<(VolumeId, String)>,
    upload: Upload,
) -> Result<(StatusCode, Json<VolumeFile>), Problem> {
    app.service.check_volume_upload(&caller, id)?;
    let staged = upload.stage(&app.service).await?;
    let file = app.service.write_volume_file(&caller, id, path, staged).await?;
    Ok((StatusCode::CREATED, Json(file)))
}

/// Delete a file of a volume
#[utoipa::path(
    delete,
    path = "/volumes/{volume_id}/files/{*path}",
    operation_id = "deleteVolumeFile",
    tag = "volumes",
    params(("volume_id" = VolumeId, Path), ("path" = String, Path, description = "relative to the volume")),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_file(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, path)): Path<(VolumeId, String)>,
) -> Result<StatusCode, Problem> {
    app.service.delete_volume_file(&caller, id, path).await?;
    Ok(StatusCode::NO_CONTENT)
}
