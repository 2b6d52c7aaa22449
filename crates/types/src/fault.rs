//! What went wrong, for a person and for a model: a stable code, one sentence, and a hint that
//! names the sanctioned alternative.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The stable codes of `error.code`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// The user's own exception; the name is the exception's type.
    Python(String),
    CodeSyntax,
    /// The function that should be called is not there.
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
    /// It may be installed, and there is none that could be.
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
    /// There is no key or token, or not one that is good.
    AuthMissing,
    /// Tokens cannot be checked now.
    AuthUnavailable,
    GrantMissing,
    ApprovalRequired,
    ApprovalDenied,
    ApprovalExpired,
    /// It is not for what would run, or it was used already.
    ApprovalInvalid,
    ObjectNotFound,
    NameTaken,
    /// Its JSON, its code or its schemas have errors.
    ToolInvalid,
    /// Something would be left without an owner.
    OwnerNeeded,
    ToolInUse,
    /// Something else is made of it.
    ObjectInUse,
    ToolUnavailable,
    /// What was asked for comes when the call has ended.
    ResponsePending,
    QuotaExceeded,
    RateExceeded,
    RequestTooLarge,
    /// A page or a name that this server is not for.
    RequestRefused,
    /// The same key stands for another request, or for one that is under way.
    IdempotencyConflict,
    /// The server stopped while it ran.
    ExecutionInterrupted,
    /// Records cannot be kept now.
    StoreUnavailable,
    SecretMissing,
    /// There is no key for it, or it does not answer.
    ModelUnavailable,
    /// A run of a model has used what it may use, and is not finished.
    BudgetExhausted,
    /// The caller asked for the run to stop.
    Cancelled,
}

const FIXED: [(Code, &str); 57] = [
    (Code::CodeSyntax, "code.syntax"),
    (Code::CodeNoEntry, "code.no_entry"),
    (Code::CodeAnnotation, "code.annotation"),
    (Code::CodeDuplicateArgument, "code.duplicate_argument"),
    (Code::CodeType, "code.type"),
    (Code::CodeDocstring, "code.docstring"),
    (Code::TimeExceeded, "time.exceeded"),
    (Code::MemoryExceeded, "memory.exceeded"),
    (Code::OutputTooLarge, "output.too_large"),
    (Code::DiskExceeded, "disk.exceeded"),
    (Code::ProcessesExceeded, "processes.exceeded"),
    (Code::ProcessDenied, "process.denied"),
    (Code::PackageDenied, "package.denied"),
    (Code::PackageUnavailable, "package.unavailable"),
    (Code::NetworkDenied, "network.denied"),
    (Code::ImportDenied, "import.denied"),
    (Code::FileNotFound, "file.not_found"),
    (Code::FileUnsupported, "file.unsupported"),
    (Code::FileFetchFailed, "file.fetch_failed"),
    (Code::SessionNotFound, "session.not_found"),
    (Code::SessionLost, "session.lost"),
    (Code::SessionBusy, "session.busy"),
    (Code::SessionExpired, "session.expired"),
    (Code::SandboxUnreachable, "sandbox.unreachable"),
    (Code::SandboxCrashed, "sandbox.crashed"),
    (Code::CapacityExhausted, "capacity.exhausted"),
    (Code::ArgsInvalid, "args.invalid"),
    (Code::ArgsMissing, "args.missing"),
    (Code::ArgsUnknown, "args.unknown"),
    (Code::ValueNotJson, "value.not_json"),
    (Code::OutputSchema, "output.schema"),
    (Code::AuthMissing, "auth.missing"),
    (Code::AuthUnavailable, "auth.unavailable"),
    (Code::GrantMissing, "grant.missing"),
    (Code::ApprovalRequired, "approval.required"),
    (Code::ApprovalDenied, "approval.denied"),
    (Code::ApprovalExpired, "approval.expired"),
    (Code::ApprovalInvalid, "approval.invalid"),
    (Code::ObjectNotFound, "object.not_found"),
    (Code::NameTaken, "name.taken"),
    (Code::ToolInvalid, "tool.invalid"),
    (Code::OwnerNeeded, "owner.needed"),
    (Code::ToolInUse, "tool.in_use"),
    (Code::ObjectInUse, "object.in_use"),
    (Code::ToolUnavailable, "tool.unavailable"),
    (Code::ResponsePending, "response.pending"),
    (Code::QuotaExceeded, "quota.exceeded"),
    (Code::RateExceeded, "rate.exceeded"),
    (Code::RequestTooLarge, "request.too_large"),
    (Code::RequestRefused, "request.refused"),
    (Code::IdempotencyConflict, "idempotency.conflict"),
    (Code::ExecutionInterrupted, "execution.interrupted"),
    (Code::StoreUnavailable, "store.unavailable"),
    (Code::SecretMissing, "secret.missing"),
    (Code::ModelUnavailable, "model.unavailable"),
    (Code::BudgetExhausted, "budget.exhausted"),
    (Code::Cancelled, "execution.cancelled"),
];

impl Code {
    /// Whether it passes by itself, so that the same request may succeed later. None of these is
    /// said of code that has run.
    fn passes(&self) -> bool {
        matches!(
            self,
            Self::CapacityExhausted
                | Self::SessionBusy
                | Self::RateExceeded
                | Self::AuthUnavailable
                | Self::StoreUnavailable
                | Self::ResponsePending
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Python(exception) = self {
            return write!(f, "python.{exception}");
        }
        let name = FIXED.iter().find(|(code, _)| code == self).map(|(_, name)| *name);
        f.write_str(name.unwrap_or("python"))
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if let Some(exception) = text.strip_prefix("python.") {
            return Ok(Self::Python(exception.to_owned()));
        }
        FIXED
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(code, _)| code.clone())
            .ok_or_else(|| serde::de::Error::custom(format!("unknown error code {text:?}")))
    }
}

impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .description(Some("A stable name; `python.` and the type for the code's own exception"))
            .examples(["time.exceeded", "python.ValueError"])
            .into()
    }
}

impl ToSchema for Code {}

/// An `assert` that did not hold, and what was in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    pub line: u32,
    /// The line itself.
    pub source: String,
    /// Parts of its expression, and the `repr` of each.
    pub values: Vec<(String, String)>,
}

/// The `error` of an Execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    pub code: Code,
    /// The exception's type for `python.*`, absent otherwise.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none", default)]
    pub exception: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceback: Option<String>,
    /// Of a failed `assert` in a test.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub assertion: Option<Assertion>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    /// Whether the same request may succeed when sent again unchanged.
    pub retryable: bool,
}

impl Fault {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            retryable: code.passes(),
            code,
            exception: None,
            message: message.into(),
            traceback: None,
            assertion: None,
            hint: None,
        }
    }

    /// The same request may succeed later, though its code does not say so by itself.
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_as_itself() {
        let python = Code::Python("json.decoder.JSONDecodeError".into());
        for code in FIXED.iter().map(|(code, _)| code.clone()).chain([python]) {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(serde_json::from_str::<Code>(&text).unwrap(), code);
        }
        assert!(serde_json::from_str::<Code>("\"no.such\"").is_err());
    }

    #[test]
    fn whoever_is_told_to_come_again_may_send_the_same_again() {
        for code in
            [Code::CapacityExhausted, Code::SessionBusy, Code::RateExceeded, Code::StoreUnavailable]
        {
            assert!(Fault::new(code.clone(), "later").retryable, "{code}");
        }
        for code in [Code::ArgsInvalid, Code::ExecutionInterrupted, Code::QuotaExceeded] {
            assert!(!Fault::new(code.clone(), "never").retryable, "{code}");
        }
    }
}
