//! The audit log, for owners of the workspace.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::page::{Page, page_request};
use crate::service::Service;
use db::{AuditFilter, Reader};
use serde::Deserialize;
use types::{AuditEntry, PrincipalId};
use utoipa::IntoParams;

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Entries of this action, such as `tool.create`.
    pub action: Option<String>,
    /// Entries of this principal.
    pub principal: Option<PrincipalId>,
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

impl Service {
    /// Entries of the workspace, newest first.
    pub async fn audit_log(
        &self,
        caller: &Caller,
        query: AuditQuery,
    ) -> Result<Page<AuditEntry>, RequestError> {
        self.require_owner(caller)?;
        let (workspace, page) =
            (caller.workspace, page_request(query.limit, query.cursor.as_deref())?);
        let filter = AuditFilter { action: query.action, principal: query.principal };
        let read = move |rows: &Reader<'_>| rows.audit_entries(workspace, &filter, page);
        Ok(self.db.read_off_thread(read).await?.into())
    }
}
