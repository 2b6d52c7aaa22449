//! The authenticated caller and its privileges.
//!
//! A [`Caller`] exists only for a valid key or access token, and every operation requires one.
//! Grants are read for each check, so that a revocation applies to the next request. Claims of a
//! token besides its subject grant nothing.

use crate::error::{RequestError, missing_privilege};
use crate::identity::api_key;
use crate::identity::tokens::{TokenSubject, TokenVerifier};
use crate::origins::Requester;
use crate::service::Service;
use chrono::{DateTime, Utc};
use db::ApiKeyRow;
use engine::Clock;
use policy::Permit;
use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use types::{
    Error, ErrorCode, KeyId, ObjectRef, Principal, PrincipalId, PrincipalKind, Privilege,
    WorkspaceId,
};

/// A principal that was authenticated by an API key or an access token.
#[derive(Debug, Clone)]
pub struct Caller {
    pub(crate) workspace: WorkspaceId,
    pub(crate) principal: Principal,
    credential: CallerCredential,
    /// The clock of the service, for the times of audit entries.
    pub(crate) clock: Clock,
}

#[derive(Debug, Clone, Copy)]
enum CallerCredential {
    Key(PresentedKey),
    /// Of a token, only its expiry is stored.
    Token {
        until: DateTime<Utc>,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PresentedKey {
    pub(crate) id: KeyId,
    /// The key whose rate limits it shares; mostly itself.
    pub(crate) counted_with: KeyId,
    pub(crate) rate_per_second: Option<u32>,
    pub(crate) concurrency: Option<u32>,
    pub(crate) expires_at: Option<DateTime<Utc>>,
}

/// The caller of one request, over any transport. The permit counts the request against the rate
/// limits of its caller until the last clone is dropped.
#[derive(Debug, Clone)]
pub struct RequestCaller {
    pub caller: Arc<Caller>,
    /// Absent if the process has a single client, whose requests are not counted.
    pub permit: Option<Arc<dyn Any + Send + Sync>>,
}

impl Deref for RequestCaller {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

/// The rate limits of a caller; absent ones are the defaults of the server.
#[derive(Debug, Clone, Copy)]
pub struct RateLimits {
    pub subject: RateLimitSubject,
    pub rate_per_second: Option<u32>,
    pub concurrency: Option<u32>,
}

/// The unit of rate limiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RateLimitSubject {
    Key(KeyId),
    /// All tokens of a principal share one limit, so that a new token does not raise it.
    Tokens(PrincipalId),
}

impl Caller {
    /// The preferences of the principal.
    pub fn preference(&self, name: &str) -> Option<&str> {
        self.principal.preferences.get(name).map(String::as_str)
    }

    pub fn rate_limits(&self) -> RateLimits {
        match self.credential {
            CallerCredential::Key(PresentedKey {
                counted_with,
                rate_per_second,
                concurrency,
                ..
            }) => RateLimits {
                subject: RateLimitSubject::Key(counted_with),
                rate_per_second,
                concurrency,
            },
            CallerCredential::Token { .. } => RateLimits {
                subject: RateLimitSubject::Tokens(self.id()),
                rate_per_second: None,
                concurrency: None,
            },
        }
    }

    /// The key of the request; `None` with an access token.
    pub(crate) fn key(&self) -> Option<KeyId> {
        match self.credential {
            CallerCredential::Key(key) => Some(key.id),
            CallerCredential::Token { .. } => None,
        }
    }

    pub fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    pub(crate) fn requester(&self) -> Requester {
        Requester { workspace: self.workspace, principal: self.id(), key: self.key() }
    }

    /// Requires an API key, for operations that create keys: an access token is valid for minutes,
    /// and a key that it created would stay valid for years without being revoked with it.
    pub(crate) fn require_key(&self) -> Result<PresentedKey, RequestError> {
        match self.credential {
            CallerCredential::Key(key) => Ok(key),
            CallerCredential::Token { .. } => Err(Error::new(
                ErrorCode::GrantMissing,
                "a token cannot create API keys",
            )
            .hint("send `Authorization: Bearer bj_…`, or ask an owner of the workspace for a key")
            .into()),
        }
    }

    fn from_key_row(found: ApiKeyRow, clock: &Clock) -> Option<Self> {
        let ApiKeyRow { workspace, principal, key, .. } = found;
        if !key.is_good_at(clock.now()) {
            return None;
        }
        let key = PresentedKey {
            id: key.id,
            counted_with: key.counted_with.unwrap_or(key.id),
            rate_per_second: key.rate_per_second,
            concurrency: key.concurrency,
            expires_at: key.expires_at,
        };
        let (credential, clock) = (CallerCredential::Key(key), clock.clone());
        Some(Self { workspace, principal, credential, clock })
    }

    /// The caller that access tokens of a principal authenticate, until this time. A role is no
    /// caller.
    pub(crate) fn of_tokens(
        workspace: WorkspaceId,
        principal: Principal,
        until: DateTime<Utc>,
        clock: &Clock,
    ) -> Option<Self> {
        let credential = CallerCredential::Token { until };
        let clock = clock.clone();
        (principal.kind != PrincipalKind::Role).then_some(Self {
            workspace,
            principal,
            credential,
            clock,
        })
    }

    pub fn id(&self) -> PrincipalId {
        self.principal.id
    }
}

impl Service {
    /// The caller with this key, or with this token if an issuer is configured.
    pub async fn authenticate_bearer(&self, bearer: &str) -> Result<Caller, RequestError> {
        match &self.token_verifier {
            Some(tokens) if !api_key::has_key_prefix(bearer) => {
                self.authenticate_token(tokens, bearer).await
            }
            _ => self.authenticate_key(bearer),
        }
    }

    /// Authenticates an API key. The error is the same for every invalid key, whatever the reason.
    pub fn authenticate_key(&self, key: &str) -> Result<Caller, RequestError> {
        let invalid_key = || {
            Error::new(ErrorCode::AuthMissing, "invalid API key")
                .hint("it may be revoked or expired. Create one with `belljar key new`")
        };
        let (id, hash) = api_key::parse_key(key).ok_or_else(invalid_key)?;
        let found = self.db.read(|rows| rows.find_key(id))?.ok_or_else(invalid_key)?;
        if !api_key::hashes_equal(&hash, &found.hash) {
            return Err(invalid_key().into());
        }
        Ok(Caller::from_key_row(found, self.clock()).ok_or_else(invalid_key)?)
    }

    /// Authenticates an access token: its subject must be the external id of a principal in the
    /// first workspace.
    async fn authenticate_token(
        &self,
        tokens: &TokenVerifier,
        token: &str,
    ) -> Result<Caller, RequestError> {
        let TokenSubject { name, audiences, until } = tokens.verify(token, self.now()).await?;
        let unknown = || {
            Error::new(
                ErrorCode::GrantMissing,
                format!("no principal has the external_id {name:?}"),
            )
            .hint("ask an owner to run `belljar principal new NAME --external-id SUBJECT`")
        };
        let workspace = self.first_workspace()?.ok_or_else(unknown)?;
        let principals = self.db.read(|rows| rows.principals_by_external_id(workspace, &name))?;
        let Ok([principal]) = <[Principal; 1]>::try_from(principals) else {
            return Err(unknown().into());
        };
        let service = self.config.caller_token_service.as_ref();
        if service.is_some_and(|it| audiences.iter().any(|audience| audience == it.audience())) {
            self.caller_tokens.hold(principal.id, token, until, self.now());
        }
        // Its members are callers, and a role is none.
        let caller = Caller::of_tokens(workspace, principal, until, self.clock());
        Ok(caller.ok_or_else(unknown)?)
    }

    /// The caller that a key authenticates, if the key is valid now.
    pub(crate) fn caller_with_key(&self, key: KeyId) -> Result<Option<Caller>, RequestError> {
        let found = self.db.read(|rows| rows.find_key(key))?;
        Ok(found.and_then(|found| Caller::from_key_row(found, self.clock())))
    }

    /// The current state of the caller if the key or token is still valid, for responses that last
    /// longer than a request.
    pub fn refresh_caller(&self, caller: &Caller) -> Option<Caller> {
        match caller.credential {
            CallerCredential::Key(key) => {
                let found = self.db.read(|rows| rows.find_key(key.id)).ok()??;
                Caller::from_key_row(found, self.clock())
            }
            CallerCredential::Token { until } => {
                let (workspace, id) = (caller.workspace, caller.id());
                let principal = self.db.read(|rows| rows.principal(workspace, id)).ok()??;
                let is_same = principal.external_id == caller.principal.external_id;
                (is_same && self.now() < until).then(|| Caller { principal, ..caller.clone() })
            }
        }
    }

    /// Requires a privilege on an object; the error names it.
    pub(crate) fn require_privilege(
        &self,
        caller: &Caller,
        privilege: Privilege,
        object: ObjectRef,
    ) -> Result<Permit, RequestError> {
        self.permit(caller.workspace, &caller.principal, privilege, object)?
            .ok_or_else(|| missing_privilege(privilege, object))
    }

    /// Whether the caller has any privilege at all.
    pub fn has_any_grant(&self, caller: &Caller) -> Result<bool, RequestError> {
        let workspace = caller.workspace;
        Ok(self.db.read(|rows| {
            let mut subjects = rows.role_ids(workspace, &caller.principal.roles)?;
            subjects.push(caller.principal.id);
            rows.has_any_grant(workspace, &subjects)
        })?)
    }

    /// The permit of any principal of the workspace, such as the owner of an agent whose rights
    /// code has.
    pub(crate) fn permit(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        privilege: Privilege,
        object: ObjectRef,
    ) -> Result<Option<Permit>, RequestError> {
        let held = self.db.read(|rows| {
            let mut subjects = rows.role_ids(workspace, &principal.roles)?;
            subjects.push(principal.id);
            rows.grants_held(workspace, &subjects, &[object, ObjectRef::Workspace(workspace)])
        })?;
        Ok(policy::check_privilege(privilege, object, workspace, &held).ok())
    }

    /// Whether the caller may see an object of this principal.
    pub(crate) fn may_see_owned_by(
        &self,
        caller: &Caller,
        owner: PrincipalId,
    ) -> Result<bool, RequestError> {
        self.principal_may_see(caller.workspace, &caller.principal, owner)
    }

    pub(crate) fn principal_may_see(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        owner: PrincipalId,
    ) -> Result<bool, RequestError> {
        if principal.id == owner {
            return Ok(true);
        }
        let all = ObjectRef::Workspace(workspace);
        Ok(self.permit(workspace, principal, Privilege::Ownership, all)?.is_some())
    }

    /// Requires the right to run code and store files.
    pub fn require_usage(&self, caller: &Caller) -> Result<Permit, RequestError> {
        self.require_privilege(caller, Privilege::Usage, ObjectRef::Workspace(caller.workspace))
    }
}
