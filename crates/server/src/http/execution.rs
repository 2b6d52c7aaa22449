//! How an execution is answered: as a record, as a stream, or as a promise.

use super::Known;
use super::body::Json;
use super::idempotency::Claim;
use super::problem::Problem;
use super::record::record;
use super::sse::{self, Wanted};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use service::{Asked, Attached, Manner};
use std::any::Any;
use std::sync::Arc;
use types::{Execution, ExecutionId};

pub(crate) fn manner(caller: &Known, claim: Claim, wanted: Wanted) -> Manner {
    let place = Some(caller.place() as Arc<dyn Any + Send + Sync>);
    Manner { claim: claim.key(), announced: wanted != Wanted::Record, place, parent: None }
}

pub(crate) async fn answer(attached: Attached, wanted: Wanted) -> Result<Response, Problem> {
    Ok(match wanted {
        Wanted::Record => record(attached.record().await?),
        Wanted::Stream => kept_at(attached.id(), sse::stream(attached.events())),
        Wanted::Later => accepted(&attached.let_go()),
    })
}

/// A call may have to wait for a person first, who may take their time.
pub(crate) async fn answer_call(asked: Asked, wanted: Wanted) -> Result<Response, Problem> {
    match asked {
        Asked::Begun(attached) => answer(attached, wanted).await,
        Asked::Waiting(execution, events) => Ok(match wanted {
            Wanted::Stream => kept_at(execution.id, sse::stream(events)),
            Wanted::Record | Wanted::Later => accepted(&execution),
        }),
    }
}

pub(crate) fn accepted(execution: &Execution) -> Response {
    kept_at(execution.id, (StatusCode::ACCEPTED, Json(execution)).into_response())
}

/// An answer that is not the record says where the record will be.
pub(crate) fn kept_at(id: ExecutionId, mut response: Response) -> Response {
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/executions/{id}")) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}
