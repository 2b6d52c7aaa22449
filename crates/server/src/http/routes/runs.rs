//! Runs of language models: code from plain words, and agents that answer.

use super::Routes;
use crate::http::body::{Json, Path, Query};
use crate::http::execution::{accepted, kept_at, manner};
use crate::http::idempotency::Claim;
use crate::http::problem::Problem;
use crate::http::record::record;
use crate::http::sse::{self, Wanted};
use crate::http::told::{TraceFormat, TraceQuery, told};
use crate::http::{App, Known};
use agent::{ChatRequest, ChatResult, CodeRequest, CodeResult, Trace, code_result, not_a_run};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use types::{AgentId, Execution, ExecutionId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(execute_code))
        .routes(routes!(code))
        .routes(routes!(run_agent))
        .routes(routes!(agent_run))
        .routes(routes!(trace))
}

/// Have a request carried out with code that a model writes
///
/// The model plans first, then writes code for one step at a time, which runs in a live session, and
/// sees what came of it. `sandbox_id` goes on in the same session, with its variables and with what
/// was said before. A run that has failed is answered as well: `status`, `complete` and `error` tell.
#[utoipa::path(
    post,
    path = "/code_execution",
    operation_id = "codeExecution",
    tag = "runs",
    params(
        ("Prefer" = Option<String>, Header, description = "`respond-async` to be answered at once"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key runs once"),
    ),
    request_body = CodeRequest,
    responses(
        (status = 200, description = "What came of it, or its events with `Accept: text/event-stream`", body = CodeResult),
        (status = 202, description = "It runs; `Location` is where its record is", body = Execution),
    )
)]
async fn execute_code(
    State(app): State<Arc<App>>,
    caller: Known,
    wanted: Wanted,
    claim: Claim,
    Json(request): Json<CodeRequest>,
) -> Result<Response, Problem> {
    let manner = manner(&caller, claim, wanted);
    let attached = app.agents.code_execution(&caller, request, manner).await?;
    Ok(match wanted {
        Wanted::Record => Json(result(attached.finished().await?)?).into_response(),
        Wanted::Stream => kept_at(attached.id(), sse::stream(attached.events())),
        Wanted::Later => accepted(&attached.let_go()),
    })
}

/// A record in the form in which the request that began it is answered.
pub(crate) async fn as_answered(
    app: &App,
    caller: &Known,
    settled: service::Record,
) -> Result<Response, Problem> {
    let execution = &settled.execution;
    if execution.ended_at.is_some() && execution.entry == agent::AGENT {
        return Ok(Json(app.agents.chat_result(caller, settled.execution).await?).into_response());
    }
    let ended = execution.ended_at.is_some();
    Ok(match code_result(execution.clone()) {
        Some(result) if ended => Json(result).into_response(),
        _ => record(settled),
    })
}

fn result(execution: Execution) -> Result<CodeResult, Problem> {
    let id = execution.id;
    Ok(code_result(execution).ok_or_else(|| not_a_run(id))?)
}

/// What came of a run of code, or how far it has come
#[utoipa::path(
    get,
    path = "/code_execution/{id}",
    operation_id = "getCodeExecution",
    tag = "runs",
    params(("id" = ExecutionId, Path)),
    responses((status = 200, description = "What came of it", body = CodeResult))
)]
async fn code(
    State(app): State<Arc<App>>,
    caller: Known,
    Path(id): Path<ExecutionId>,
) -> Result<Json<CodeResult>, Problem> {
    Ok(Json(result(app.service.execution(&caller, id).await?)?))
}

/// Have an agent answer a message
///
/// A tool that has to be confirmed is not run: `actions` says which, and the next request, with the
/// `cursor` of this answer, replies to each with ALLOW or DENY.
#[utoipa::path(
    post,
    path = "/agents/{agent_id}/run",
    operation_id = "runAiAgent",
    tag = "runs",
    params(
        ("agent_id" = AgentId, Path),
        ("Prefer" = Option<String>, Header, description = "`respond-async` to be answered at once"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key runs once"),
    ),
    request_body = ChatRequest,
    responses(
        (status = 200, description = "The answer, or its events with `Accept: text/event-stream`", body = ChatResult),
        (status = 202, description = "It runs; `Location` is where its record is", body = Execution),
    )
)]
async fn run_agent(
    State(app): State<Arc<App>>,
    caller: Known,
    Path(id): Path<AgentId>,
    wanted: Wanted,
    claim: Claim,
    Json(request): Json<ChatRequest>,
) -> Result<Response, Problem> {
    let manner = manner(&caller, claim, wanted);
    let attached = app.agents.run_agent(&caller, id, request, manner).await?;
    Ok(match wanted {
        Wanted::Record => {
            let ended = attached.finished().await?;
            Json(app.agents.chat_result(&caller, ended).await?).into_response()
        }
        Wanted::Stream => kept_at(attached.id(), sse::stream(attached.events())),
        Wanted::Later => accepted(&attached.let_go()),
    })
}

/// The answer of an agent, or how far it has come
#[utoipa::path(
    get,
    path = "/agents/{agent_id}/runs/{id}",
    operation_id = "getAiAgentRun",
    tag = "runs",
    params(("agent_id" = AgentId, Path), ("id" = ExecutionId, Path)),
    responses((status = 200, description = "The answer", body = ChatResult))
)]
async fn agent_run(
    State(app): State<Arc<App>>,
    caller: Known,
    Path((agent, id)): Path<(AgentId, ExecutionId)>,
) -> Result<Json<ChatResult>, Problem> {
    let execution = app.service.execution(&caller, id).await?;
    if execution.agent != Some(agent) {
        return Err(not_a_run(id).into());
    }
    Ok(Json(app.agents.chat_result(&caller, execution).await?))
}

/// What a run has done, step by step
///
/// As JSON; as a Jupyter notebook, which opens anywhere; as a page that needs nothing but itself, with
/// the charts in it; or as text for a terminal.
#[utoipa::path(
    get,
    path = "/executions/{id}/trace",
    operation_id = "getTrace",
    tag = "runs",
    params(("id" = ExecutionId, Path), TraceQuery),
    responses(
        (status = 200, description = "Every question to the model, all code, and what came of it", content(
            (Trace = "application/json"),
            (Object = "application/x-ipynb+json"),
            (String = "text/html"),
            (String = "text/plain"),
        )),
    )
)]
async fn trace(
    State(app): State<Arc<App>>,
    caller: Known,
    Path(id): Path<ExecutionId>,
    Query(query): Query<TraceQuery>,
) -> Result<Response, Problem> {
    let story = match query.format {
        TraceFormat::Json => {
            return Ok(Json(app.agents.trace(&caller, id).await?).into_response());
        }
        _ => app.agents.story(&caller, id).await?,
    };
    Ok(told(&story, query.format))
}
