//! Runs of language models: tasks that a model solves with code, and agents that reply.

use super::Routes;
use crate::AppState;
use crate::execution_response::{accepted_response, submit_options, with_location};
use crate::extract::{Json, Path, Query};
use crate::idempotency::ClaimedKey;
use crate::problem::Problem;
use crate::record_response::record_response;
use crate::sse::{self, ResponseMode};
use crate::trace_format::{TraceFormat, TraceQuery, render_run};
use agent::{
    ChatRequest, ChatResult, CodeRequest, CodeResult, ExternalChatRequest, Trace, code_result,
    not_a_run_error,
};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use service::{FileUrlSigner, RequestCaller};
use std::sync::Arc;
use types::{AgentId, Execution, ExecutionId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(execute_code))
        .routes(routes!(code))
        .routes(routes!(run_agent))
        .routes(routes!(run_named_agent))
        .routes(routes!(agent_run))
        .routes(routes!(trace))
}

/// Let a model write and run code for a request
///
/// The model plans first, then writes code for one step at a time. The code runs in a live session,
/// and the model sees its result. `sandbox_id` continues in the same session, with its variables
/// and its conversation. A failed run has a normal response: see `status`, `complete` and `error`.
#[utoipa::path(
    post,
    path = "/code_execution",
    operation_id = "codeExecution",
    tag = "runs",
    params(
        ("Prefer" = Option<String>, Header, description = "`respond-async` to get a response at \
                                                           once"),
        ("Idempotency-Key" = Option<String>, Header, description = "a request with the same key is \
                                                                    executed once"),
    ),
    request_body = CodeRequest,
    responses(
        (status = 200, description = "The result, or its events with `Accept: text/event-stream`", body = CodeResult),
        (status = 202, description = "Started; `Location` is its record", body = Execution),
    )
)]
async fn execute_code(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    wanted: ResponseMode,
    claim: ClaimedKey,
    Json(request): Json<CodeRequest>,
) -> Result<Response, Problem> {
    let options = submit_options(&caller, claim, wanted);
    let handle = app.agents.code_execution(&caller, request, options).await?;
    let urls = app.service.file_urls(&caller);
    Ok(match wanted {
        ResponseMode::Record => Json(code_result_of(handle.wait().await?, &urls)?).into_response(),
        ResponseMode::Stream => {
            with_location(handle.id(), sse::event_stream(handle.events(), urls))
        }
        ResponseMode::Async => accepted_response(&handle.detach()),
    })
}

/// Responds with a record in the form of the response to the request that started the run.
pub(crate) async fn settled_response(
    app: &AppState,
    caller: &RequestCaller,
    settled: service::ExecutionRecord,
) -> Result<Response, Problem> {
    let execution = &settled.execution;
    if execution.ended_at.is_some() && execution.entry == agent::AGENT {
        return Ok(Json(app.agents.chat_result(caller, settled.execution).await?).into_response());
    }
    let (ended, urls) = (execution.ended_at.is_some(), app.service.file_urls(caller));
    Ok(match code_result(urls.sign_execution(execution.clone())) {
        Some(result) if ended => Json(result).into_response(),
        _ => record_response(settled, &urls),
    })
}

fn code_result_of(execution: Execution, urls: &FileUrlSigner) -> Result<CodeResult, Problem> {
    let id = execution.id;
    Ok(code_result(urls.sign_execution(execution)).ok_or_else(|| not_a_run_error(id))?)
}

/// Get the result of a code run, or its progress
#[utoipa::path(
    get,
    path = "/code_execution/{id}",
    operation_id = "getCodeExecution",
    tag = "runs",
    params(("id" = ExecutionId, Path)),
    responses((status = 200, description = "The result", body = CodeResult))
)]
async fn code(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ExecutionId>,
) -> Result<Json<CodeResult>, Problem> {
    let record = app.service.execution(&caller, id).await?;
    Ok(Json(code_result_of(record.execution, &app.service.file_urls(&caller))?))
}

/// Send a message to an agent
///
/// A tool that needs confirmation does not run: `actions` lists the pending calls, and the next
/// request, with the `cursor` of this response, answers each with ALLOW or DENY.
#[utoipa::path(
    post,
    path = "/agents/{agent_id}/run",
    operation_id = "runAiAgent",
    tag = "runs",
    params(
        ("agent_id" = AgentId, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async` to get a response at \
                                                           once"),
        ("Idempotency-Key" = Option<String>, Header, description = "a request with the same key is \
                                                                    executed once"),
    ),
    request_body = ChatRequest,
    responses(
        (status = 200, description = "The answer, or its events with `Accept: text/event-stream`", body = ChatResult),
        (status = 202, description = "Started; `Location` is its record", body = Execution),
    )
)]
async fn run_agent(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<AgentId>,
    wanted: ResponseMode,
    claim: ClaimedKey,
    Json(request): Json<ChatRequest>,
) -> Result<Response, Problem> {
    agent_response(&app, &caller, id, request, (wanted, claim)).await
}

/// Send a message to the agent that `agentExternalId` names
///
/// The external id is the name of the agent. The request and the response are otherwise those of
/// `runAiAgent`.
#[utoipa::path(
    post,
    path = "/agents/run",
    operation_id = "runAiAgentByExternalId",
    tag = "runs",
    params(
        ("Prefer" = Option<String>, Header, description = "`respond-async` to get a response at \
                                                           once"),
        ("Idempotency-Key" = Option<String>, Header, description = "a request with the same key is \
                                                                    executed once"),
    ),
    request_body = ExternalChatRequest,
    responses(
        (status = 200, description = "The answer, or its events with `Accept: text/event-stream`", body = ChatResult),
        (status = 202, description = "Started; `Location` is its record", body = Execution),
    )
)]
async fn run_named_agent(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    wanted: ResponseMode,
    claim: ClaimedKey,
    Json(request): Json<ExternalChatRequest>,
) -> Result<Response, Problem> {
    let (external_id, request) = request.into_request();
    let id = app.service.agent_by_external_id(&caller, &external_id)?;
    agent_response(&app, &caller, id, request, (wanted, claim)).await
}

async fn agent_response(
    app: &AppState,
    caller: &RequestCaller,
    id: AgentId,
    request: ChatRequest,
    (wanted, claim): (ResponseMode, ClaimedKey),
) -> Result<Response, Problem> {
    let options = submit_options(caller, claim, wanted);
    let handle = app.agents.run_agent(caller, id, request, options).await?;
    Ok(match wanted {
        ResponseMode::Record => {
            let ended = handle.wait().await?;
            Json(app.agents.chat_result(caller, ended).await?).into_response()
        }
        ResponseMode::Stream => {
            let urls = app.service.file_urls(caller);
            with_location(handle.id(), sse::event_stream(handle.events(), urls))
        }
        ResponseMode::Async => accepted_response(&handle.detach()),
    })
}

/// Get the reply of an agent, or its progress
#[utoipa::path(
    get,
    path = "/agents/{agent_id}/runs/{id}",
    operation_id = "getAiAgentRun",
    tag = "runs",
    params(("agent_id" = AgentId, Path), ("id" = ExecutionId, Path)),
    responses((status = 200, description = "The answer", body = ChatResult))
)]
async fn agent_run(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path((agent, id)): Path<(AgentId, ExecutionId)>,
) -> Result<Json<ChatResult>, Problem> {
    let service::ExecutionRecord { execution, budget: _budget, .. } =
        app.service.execution(&caller, id).await?;
    if execution.agent != Some(agent) {
        return Err(not_a_run_error(id).into());
    }
    Ok(Json(app.agents.chat_result(&caller, execution).await?))
}

/// Get the trace of a run, step by step
///
/// As JSON, as a Jupyter notebook, as a self-contained HTML page with the charts, or as plain text
/// for a terminal.
#[utoipa::path(
    get,
    path = "/executions/{id}/trace",
    operation_id = "getTrace",
    tag = "runs",
    params(("id" = ExecutionId, Path), TraceQuery),
    responses(
        (status = 200, description = "Every request to the model, all code, and the results", content(
            (Trace = "application/json"),
            (Object = "application/x-ipynb+json"),
            (String = "text/html"),
            (String = "text/plain"),
        )),
    )
)]
async fn trace(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    Path(id): Path<ExecutionId>,
    Query(query): Query<TraceQuery>,
) -> Result<Response, Problem> {
    let trace = match query.format {
        TraceFormat::Json => {
            let trace = app.agents.signed_trace(&caller, id).await?;
            return Ok(Json(trace).into_response());
        }
        _ => app.agents.run_details(&caller, id).await?,
    };
    Ok(render_run(&trace, query.format))
}
