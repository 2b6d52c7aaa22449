//! What the client says about itself, and how it answers requests of a server: with refusals.

#![expect(deprecated, reason = "servers of older revisions still ask for roots")]

use rmcp::model::{
    ClientCapabilities, ClientConfig, ErrorData, Implementation, ListRootsResult, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, RoleClient};

/// A client without any capability. Sampling and elicitation are refused by default; a list of
/// roots would otherwise be empty and not refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusingHandler;

impl ClientHandler for RefusingHandler {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("belljar", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<rmcp::model::ListRootsRequestMethod>())
    }
}
