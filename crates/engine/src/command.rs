//! What can be asked of the engine, checked as far as it can be without a sandbox.

use crate::config::ExpiryRequest;
use crate::egress::EgressHandler;
use crate::package_installer::InstallHandler;
use crate::redact::OutputRedactor;
use crate::volumes::VolumeIn;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::PathBuf;
use std::sync::Arc;
use types::{ExecutionId, LimitsRequest, OperatorCaps, SandboxId};
use uuid::Uuid;

/// More than any program that a model or a person writes by hand, and less than what a compiler
/// in a sandbox of the usual size would choke on.
const CODE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Source text that can be given to a compiler: UTF-8, not empty, without NUL, and not too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    #[error("there is no code to run")]
    Empty,
    #[error("the code is not UTF-8 (byte {0} is not part of a character)")]
    NotUtf8(usize),
    #[error("the code has a NUL character at byte {0}")]
    Nul(usize),
    #[error("the code has {0} bytes, and at most {CODE_BYTES_MAX} can be run")]
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

/// What is run, and how it is entered.
#[derive(Debug, Clone, PartialEq)]
pub enum EntryPoint {
    /// As in a notebook: the value of a last expression is a result.
    Cell(Code),
    /// As a cell whose result is what it binds to the name `result`, if it does.
    ResultCell(Code),
    /// As `python3 FILE ARGS`.
    Script { code: Code, argv: Vec<String> },
    /// The same, started in a directory of [`Config::mounts`](crate::Config::mounts) where the file
    /// already is. Its path from there is the first of `argv`.
    ScriptIn { directory: String, code: Code, argv: Vec<String> },
    /// As a module of which one function is called, with arguments that conform to its contract.
    Call(Box<contract::ValidatedCall>),
}

impl EntryPoint {
    /// As a record says it.
    pub fn name(&self) -> &str {
        match self {
            Self::Cell(_) => "cell",
            Self::ResultCell(_) => "answer",
            Self::Script { .. } | Self::ScriptIn { .. } => "script",
            Self::Call(call) => call.function(),
        }
    }

    /// The tool that is called, if it is one.
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
    /// Its name there.
    pub name: String,
    pub content: FileContent,
}

/// Where the bytes of a file are.
#[derive(Debug, Clone)]
pub enum FileContent {
    Bytes(Vec<u8>),
    /// Open, and read from where it is.
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

/// What becomes of the files that the code makes, besides that the record names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FileCollection {
    #[default]
    Nothing,
    /// Their content, in memory.
    Contents,
    /// A copy of each in a directory of the caller's, where they are called `0`, `1` and so on. It
    /// is made when there is something to copy.
    Staged(StagingDirectory),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagingDirectory {
    pub directory: PathBuf,
    /// Of all copies together. A file with holes counts, and takes, its whole length.
    pub bytes_max: u64,
}

/// One execution.
#[derive(Debug, Clone)]
pub struct Command {
    pub id: ExecutionId,
    /// Who asks, as code is told it.
    pub principal: Option<String>,
    /// In this session, or in a sandbox that lives for this execution only.
    pub session: Option<SandboxId>,
    /// Of a fresh sandbox; a session has its own.
    pub environment: String,
    pub entry: EntryPoint,
    pub files: Vec<InputFile>,
    /// What is absent is as the tool asks for it, as the session has it, or as it is by default.
    pub limits: LimitsRequest,
    /// The most that its limits can be, if that is less than the engine allows.
    pub caps: Option<OperatorCaps>,
    pub collect_files: FileCollection,
    /// Asked when the code wants packages; it can have none without.
    pub installer: Option<InstallHandler>,
    /// Environment variables for this execution, besides those of its session.
    pub variables: BTreeMap<String, String>,
    /// Of a fresh sandbox, by which code reaches whom it may reach, nobody without; a session has its
    /// own.
    pub egress: Option<EgressHandler>,
    /// Taken out of what comes back, besides the variables of a tool.
    pub redactor: OutputRedactor,
}

impl Command {
    /// In a fresh sandbox, with an id of its own, and nothing asked for.
    pub fn new(environment: impl Into<String>, entry: EntryPoint) -> Self {
        Self {
            id: ExecutionId::new(Uuid::now_v7()),
            principal: None,
            session: None,
            environment: environment.into(),
            entry,
            files: Vec::new(),
            limits: LimitsRequest::default(),
            caps: None,
            collect_files: FileCollection::Nothing,
            installer: None,
            variables: BTreeMap::new(),
            egress: None,
            redactor: OutputRedactor::default(),
        }
    }

    /// The limits that were asked for, by the caller or else by the author of the tool.
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
    /// The first is 1. More says that there was memory under this id, and that it is lost.
    pub generation: u64,
    pub environment: String,
    pub limits: LimitsRequest,
    /// The most that its limits can be, if that is less than the engine allows.
    pub caps: Option<OperatorCaps>,
    pub expiry: ExpiryRequest,
    pub volumes: Vec<VolumeIn>,
    /// Environment variables of all that is run in it.
    pub variables: BTreeMap<String, String>,
    /// By which code reaches whom it may reach; nobody without. It is given each sandbox that the
    /// session has in its life.
    pub egress: Option<EgressHandler>,
    /// Taken out of what comes back from it.
    pub redactor: OutputRedactor,
}

/// What the sandboxes of a session have besides their working directory.
#[derive(Debug, Clone, Default)]
pub struct SandboxGrants {
    pub volumes: Vec<VolumeIn>,
    pub variables: BTreeMap<String, String>,
    pub egress: Option<EgressHandler>,
    pub redactor: OutputRedactor,
}

impl NewSession {
    pub(crate) fn grants(&self) -> SandboxGrants {
        let Self { volumes, variables, egress: outlet, redactor, .. } = self.clone();
        SandboxGrants { volumes, variables, egress: outlet, redactor }
    }

    /// With an id of its own, and nothing asked for.
    pub fn new(environment: impl Into<String>) -> Self {
        Self {
            id: SandboxId::new(Uuid::now_v7()),
            generation: 1,
            environment: environment.into(),
            limits: LimitsRequest::default(),
            caps: None,
            expiry: ExpiryRequest::default(),
            volumes: Vec::new(),
            variables: BTreeMap::new(),
            egress: None,
            redactor: OutputRedactor::default(),
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
