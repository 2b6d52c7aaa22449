//! Objects with an owner: their creator owns them, and a caller without a privilege on one gets the
//! same error as if it did not exist.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::identity::grants::new_ownership_grant;
use crate::service::Service;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use types::{Grant, ObjectRef, PrincipalId, Privilege};
use utoipa::IntoParams;

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ObjectQuery {
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
    /// List only items whose name contains this text (for tools: name or description).
    pub search: Option<String>,
}

impl Service {
    pub(crate) fn require_create(&self, caller: &Caller) -> Result<(), RequestError> {
        let workspace = ObjectRef::Workspace(caller.workspace);
        self.require_privilege(caller, Privilege::Modify, workspace).map(drop)
    }

    /// Whether the caller has any privilege on the object.
    pub(crate) fn can_see(&self, caller: &Caller, object: ObjectRef) -> Result<bool, RequestError> {
        let (workspace, principal) = (caller.workspace, &caller.principal);
        for privilege in [Privilege::Usage, Privilege::Modify] {
            if self.permit(workspace, principal, privilege, object)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The principals whose grants filter a list; `None` for an owner of the workspace, who sees
    /// everything.
    pub(crate) fn viewers(
        &self,
        caller: &Caller,
    ) -> Result<Option<Vec<PrincipalId>>, RequestError> {
        if self.owner_filter(caller)?.is_none() {
            return Ok(None);
        }
        let roles = &caller.principal.roles;
        let mut viewers = self.db.read(|rows| rows.role_ids(caller.workspace, roles))?;
        viewers.push(caller.id());
        Ok(Some(viewers))
    }
}

impl Caller {
    /// The grant of a new object to its creator.
    pub(crate) fn ownership_grant(&self, object: ObjectRef, now: DateTime<Utc>) -> Grant {
        new_ownership_grant(self.id(), object, now)
    }
}
