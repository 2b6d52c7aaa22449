//! Skills that are uploaded to a workspace, for its agents.

use super::Routes;
use crate::AppState;
use crate::extract::{Json, Path, Query};
use crate::files::{self, Octets, stage};
use crate::problem::Problem;
use crate::upload_form;
use axum::Extension;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use service::{ObjectQuery, Page, RequestCaller, Service, SkillUpload, SkillView};
use std::sync::Arc;
use types::{SkillId, UploadedSkill};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Size of a form without the content of its files.
const FORM_BYTES: u64 = 1024 * 1024;
const ZIP: &str = "application/zip";
const HINT: &str = "send application/zip, or multipart/form-data with a part for each file";

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(get, replace, delete))
        // Uploads have a limit of their own, and are never whole in memory while they are received.
        .layer(DefaultBodyLimit::disable())
        .routes(routes!(read_file))
}

/// Form of a skill.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the form, which is read part by part")]
struct SkillForm {
    /// One part per file; its file name is the path in the skill, such as `scripts/chart.py`.
    #[schema(value_type = Vec<String>, format = Binary)]
    file: Vec<Vec<u8>>,
}

/// Add a skill: a ZIP archive of its folder, or its files as `multipart/form-data`
///
/// The specification of an agent uses it by its name, in `skills`. It must be valid, as `belljar
/// skill validate` checks it, with at most 1000 files (100 in a form) and 8 MiB.
#[utoipa::path(
    post,
    path = "/skills",
    operation_id = "createSkill",
    tag = "skills",
    request_body(content((Octets = "application/zip"), (SkillForm = "multipart/form-data"))),
    responses((status = 201, description = "Created", body = UploadedSkill))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    request: Request,
) -> Result<(StatusCode, Json<UploadedSkill>), Problem> {
    app.service.check_skill_upload(&caller, None)?;
    let upload = read_upload(&app.service, request).await?;
    Ok((StatusCode::CREATED, Json(app.service.create_skill(&caller, upload).await?)))
}

async fn read_upload(service: &Service, request: Request) -> Result<SkillUpload, Problem> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.map(str::to_owned);
    let media = kind.as_deref().and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    let most = service.skill_upload_bytes_max();
    if media.eq_ignore_ascii_case(ZIP) {
        files::check_body_size(request.body(), most)?;
        let archive = stage(service, Body::into_data_stream(request.into_body())).await?;
        return Ok(SkillUpload::Archive(archive));
    }
    files::check_body_size(request.body(), most + FORM_BYTES)?;
    let files = upload_form::read(service, request, kind.as_deref(), HINT).await?;
    Ok(SkillUpload::Files(files))
}

/// List uploaded skills, newest first
#[utoipa::path(
    get,
    path = "/skills",
    operation_id = "listSkills",
    tag = "skills",
    params(ObjectQuery),
    responses((status = 200, description = "One page of the list", body = Page<UploadedSkill>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<ObjectQuery>,
) -> Result<Json<Page<UploadedSkill>>, Problem> {
    Ok(Json(app.service.skills(&caller, query).await?))
}

/// Get a skill with its instructions and the list of its files
#[utoipa::path(
    get,
    path = "/skills/{skill_id}",
    operation_id = "getSkill",
    tag = "skills",
    params(("skill_id" = SkillId, Path)),
    responses((status = 200, description = "Its current state", body = SkillView))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SkillId>,
) -> Result<Json<SkillView>, Problem> {
    Ok(Json(app.service.skill(&caller, id).await?))
}

/// Replace the files of a skill, whose name stays
///
/// Agents use the new files from their next run on. A session that shows the previous files must be
/// reset.
#[utoipa::path(
    put,
    path = "/skills/{skill_id}",
    operation_id = "replaceSkill",
    tag = "skills",
    params(("skill_id" = SkillId, Path)),
    request_body(content((Octets = "application/zip"), (SkillForm = "multipart/form-data"))),
    responses((status = 200, description = "Its current state", body = UploadedSkill))
)]
async fn replace(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SkillId>,
    request: Request,
) -> Result<Json<UploadedSkill>, Problem> {
    app.service.check_skill_upload(&caller, Some(id))?;
    let upload = read_upload(&app.service, request).await?;
    Ok(Json(app.service.replace_skill(&caller, id, upload).await?))
}

/// Delete a skill; refused while the specification of an agent names it
#[utoipa::path(
    delete,
    path = "/skills/{skill_id}",
    operation_id = "deleteSkill",
    tag = "skills",
    params(("skill_id" = SkillId, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<SkillId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_skill(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read a file of a skill
#[utoipa::path(
    get,
    path = "/skills/{skill_id}/files/{*path}",
    operation_id = "readSkillFile",
    tag = "skills",
    params(("skill_id" = SkillId, Path), ("path" = String, Path, description = "relative to the skill")),
    responses((status = 200, description = "The content of the file", body = Octets, content_type = "*/*"))
)]
async fn read_file(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((id, path)): Path<(SkillId, String)>,
) -> Result<Response, Problem> {
    let content = app.service.read_skill_file(&caller, id, &path).await?;
    Ok(files::download_bytes(content, &path))
}
