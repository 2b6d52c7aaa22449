//! The audit log, for those who own the workspace, and for those who run the server.

use crate::caller::Caller;
use crate::page::{Listed, page};
use crate::refused::Refused;
use crate::service::Service;
use serde::Deserialize;
use store::{AuditFilter, Reader};
use types::{AuditEntry, PrincipalId};
use utoipa::IntoParams;

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Such as `tool.create`.
    pub action: Option<String>,
    /// Who did it.
    pub principal: Option<PrincipalId>,
    /// How many, from 1 to 200; 50 if absent.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
}

impl Service {
    /// Newest first.
    pub async fn audit(
        &self,
        caller: &Caller,
        query: AuditQuery,
    ) -> Result<Listed<AuditEntry>, Refused> {
        self.require_owner(caller)?;
        let (workspace, page) = (caller.workspace, page(query.limit, query.cursor.as_deref())?);
        let filter = AuditFilter { action: query.action, principal: query.principal };
        let read = move |rows: &Reader<'_>| rows.audit_entries(workspace, &filter, page);
        Ok(self.store.read_long(read).await?.into())
    }
}
