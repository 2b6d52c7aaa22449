//! Why an operation on an MCP server failed, in the words that the model reads.

use egress::OutboundError;
use std::io;
use std::time::Duration;

/// Limit of a text of the server in an error message, in characters.
const FOREIGN_CHARS_MAX: usize = 300;

#[derive(Debug, thiserror::Error)]
pub enum McpClientError {
    #[error("{0}")]
    Outbound(#[from] OutboundError),
    /// The cause is for the log: a path of the server's machine is not for a model.
    #[error("the operator's command {name:?} cannot be started")]
    Start { name: String, source: io::Error },
    #[error("the MCP server responded with HTTP status {0}")]
    Status(u16),
    #[error("the MCP server did not finish within {} seconds{}", .time_max.as_secs_f32(), refused_request(.refused))]
    Timeout { time_max: Duration, refused: Option<String> },
    #[error("the MCP server closed the connection without a response{}", refused_request(.0))]
    Closed(Option<String>),
    #[error("the MCP server sent {what} than the {max} that one operation may receive")]
    TooMuch { what: &'static str, max: usize },
    #[error("the MCP server sent a response to a request that was not made")]
    UnknownId,
    #[error("the MCP server sent a message that is not valid MCP: {0}")]
    NotMcp(String),
    #[error(
        "the MCP server speaks the protocol version {0}; 2024-11-05 to 2025-11-25 are supported"
    )]
    Version(String),
    #[error("the MCP server refused the request: {message} (code {code})")]
    Refused { code: i32, message: String },
    #[error("the MCP server asked for input in the middle of the call, which is not supported")]
    InputRequired,
}

fn refused_request(refused: &Option<String>) -> String {
    match refused {
        Some(method) => format!("; it asked for {method}, which is refused"),
        None => String::new(),
    }
}

impl McpClientError {
    pub(crate) fn not_mcp(why: &str) -> Self {
        Self::NotMcp(printable(why))
    }

    pub(crate) fn refused(error: &rmcp::ErrorData) -> Self {
        Self::Refused { code: error.code.0, message: printable(&error.message) }
    }
}

/// A text of the server, short and without control characters.
pub(crate) fn printable(text: &str) -> String {
    displayed(text, FOREIGN_CHARS_MAX)
}

/// So many characters of a text of a server, without control characters.
pub fn displayed(text: &str, chars_max: usize) -> String {
    let mut characters = text.chars();
    let shown = characters.by_ref().take(chars_max);
    let mut shown: String = shown.map(|it| if it.is_control() { ' ' } else { it }).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}
