//! Queries of the log of attempted connections.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::page::{Page, page_request};
use crate::service::Service;
use db::{NetworkFilter, Reader};
use serde::Deserialize;
use types::{ExecutionId, NetworkLogEntry, SandboxId};

#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NetworkQuery {
    pub execution_id: Option<ExecutionId>,
    pub sandbox_id: Option<SandboxId>,
    /// Only attempts with exactly this host.
    pub host: Option<String>,
    pub allowed: Option<bool>,
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

impl Service {
    /// Newest first. A principal that does not own the workspace sees only the attempts of its own
    /// code.
    pub async fn network_log(
        &self,
        caller: &Caller,
        query: NetworkQuery,
    ) -> Result<Page<NetworkLogEntry>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = NetworkFilter {
            principal: self.owner_filter(caller)?,
            execution_id: query.execution_id,
            sandbox_id: query.sandbox_id,
            host: query.host,
            allowed: query.allowed,
        };
        let workspace = caller.workspace;
        // Clients most often ask for the newest attempts, so those must be in the database first.
        self.flush_egress_log().await?;
        let read = move |rows: &Reader<'_>| rows.network_log(workspace, &filter, page);
        Ok(self.db.read_off_thread(read).await?.into())
    }
}
