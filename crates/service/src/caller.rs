//! Who is asking, and whether they may.
//!
//! A [`Caller`] can only be had from a key that is good now, and every operation takes one. Grants
//! are read anew for each question, so that taking one away is felt by the very next request.

use crate::refused::{Refused, missing};
use crate::secret;
use crate::service::Service;
use chrono::{DateTime, Utc};
use policy::Permit;
use store::KeyRow;
use types::{Code, Fault, KeyId, Object, Principal, PrincipalId, Privilege, WorkspaceId};

/// A principal that has shown a good key.
#[derive(Debug, Clone)]
pub struct Caller {
    pub(crate) workspace: WorkspaceId,
    pub(crate) principal: Principal,
    key: KeyLimits,
}

/// What a key may ask for; absent is as the server has it for all.
#[derive(Debug, Clone, Copy)]
pub struct KeyLimits {
    pub id: KeyId,
    /// The key that its requests are counted with; mostly itself.
    pub counted_with: KeyId,
    pub rate_per_second: Option<u32>,
    pub concurrency: Option<u32>,
    pub expires_at: Option<DateTime<Utc>>,
}

impl Caller {
    pub fn key(&self) -> KeyLimits {
        self.key
    }

    fn with(found: KeyRow, now: DateTime<Utc>) -> Option<Self> {
        let KeyRow { workspace, principal, key, .. } = found;
        if key.revoked_at.is_some() || key.expires_at.is_some_and(|at| at <= now) {
            return None;
        }
        let key = KeyLimits {
            id: key.id,
            counted_with: key.counted_with.unwrap_or(key.id),
            rate_per_second: key.rate_per_second,
            concurrency: key.concurrency,
            expires_at: key.expires_at,
        };
        Some(Self { workspace, principal, key })
    }

    pub(crate) fn id(&self) -> PrincipalId {
        self.principal.id
    }
}

impl Service {
    /// The same refusal for every key that is not good, whatever is wrong with it.
    pub fn authenticate(&self, key: &str) -> Result<Caller, Refused> {
        let refused = || {
            Fault::new(Code::AuthMissing, "the API key is not one that is good here").hint(
                "it may be revoked or over; whoever has a good one makes another: belljar key new",
            )
        };
        let (id, hash) = secret::parse(key).ok_or_else(refused)?;
        let found = self.store.read(|rows| rows.find_key(id))?.ok_or_else(refused)?;
        if !secret::same(&hash, &found.hash) {
            return Err(refused().into());
        }
        Ok(Caller::with(found, Utc::now()).ok_or_else(refused)?)
    }

    /// The same caller as he is now, if his key is still good: for whoever is told things for
    /// longer than a request takes.
    pub fn still(&self, caller: &Caller) -> Option<Caller> {
        let found = self.store.read(|rows| rows.find_key(caller.key.id)).ok()??;
        Caller::with(found, Utc::now())
    }

    /// The permit to do something to an object, or the refusal that names what is missing.
    pub(crate) fn require(
        &self,
        caller: &Caller,
        privilege: Privilege,
        object: Object,
    ) -> Result<Permit, Refused> {
        self.permit(caller.workspace, &caller.principal, privilege, object)?
            .ok_or_else(|| missing(privilege, object))
    }

    /// For anybody of the workspace, such as the owner of an agent whose rights code has.
    pub(crate) fn permit(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        privilege: Privilege,
        object: Object,
    ) -> Result<Option<Permit>, Refused> {
        let held = self.store.read(|rows| {
            let mut subjects = rows.role_ids(workspace, &principal.roles)?;
            subjects.push(principal.id);
            rows.held(workspace, &subjects, &[object, Object::Workspace(workspace)])
        })?;
        Ok(policy::permit(privilege, object, workspace, &held).ok())
    }

    /// Whether the caller may see what belongs to somebody.
    pub(crate) fn may_see(&self, caller: &Caller, owner: PrincipalId) -> Result<bool, Refused> {
        if caller.id() == owner {
            return Ok(true);
        }
        let all = Object::Workspace(caller.workspace);
        let permit = self.permit(caller.workspace, &caller.principal, Privilege::Ownership, all)?;
        Ok(permit.is_some())
    }

    /// To run code and keep files.
    pub(crate) fn require_usage(&self, caller: &Caller) -> Result<Permit, Refused> {
        self.require(caller, Privilege::Usage, Object::Workspace(caller.workspace))
    }
}
