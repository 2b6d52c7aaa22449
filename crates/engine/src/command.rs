//! What can be asked of the engine, checked as far as it can be without a sandbox.

use std::collections::BTreeMap;
use types::{LimitsRequest, SandboxId};

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

/// How the code is entered.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// As in a notebook: the value of a last expression is a result.
    Cell,
    /// As `python3 FILE ARGS`.
    Script { argv: Vec<String> },
    /// As a module of which one function is called.
    Call(Box<ToolCall>),
}

/// A function of a tool to be called, with arguments that conform to its contract.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The name of the tool.
    pub tool: String,
    /// What its source is called in tracebacks.
    pub file: String,
    pub call: contract::Call,
    /// Environment variables of this tool alone.
    pub variables: BTreeMap<String, String>,
}

/// A file for the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileIn {
    /// Its name there.
    pub name: String,
    pub content: Vec<u8>,
}

/// One execution.
#[derive(Debug, Clone)]
pub struct Command {
    /// In this session, or in a sandbox that lives for this execution only.
    pub session: Option<SandboxId>,
    /// Of a fresh sandbox; a session has its own.
    pub environment: String,
    pub entry: Entry,
    pub code: Code,
    pub files: Vec<FileIn>,
    pub limits: LimitsRequest,
    /// Whether the content of the files that the code makes is wanted as well.
    pub bring_files: bool,
}

#[derive(Debug, Clone)]
pub struct NewSession {
    pub environment: String,
    pub limits: LimitsRequest,
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
