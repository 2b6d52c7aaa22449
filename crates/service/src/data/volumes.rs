//! Volumes: named directories that outlive sessions. The specification of an agent names the
//! volumes of its code, and the rights of the principal that the code runs as decide whether the
//! code gets them.

use crate::data::staging::StagedFile;
use crate::error::{RequestError, in_use, invalid_field, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::identity::ownership::ObjectQuery;
use crate::names;
use crate::page::{Page, page_request};
use crate::runs::sessions::AuthorizedAgent;
use crate::service::Service;
use crate::tasks::run_to_completion;
use db::{NewAuditEntry, ObjectFilter, Reader, quarantine_name};
use engine::{GrantedVolume, VolumeDirectory, VolumeFileError};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;
use types::{
    Error, ErrorCode, ObjectRef, Privilege, Volume, VolumeAccess, VolumeGrant, VolumeId,
    WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;

/// Default quota: the default size of a working directory.
const QUOTA_BYTES: u64 = 256 * 1024 * 1024;
/// One page, the memory that the smallest file takes.
const QUOTA_BYTES_MIN: u64 = 4096;
/// A copy of a writable volume is in the memory of the sandbox.
const QUOTA_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Limit per workspace; even an empty volume is a directory.
const VOLUMES_MAX: u64 = 1_000;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeRequest {
    pub name: String,
    /// Limit of all its files together; default 268435456 (256 MiB).
    pub quota_bytes: Option<u64>,
    pub comment: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VolumeChange {
    pub quota_bytes: Option<u64>,
    pub comment: Option<String>,
}

/// A volume and its files.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct VolumeView {
    #[serde(flatten)]
    pub volume: Volume,
    pub used_bytes: u64,
    pub files: Vec<VolumeFile>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct VolumeFile {
    pub name: String,
    pub size: u64,
}

impl Service {
    pub async fn create_volume(
        self: &Arc<Self>,
        caller: &Caller,
        request: VolumeRequest,
    ) -> Result<Volume, RequestError> {
        self.require_create(caller)?;
        names::check_name("/name", &request.name)?;
        let quota_bytes = check_quota(request.quota_bytes.unwrap_or(QUOTA_BYTES))?;
        let comment = names::check_comment(request.comment)?;
        let now = self.now();
        let volume = Volume {
            id: VolumeId::new(Uuid::now_v7()),
            name: request.name,
            owner: caller.id(),
            comment,
            quota_bytes,
            created_at: now,
            updated_at: now,
        };
        let object = ObjectRef::Volume(volume.id);
        let (grant, entry) = (
            caller.ownership_grant(object, now),
            caller.audit_entry("volume.create", object, &volume.name),
        );
        let (service, workspace) = (Arc::clone(self), caller.workspace);
        run_to_completion(async move {
            let name = volume.id.to_string();
            service.engine.with_volume(name.clone(), |directory| Ok(directory.create()?)).await?;
            let (row, most) = (volume.clone(), service.config.workspace_bytes_max);
            let written = service.db.write(move |tx| {
                if let Some(error) = quota_error(tx, workspace, 0, row.quota_bytes, most)? {
                    return Ok(Err(error));
                }
                tx.insert_volume(workspace, &row)?;
                tx.insert_grant(workspace, &grant)?;
                tx.append_audit_entry(&entry)?;
                Ok(Ok(()))
            });
            let written = written.await.map_err(RequestError::from).flatten();
            if let Err(error) = written {
                // If this fails too, the next start moves the directory aside.
                let _ = service.engine.with_volume(name, |directory| Ok(directory.delete()?)).await;
                return Err(error);
            }
            Ok(volume)
        })
        .await
    }

    /// Volumes that the caller may see, newest first.
    pub async fn volumes(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Page<Volume>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed = self.db.read_off_thread(move |rows| rows.volumes(workspace, &filter, page));
        Ok(listed.await?.into())
    }

    pub async fn volume(&self, caller: &Caller, id: VolumeId) -> Result<VolumeView, RequestError> {
        let volume = self.usable_volume(caller, id, Privilege::Usage)?;
        let listed =
            self.engine.with_volume(id.to_string(), |directory| Ok(directory.list()?)).await?;
        let files: Vec<_> =
            listed.into_iter().map(|(name, file)| VolumeFile { name, size: file.size }).collect();
        let used_bytes = files.iter().map(|file| file.size).sum();
        Ok(VolumeView { volume, used_bytes, files })
    }

    /// Changes the quota or the comment. If the volume has more bytes than a smaller quota, nothing
    /// is deleted, and nothing can be added.
    pub async fn change_volume(
        &self,
        caller: &Caller,
        id: VolumeId,
        change: VolumeChange,
    ) -> Result<Volume, RequestError> {
        self.usable_volume(caller, id, Privilege::Modify)?;
        let quota_bytes = change.quota_bytes.map(check_quota).transpose()?;
        let comment = names::check_comment(change.comment)?;
        let entry = caller.audit_entry("volume.change", ObjectRef::Volume(id), "");
        let (workspace, most) = (caller.workspace, self.config.workspace_bytes_max);
        let clock = self.config.clock.clone();
        let written = self.db.write(move |tx| {
            let Some(current) = tx.volume(workspace, id)? else {
                return Ok(Err(not_found("volume", id)));
            };
            let changed = Volume {
                quota_bytes: quota_bytes.unwrap_or(current.quota_bytes),
                comment: comment.or(current.comment),
                updated_at: clock.now(),
                ..current
            };
            let error = quota_error(tx, workspace, current.quota_bytes, changed.quota_bytes, most)?;
            if let Some(error) = error.filter(|_| changed.quota_bytes > current.quota_bytes) {
                return Ok(Err(error));
            }
            tx.update_volume(workspace, &changed)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(changed))
        });
        written.await?
    }

    /// Deletes a volume with its files. Refused while the specification of an agent names it.
    pub async fn delete_volume(
        self: &Arc<Self>,
        caller: &Caller,
        id: VolumeId,
    ) -> Result<(), RequestError> {
        let volume = self.usable_volume(caller, id, Privilege::Ownership)?;
        let object = ObjectRef::Volume(id);
        let entry = caller.audit_entry("volume.delete", object, &volume.name);
        let (service, workspace) = (Arc::clone(self), caller.workspace);
        run_to_completion(async move {
            let deleted = service.db.write(move |tx| {
                let agents = tx.agents_referencing(workspace, "volume", &volume.name)?;
                if !agents.is_empty() {
                    let users = agents.iter().map(|agent| format!("agent {agent:?}"));
                    let users: Vec<_> = users.collect();
                    return Ok(Err(in_use(&format!("volume {:?}", volume.name), &users)));
                }
                tx.delete_volume(workspace, id)?;
                tx.delete_grants_on(workspace, object)?;
                tx.append_audit_entry(&entry)?;
                Ok(Ok(()))
            });
            deleted.await??;
            Ok(service
                .engine
                .with_volume(id.to_string(), |directory| Ok(directory.delete()?))
                .await?)
        })
        .await
    }

    pub async fn read_volume_file(
        &self,
        caller: &Caller,
        id: VolumeId,
        name: String,
    ) -> Result<(File, u64), RequestError> {
        self.usable_volume(caller, id, Privilege::Usage)?;
        Ok(self.engine.with_volume(id.to_string(), move |directory| directory.open(&name)).await?)
    }

    /// Checks the right to write to a volume before an upload is read.
    pub fn check_volume_upload(&self, caller: &Caller, id: VolumeId) -> Result<(), RequestError> {
        self.usable_volume(caller, id, Privilege::Modify).map(drop)
    }

    pub async fn write_volume_file(
        self: &Arc<Self>,
        caller: &Caller,
        id: VolumeId,
        name: String,
        content: StagedFile,
    ) -> Result<VolumeFile, RequestError> {
        let quota = self.usable_volume(caller, id, Privilege::Modify)?.quota_bytes;
        let mut content = content.open()?;
        let entry = caller.audit_entry("volume.write", ObjectRef::Volume(id), &name);
        self.update_volume_files(id, entry, move |directory| {
            let written = directory.write(&name, &mut content, quota)?;
            Ok(VolumeFile { name, size: written.size })
        })
        .await
    }

    pub async fn delete_volume_file(
        self: &Arc<Self>,
        caller: &Caller,
        id: VolumeId,
        name: String,
    ) -> Result<(), RequestError> {
        self.usable_volume(caller, id, Privilege::Modify)?;
        let entry = caller.audit_entry("volume.remove", ObjectRef::Volume(id), &name);
        self.update_volume_files(id, entry, move |directory| directory.remove(&name)).await
    }

    /// Makes a change and its audit entry, even if the client disconnects.
    async fn update_volume_files<T: Send + 'static>(
        self: &Arc<Self>,
        id: VolumeId,
        entry: NewAuditEntry,
        change: impl FnOnce(&VolumeDirectory) -> Result<T, VolumeFileError> + Send + 'static,
    ) -> Result<T, RequestError> {
        let service = Arc::clone(self);
        run_to_completion(async move {
            let changed = service.engine.with_volume(id.to_string(), change).await?;
            service.db.write(move |tx| tx.append_audit_entry(&entry).map(drop)).await?;
            Ok(changed)
        })
        .await
    }

    fn usable_volume(
        &self,
        caller: &Caller,
        id: VolumeId,
        privilege: Privilege,
    ) -> Result<Volume, RequestError> {
        let object = ObjectRef::Volume(id);
        let found = self.db.read(|rows| rows.volume(caller.workspace, id))?;
        let volume = match found {
            Some(volume) if self.can_see(caller, object)? => volume,
            _ => return Err(not_found("volume", id)),
        };
        self.require_privilege(caller, privilege, object)?;
        Ok(volume)
    }

    /// The volumes that the code of an agent may use. If one is missing, the result is an error.
    pub(crate) fn granted_volumes(
        &self,
        workspace: WorkspaceId,
        authorized: &AuthorizedAgent,
    ) -> Result<Vec<GrantedVolume>, RequestError> {
        authorized
            .section
            .volumes
            .iter()
            .map(|grant| self.granted_volume(workspace, authorized, grant))
            .collect()
    }

    fn granted_volume(
        &self,
        workspace: WorkspaceId,
        authorized: &AuthorizedAgent,
        grant: &VolumeGrant,
    ) -> Result<GrantedVolume, RequestError> {
        let found = self.db.read(|rows| rows.volume_by_name(workspace, &grant.name))?;
        let volume = found.ok_or_else(|| {
            let agent = &authorized.agent.name;
            let message = format!("agent {agent:?} requires the volume {:?}", grant.name);
            let error =
                Error::new(ErrorCode::ObjectNotFound, format!("{message}, which does not exist"));
            RequestError::from(error.hint("create it, or remove it from the specification"))
        })?;
        let object = ObjectRef::Volume(volume.id);
        let privilege = privilege_for(grant.access);
        if self.permit(workspace, &authorized.run_as, privilege, object)?.is_none() {
            return Err(missing_privilege(privilege, object));
        }
        if authorized.agent.author != authorized.run_as.id {
            self.require_author(workspace, authorized.agent.author, privilege, object)?;
        }
        Ok(GrantedVolume {
            name: volume.name,
            directory: volume.id.to_string(),
            path: grant.path.clone().into(),
            access: grant.access,
            quota_bytes: volume.quota_bytes,
        })
    }

    /// Moves directories of volumes without a row aside, to be deleted after the retention: they
    /// were left by a server that was killed, or belong to other records.
    pub(crate) async fn quarantine_orphaned_volumes(&self) -> Result<(), RequestError> {
        let known: HashSet<String> =
            self.db.read(|rows| rows.volume_ids())?.into_iter().map(|id| id.to_string()).collect();
        let name = quarantine_name(self.now());
        let is_known = move |directory: &str| known.contains(directory);
        let volumes = self.engine.set_aside_volumes(is_known, name.clone()).await?;
        if volumes > 0 {
            tracing::warn!(
                volumes,
                directory = name,
                "volumes without a record were moved to volumes/all/.aside"
            );
        }
        Ok(())
    }
}

/// The privilege on a volume that code with this access requires.
pub(crate) fn privilege_for(access: VolumeAccess) -> Privilege {
    match access {
        VolumeAccess::Read => Privilege::Usage,
        VolumeAccess::Write => Privilege::Modify,
    }
}

fn check_quota(bytes: u64) -> Result<u64, RequestError> {
    if (QUOTA_BYTES_MIN..=QUOTA_BYTES_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    let message = format!("must be from {QUOTA_BYTES_MIN} to {QUOTA_BYTES_MAX}");
    Err(invalid_field("/quota_bytes", message))
}

/// The error if the quotas of all volumes of a workspace would exceed its quota.
fn quota_error(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    before: u64,
    after: u64,
    most: u64,
) -> Result<Option<RequestError>, db::DatabaseError> {
    let (volumes, quotas) = rows.volume_totals(workspace)?;
    if before == 0 && volumes >= VOLUMES_MAX {
        let message = format!("limit of {VOLUMES_MAX} volumes in this workspace reached");
        return Ok(Some(
            Error::new(ErrorCode::DiskExceeded, message)
                .hint("delete a volume that is no longer needed")
                .into(),
        ));
    }
    let total = quotas.saturating_sub(before).saturating_add(after);
    Ok((total > most).then(|| {
        let message = format!(
            "quotas of all volumes would be {total} bytes; the limit of the workspace is {most}"
        );
        Error::new(ErrorCode::DiskExceeded, message)
            .hint("delete a volume, or use a smaller quota")
            .into()
    }))
}
