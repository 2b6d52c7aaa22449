//! Finds the authenticated caller of a message.

use rmcp::ErrorData;
use rmcp::model::{ErrorCode, Extensions};
use service::RequestCaller;

/// The caller of the HTTP request that the message came with, else `fixed`, the only client of the
/// process. Both were authenticated before the message was read.
pub(crate) fn message_caller(
    extensions: &Extensions,
    fixed: Option<&RequestCaller>,
) -> Result<RequestCaller, ErrorData> {
    let request = extensions.get::<http::request::Parts>();
    let sent = request.and_then(|parts| parts.extensions.get::<RequestCaller>());
    sent.or(fixed).cloned().ok_or_else(|| {
        ErrorData::new(ErrorCode::INVALID_REQUEST, "the request has no authenticated caller", None)
    })
}
