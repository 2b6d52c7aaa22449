//! Workspaces: each a world of its own, with an owner who has the first key to it.

use crate::caller::Caller;
use crate::grants::ownership;
use crate::keys::IssuedKey;
use crate::network;
use crate::refused::Refused;
use crate::secret::{self, Secret};
use crate::service::{Service, StartError};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::{AuditLine, StoreError, Tx};
use types::{
    Code, Fault, Grant, Key, Object, Principal, PrincipalId, PrincipalKind, Workspace, WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// The workspace of the first start. Whoever owns it runs the server, and may make others.
const FIRST: &str = "default";
const OWNER: &str = "owner";

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceRequest {
    pub name: String,
}

/// A workspace as it begins.
#[derive(Debug, Clone)]
struct Beginning {
    workspace: Workspace,
    owner: Principal,
    key: Key,
    hash: [u8; 32],
    grant: Grant,
}

/// A new workspace, with the key of its owner, which is shown this once.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NewWorkspace {
    pub workspace: Workspace,
    /// Its owner.
    pub principal: Principal,
    pub key: IssuedKey,
}

impl NewWorkspace {
    /// As it can be shown again.
    pub fn without_secret(&self) -> Self {
        Self { key: self.key.without_secret(), ..self.clone() }
    }
}

impl Beginning {
    fn new(name: &str, now: DateTime<Utc>) -> Result<(Self, Secret), Fault> {
        let (key_id, secret, hash) = secret::issue()?;
        let workspace = Workspace {
            id: WorkspaceId::new(Uuid::now_v7()),
            name: name.to_owned(),
            created_at: now,
        };
        let owner = Principal {
            id: PrincipalId::new(Uuid::now_v7()),
            name: OWNER.to_owned(),
            kind: PrincipalKind::User,
            roles: Vec::new(),
            preferences: BTreeMap::new(),
            external_id: None,
            created_at: now,
            updated_at: now,
        };
        let key = Key {
            id: key_id,
            name: OWNER.to_owned(),
            principal: owner.id,
            made_with: None,
            counted_with: None,
            rate_per_second: None,
            concurrency: None,
            created_at: now,
            expires_at: None,
            revoked_at: None,
        };
        let grant = ownership(owner.id, Object::Workspace(workspace.id), now);
        Ok((Self { workspace, owner, key, hash, grant }, secret))
    }

    fn write(&self, tx: &Tx<'_>) -> Result<(), StoreError> {
        let id = self.workspace.id;
        tx.insert_workspace(&self.workspace)?;
        tx.insert_principal(id, &self.owner)?;
        tx.insert_key(id, &self.key, &self.hash)?;
        tx.insert_grant(id, &self.grant)?;
        tx.insert_integration(id, &network::built_in(self.owner.id, self.workspace.created_at))?;
        Ok(())
    }
}

impl Service {
    /// Makes the first workspace if there is none, and gives the key of its owner.
    pub(crate) async fn first_start(&self) -> Result<Option<Secret>, StartError> {
        if !self.store.read(|rows| rows.workspaces())?.is_empty() {
            return Ok(None);
        }
        let now = Utc::now();
        let (beginning, secret) = Beginning::new(FIRST, now).map_err(StartError::FirstKey)?;
        let entry = AuditLine {
            at: now,
            workspace: beginning.workspace.id,
            principal: None,
            key: None,
            action: "workspace.create".to_owned(),
            object: format!("workspace {}", beginning.workspace.id),
            detail: "first start".to_owned(),
        };
        self.store
            .write(move |tx| {
                beginning.write(tx)?;
                tx.audit(&entry)?;
                Ok(())
            })
            .await?;
        Ok(Some(secret))
    }

    /// Gives workspaces of older versions what new ones begin with.
    pub(crate) async fn complete_workspaces(&self) -> Result<(), StoreError> {
        let complete = |tx: &Tx<'_>| {
            for Workspace { id, .. } in tx.workspaces()? {
                let owner = tx.owners_of(id, Object::Workspace(id))?.into_iter().next();
                let there = tx.integration_by_name(id, network::INTERNET)?.is_some();
                if let (Some(owner), false) = (owner, there) {
                    tx.insert_integration(id, &network::built_in(owner.principal, Utc::now()))?;
                }
            }
            Ok(())
        };
        self.store.write(complete).await
    }

    pub(crate) fn first_workspace(&self) -> Result<Option<WorkspaceId>, Refused> {
        let first = self.store.read(|rows| rows.workspace_by_name(FIRST))?;
        Ok(first.map(|workspace| workspace.id))
    }

    /// Whoever owns the first workspace runs the server.
    pub fn require_operator(&self, caller: &Caller) -> Result<(), Refused> {
        let here = self.first_workspace()? == Some(caller.workspace);
        let owner = self.only_own(caller)?.is_none();
        if here && owner {
            return Ok(());
        }
        Err(Fault::new(Code::GrantMissing, "only the operator of this server may do that")
            .hint("use a key of an owner of the first workspace")
            .into())
    }

    pub async fn create_workspace(
        &self,
        caller: &Caller,
        request: WorkspaceRequest,
    ) -> Result<NewWorkspace, Refused> {
        self.require_operator(caller)?;
        caller.require_key()?;
        crate::names::check("/name", &request.name)?;
        let (beginning, secret) = Beginning::new(&request.name, Utc::now())?;
        let entry = caller.did("workspace.create", beginning.workspace.id, &request.name);
        let written = beginning.clone();
        self.store
            .write(move |tx| {
                written.write(tx)?;
                tx.audit(&entry)?;
                Ok(())
            })
            .await?;
        let Beginning { workspace, owner, key, .. } = beginning;
        let key = IssuedKey { key, secret: Some(secret) };
        Ok(NewWorkspace { workspace, principal: owner, key })
    }

    pub fn workspaces(&self, caller: &Caller) -> Result<Vec<Workspace>, Refused> {
        self.require_operator(caller)?;
        Ok(self.store.read(|rows| rows.workspaces())?)
    }
}
