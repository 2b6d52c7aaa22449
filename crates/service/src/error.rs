//! The error of an operation.

use db::DatabaseError;
use serde::Serialize;
use types::{Error, ErrorCode, LimitError, ObjectRef, Privilege};
use utoipa::ToSchema;

/// The error of an operation, and the fields of the request that it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    /// Boxed, because it is large, and most results are not errors.
    pub error: Box<Error>,
    pub details: Vec<ErrorDetail>,
}

/// One error in a request or in source code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErrorDetail {
    /// JSON pointer to the field in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// Position in the source code, counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl RequestError {
    /// An invalid field, for interfaces that parse parts of a request themselves.
    pub fn invalid_field(path: &str, message: impl Into<String>) -> Self {
        invalid_field(path, message)
    }
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self { error: Box::new(error), details: Vec::new() }
    }
}

impl From<LimitError> for RequestError {
    fn from(error: LimitError) -> Self {
        invalid_field(&format!("/limits/{}", error.limit()), error.to_string())
    }
}

impl From<DatabaseError> for RequestError {
    fn from(error: DatabaseError) -> Self {
        let error = match &error {
            DatabaseError::NameTaken { kind, name } => Error::new(
                ErrorCode::NameTaken,
                format!("name {name:?} is already used by another {kind}"),
            )
            .hint("choose another name, or change the existing object"),
            DatabaseError::QuotaExceeded { most } => {
                let message = format!("files of the workspace exceed its quota of {most} bytes");
                Error::new(ErrorCode::QuotaExceeded, message)
                    .hint("delete documents that are no longer needed")
            }
            DatabaseError::Aborted => Error::server_fault(
                "the server stopped during this request; its outcome is unknown",
            ),
            DatabaseError::DiskFull => {
                Error::new(ErrorCode::DatabaseUnavailable, "the disk of the server is full")
                    .hint("ask the operator to free space, then send the request again")
            }
            error => Error::new(
                ErrorCode::DatabaseUnavailable,
                format!("the database is unavailable: {error}"),
            )
            .hint("ask the operator; the log of the server has the cause"),
        };
        error.into()
    }
}

/// An invalid field of a request.
pub(crate) fn invalid_field(path: &str, message: impl Into<String>) -> RequestError {
    let message = message.into();
    let error = Error::new(ErrorCode::ArgsInvalid, format!("{path}: {message}"));
    let detail = ErrorDetail { path: Some(path.to_owned()), message, ..ErrorDetail::default() };
    RequestError { error: Box::new(error), details: vec![detail] }
}

/// An error of the engine about a field of the request.
pub(crate) fn field_error(path: &str, error: Error) -> RequestError {
    let message = error.message.clone();
    let detail = ErrorDetail { path: Some(path.to_owned()), message, ..ErrorDetail::default() };
    RequestError { error: Box::new(error), details: vec![detail] }
}

/// The same error for an object that does not exist and for one that the caller may not see.
pub(crate) fn not_found(what: &str, id: impl std::fmt::Display) -> RequestError {
    Error::new(ErrorCode::ObjectNotFound, format!("{what} {id} not found"))
        .hint("check the id or the name")
        .into()
}

/// The error for deleting an object that others name. If it were deleted, the next principal that
/// creates an object of that name would decide what they use.
pub(crate) fn in_use(what: &str, users: &[String]) -> RequestError {
    let message = format!("{what} cannot be deleted: it is used by {}", users.join(", "));
    Error::new(ErrorCode::ObjectInUse, message).hint("remove it from these first").into()
}

pub(crate) fn missing_privilege(privilege: Privilege, object: ObjectRef) -> RequestError {
    let (what, on) = match object {
        ObjectRef::Workspace(_) => ("the workspace".to_owned(), "workspace".to_owned()),
        object => (object.to_string(), format!("{}:{}", object.kind(), object.uuid())),
    };
    Error::new(ErrorCode::GrantMissing, format!("missing privilege {privilege} on {what}"))
        .hint(format!("ask its owner to run `belljar grant add NAME {privilege} {on}`"))
        .into()
}
