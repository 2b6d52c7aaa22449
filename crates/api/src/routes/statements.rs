//! Statements in SQL.

use super::Routes;
use crate::AppState;
use crate::extract::{self, Json};
use crate::idempotency::PartialEffect;
use crate::json_or_file::json_or_file;
use crate::problem::Problem;
use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use service::{
    ParsedStatements, Plaintext, RequestCaller, RequestError, StatementsOutcome, StatementsRequest,
    StatementsResponse,
};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The registered media type of a text in SQL.
const SQL: [&str; 1] = ["application/sql"];

pub(crate) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(run))
}

/// A text in SQL has no query parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

/// Statements as JSON or as a text in SQL, after they have been read.
struct StatementsBody(ParsedStatements);

impl<S: Send + Sync> FromRequest<S> for StatementsBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let StatementsRequest { statements } =
            json_or_file(request, &SQL, extract::from_json, from_sql).await?;
        let text = statements.reveal().as_bytes().to_vec();
        extract::parse_off_thread(text, |text| {
            let text = std::str::from_utf8(text).map_err(|_| not_utf8())?;
            Ok(Self(ParsedStatements::parse(text)?))
        })
        .await
    }
}

fn from_sql(NoQuery {}: NoQuery, text: Vec<u8>) -> Result<StatementsRequest, RequestError> {
    let text = String::from_utf8(text).map_err(|_| not_utf8())?;
    Ok(StatementsRequest { statements: Plaintext::new(text) })
}

fn not_utf8() -> RequestError {
    RequestError::invalid_field("/statements", "is not valid UTF-8")
}

/// Run statements in SQL, as in Snowflake's worksheets
///
/// Network rules, integrations, secrets, agents, grants and roles: each statement is the operation that
/// this API has for it, with the same rights and the same audit entries. The text is read completely
/// before the first statement runs. The statements are no transaction: they run one after the other, and
/// the first error stops. Its response has the results of the statements before it in `statements`.
/// Each statement counts against the rate limit.
#[utoipa::path(
    post,
    path = "/statements",
    operation_id = "runStatements",
    tag = "statements",
    request_body(content((StatementsRequest = "application/json"), (String = "application/sql"))),
    responses((status = 200, description = "All statements have run", body = StatementsResponse))
)]
async fn run(
    State(app): State<Arc<AppState>>,
    caller: Extension<RequestCaller>,
    StatementsBody(statements): StatementsBody,
) -> Response {
    // The first was counted with the request.
    app.rate_limiter.charge(caller.rate_limits().subject, statements.count().saturating_sub(1));
    let StatementsOutcome { results, error } =
        app.service.run_statements(&caller, statements).await;
    let Some(error) = error else {
        return Json(StatementsResponse { statements: results }).into_response();
    };
    let has_effect = !results.is_empty();
    let mut response = Problem::from(error).with_statements(results).into_response();
    if has_effect {
        response.extensions_mut().insert(PartialEffect);
    }
    response
}
