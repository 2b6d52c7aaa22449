//! What is answered instead of what was asked for.

use serde::Serialize;
use store::StoreError;
use types::{Code, Fault, LimitError, Object, Privilege};
use utoipa::ToSchema;

/// A fault, and the places that it is about where there are several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Boxed: it is a fraction of what an operation returns, and large.
    pub fault: Box<Fault>,
    pub details: Vec<Detail>,
}

/// One thing that is wrong in a request or in a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Detail {
    /// In the request, as a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// In the source, counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Refused {
    /// A field of a request that cannot be as it is, for doors that read more than operations do.
    pub fn invalid(path: &str, message: impl Into<String>) -> Self {
        invalid(path, message)
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self { fault: Box::new(fault), details: Vec::new() }
    }
}

impl From<LimitError> for Refused {
    fn from(error: LimitError) -> Self {
        invalid(&format!("/limits/{}", error.limit()), error.to_string())
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        let fault = match &error {
            StoreError::NameTaken { kind, name } => {
                Fault::new(Code::NameTaken, format!("the name {name:?} is taken by another {kind}"))
                    .hint("choose another name, or change the one that is there")
            }
            StoreError::OverQuota { most } => {
                let message = format!("the workspace keeps at most {most} bytes of files");
                Fault::new(Code::QuotaExceeded, message)
                    .hint("delete documents that are no longer needed")
            }
            error => Fault::new(Code::StoreUnavailable, format!("records cannot be kept: {error}"))
                .hint("nothing was changed; the operator's log says more"),
        };
        fault.into()
    }
}

/// A field of a request that cannot be as it is.
pub(crate) fn invalid(path: &str, message: impl Into<String>) -> Refused {
    let message = message.into();
    let fault = Fault::new(Code::ArgsInvalid, format!("{path}: {message}"));
    let detail = Detail { path: Some(path.to_owned()), message, ..Detail::default() };
    Refused { fault: Box::new(fault), details: vec![detail] }
}

/// What the engine says about a field that was handed on to it.
pub(crate) fn about(path: &str, fault: Fault) -> Refused {
    let message = fault.message.clone();
    let detail = Detail { path: Some(path.to_owned()), message, ..Detail::default() };
    Refused { fault: Box::new(fault), details: vec![detail] }
}

/// The same answer for what is not there and for what is somebody else's.
pub(crate) fn not_found(what: &str, id: impl std::fmt::Display) -> Refused {
    Fault::new(Code::ObjectNotFound, format!("there is no {what} {id}"))
        .hint("check the id; lists show what there is")
        .into()
}

/// An object that others name cannot be deleted: whoever made another one of that name would decide what
/// they use.
pub(crate) fn in_use(what: &str, users: &[String]) -> Refused {
    let message = format!("the {what} is used by {}", users.join(", "));
    Fault::new(Code::ObjectInUse, message).hint("take it out of them first").into()
}

pub(crate) fn missing(privilege: Privilege, object: Object) -> Refused {
    let (what, on) = match object {
        Object::Workspace(_) => ("the workspace".to_owned(), "workspace".to_owned()),
        object => (object.to_string(), format!("{}:{}", object.kind(), object.uuid())),
    };
    Fault::new(Code::GrantMissing, format!("{privilege} on {what} is not granted to this key"))
        .hint(format!("ask an owner of it to run `belljar grant add NAME {privilege} {on}`"))
        .into()
}
