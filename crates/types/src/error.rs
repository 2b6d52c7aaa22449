//! Errors, for a person and for a model: a stable code, one sentence, and a hint that names the
//! supported alternative.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The stable codes of `error.code`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorCode {
    /// The user's own exception; the name is the exception's type.
    Python(String),
    CodeSyntax,
    /// The function to call does not exist.
    CodeNoEntry,
    CodeAnnotation,
    CodeDuplicateArgument,
    CodeType,
    CodeDocstring,
    TimeExceeded,
    MemoryExceeded,
    OutputTooLarge,
    DiskExceeded,
    ProcessesExceeded,
    ProcessDenied,
    PackageDenied,
    /// The package is allowed, but no suitable version is available.
    PackageUnavailable,
    NetworkDenied,
    ImportDenied,
    FileNotFound,
    FileUnsupported,
    FileFetchFailed,
    SessionNotFound,
    SessionLost,
    SessionBusy,
    SessionExpired,
    SandboxUnreachable,
    SandboxCrashed,
    CapacityExhausted,
    ArgsInvalid,
    ArgsMissing,
    ArgsUnknown,
    ValueNotJson,
    OutputSchema,
    /// The key or token is missing or invalid.
    AuthMissing,
    /// Tokens cannot be verified at the moment.
    AuthUnavailable,
    GrantMissing,
    ApprovalRequired,
    ApprovalDenied,
    ApprovalExpired,
    /// The approval is for another call, or was used already.
    ApprovalInvalid,
    ObjectNotFound,
    NameTaken,
    /// The JSON, the code or the schemas of the tool have errors.
    ToolInvalid,
    /// The change would leave an object without an owner.
    OwnerNeeded,
    ToolInUse,
    /// Another object depends on it.
    ObjectInUse,
    ToolUnavailable,
    /// A tool of an MCP server says that it has failed.
    ToolFailed,
    /// The response is available when the call has ended.
    ResponsePending,
    QuotaExceeded,
    RateExceeded,
    RequestTooLarge,
    /// The Origin or Host of the request is not allowed.
    RequestRefused,
    /// The same key was used for another request, or for one that is in progress.
    IdempotencyConflict,
    /// The server stopped during the execution.
    ExecutionInterrupted,
    /// Records cannot be written at the moment.
    DatabaseUnavailable,
    SecretMissing,
    /// The API key of the provider is missing, or it does not respond.
    ModelUnavailable,
    /// A model run has exhausted its budget before it finished.
    BudgetExhausted,
    /// The caller cancelled the run.
    Cancelled,
    /// Belljar itself failed; the sandbox and the code did not.
    ServerFault,
}

const ERROR_CODES: [(ErrorCode, &str); 59] = [
    (ErrorCode::CodeSyntax, "code.syntax"),
    (ErrorCode::CodeNoEntry, "code.no_entry"),
    (ErrorCode::CodeAnnotation, "code.annotation"),
    (ErrorCode::CodeDuplicateArgument, "code.duplicate_argument"),
    (ErrorCode::CodeType, "code.type"),
    (ErrorCode::CodeDocstring, "code.docstring"),
    (ErrorCode::TimeExceeded, "time.exceeded"),
    (ErrorCode::MemoryExceeded, "memory.exceeded"),
    (ErrorCode::OutputTooLarge, "output.too_large"),
    (ErrorCode::DiskExceeded, "disk.exceeded"),
    (ErrorCode::ProcessesExceeded, "processes.exceeded"),
    (ErrorCode::ProcessDenied, "process.denied"),
    (ErrorCode::PackageDenied, "package.denied"),
    (ErrorCode::PackageUnavailable, "package.unavailable"),
    (ErrorCode::NetworkDenied, "network.denied"),
    (ErrorCode::ImportDenied, "import.denied"),
    (ErrorCode::FileNotFound, "file.not_found"),
    (ErrorCode::FileUnsupported, "file.unsupported"),
    (ErrorCode::FileFetchFailed, "file.fetch_failed"),
    (ErrorCode::SessionNotFound, "session.not_found"),
    (ErrorCode::SessionLost, "session.lost"),
    (ErrorCode::SessionBusy, "session.busy"),
    (ErrorCode::SessionExpired, "session.expired"),
    (ErrorCode::SandboxUnreachable, "sandbox.unreachable"),
    (ErrorCode::SandboxCrashed, "sandbox.crashed"),
    (ErrorCode::CapacityExhausted, "capacity.exhausted"),
    (ErrorCode::ArgsInvalid, "args.invalid"),
    (ErrorCode::ArgsMissing, "args.missing"),
    (ErrorCode::ArgsUnknown, "args.unknown"),
    (ErrorCode::ValueNotJson, "value.not_json"),
    (ErrorCode::OutputSchema, "output.schema"),
    (ErrorCode::AuthMissing, "auth.missing"),
    (ErrorCode::AuthUnavailable, "auth.unavailable"),
    (ErrorCode::GrantMissing, "grant.missing"),
    (ErrorCode::ApprovalRequired, "approval.required"),
    (ErrorCode::ApprovalDenied, "approval.denied"),
    (ErrorCode::ApprovalExpired, "approval.expired"),
    (ErrorCode::ApprovalInvalid, "approval.invalid"),
    (ErrorCode::ObjectNotFound, "object.not_found"),
    (ErrorCode::NameTaken, "name.taken"),
    (ErrorCode::ToolInvalid, "tool.invalid"),
    (ErrorCode::OwnerNeeded, "owner.needed"),
    (ErrorCode::ToolInUse, "tool.in_use"),
    (ErrorCode::ObjectInUse, "object.in_use"),
    (ErrorCode::ToolUnavailable, "tool.unavailable"),
    (ErrorCode::ToolFailed, "tool.failed"),
    (ErrorCode::ResponsePending, "response.pending"),
    (ErrorCode::QuotaExceeded, "quota.exceeded"),
    (ErrorCode::RateExceeded, "rate.exceeded"),
    (ErrorCode::RequestTooLarge, "request.too_large"),
    (ErrorCode::RequestRefused, "request.refused"),
    (ErrorCode::IdempotencyConflict, "idempotency.conflict"),
    (ErrorCode::ExecutionInterrupted, "execution.interrupted"),
    (ErrorCode::DatabaseUnavailable, "database.unavailable"),
    (ErrorCode::SecretMissing, "secret.missing"),
    (ErrorCode::ModelUnavailable, "model.unavailable"),
    (ErrorCode::BudgetExhausted, "budget.exhausted"),
    (ErrorCode::Cancelled, "execution.cancelled"),
    (ErrorCode::ServerFault, "server.fault"),
];

impl ErrorCode {
    /// Whether the condition is temporary, so that the same request may succeed later. None of
    /// these codes is used for code that has run.
    fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::CapacityExhausted
                | Self::SessionBusy
                | Self::RateExceeded
                | Self::AuthUnavailable
                | Self::DatabaseUnavailable
                | Self::ResponsePending
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Python(exception) = self {
            return write!(f, "python.{exception}");
        }
        let name = ERROR_CODES.iter().find(|(code, _)| code == self).map(|(_, name)| *name);
        f.write_str(name.unwrap_or("python"))
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if let Some(exception) = text.strip_prefix("python.") {
            return Ok(Self::Python(exception.to_owned()));
        }
        ERROR_CODES
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(code, _)| code.clone())
            .ok_or_else(|| serde::de::Error::custom(format!("unknown error code {text:?}")))
    }
}

impl PartialSchema for ErrorCode {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .description(Some(
                "A stable name; for an exception of the code, `python.` and its type",
            ))
            .examples(["time.exceeded", "python.ValueError"])
            .into()
    }
}

impl ToSchema for ErrorCode {}

/// A failed `assert`, and its operands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    pub line: u32,
    /// The source line.
    pub source: String,
    /// Parts of its expression, and the `repr` of each.
    pub values: Vec<(String, String)>,
}

/// The `error` of an Execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Error {
    pub code: ErrorCode,
    /// The exception's type for `python.*`, absent otherwise.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none", default)]
    pub exception: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceback: Option<String>,
    /// For a failed `assert` in a test.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub assertion: Option<Assertion>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    /// Whether the same request may succeed when sent again unchanged.
    pub retryable: bool,
}

impl Error {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            retryable: code.is_transient(),
            code,
            exception: None,
            message: message.into(),
            traceback: None,
            assertion: None,
            hint: None,
        }
    }

    /// A failure of Belljar itself. It is not retryable: what was done before the failure is unknown.
    pub fn server_fault(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ServerFault, message).hint(
            "check whether it took effect before you send it again; the log of the server says why",
        )
    }

    /// Marks the error as retryable, although its code alone does not imply that.
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_as_itself() {
        let python = ErrorCode::Python("json.decoder.JSONDecodeError".into());
        for code in ERROR_CODES.iter().map(|(code, _)| code.clone()).chain([python]) {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(serde_json::from_str::<ErrorCode>(&text).unwrap(), code);
        }
        assert!(serde_json::from_str::<ErrorCode>("\"no.such\"").is_err());
    }

    #[test]
    fn transient_errors_are_retryable_and_others_are_not() {
        for code in [
            ErrorCode::CapacityExhausted,
            ErrorCode::SessionBusy,
            ErrorCode::RateExceeded,
            ErrorCode::DatabaseUnavailable,
        ] {
            assert!(Error::new(code.clone(), "later").retryable, "{code}");
        }
        for code in [
            ErrorCode::ArgsInvalid,
            ErrorCode::ExecutionInterrupted,
            ErrorCode::QuotaExceeded,
            ErrorCode::ServerFault,
        ] {
            assert!(!Error::new(code.clone(), "never").retryable, "{code}");
        }
    }
}
