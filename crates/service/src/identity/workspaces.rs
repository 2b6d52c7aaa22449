//! Workspaces: isolated tenants of a server, each with an owner and its first API key.

use crate::error::RequestError;
use crate::identity::api_key::{self, ApiKeyText};
use crate::identity::caller::Caller;
use crate::identity::grants::new_ownership_grant;
use crate::identity::keys::IssuedKey;
use crate::network;
use crate::service::{Service, StartError};
use chrono::{DateTime, Utc};
use db::{DatabaseError, NewAuditEntry, Tx};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::{
    ApiKey, Error, ErrorCode, Grant, ObjectRef, Principal, PrincipalId, PrincipalKind, Workspace,
    WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// The workspace of the first start. Its owners are the operators of the server, and can create
/// others.
const FIRST_WORKSPACE: &str = "default";
const OWNER_NAME: &str = "owner";

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceRequest {
    pub name: String,
}

/// The rows of a new workspace.
#[derive(Debug, Clone)]
struct InitialWorkspace {
    workspace: Workspace,
    owner: Principal,
    key: ApiKey,
    hash: [u8; 32],
    grant: Grant,
}

/// A new workspace with the key of its owner, which only this response contains.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NewWorkspace {
    pub workspace: Workspace,
    /// The owner of the workspace.
    pub principal: Principal,
    pub key: IssuedKey,
}

impl NewWorkspace {
    /// The view without the secret.
    pub fn without_secret(&self) -> Self {
        Self { key: self.key.without_secret(), ..self.clone() }
    }
}

impl InitialWorkspace {
    fn new(name: &str, now: DateTime<Utc>) -> Result<(Self, ApiKeyText), Error> {
        let (key_id, secret, hash) = api_key::issue_key()?;
        let workspace = Workspace {
            id: WorkspaceId::new(Uuid::now_v7()),
            name: name.to_owned(),
            created_at: now,
        };
        let owner = Principal {
            id: PrincipalId::new(Uuid::now_v7()),
            name: OWNER_NAME.to_owned(),
            kind: PrincipalKind::User,
            roles: Vec::new(),
            preferences: BTreeMap::new(),
            external_id: None,
            created_at: now,
            updated_at: now,
        };
        let key = ApiKey {
            id: key_id,
            name: OWNER_NAME.to_owned(),
            principal: owner.id,
            created_with: None,
            counted_with: None,
            rate_per_second: None,
            concurrency: None,
            created_at: now,
            expires_at: None,
            revoked_at: None,
        };
        let grant = new_ownership_grant(owner.id, ObjectRef::Workspace(workspace.id), now);
        Ok((Self { workspace, owner, key, hash, grant }, secret))
    }

    fn write(&self, tx: &Tx<'_>) -> Result<(), DatabaseError> {
        let id = self.workspace.id;
        tx.insert_workspace(&self.workspace)?;
        tx.insert_principal(id, &self.owner)?;
        tx.insert_key(id, &self.key, &self.hash)?;
        tx.insert_grant(id, &self.grant)?;
        tx.insert_integration(
            id,
            &network::internet_integration(self.owner.id, self.workspace.created_at),
        )?;
        Ok(())
    }
}

impl Service {
    /// Creates the first workspace if there is none, and returns the key of its owner.
    pub(crate) async fn create_first_workspace(&self) -> Result<Option<ApiKeyText>, StartError> {
        if !self.db.read(|rows| rows.workspaces())?.is_empty() {
            return Ok(None);
        }
        let now = self.now();
        let (initial, secret) =
            InitialWorkspace::new(FIRST_WORKSPACE, now).map_err(StartError::FirstKey)?;
        let entry = NewAuditEntry {
            at: now,
            workspace: initial.workspace.id,
            principal: None,
            key: None,
            action: "workspace.create".to_owned(),
            object: format!("workspace {}", initial.workspace.id),
            detail: "first start".to_owned(),
        };
        self.db
            .write(move |tx| {
                initial.write(tx)?;
                tx.append_audit_entry(&entry)?;
                Ok(())
            })
            .await?;
        Ok(Some(secret))
    }

    /// Adds what new workspaces contain to workspaces of older versions.
    pub(crate) async fn backfill_workspaces(&self) -> Result<(), DatabaseError> {
        let now = self.now();
        let backfill = move |tx: &Tx<'_>| {
            for Workspace { id, .. } in tx.workspaces()? {
                let owner = tx.ownership_grants(id, ObjectRef::Workspace(id))?.into_iter().next();
                let has_internet = tx.integration_by_name(id, network::INTERNET)?.is_some();
                if let (Some(owner), false) = (owner, has_internet) {
                    let internet = network::internet_integration(owner.principal, now);
                    tx.insert_integration(id, &internet)?;
                }
            }
            Ok(())
        };
        self.db.write(backfill).await
    }

    pub(crate) fn first_workspace(&self) -> Result<Option<WorkspaceId>, RequestError> {
        let first = self.db.read(|rows| rows.workspace_by_name(FIRST_WORKSPACE))?;
        Ok(first.map(|workspace| workspace.id))
    }

    /// Owners of the first workspace are the operators of the server.
    pub fn require_operator(&self, caller: &Caller) -> Result<(), RequestError> {
        let is_first = self.first_workspace()? == Some(caller.workspace);
        let owner = self.owner_filter(caller)?.is_none();
        if is_first && owner {
            return Ok(());
        }
        Err(Error::new(ErrorCode::GrantMissing, "only the operator of this server may do this")
            .hint("use a key of an owner of the first workspace")
            .into())
    }

    pub async fn create_workspace(
        &self,
        caller: &Caller,
        request: WorkspaceRequest,
    ) -> Result<NewWorkspace, RequestError> {
        self.require_operator(caller)?;
        caller.require_key()?;
        crate::names::check_name("/name", &request.name)?;
        let (initial, secret) = InitialWorkspace::new(&request.name, self.now())?;
        let entry = caller.audit_entry("workspace.create", initial.workspace.id, &request.name);
        let written = initial.clone();
        self.db
            .write(move |tx| {
                written.write(tx)?;
                tx.append_audit_entry(&entry)?;
                Ok(())
            })
            .await?;
        let InitialWorkspace { workspace, owner, key, .. } = initial;
        let key = IssuedKey { key, secret: Some(secret) };
        Ok(NewWorkspace { workspace, principal: owner, key })
    }

    pub fn workspaces(&self, caller: &Caller) -> Result<Vec<Workspace>, RequestError> {
        self.require_operator(caller)?;
        Ok(self.db.read(|rows| rows.workspaces())?)
    }
}
