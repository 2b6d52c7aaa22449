//! The authenticated caller of a message.

use rmcp::ErrorData;
use rmcp::model::{ErrorCode, Extensions};
use service::Caller;
use std::any::Any;
use std::sync::Arc;

/// A caller who was authenticated before the message was read, with its rate-limit permit. Over
/// HTTP each request has one; a process with one client has a single one.
#[derive(Debug, Clone)]
pub struct McpCaller {
    pub caller: Arc<Caller>,
    pub request_permit: Option<Arc<dyn Any + Send + Sync>>,
}

impl McpCaller {
    /// The sender of this message.
    pub(crate) fn from_extensions(
        extensions: &Extensions,
        always: Option<&Self>,
    ) -> Result<Self, ErrorData> {
        let sent = extensions.get::<http::request::Parts>();
        let mcp_caller = sent.and_then(|parts| parts.extensions.get::<Self>()).or(always);
        mcp_caller.cloned().ok_or_else(|| {
            ErrorData::new(
                ErrorCode::INVALID_REQUEST,
                "the request has no authenticated caller",
                None,
            )
        })
    }
}
