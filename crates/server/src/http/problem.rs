//! What a refusal looks like on the wire: problem details (RFC 9457) with our `code` and `hint`.
//!
//! The one place that turns a fault into a status.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use service::{Detail, Refused};
use types::{Code, Fault};
use utoipa::ToSchema;

/// Long enough for a short execution to end and give its place back.
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
    code: Code,
    /// What to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Whether the same request may succeed when sent again unchanged.
    retryable: bool,
    /// What exactly is wrong, where there is more to say than one sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Detail>,
}

impl Problem {
    pub(crate) fn of(refused: Refused) -> Self {
        let Refused { fault, details } = refused;
        let fault = *fault;
        let status = status(&fault.code);
        Self {
            kind: format!("urn:belljar:error:{}", fault.code),
            title: status.canonical_reason().unwrap_or("Refused").to_owned(),
            status: status.as_u16(),
            detail: fault.message,
            code: fault.code,
            hint: fault.hint,
            retryable: fault.retryable,
            errors: details,
        }
    }

    /// As it is told while the server stops: that there is no room is then no matter of waiting in a
    /// queue, and whoever sends requests here should send them elsewhere.
    pub(crate) fn while_stopping(self) -> Self {
        match self.code {
            Code::CapacityExhausted => self.answered(StatusCode::SERVICE_UNAVAILABLE),
            _ => self,
        }
    }

    /// With another status than its code has, where HTTP has one of its own for it.
    pub(crate) fn answered(self, status: StatusCode) -> Self {
        let title = status.canonical_reason().unwrap_or("Refused").to_owned();
        Self { title, status: status.as_u16(), ..self }
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::of(fault.into())
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Self::of(refused)
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

fn status(code: &Code) -> StatusCode {
    match code {
        Code::AuthMissing => StatusCode::UNAUTHORIZED,
        Code::GrantMissing
        | Code::ApprovalDenied
        | Code::ApprovalInvalid
        | Code::ToolUnavailable
        | Code::RequestRefused
        | Code::NetworkDenied
        | Code::ImportDenied
        | Code::PackageDenied
        | Code::PackageUnavailable
        | Code::ProcessDenied => StatusCode::FORBIDDEN,
        Code::ObjectNotFound
        | Code::SessionNotFound
        | Code::FileNotFound
        | Code::ResponsePending => StatusCode::NOT_FOUND,
        Code::NameTaken
        | Code::OwnerNeeded
        | Code::ToolInUse
        | Code::ObjectInUse
        | Code::SessionBusy
        | Code::IdempotencyConflict
        | Code::ApprovalRequired => StatusCode::CONFLICT,
        Code::SessionExpired | Code::SessionLost | Code::ApprovalExpired => StatusCode::GONE,
        Code::RequestTooLarge | Code::QuotaExceeded | Code::OutputTooLarge | Code::DiskExceeded => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        Code::RateExceeded | Code::CapacityExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::SandboxUnreachable | Code::StoreUnavailable | Code::AuthUnavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        // This server is well; somebody has to set something, or somebody else's is down.
        Code::ModelUnavailable => StatusCode::FAILED_DEPENDENCY,
        Code::SandboxCrashed | Code::ExecutionInterrupted => StatusCode::INTERNAL_SERVER_ERROR,
        Code::ArgsInvalid | Code::ArgsMissing | Code::ArgsUnknown | Code::FileUnsupported => {
            StatusCode::BAD_REQUEST
        }
        Code::CodeSyntax
        | Code::CodeNoEntry
        | Code::CodeAnnotation
        | Code::CodeDuplicateArgument
        | Code::CodeType
        | Code::CodeDocstring
        | Code::ToolInvalid
        | Code::FileFetchFailed
        | Code::SecretMissing
        | Code::BudgetExhausted
        | Code::Python(_)
        | Code::TimeExceeded
        | Code::MemoryExceeded
        | Code::ProcessesExceeded
        | Code::ValueNotJson
        | Code::OutputSchema
        | Code::Cancelled => StatusCode::UNPROCESSABLE_ENTITY,
    }
}
