//! Tool calls and tool tests.

use super::Routes;
use crate::AppState;
use crate::execution_response::{call_response, submit_options};
use crate::extract::{self, Json, Path};
use crate::idempotency::ClaimedKey;
use crate::json_or_file::json_or_file;
use crate::problem::Problem;
use crate::sse::ResponseMode;
use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use service::{
    CallRequest, PythonToolQuery, RequestCaller, ResultForm, Submitted, TestRequest,
    UnsavedTestRequest, code_runner_result,
};
use std::sync::Arc;
use types::{AgentId, Execution, ToolId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(call))
        .routes(routes!(test))
        .routes(routes!(test_unsaved))
        .routes(routes!(test_of_agent))
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
        (_, _, submitted) => call_response(submitted, mode, app.service.file_urls(&caller)).await,
    }
}

/// The body of a test of unsaved code: JSON, or a Python file with the other fields in the query.
struct UnsavedTestBody(UnsavedTestRequest);

impl<S: Send + Sync> FromRequest<S> for UnsavedTestBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let from_python = UnsavedTestRequest::from_python;
        json_or_file(request, &["text/x-python"], extract::from_json, from_python).await.map(Self)
    }
}

/// Run the `test()` of a tool that is not saved
///
/// The tool is sent as for `createAiTool`; its name and description may be absent. Nothing of it is
/// stored but the record of the test, whose `test_outcome` is passed, failed or timed_out. The rules
/// for submitted code apply: the test is refused or waits for an approval (202) if the workspace
/// says so.
#[utoipa::path(
    post,
    path = "/tools/test",
    operation_id = "testUnsavedAiTool",
    tag = "tools",
    params(PythonToolQuery),
    request_body(content((UnsavedTestRequest = "application/json"), (String = "text/x-python"))),
    responses(
        (status = 200, description = "The record of the test", body = Execution),
        (status = 202, description = "Running, or waiting for an approval; `Location` has the record", body = Execution),
    )
)]
async fn test_unsaved(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    mode: ResponseMode,
    claim: ClaimedKey,
    UnsavedTestBody(request): UnsavedTestBody,
) -> Result<Response, Problem> {
    let options = submit_options(&caller, claim, mode);
    let submitted = app.service.run(&caller, request.into_run(), options).await?;
    call_response(submitted, mode, app.service.file_urls(&caller)).await
}

/// Run the `test()` of a tool of an agent
///
/// A tool of the specification or an attached tool, by its name or id, with the privileges, the
/// environment and the limits that it has when the agent calls it. It requires MODIFY on the agent,
/// besides USAGE. The test is refused if the approval action is `deny`, and waits for an approval
/// (202) if it is `review`.
#[utoipa::path(
    post,
    path = "/agents/{agent_id}/tools/{tool_id}/test",
    operation_id = "testAgentTool",
    tag = "agents",
    params(
        ("agent_id" = AgentId, Path),
        ("tool_id" = String, Path, description = "Name or id of a tool of the agent"),
    ),
    request_body = TestRequest,
    responses(
        (status = 200, description = "The record of the test", body = Execution),
        (status = 202, description = "Running, or waiting for an approval; `Location` has the record", body = Execution),
    )
)]
async fn test_of_agent(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((agent, tool)): Path<(AgentId, String)>,
    mode: ResponseMode,
    claim: ClaimedKey,
    Json(request): Json<TestRequest>,
) -> Result<Response, Problem> {
    let run = app.service.agent_tool_test(&caller, agent, &tool, request).await?;
    let options = submit_options(&caller, claim, mode);
    let submitted = app.service.run(&caller, run, options).await?;
    call_response(submitted, mode, app.service.file_urls(&caller)).await
}

/// Run the `test()` of a tool
///
/// `test_outcome` of the record is passed, failed or timed_out. The rules of a call apply: the test is
/// refused if the approval action is `deny`. If it is
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
            .run(&caller, request.into_run(id, None), submit_options(&caller, claim, mode))
            .await?,
        mode,
        app.service.file_urls(&caller),
    )
    .await
}
