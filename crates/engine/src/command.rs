//! Requests to the engine, validated as far as that is possible without a sandbox.

use crate::config::ExpiryRequest;
use crate::package_installer::InstallHandler;
use crate::sandbox_grants::SandboxGrants;
use sandbox::StopHandle;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::PathBuf;
use std::sync::Arc;
use types::{ExecutionId, LimitsRequest, OperatorCaps, PrincipalId, SandboxId, Warning};
use uuid::Uuid;

/// More than any program that a model or a person writes by hand, and less than a compiler in a
/// sandbox of the default size can handle.
const CODE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Source text for a compiler: UTF-8, not empty, without NUL, and not too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    #[error("there is no code to run")]
    Empty,
    #[error("the code is not valid UTF-8 (at byte {0})")]
    NotUtf8(usize),
    #[error("the code has a NUL character at byte {0}")]
    Nul(usize),
    #[error("the code has {0} bytes; the maximum is {CODE_BYTES_MAX}")]
    TooLong(usize),
}

impl Code {
    pub fn new(bytes: Vec<u8>) -> Result<Self, CodeError> {
        if bytes.len() > CODE_BYTES_MAX {
            return Err(CodeError::TooLong(bytes.len()));
        }
        let text = String::from_utf8(bytes)
            .map_err(|error| CodeError::NotUtf8(error.utf8_error().valid_up_to()))?;
        if let Some(at) = text.find('\0') {
            return Err(CodeError::Nul(at));
        }
        if text.trim().is_empty() {
            return Err(CodeError::Empty);
        }
        Ok(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The code to run, and how it is started.
#[derive(Debug, Clone, PartialEq)]
pub enum EntryPoint {
    /// Like a notebook cell: the value of a last expression is a result.
    Cell(Code),
    /// Like a cell, whose result is the value it binds to the name `result`, if any.
    ResultCell(Code),
    /// Like `python3 FILE ARGS`.
    Script { code: Code, argv: Vec<String> },
    /// Like `Script`, started in a directory of [`Config::mounts`](crate::Config::mounts) that
    /// already has the file. Its path from there is the first of `argv`.
    ScriptIn { directory: String, code: Code, argv: Vec<String> },
    /// A module of which one function is called, with arguments that conform to its contract.
    Call(Box<contract::ValidatedCall>),
}

impl EntryPoint {
    /// The name of the entry point in records.
    pub fn name(&self) -> &str {
        match self {
            Self::Cell(_) => "cell",
            Self::ResultCell(_) => "answer",
            Self::Script { .. } | Self::ScriptIn { .. } => "script",
            Self::Call(call) => call.function(),
        }
    }

    /// The name of the called tool, if the code is one.
    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::Call(call) => Some(call.tool()),
            Self::Cell(_) | Self::ResultCell(_) | Self::Script { .. } | Self::ScriptIn { .. } => {
                None
            }
        }
    }

    pub fn code(&self) -> &str {
        match self {
            Self::Cell(code)
            | Self::ResultCell(code)
            | Self::Script { code, .. }
            | Self::ScriptIn { code, .. } => code.as_str(),
            Self::Call(call) => call.code(),
        }
    }
}

/// A file for the working directory.
#[derive(Debug, Clone)]
pub struct InputFile {
    /// Its name in the working directory.
    pub name: String,
    pub content: FileContent,
}

/// Source of the bytes of a file.
#[derive(Debug, Clone)]
pub enum FileContent {
    Bytes(Vec<u8>),
    /// An open file, read from its current position.
    File(Arc<File>),
}

impl FileContent {
    pub fn into_reader(self) -> Box<dyn Read + Send> {
        match self {
            Self::Bytes(bytes) => Box::new(Cursor::new(bytes)),
            Self::File(file) => Box::new(file),
        }
    }
}

impl From<Vec<u8>> for FileContent {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// How files that the code creates are returned, besides their names in the record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FileCollection {
    #[default]
    Nothing,
    /// Their content, in memory.
    Contents,
    /// A copy of each in a directory of the caller, named `0`, `1` and so on. The directory is
    /// created when there is something to copy.
    Staged(StagingDirectory),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagingDirectory {
    pub directory: PathBuf,
    /// Limit for all copies together. A sparse file counts, and takes, its whole length.
    pub bytes_max: u64,
}

/// One execution.
#[derive(Debug, Clone)]
pub struct Command {
    pub id: ExecutionId,
    /// Cancels it, in whatever stage it is.
    pub stop: StopHandle,
    /// The principal of the caller, which code can read.
    pub principal: Option<String>,
    /// The caller that this execution counts for when sandboxes wait for their start.
    pub started_by: Option<PrincipalId>,
    /// The session to run in. Without one, the sandbox lives for this execution only.
    pub session: Option<SandboxId>,
    /// The session whose working directory a fresh sandbox works on: its files are copied in before
    /// the code runs, and changed files are copied back. Absent for a command in a session.
    pub session_files: Option<SandboxId>,
    /// Environment of a fresh sandbox. In a session, code runs in the session's environment, and a
    /// tool of another environment in a sandbox of its own, with the files of the session.
    pub environment: String,
    pub entry: EntryPoint,
    pub files: Vec<InputFile>,
    /// Warnings about the request, for the record.
    pub warnings: Vec<Warning>,
    /// Absent limits come from the tool, from the session, or from the defaults, in this order.
    pub limits: LimitsRequest,
    /// Upper bounds of its limits, if lower than the engine's.
    pub caps: Option<OperatorCaps>,
    pub collect_files: FileCollection,
    /// Handles requests of the code for packages; without it code can install none. It is no grant
    /// of the sandbox, because it acts for the caller of this execution: others may use the session.
    pub installer: Option<InstallHandler>,
    /// Grants of a fresh sandbox. A session has its own, so a command in one must have none.
    pub grants: SandboxGrants,
}

impl Command {
    /// A command in a fresh sandbox, with a new id and default options.
    pub fn new(environment: impl Into<String>, entry: EntryPoint) -> Self {
        Self {
            id: ExecutionId::new(Uuid::now_v7()),
            stop: StopHandle::default(),
            principal: None,
            started_by: None,
            session: None,
            session_files: None,
            environment: environment.into(),
            entry,
            files: Vec::new(),
            warnings: Vec::new(),
            limits: LimitsRequest::default(),
            caps: None,
            collect_files: FileCollection::Nothing,
            installer: None,
            grants: SandboxGrants::default(),
        }
    }

    /// The limits that the caller requested, or else the author of the tool.
    pub(crate) fn limits(&self) -> LimitsRequest {
        let of_tool = match &self.entry {
            EntryPoint::Call(call) => call.wall_ms(),
            EntryPoint::Cell(_)
            | EntryPoint::ResultCell(_)
            | EntryPoint::Script { .. }
            | EntryPoint::ScriptIn { .. } => None,
        };
        LimitsRequest { wall_ms: self.limits.wall_ms.or(of_tool), ..self.limits }
    }
}

#[derive(Debug, Clone)]
pub struct NewSession {
    pub id: SandboxId,
    /// The first is 1. A higher one says that a session of this id existed and lost its state.
    pub generation: u64,
    /// As for a [`Command`].
    pub started_by: Option<PrincipalId>,
    pub environment: String,
    pub limits: LimitsRequest,
    /// Upper bounds of its limits, if lower than the engine's.
    pub caps: Option<OperatorCaps>,
    pub expiry: ExpiryRequest,
    /// Grants of each sandbox that the session has in its life.
    pub grants: SandboxGrants,
}

impl NewSession {
    /// A session with a new id and default options.
    pub fn new(environment: impl Into<String>) -> Self {
        Self {
            id: SandboxId::new(Uuid::now_v7()),
            generation: 1,
            started_by: None,
            environment: environment.into(),
            limits: LimitsRequest::default(),
            caps: None,
            expiry: ExpiryRequest::default(),
            grants: SandboxGrants::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_cannot_be_run_is_refused_with_the_place() {
        assert_eq!(Code::new(b" \n".to_vec()), Err(CodeError::Empty));
        assert_eq!(Code::new(b"a\xffb".to_vec()), Err(CodeError::NotUtf8(1)));
        assert_eq!(Code::new(b"a = '\0'".to_vec()), Err(CodeError::Nul(5)));
        let long = CODE_BYTES_MAX + 1;
        assert_eq!(Code::new(vec![b'#'; long]), Err(CodeError::TooLong(long)));
        assert!(Code::new(vec![b'#'; CODE_BYTES_MAX]).is_ok());
        assert!(Code::new("print('☃')".into()).is_ok());
    }
}
