//! Tool calls and tool tests.

use super::Routes;
use crate::AppState;
use crate::execution_response::{call_response, submit_options};
use crate::extract::{Json, Path};
use crate::idempotency::ClaimedKey;
use crate::problem::Problem;
use crate::sse::ResponseMode;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use service::{CallRequest, RequestCaller, ResultForm, Submitted, TestRequest, code_runner_result};
use std::sync::Arc;
use types::{Execution, ToolId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(call)).routes(routes!(test))
}

/// Call a tool
///
/// Directly, or through an agent that has the tool, with the privileges of the agent's owner. If
/// the tool's approval action is `review`, the call waits for an approval: the response is 202, with
/// `approval_id`.
#[utoipa::path(
    post,
    path = "/tools/{tool_id}/call",
    operation_id = "callAiTool",
    tag = "tools",
    params(
        ("tool_id" = ToolId, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async` to get a response at once"),
    ),
    request_body = CallRequest,
    responses(
        (status = 200, description = "The record, with the returned `value`; with `result: code_runner` only `success`, `tool`, `runtime`, and `output` or `error`", body = Execution),
        (status = 202, description = "Running, or waiting for an approval; `Location` has the record", body = Execution),
    )
)]
async fn call(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ToolId>,
    mode: ResponseMode,
    claim: ClaimedKey,
    Json(request): Json<CallRequest>,
) -> Result<Response, Problem> {
    let form = request.result;
    let options = submit_options(&caller, claim, mode);
    let submitted = app.service.run(&caller, request.into_run(id), options).await?;
    match (form, mode, submitted) {
        (ResultForm::CodeRunner, ResponseMode::Record, Submitted::Started(handle)) => {
            let record = handle.wait_for_record().await?;
            Ok(Json(code_runner_result(&record.execution)).into_response())
        }
        (_, _, submitted) => call_response(submitted, mode).await,
    }
}

/// Run the `test()` of a tool
///
/// The rules of a call apply: the test is refused if the approval action is `deny`. If it is
/// `review`, the test waits for an approval: the response is 202, with `approval_id`.
#[utoipa::path(
    post,
    path = "/tools/{tool_id}/test",
    operation_id = "testAiTool",
    tag = "tools",
    params(("tool_id" = ToolId, Path)),
    request_body = TestRequest,
    responses(
        (status = 200, description = "The record of the test", body = Execution),
        (status = 202, description = "Running, or waiting for an approval; `Location` has the record", body = Execution),
    )
)]
async fn test(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ToolId>,
    mode: ResponseMode,
    claim: ClaimedKey,
    Json(request): Json<TestRequest>,
) -> Result<Response, Problem> {
    call_response(
        app.service
            .run(&caller, request.into_run(id), submit_options(&caller, claim, mode))
            .await?,
        mode,
    )
    .await
}
