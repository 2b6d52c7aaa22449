//! Who asks.

use rmcp::ErrorData;
use rmcp::model::{ErrorCode, Extensions};
use service::Caller;
use std::any::Any;
use std::sync::Arc;

/// A caller that was known before the message was read, and their place among the requests of the
/// key. Over HTTP it comes with each request; a process that speaks to one client has one.
#[derive(Debug, Clone)]
pub struct McpCaller {
    pub caller: Arc<Caller>,
    pub request_permit: Option<Arc<dyn Any + Send + Sync>>,
}

impl McpCaller {
    /// The one who sent this message.
    pub(crate) fn from_extensions(
        extensions: &Extensions,
        always: Option<&Self>,
    ) -> Result<Self, ErrorData> {
        let sent = extensions.get::<http::request::Parts>();
        let asker = sent.and_then(|parts| parts.extensions.get::<Self>()).or(always);
        asker.cloned().ok_or_else(|| {
            ErrorData::new(ErrorCode::INVALID_REQUEST, "nobody is known to have sent this", None)
        })
    }
}
