//! Error responses: problem details (RFC 9457) with the extensions `code` and `hint`.
//!
//! The only module that maps an error to an HTTP status.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use service::{ErrorDetail, RequestError, StatementResult};
use types::{Error, ErrorCode};
use utoipa::ToSchema;

/// Long enough for a short execution to end and release its permit.
const RETRY_AFTER_SECONDS: &str = "1";

#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// `urn:belljar:error:` and the code.
    #[serde(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    /// What happened, in one sentence.
    detail: String,
    code: ErrorCode,
    /// What to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Whether the same request may succeed when sent again unchanged.
    retryable: bool,
    /// Single errors, if one sentence is not enough
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ErrorDetail>,
    /// Of a request with statements in SQL: the results of those that ran before the error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statements: Vec<StatementResult>,
}

impl Problem {
    pub(crate) fn from_request_error(request_error: RequestError) -> Self {
        let RequestError { error, details } = request_error;
        let error = *error;
        let status = status(&error.code);
        Self {
            kind: format!("urn:belljar:error:{}", error.code),
            title: status.canonical_reason().unwrap_or("Refused").to_owned(),
            status: status.as_u16(),
            detail: error.message,
            code: error.code,
            hint: error.hint,
            retryable: error.retryable,
            errors: details,
            statements: Vec::new(),
        }
    }

    /// The form of this problem while the server stops: a capacity error becomes 503, so that a
    /// load balancer sends requests elsewhere instead of retrying here.
    pub(crate) fn while_stopping(self) -> Self {
        match self.code {
            ErrorCode::CapacityExhausted => self.with_status(StatusCode::SERVICE_UNAVAILABLE),
            _ => self,
        }
    }

    /// Adds the results of the statements that ran before the error.
    pub(crate) fn with_statements(self, statements: Vec<StatementResult>) -> Self {
        Self { statements, ..self }
    }

    /// Replaces the status of the error code by a more specific HTTP status.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        let title = status.canonical_reason().unwrap_or("Refused").to_owned();
        Self { title, status: status.as_u16(), ..self }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::from_request_error(error.into())
    }
}

impl From<RequestError> for Problem {
    fn from(request_error: RequestError) -> Self {
        Self::from_request_error(request_error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

fn status(code: &ErrorCode) -> StatusCode {
    match code {
        ErrorCode::AuthMissing => StatusCode::UNAUTHORIZED,
        ErrorCode::GrantMissing
        | ErrorCode::ApprovalDenied
        | ErrorCode::ApprovalInvalid
        | ErrorCode::ToolUnavailable
        | ErrorCode::RequestRefused
        | ErrorCode::NetworkDenied
        | ErrorCode::ImportDenied
        | ErrorCode::PackageDenied
        | ErrorCode::PackageUnavailable
        | ErrorCode::ProcessDenied => StatusCode::FORBIDDEN,
        ErrorCode::ObjectNotFound
        | ErrorCode::SessionNotFound
        | ErrorCode::FileNotFound
        | ErrorCode::ResponsePending => StatusCode::NOT_FOUND,
        ErrorCode::NameTaken
        | ErrorCode::OwnerNeeded
        | ErrorCode::ToolInUse
        | ErrorCode::ObjectInUse
        | ErrorCode::SessionBusy
        | ErrorCode::IdempotencyConflict
        | ErrorCode::ApprovalRequired => StatusCode::CONFLICT,
        ErrorCode::SessionExpired | ErrorCode::SessionLost | ErrorCode::ApprovalExpired => {
            StatusCode::GONE
        }
        ErrorCode::RequestTooLarge
        | ErrorCode::QuotaExceeded
        | ErrorCode::OutputTooLarge
        | ErrorCode::DiskExceeded => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::RateExceeded | ErrorCode::CapacityExhausted => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::SandboxUnreachable
        | ErrorCode::DatabaseUnavailable
        | ErrorCode::AuthUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        // This server works; its configuration or another service needs attention.
        ErrorCode::ModelUnavailable => StatusCode::FAILED_DEPENDENCY,
        ErrorCode::SandboxCrashed | ErrorCode::ExecutionInterrupted | ErrorCode::ServerFault => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        ErrorCode::ArgsInvalid
        | ErrorCode::ArgsMissing
        | ErrorCode::ArgsUnknown
        | ErrorCode::FileUnsupported => StatusCode::BAD_REQUEST,
        ErrorCode::CodeSyntax
        | ErrorCode::CodeNoEntry
        | ErrorCode::CodeAnnotation
        | ErrorCode::CodeDuplicateArgument
        | ErrorCode::CodeType
        | ErrorCode::CodeDocstring
        | ErrorCode::ToolInvalid
        | ErrorCode::FileFetchFailed
        | ErrorCode::SecretMissing
        | ErrorCode::BudgetExhausted
        | ErrorCode::Python(_)
        | ErrorCode::TimeExceeded
        | ErrorCode::MemoryExceeded
        | ErrorCode::ProcessesExceeded
        | ErrorCode::ValueNotJson
        | ErrorCode::OutputSchema
        | ErrorCode::ToolFailed
        | ErrorCode::Cancelled => StatusCode::UNPROCESSABLE_ENTITY,
    }
}
