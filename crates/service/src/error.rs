//! What is answered instead of what was asked for.

use db::DatabaseError;
use serde::Serialize;
use types::{Error, ErrorCode, LimitError, ObjectRef, Privilege};
use utoipa::ToSchema;

/// A fault, and the places that it is about where there are several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    /// Boxed: it is a fraction of what an operation returns, and large.
    pub error: Box<Error>,
    pub details: Vec<ErrorDetail>,
}

/// One thing that is wrong in a request or in a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErrorDetail {
    /// In the request, as a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// In the source, counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl RequestError {
    /// A field of a request that cannot be as it is, for doors that read more than operations do.
    pub fn invalid_field(path: &str, message: impl Into<String>) -> Self {
        invalid_field(path, message)
    }
}

impl From<Error> for RequestError {
    fn from(fault: Error) -> Self {
        Self { error: Box::new(fault), details: Vec::new() }
    }
}

impl From<LimitError> for RequestError {
    fn from(error: LimitError) -> Self {
        invalid_field(&format!("/limits/{}", error.limit()), error.to_string())
    }
}

impl From<DatabaseError> for RequestError {
    fn from(error: DatabaseError) -> Self {
        let fault = match &error {
            DatabaseError::NameTaken { kind, name } => Error::new(
                ErrorCode::NameTaken,
                format!("the name {name:?} is taken by another {kind}"),
            )
            .hint("choose another name, or change the one that is there"),
            DatabaseError::QuotaExceeded { most } => {
                let message = format!("the workspace keeps at most {most} bytes of files");
                Error::new(ErrorCode::QuotaExceeded, message)
                    .hint("delete documents that are no longer needed")
            }
            error => Error::new(
                ErrorCode::DatabaseUnavailable,
                format!("records cannot be kept: {error}"),
            )
            .hint("nothing was changed; the operator's log says more"),
        };
        fault.into()
    }
}

/// A field of a request that cannot be as it is.
pub(crate) fn invalid_field(path: &str, message: impl Into<String>) -> RequestError {
    let message = message.into();
    let fault = Error::new(ErrorCode::ArgsInvalid, format!("{path}: {message}"));
    let detail = ErrorDetail { path: Some(path.to_owned()), message, ..ErrorDetail::default() };
    RequestError { error: Box::new(fault), details: vec![detail] }
}

/// What the engine says about a field that was handed on to it.
pub(crate) fn field_error(path: &str, fault: Error) -> RequestError {
    let message = fault.message.clone();
    let detail = ErrorDetail { path: Some(path.to_owned()), message, ..ErrorDetail::default() };
    RequestError { error: Box::new(fault), details: vec![detail] }
}

/// The same answer for what is not there and for what is somebody else's.
pub(crate) fn not_found(what: &str, id: impl std::fmt::Display) -> RequestError {
    Error::new(ErrorCode::ObjectNotFound, format!("there is no {what} {id}"))
        .hint("check the id; lists show what there is")
        .into()
}

/// An object that others name cannot be deleted: whoever made another one of that name would decide what
/// they use.
pub(crate) fn in_use(what: &str, users: &[String]) -> RequestError {
    let message = format!("the {what} is used by {}", users.join(", "));
    Error::new(ErrorCode::ObjectInUse, message).hint("take it out of them first").into()
}

pub(crate) fn missing_privilege(privilege: Privilege, object: ObjectRef) -> RequestError {
    let (what, on) = match object {
        ObjectRef::Workspace(_) => ("the workspace".to_owned(), "workspace".to_owned()),
        object => (object.to_string(), format!("{}:{}", object.kind(), object.uuid())),
    };
    Error::new(ErrorCode::GrantMissing, format!("{privilege} on {what} is not granted to this key"))
        .hint(format!("ask an owner of it to run `belljar grant add NAME {privilege} {on}`"))
        .into()
}
