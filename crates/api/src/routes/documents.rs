//! Documents that users upload, and files that executions produce.

use super::Routes;
use crate::AppState;
use crate::byte_range::ByteRange;
use crate::extract::{Json, Path, Query, is_json};
use crate::files::{self, Octets};
use crate::problem::Problem;
use crate::signed_url::SignedFile;
use crate::upload_form;
use axum::Extension;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use service::{Caller, DocumentQuery, FetchRequest, FileRef, Page, RequestCaller};
use std::sync::Arc;
use types::{ExecutionId, File, FileId};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Size of a form without the content of its files.
const FORM_BYTES: u64 = 1024 * 1024;
const HINT: &str = "send multipart/form-data with a part named file, or JSON with urls";

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        // Each file has its own limit, and no file is ever whole in memory.
        .layer(DefaultBodyLimit::disable())
        .routes(routes!(get, delete))
        .routes(routes!(content))
        .routes(routes!(asset))
}

/// Form of an upload.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the form, which is read part by part")]
struct UploadForm {
    /// One part per file, with its file name.
    #[schema(value_type = Vec<String>, format = Binary)]
    file: Vec<Vec<u8>>,
}

/// Add documents: upload them as `multipart/form-data`, or give URLs that the server fetches
#[utoipa::path(
    post,
    path = "/documents",
    operation_id = "createDocuments",
    tag = "documents",
    request_body(content(
        (UploadForm = "multipart/form-data"),
        (FetchRequest = "application/json"),
    )),
    responses((status = 201, description = "The stored documents", body = Page<File>))
)]
async fn create(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    request: Request,
) -> Result<(StatusCode, Json<Page<File>>), Problem> {
    let urls = app.service.file_urls(&caller);
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let mut items = if kind.is_some_and(is_json) {
        let Json(request) = Json::<FetchRequest>::from_request(request, &app).await?;
        app.service.fetch_documents(&caller, request).await?
    } else {
        let kind = kind.map(str::to_owned);
        app.service.check_upload(&caller, None)?;
        files::check_size(&app.service, request.body(), FORM_BYTES)?;
        let uploads = upload_form::read(&app.service, request, kind.as_deref(), HINT).await?;
        app.service.upload_documents(&caller, uploads).await?
    };
    items.iter_mut().for_each(|document| urls.sign_document(document));
    Ok((StatusCode::CREATED, Json(Page { items, next_cursor: None })))
}

/// List documents, newest first
#[utoipa::path(
    get,
    path = "/documents",
    operation_id = "listDocuments",
    tag = "documents",
    params(DocumentQuery),
    responses((status = 200, description = "One page of the list", body = Page<File>))
)]
async fn list(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Query(query): Query<DocumentQuery>,
) -> Result<Json<Page<File>>, Problem> {
    let mut page = app.service.documents(&caller, query).await?;
    let urls = app.service.file_urls(&caller);
    page.items.iter_mut().for_each(|document| urls.sign_document(document));
    Ok(Json(page))
}

/// Get the metadata of a document
#[utoipa::path(
    get,
    path = "/documents/{id}",
    operation_id = "getDocument",
    tag = "documents",
    params(("id" = FileId, Path)),
    responses((status = 200, description = "The document, without its bytes", body = File))
)]
async fn get(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<FileId>,
) -> Result<Json<File>, Problem> {
    let mut document = app.service.document(&caller, id)?;
    app.service.file_urls(&caller).sign_document(&mut document);
    Ok(Json(document))
}

/// Download a document
///
/// With a key, or with the signed `url` of the document, which needs none.
#[utoipa::path(
    get,
    path = "/documents/{id}/content",
    operation_id = "readDocument",
    tag = "documents",
    params(("id" = FileId, Path)),
    responses(
        (status = 200, description = "The content of the file", body = Octets, content_type = "*/*"),
        (status = 206, description = "The part that `Range` requests", body = Octets, content_type = "*/*"),
    )
)]
async fn content(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<FileId>,
    signed: Option<Extension<SignedFile>>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    send_file(&app, &caller, FileRef::Document(id), signed, (&method, &headers)).await
}

/// Sends a file. With a signed URL it is the one that the signature names, and other sites may show
/// it.
async fn send_file(
    app: &AppState,
    caller: &Caller,
    named: FileRef,
    signed: Option<Extension<SignedFile>>,
    (method, headers): (&Method, &HeaderMap),
) -> Result<Response, Problem> {
    let is_signed = signed.is_some();
    let file = signed.map_or(named, |Extension(SignedFile(file))| file);
    let (file, bytes) = app.service.open_file(caller, &file).await?;
    let range = ByteRange::requested(method, headers, file.size);
    let mut response = files::download_range(bytes, file.size, &file.name, range)?;
    if is_signed {
        let cross_origin = HeaderValue::from_static("cross-origin");
        response.headers_mut().insert("cross-origin-resource-policy", cross_origin);
    }
    Ok(response)
}

/// Delete a document
#[utoipa::path(
    delete,
    path = "/documents/{id}",
    operation_id = "deleteDocument",
    tag = "documents",
    params(("id" = FileId, Path)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<FileId>,
) -> Result<StatusCode, Problem> {
    app.service.delete_document(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Download a file that an execution produced
///
/// With a key, or with the signed `url` of the file, which needs none.
#[utoipa::path(
    get,
    path = "/assets/{execution_id}/{*filename}",
    operation_id = "readAsset",
    tag = "documents",
    params(
        ("execution_id" = ExecutionId, Path),
        ("filename" = String, Path, description = "as in `files_out`"),
    ),
    responses(
        (status = 200, description = "The content of the file", body = Octets, content_type = "*/*"),
        (status = 206, description = "The part that `Range` requests", body = Octets, content_type = "*/*"),
    )
)]
async fn asset(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((execution, name)): Path<(ExecutionId, String)>,
    signed: Option<Extension<SignedFile>>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let named = FileRef::Asset { execution, name };
    send_file(&app, &caller, named, signed, (&method, &headers)).await
}
