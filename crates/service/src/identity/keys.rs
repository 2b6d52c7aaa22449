//! API keys: every principal creates its own; owners of the workspace also create them for others.
//!
//! A key that a principal creates for itself has at most the limits of the key that it was created
//! with, shares them, and is revoked with it; unless an owner creates it, it also expires no later.
//! A key that an owner creates for another principal is independent. Only the response to the
//! creation contains the secret.

use crate::error::{RequestError, invalid_field, missing_privilege, not_found};
use crate::identity::api_key::{self, ApiKeyText};
use crate::identity::caller::{Caller, PresentedKey};
use crate::names;
use crate::page::{Page, page_request};
use crate::service::Service;
use crate::tasks::run_to_completion;
use chrono::{DateTime, Utc};
use db::{Origin, Reader, Tx};
use serde::{Deserialize, Serialize, Serializer};
use std::sync::Arc;
use types::{ApiKey, Error, ErrorCode, KeyId, ObjectRef, PrincipalId, PrincipalKind, Privilege};
use utoipa::{IntoParams, ToSchema};

/// Limit per principal: one key per machine, and some for rotation. Keys that an owner creates have
/// rate limits of their own, so that more keys would mean more requests.
const KEYS_MAX: u64 = 50;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// Purpose of the key.
    pub name: String,
    /// The principal of the key; default: the caller.
    pub principal: Option<PrincipalId>,
    pub expires_at: Option<DateTime<Utc>>,
    /// Maximum requests per second. Owners of the workspace can set it up to the limit of the
    /// server, the operator to any value. For your own keys: at most the limit of the key that you
    /// use.
    #[schema(minimum = 1)]
    pub rate_per_second: Option<u32>,
    /// Maximum concurrent requests, with the same rules.
    #[schema(minimum = 1)]
    pub concurrency: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct KeyQuery {
    /// Keys of this principal; default: all for an owner of the workspace, else those of the caller.
    pub principal: Option<PrincipalId>,
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

/// A new key with its secret, which only this response contains.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct IssuedKey {
    #[serde(flatten)]
    pub key: ApiKey,
    /// The value for `Authorization: Bearer`. It is returned once: a response that is replayed
    /// for the same `Idempotency-Key` has none.
    #[serde(serialize_with = "shown", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub secret: Option<ApiKeyText>,
}

impl IssuedKey {
    /// The view without the secret.
    pub fn without_secret(&self) -> Self {
        Self { key: self.key.clone(), secret: None }
    }
}

fn shown<S: Serializer>(secret: &Option<ApiKeyText>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(ApiKeyText::reveal).serialize(serializer)
}

impl Service {
    pub async fn create_key(
        &self,
        caller: &Caller,
        request: KeyRequest,
    ) -> Result<IssuedKey, RequestError> {
        let now = self.now();
        let presented = caller.require_key()?;
        check_request(&request, now)?;
        let request = self.apply_bounds(caller, presented, request)?;
        self.check_self_service_rate(caller)?;
        let counted_with = counted_with(caller, presented, &request);
        let (id, secret, hash) = api_key::issue_key()?;
        let key = ApiKey {
            id,
            name: request.name,
            principal: request.principal.unwrap_or_else(|| caller.id()),
            created_with: Some(presented.id),
            counted_with,
            rate_per_second: request.rate_per_second,
            concurrency: request.concurrency,
            created_at: now,
            expires_at: request.expires_at,
            revoked_at: None,
        };
        let (workspace, presented, row) = (caller.workspace, presented.id, key.clone());
        let entry = caller.audit_entry("key.create", format_args!("key {id}"), &row.name);
        let written = move |tx: &Tx<'_>| {
            if tx.key(workspace, presented)?.is_none_or(|presented| presented.revoked_at.is_some())
            {
                return Ok(Err(key_revoked_error()));
            }
            let holder = tx.principal(workspace, row.principal)?;
            let holder = holder.ok_or_else(|| not_found("principal", row.principal));
            let error = match holder {
                Err(error) => Some(error),
                Ok(holder) if holder.kind == PrincipalKind::Role => {
                    Some(invalid_field("/principal", "is a role, and roles have no keys"))
                }
                Ok(_) => too_many(tx.count_active_keys(workspace, row.principal)?),
            };
            if let Some(error) = error {
                return Ok(Err(error));
            }
            tx.insert_key(workspace, &row, &hash)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        };
        self.db.write(written).await??;
        Ok(IssuedKey { key, secret: Some(secret) })
    }

    /// The request with its limits, if the caller may create such a key. Owners divide the limits
    /// of their workspace among keys; only the operator can give a key more than the server's
    /// default, because other workspaces share the capacity.
    fn apply_bounds(
        &self,
        caller: &Caller,
        presented: PresentedKey,
        request: KeyRequest,
    ) -> Result<KeyRequest, RequestError> {
        let is_owner = self.owner_filter(caller)?.is_none();
        let sets_bounds = request.rate_per_second.is_some() || request.concurrency.is_some();
        if !is_owner && (is_for_another(caller, &request) || sets_bounds) {
            return Err(missing_privilege(
                Privilege::Ownership,
                ObjectRef::Workspace(caller.workspace),
            ));
        }
        let exceeds_rate = request.rate_per_second > Some(self.config.key_rate_per_second);
        if exceeds_rate || request.concurrency > Some(self.config.key_concurrency) {
            self.require_operator(caller)?;
        }
        if is_for_another(caller, &request) {
            return Ok(request);
        }
        // The only owner of a workspace must be able to create a new key when the current one is
        // about to expire.
        let expiry_max = if is_owner { None } else { presented.expires_at };
        Ok(KeyRequest {
            expires_at: min_bound(request.expires_at, expiry_max),
            rate_per_second: min_bound(request.rate_per_second, presented.rate_per_second),
            concurrency: min_bound(request.concurrency, presented.concurrency),
            ..request
        })
    }

    /// API keys without secrets, newest first, including expired and revoked ones.
    pub async fn keys(
        &self,
        caller: &Caller,
        query: KeyQuery,
    ) -> Result<Page<ApiKey>, RequestError> {
        let own = self.owner_filter(caller)?;
        if own.is_some() && query.principal.is_some_and(|principal| principal != caller.id()) {
            return Err(missing_privilege(
                Privilege::Ownership,
                ObjectRef::Workspace(caller.workspace),
            ));
        }
        let (workspace, page) =
            (caller.workspace, page_request(query.limit, query.cursor.as_deref())?);
        let principal = own.or(query.principal);
        let read = move |rows: &Reader<'_>| rows.keys(workspace, principal, page);
        Ok(self.db.read_off_thread(read).await?.into())
    }

    /// Revokes a key from the next request on, together with the keys that its principal created
    /// with it, but not the key of this request. Pending approvals, sessions and executions of the
    /// revoked keys end. A second revocation changes nothing.
    pub async fn revoke_key(
        self: &Arc<Self>,
        caller: &Caller,
        id: KeyId,
    ) -> Result<(), RequestError> {
        let (workspace, now) = (caller.workspace, self.now());
        let key = self.db.read(|rows| rows.key(workspace, id))?;
        let key = key.ok_or_else(|| not_found("key", id))?;
        if !self.may_see_owned_by(caller, key.principal)? {
            return Err(not_found("key", id));
        }
        // Revoking a key needs no further right, and has no rate limit: each key can be revoked
        // once.
        let caller = caller.clone();
        let written = move |tx: &Tx<'_>| {
            let presented = caller.key();
            // Otherwise a caller that creates a new key and then revokes the old one would lose
            // both.
            if Some(id) == presented && !tx.keys_created_with(workspace, &key)?.is_empty() {
                return Ok(Err(has_child_keys_error()));
            }
            let revoked = tx.revoke_key(workspace, id, presented, now)?;
            for revoked in &revoked {
                let object = format!("key {}", revoked.id);
                tx.append_audit_entry(&caller.audit_entry(
                    "key.revoke",
                    object,
                    revoked.name.clone(),
                ))?;
            }
            Ok(Ok(revoked.into_iter().map(|key| key.id).collect::<Vec<_>>()))
        };
        let service = Arc::clone(self);
        run_to_completion(async move {
            let revoked = service.db.write(written).await??;
            for key in revoked {
                service.end_origin(workspace, Origin::Key(key)).await?;
            }
            Ok(())
        })
        .await
    }
}

fn is_for_another(caller: &Caller, request: &KeyRequest) -> bool {
    request.principal.is_some_and(|principal| principal != caller.id())
}

/// The key whose limits the new one shares: that of this request, unless the new key has other
/// limits or another principal.
fn counted_with(caller: &Caller, presented: PresentedKey, request: &KeyRequest) -> Option<KeyId> {
    let has_same_limits = request.rate_per_second == presented.rate_per_second
        && request.concurrency == presented.concurrency;
    (has_same_limits && !is_for_another(caller, request)).then_some(presented.counted_with)
}

/// The lower of two limits; an absent one is no limit.
fn min_bound<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    [one, other].into_iter().flatten().min()
}

/// Otherwise the last request of a revoked key could leave a new key behind.
fn key_revoked_error() -> RequestError {
    Error::new(ErrorCode::AuthMissing, "a revoked API key cannot create keys").into()
}

fn has_child_keys_error() -> RequestError {
    let message = "this key created other keys, which would be revoked with it";
    Error::new(ErrorCode::ArgsInvalid, message)
        .hint("revoke it with the key that you keep, or revoke the others first")
        .into()
}

fn check_request(request: &KeyRequest, now: DateTime<Utc>) -> Result<(), RequestError> {
    names::check_name("/name", &request.name)?;
    if request.expires_at.is_some_and(|at| at <= now) {
        return Err(invalid_field("/expires_at", "must be in the future"));
    }
    let bounds =
        [("/rate_per_second", request.rate_per_second), ("/concurrency", request.concurrency)];
    match bounds.iter().find(|(_, bound)| *bound == Some(0)) {
        Some((path, _)) => {
            Err(invalid_field(path, "must be at least 1; to disable a key, revoke it"))
        }
        None => Ok(()),
    }
}

fn too_many(in_use: u64) -> Option<RequestError> {
    (in_use >= KEYS_MAX).then(|| {
        Error::new(
            ErrorCode::QuotaExceeded,
            format!("limit of {in_use} keys of this principal reached"),
        )
        .hint("revoke keys that are no longer used")
        .into()
    })
}
