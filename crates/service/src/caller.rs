//! Who is asking, and whether they may.
//!
//! A [`Caller`] can only be had from a key or a token that is good now, and every operation takes
//! one. Grants are read anew for each question, so that taking one away is felt by the very next
//! request; what a token says beyond its subject grants nothing.

use crate::origins::Asker;
use crate::refused::{Refused, missing};
use crate::secret;
use crate::service::Service;
use crate::tokens::{Subject, Tokens};
use chrono::{DateTime, Utc};
use policy::Permit;
use store::KeyRow;
use types::{
    Code, Fault, KeyId, Object, Principal, PrincipalId, PrincipalKind, Privilege, WorkspaceId,
};

/// A principal that has shown a good key or a good token.
#[derive(Debug, Clone)]
pub struct Caller {
    pub(crate) workspace: WorkspaceId,
    pub(crate) principal: Principal,
    shown: Shown,
}

#[derive(Debug, Clone, Copy)]
enum Shown {
    Key(ShownKey),
    /// Nothing of a token is kept but when it is over.
    Token {
        until: DateTime<Utc>,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownKey {
    pub(crate) id: KeyId,
    /// The key that its requests are counted with; mostly itself.
    pub(crate) counted_with: KeyId,
    pub(crate) rate_per_second: Option<u32>,
    pub(crate) concurrency: Option<u32>,
    pub(crate) expires_at: Option<DateTime<Utc>>,
}

/// What a caller may ask for; absent is as the server has it for all.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    pub counted_with: Counted,
    pub rate_per_second: Option<u32>,
    pub concurrency: Option<u32>,
}

/// Whose requests are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counted {
    Key(KeyId),
    /// All tokens of a principal: whoever gets a new one does not get more.
    Tokens(PrincipalId),
}

impl Caller {
    /// What they have said that they like.
    pub fn preference(&self, name: &str) -> Option<&str> {
        self.principal.preferences.get(name).map(String::as_str)
    }

    pub fn allowance(&self) -> Allowance {
        match self.shown {
            Shown::Key(ShownKey { counted_with, rate_per_second, concurrency, .. }) => {
                Allowance { counted_with: Counted::Key(counted_with), rate_per_second, concurrency }
            }
            Shown::Token { .. } => Allowance {
                counted_with: Counted::Tokens(self.id()),
                rate_per_second: None,
                concurrency: None,
            },
        }
    }

    /// Absent if a token was shown.
    pub(crate) fn key(&self) -> Option<KeyId> {
        match self.shown {
            Shown::Key(key) => Some(key.id),
            Shown::Token { .. } => None,
        }
    }

    pub fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    pub(crate) fn asker(&self) -> Asker {
        Asker { workspace: self.workspace, principal: self.id(), key: self.key() }
    }

    /// For whatever ends in a new key: a token lasts for minutes, and must not become something
    /// that lasts for years and is not revoked with it.
    pub(crate) fn require_key(&self) -> Result<ShownKey, Refused> {
        match self.shown {
            Shown::Key(key) => Ok(key),
            Shown::Token { .. } => {
                Err(Fault::new(Code::GrantMissing, "keys are made with a key, not with a token")
                    .hint("send Authorization: Bearer bj_…, or ask an owner for a key")
                    .into())
            }
        }
    }

    fn with_key(found: KeyRow, now: DateTime<Utc>) -> Option<Self> {
        let KeyRow { workspace, principal, key, .. } = found;
        if !key.is_good_at(now) {
            return None;
        }
        let key = ShownKey {
            id: key.id,
            counted_with: key.counted_with.unwrap_or(key.id),
            rate_per_second: key.rate_per_second,
            concurrency: key.concurrency,
            expires_at: key.expires_at,
        };
        Some(Self { workspace, principal, shown: Shown::Key(key) })
    }

    pub fn id(&self) -> PrincipalId {
        self.principal.id
    }
}

impl Service {
    /// Whoever has sent this, which is a key, or a token if there is an issuer of such.
    pub async fn authenticate_bearer(&self, bearer: &str) -> Result<Caller, Refused> {
        match &self.tokens {
            Some(tokens) if !secret::is_meant_as_key(bearer) => {
                self.authenticate_token(tokens, bearer).await
            }
            _ => self.authenticate(bearer),
        }
    }

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
        Ok(Caller::with_key(found, Utc::now()).ok_or_else(refused)?)
    }

    /// The issuer says who it is, and the first workspace whether that is anybody here.
    async fn authenticate_token(&self, tokens: &Tokens, token: &str) -> Result<Caller, Refused> {
        let Subject { name, until } = tokens.check(token).await?;
        let unknown = || {
            Fault::new(Code::GrantMissing, format!("nobody here has the external_id {name:?}"))
                .hint("an owner adds them: belljar principal new NAME --external-id SUBJECT")
        };
        let workspace = self.first_workspace()?.ok_or_else(unknown)?;
        let known = self.store.read(|rows| rows.principals_known_as(workspace, &name))?;
        let Ok([principal]) = <[Principal; 1]>::try_from(known) else {
            return Err(unknown().into());
        };
        // A role is nobody; who has one has a principal of their own.
        if principal.kind == PrincipalKind::Role {
            return Err(unknown().into());
        }
        Ok(Caller { workspace, principal, shown: Shown::Token { until } })
    }

    /// The same caller as he is now, if what he has shown is still good: for whoever is told things
    /// for longer than a request takes.
    pub fn still(&self, caller: &Caller) -> Option<Caller> {
        let now = Utc::now();
        match caller.shown {
            Shown::Key(key) => {
                let found = self.store.read(|rows| rows.find_key(key.id)).ok()??;
                Caller::with_key(found, now)
            }
            Shown::Token { until } => {
                let (workspace, id) = (caller.workspace, caller.id());
                let principal = self.store.read(|rows| rows.principal(workspace, id)).ok()??;
                let same = principal.external_id == caller.principal.external_id;
                (same && now < until).then(|| Caller { principal, ..caller.clone() })
            }
        }
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

    /// Whether the caller may do anything at all.
    pub fn has_any_grant(&self, caller: &Caller) -> Result<bool, Refused> {
        let workspace = caller.workspace;
        Ok(self.store.read(|rows| {
            let mut subjects = rows.role_ids(workspace, &caller.principal.roles)?;
            subjects.push(caller.principal.id);
            rows.has_any_grant(workspace, &subjects)
        })?)
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
    pub fn require_usage(&self, caller: &Caller) -> Result<Permit, Refused> {
        self.require(caller, Privilege::Usage, Object::Workspace(caller.workspace))
    }
}
