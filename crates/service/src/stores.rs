//! Stores: named directories that outlive sessions. The specification of an agent says which of them
//! its code sees, and the rights of whoever its code runs as say whether it does.

use crate::apart::to_the_end;
use crate::caller::Caller;
use crate::names;
use crate::objects::ObjectQuery;
use crate::page::{Listed, page};
use crate::refused::{Refused, in_use, invalid, missing, not_found};
use crate::service::Service;
use crate::sessions::Lender;
use crate::staging::Staged;
use chrono::Utc;
use engine::{StoreDirectory, StoreFileError, StoreIn};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;
use store::{AuditLine, ObjectFilter, Reader, aside_name};
use types::{Code, Fault, Object, Privilege, Store, StoreAccess, StoreGrant, StoreId, WorkspaceId};
use utoipa::ToSchema;
use uuid::Uuid;

/// As much as a working directory has by default.
const QUOTA_BYTES: u64 = 256 * 1024 * 1024;
/// A page, which is the least that a file takes.
const QUOTA_BYTES_MIN: u64 = 4096;
/// Code that writes to a store has all of it in memory.
const QUOTA_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Of one workspace: each is a directory, also if there is nothing in it.
const STORES_MAX: u64 = 1_000;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreRequest {
    pub name: String,
    /// Of all its files together; 268435456 (256 MiB) if absent.
    pub quota_bytes: Option<u64>,
    pub comment: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreChange {
    pub quota_bytes: Option<u64>,
    pub comment: Option<String>,
}

/// A store, and what is in it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StoreView {
    #[serde(flatten)]
    pub store: Store,
    pub used_bytes: u64,
    pub files: Vec<StoreFile>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StoreFile {
    pub name: String,
    pub size: u64,
}

impl Service {
    pub async fn create_store(
        self: &Arc<Self>,
        caller: &Caller,
        request: StoreRequest,
    ) -> Result<Store, Refused> {
        self.require_maker(caller)?;
        names::check("/name", &request.name)?;
        let quota_bytes = quota(request.quota_bytes.unwrap_or(QUOTA_BYTES))?;
        let comment = names::comment(request.comment)?;
        let now = Utc::now();
        let store = Store {
            id: StoreId::new(Uuid::now_v7()),
            name: request.name,
            owner: caller.id(),
            comment,
            quota_bytes,
            created_at: now,
            updated_at: now,
        };
        let object = Object::Store(store.id);
        let (grant, entry) =
            (caller.owning(object, now), caller.did("store.create", object, &store.name));
        let (service, workspace) = (Arc::clone(self), caller.workspace);
        to_the_end(async move {
            let directory = store.id.to_string();
            service.engine.with_store(directory.clone(), |kept| Ok(kept.create()?)).await?;
            let (kept, most) = (store.clone(), service.config.workspace_bytes_max);
            let written = service.store.write(move |tx| {
                if let Some(refused) = over(tx, workspace, 0, kept.quota_bytes, most)? {
                    return Ok(Err(refused));
                }
                tx.insert_store(workspace, &kept)?;
                tx.insert_grant(workspace, &grant)?;
                tx.audit(&entry)?;
                Ok(Ok(()))
            });
            let written = written.await.map_err(Refused::from).flatten();
            if let Err(refused) = written {
                // Should this fail as well, the next start removes what has no row.
                let _ = service.engine.with_store(directory, |kept| Ok(kept.delete()?)).await;
                return Err(refused);
            }
            Ok(store)
        })
        .await
    }

    /// Newest first.
    pub async fn stores(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Listed<Store>, Refused> {
        let page = page(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed = self.store.read_long(move |rows| rows.stores(workspace, &filter, page));
        Ok(listed.await?.into())
    }

    pub async fn store(&self, caller: &Caller, id: StoreId) -> Result<StoreView, Refused> {
        let store = self.usable_store(caller, id, Privilege::Usage)?;
        let kept = self.engine.with_store(id.to_string(), |kept| Ok(kept.list()?)).await?;
        let files: Vec<_> =
            kept.into_iter().map(|(name, file)| StoreFile { name, size: file.size }).collect();
        let used_bytes = files.iter().map(|file| file.size).sum();
        Ok(StoreView { store, used_bytes, files })
    }

    /// A smaller quota takes nothing away, and lets nothing in until there is room again.
    pub async fn change_store(
        &self,
        caller: &Caller,
        id: StoreId,
        change: StoreChange,
    ) -> Result<Store, Refused> {
        self.usable_store(caller, id, Privilege::Modify)?;
        let quota_bytes = change.quota_bytes.map(quota).transpose()?;
        let comment = names::comment(change.comment)?;
        let entry = caller.did("store.change", Object::Store(id), "");
        let (workspace, most) = (caller.workspace, self.config.workspace_bytes_max);
        let written = self.store.write(move |tx| {
            let Some(now) = tx.store(workspace, id)? else {
                return Ok(Err(not_found("store", id)));
            };
            let changed = Store {
                quota_bytes: quota_bytes.unwrap_or(now.quota_bytes),
                comment: comment.or(now.comment),
                updated_at: Utc::now(),
                ..now
            };
            let refused = over(tx, workspace, now.quota_bytes, changed.quota_bytes, most)?;
            if let Some(refused) = refused.filter(|_| changed.quota_bytes > now.quota_bytes) {
                return Ok(Err(refused));
            }
            tx.update_store(workspace, &changed)?;
            tx.audit(&entry)?;
            Ok(Ok(changed))
        });
        written.await?
    }

    /// With everything in it. Refused while the specification of an agent names it.
    pub async fn delete_store(
        self: &Arc<Self>,
        caller: &Caller,
        id: StoreId,
    ) -> Result<(), Refused> {
        let store = self.usable_store(caller, id, Privilege::Ownership)?;
        let object = Object::Store(id);
        let entry = caller.did("store.delete", object, &store.name);
        let (service, workspace) = (Arc::clone(self), caller.workspace);
        to_the_end(async move {
            let deleted = service.store.write(move |tx| {
                let agents = tx.agents_naming(workspace, "store", &store.name)?;
                if !agents.is_empty() {
                    let users = agents.iter().map(|agent| format!("agent {agent:?}"));
                    let users: Vec<_> = users.collect();
                    return Ok(Err(in_use(&format!("store {:?}", store.name), &users)));
                }
                tx.delete_store(workspace, id)?;
                tx.delete_grants_on(workspace, object)?;
                tx.audit(&entry)?;
                Ok(Ok(()))
            });
            deleted.await??;
            Ok(service.engine.with_store(id.to_string(), |kept| Ok(kept.delete()?)).await?)
        })
        .await
    }

    pub async fn read_store_file(
        &self,
        caller: &Caller,
        id: StoreId,
        name: String,
    ) -> Result<(File, u64), Refused> {
        self.usable_store(caller, id, Privilege::Usage)?;
        Ok(self.engine.with_store(id.to_string(), move |kept| kept.open(&name)).await?)
    }

    /// Before the bytes are taken.
    pub fn check_store_upload(&self, caller: &Caller, id: StoreId) -> Result<(), Refused> {
        self.usable_store(caller, id, Privilege::Modify).map(drop)
    }

    pub async fn write_store_file(
        self: &Arc<Self>,
        caller: &Caller,
        id: StoreId,
        name: String,
        content: Staged,
    ) -> Result<StoreFile, Refused> {
        let quota = self.usable_store(caller, id, Privilege::Modify)?.quota_bytes;
        let mut content = content.open()?;
        let entry = caller.did("store.write", Object::Store(id), &name);
        self.alter_store(id, entry, move |kept| {
            let written = kept.write(&name, &mut content, quota)?;
            Ok(StoreFile { name, size: written.size })
        })
        .await
    }

    pub async fn delete_store_file(
        self: &Arc<Self>,
        caller: &Caller,
        id: StoreId,
        name: String,
    ) -> Result<(), Refused> {
        self.usable_store(caller, id, Privilege::Modify)?;
        let entry = caller.did("store.remove", Object::Store(id), &name);
        self.alter_store(id, entry, move |kept| kept.remove(&name)).await
    }

    /// A change and its line, whether or not anybody waits for them.
    async fn alter_store<T: Send + 'static>(
        self: &Arc<Self>,
        id: StoreId,
        entry: AuditLine,
        change: impl FnOnce(&StoreDirectory) -> Result<T, StoreFileError> + Send + 'static,
    ) -> Result<T, Refused> {
        let service = Arc::clone(self);
        to_the_end(async move {
            let changed = service.engine.with_store(id.to_string(), change).await?;
            service.store.write(move |tx| tx.audit(&entry).map(drop)).await?;
            Ok(changed)
        })
        .await
    }

    fn usable_store(
        &self,
        caller: &Caller,
        id: StoreId,
        privilege: Privilege,
    ) -> Result<Store, Refused> {
        let object = Object::Store(id);
        let found = self.store.read(|rows| rows.store(caller.workspace, id))?;
        let store = match found {
            Some(store) if self.sees(caller, object)? => store,
            _ => return Err(not_found("store", id)),
        };
        self.require(caller, privilege, object)?;
        Ok(store)
    }

    /// The stores that the code of an agent is given, all of them or none.
    pub(crate) fn lent_stores(
        &self,
        workspace: WorkspaceId,
        lender: &Lender,
    ) -> Result<Vec<StoreIn>, Refused> {
        lender.section.stores.iter().map(|grant| self.lent(workspace, lender, grant)).collect()
    }

    fn lent(
        &self,
        workspace: WorkspaceId,
        lender: &Lender,
        grant: &StoreGrant,
    ) -> Result<StoreIn, Refused> {
        let found = self.store.read(|rows| rows.store_by_name(workspace, &grant.name))?;
        let store = found.ok_or_else(|| {
            let agent = &lender.agent.name;
            let message = format!("the agent {agent:?} needs the store {:?}", grant.name);
            let fault = Fault::new(Code::ObjectNotFound, format!("{message}, which is not there"));
            Refused::from(fault.hint("make it, or take it out of the specification"))
        })?;
        let object = Object::Store(store.id);
        let privilege = needed_for(grant.access);
        if self.permit(workspace, &lender.run_as, privilege, object)?.is_none() {
            return Err(missing(privilege, object));
        }
        if lender.agent.author != lender.run_as.id {
            self.require_author(workspace, lender.agent.author, privilege, object)?;
        }
        Ok(StoreIn {
            name: store.name,
            directory: store.id.to_string(),
            path: grant.path.clone().into(),
            access: grant.access,
            quota_bytes: store.quota_bytes,
        })
    }

    /// Directories that no row speaks of were left by a server that was killed, or belong to records
    /// that are not here: they are moved away, and removed after the retention.
    pub(crate) async fn set_aside_unknown_stores(&self) -> Result<(), Refused> {
        let known: HashSet<String> = self
            .store
            .read(|rows| rows.store_ids())?
            .into_iter()
            .map(|id| id.to_string())
            .collect();
        let name = aside_name(Utc::now());
        let is_known = move |directory: &str| known.contains(directory);
        let volumes = self.engine.set_aside_stores(is_known, name.clone()).await?;
        if volumes > 0 {
            tracing::warn!(volumes, directory = name, "volumes without a record were set aside");
        }
        Ok(())
    }
}

/// What somebody has to be granted on a store for code that accesses it.
pub(crate) fn needed_for(access: StoreAccess) -> Privilege {
    match access {
        StoreAccess::Read => Privilege::Usage,
        StoreAccess::Write => Privilege::Modify,
    }
}

fn quota(bytes: u64) -> Result<u64, Refused> {
    if (QUOTA_BYTES_MIN..=QUOTA_BYTES_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    let message = format!("must be from {QUOTA_BYTES_MIN} to {QUOTA_BYTES_MAX}");
    Err(invalid("/quota_bytes", message))
}

/// What is promised to all stores of a workspace together is bounded as its files are.
fn over(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    before: u64,
    after: u64,
    most: u64,
) -> Result<Option<Refused>, store::StoreError> {
    let (stores, quotas) = rows.store_totals(workspace)?;
    if before == 0 && stores >= STORES_MAX {
        let message = format!("a workspace has at most {STORES_MAX} stores");
        return Ok(Some(Fault::new(Code::DiskExceeded, message).hint("delete one").into()));
    }
    let promised = quotas.saturating_sub(before).saturating_add(after);
    Ok((promised > most).then(|| {
        let message = format!(
            "the stores of the workspace would have {promised} bytes, and have at most {most}"
        );
        Fault::new(Code::DiskExceeded, message).hint("delete a store, or ask for less").into()
    }))
}
