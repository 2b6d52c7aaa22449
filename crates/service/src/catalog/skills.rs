//! Skills of a workspace: uploaded folders with instructions for agents.
//!
//! An upload is checked as a whole, and a skill and its files are one row, so that there is never
//! half a skill.

use crate::catalog::agent_skills::{files_digest, read_stored};
use crate::data::staging::{StagedFile, file_write_error};
use crate::error::{
    ErrorDetail, RequestError, in_use, invalid_field, missing_privilege, not_found,
};
use crate::identity::caller::Caller;
use crate::identity::ownership::ObjectQuery;
use crate::page::{Page, page_request};
use crate::service::Service;
use crate::tasks::run_blocking;
use db::{ObjectFilter, Tx};
use serde::Serialize;
use skill::{SkillFiles, UPLOAD_BYTES_MAX, UploadError};
use std::io::Read;
use types::{Error, ErrorCode, ObjectRef, Privilege, SkillId, UploadedSkill, WorkspaceId};
use utoipa::ToSchema;
use uuid::Uuid;

/// Headers and names in an archive besides the content of its files.
const ARCHIVE_BYTES_MAX: u64 = UPLOAD_BYTES_MAX + 1024 * 1024;
/// Limit per workspace: more than an agent can choose from.
const SKILLS_MAX: u64 = 200;
/// Limit of the files of all skills of a workspace.
const WORKSPACE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The body of an upload.
#[derive(Debug)]
pub enum SkillUpload {
    /// A ZIP archive.
    Archive(StagedFile),
    /// The files, by their paths.
    Files(Vec<(String, StagedFile)>),
}

/// A skill with its instructions and its files
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SkillView {
    #[serde(flatten)]
    pub skill: UploadedSkill,
    /// The text of SKILL.md after its frontmatter
    pub instructions: String,
    pub files: Vec<SkillFile>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SkillFile {
    /// Path relative to the skill
    pub name: String,
    pub size: u64,
}

impl Service {
    /// The size limit of an upload, which can be checked before it is read.
    pub fn skill_upload_bytes_max(&self) -> u64 {
        ARCHIVE_BYTES_MAX
    }

    /// Checks the right to add a skill before an upload is read.
    pub fn check_skill_upload(
        &self,
        caller: &Caller,
        replaced: Option<SkillId>,
    ) -> Result<(), RequestError> {
        match replaced {
            Some(id) => self.usable_skill(caller, id, Privilege::Modify).map(drop),
            None => self.require_create(caller),
        }
    }

    pub async fn create_skill(
        &self,
        caller: &Caller,
        upload: SkillUpload,
    ) -> Result<UploadedSkill, RequestError> {
        self.require_create(caller)?;
        let (name, description, files) = self.read_upload(caller, upload).await?;
        self.check_skill_name(&name).await?;
        let now = self.now();
        let skill = UploadedSkill {
            id: SkillId::new(Uuid::now_v7()),
            name,
            description,
            owner: caller.id(),
            author: caller.id(),
            file_count: files.files().len(),
            bytes: files.bytes(),
            sha256: files_digest(files.files()),
            created_at: now,
            updated_at: now,
        };
        let object = ObjectRef::Skill(skill.id);
        let grant = caller.ownership_grant(object, now);
        let entry = caller.audit_entry("skill.create", object, &skill.name);
        let (workspace, row) = (caller.workspace, skill.clone());
        let archive = run_blocking(move || files.to_archive()).await?;
        let written = self.db.write(move |tx| {
            if let Some(error) = quota_error(tx, workspace, None, &row)? {
                return Ok(Err(error));
            }
            tx.insert_skill(workspace, &row, &archive)?;
            tx.insert_grant(workspace, &grant)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        });
        written.await??;
        Ok(skill)
    }

    /// Replaces the files of a skill, whose name stays. Agents use the new files from their next run
    /// on.
    pub async fn replace_skill(
        &self,
        caller: &Caller,
        id: SkillId,
        upload: SkillUpload,
    ) -> Result<UploadedSkill, RequestError> {
        let before = self.usable_skill(caller, id, Privilege::Modify)?;
        let (name, description, files) = self.read_upload(caller, upload).await?;
        if name != before.name {
            let message =
                format!("the skill is named {:?}; upload {name:?} as a new one", before.name);
            return Err(invalid_field("/name", message));
        }
        let (author, updated_at) = (caller.id(), self.now());
        let (file_count, bytes) = (files.files().len(), files.bytes());
        let sha256 = files_digest(files.files());
        let object = ObjectRef::Skill(id);
        let entry = caller.audit_entry("skill.replace", object, &name);
        let workspace = caller.workspace;
        let archive = run_blocking(move || files.to_archive()).await?;
        let written = self.db.write(move |tx| {
            let Some(current) = tx.skill(workspace, id)? else {
                return Ok(Err(not_found("skill", id)));
            };
            let before = current.bytes;
            let changed = UploadedSkill {
                description,
                author,
                file_count,
                bytes,
                sha256,
                updated_at,
                ..current
            };
            if let Some(error) = quota_error(tx, workspace, Some(before), &changed)? {
                return Ok(Err(error));
            }
            tx.update_skill(workspace, &changed, Some(&archive))?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(changed))
        });
        written.await?
    }

    /// Reads and checks an upload on a thread that may block: name, description and files.
    async fn read_upload(
        &self,
        caller: &Caller,
        upload: SkillUpload,
    ) -> Result<(String, String, SkillFiles), RequestError> {
        let read = move || {
            let files = upload.read()?;
            let skill = files
                .clone()
                .into_skill()
                .map_err(|error| upload_error(&UploadError::Invalid(vec![error])))?;
            Ok((skill.summary.name, skill.summary.description, files))
        };
        self.check_slots.run_check(caller.workspace, read).await?
    }

    /// The name of a skill of the server is taken: agents would get that one.
    async fn check_skill_name(&self, name: &str) -> Result<(), RequestError> {
        if !self.is_server_skill(name).await? {
            return Ok(());
        }
        let message = format!("name {name:?} is already used by a skill of the server");
        Err(Error::new(ErrorCode::NameTaken, message).hint("choose another name").into())
    }

    /// Skills that the caller may see, newest first.
    pub async fn skills(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Page<UploadedSkill>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed = self.db.read_off_thread(move |rows| rows.skills(workspace, &filter, page));
        Ok(listed.await?.into())
    }

    pub async fn skill(&self, caller: &Caller, id: SkillId) -> Result<SkillView, RequestError> {
        let (row, files) = self.skill_files(caller, id).await?;
        let list = |(name, content): (&String, &Vec<u8>)| SkillFile {
            name: name.clone(),
            size: content.len() as u64,
        };
        let listed = files.files().iter().map(list).collect();
        let skill = files.into_skill().and_then(|skill| skill.body());
        let instructions =
            skill.map_err(|error| upload_error(&UploadError::Invalid(vec![error])))?;
        Ok(SkillView { skill: row, instructions, files: listed })
    }

    pub async fn read_skill_file(
        &self,
        caller: &Caller,
        id: SkillId,
        name: &str,
    ) -> Result<Vec<u8>, RequestError> {
        let (_, files) = self.skill_files(caller, id).await?;
        let content = files.files().get(name).cloned();
        content.ok_or_else(|| {
            let message = format!("{name}: no such file in the skill");
            Error::new(ErrorCode::FileNotFound, message).into()
        })
    }

    async fn skill_files(
        &self,
        caller: &Caller,
        id: SkillId,
    ) -> Result<(UploadedSkill, SkillFiles), RequestError> {
        self.usable_skill(caller, id, Privilege::Usage)?;
        let workspace = caller.workspace;
        let found = self.db.read_off_thread(move |rows| rows.skill_archive(workspace, id)).await?;
        let (row, archive) = found.ok_or_else(|| not_found("skill", id))?;
        let files = run_blocking(move || read_stored(&archive)).await??;
        Ok((row, files))
    }

    /// Deletes a skill. Refused while the specification of an agent names it.
    pub async fn delete_skill(&self, caller: &Caller, id: SkillId) -> Result<(), RequestError> {
        let skill = self.usable_skill(caller, id, Privilege::Ownership)?;
        let object = ObjectRef::Skill(id);
        let entry = caller.audit_entry("skill.delete", object, &skill.name);
        let workspace = caller.workspace;
        let deleted = self.db.write(move |tx: &Tx<'_>| {
            let agents = tx.agents_referencing(workspace, "skill", &skill.name)?;
            if !agents.is_empty() {
                let users: Vec<_> = agents.iter().map(|agent| format!("agent {agent:?}")).collect();
                return Ok(Err(in_use(&format!("skill {:?}", skill.name), &users)));
            }
            tx.delete_skill(workspace, id)?;
            tx.delete_grants_on(workspace, object)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        });
        deleted.await?
    }

    fn usable_skill(
        &self,
        caller: &Caller,
        id: SkillId,
        privilege: Privilege,
    ) -> Result<UploadedSkill, RequestError> {
        let object = ObjectRef::Skill(id);
        let found = self.db.read(|rows| rows.skill(caller.workspace, id))?;
        let skill = match found {
            Some(skill) if self.can_see(caller, object)? => skill,
            _ => return Err(not_found("skill", id)),
        };
        let (workspace, principal) = (caller.workspace, &caller.principal);
        match self.permit(workspace, principal, privilege, object)? {
            Some(_) => Ok(skill),
            None => Err(missing_privilege(privilege, object)),
        }
    }
}

impl SkillUpload {
    fn read(self) -> Result<SkillFiles, RequestError> {
        let files = match self {
            Self::Archive(archive) => SkillFiles::from_archive(&read_staged(&archive)?),
            Self::Files(files) => {
                let mut read = Vec::with_capacity(files.len());
                let mut left = ARCHIVE_BYTES_MAX;
                for (name, staged) in files {
                    left = left.checked_sub(staged.size).ok_or_else(too_large)?;
                    read.push((name, read_staged(&staged)?));
                }
                SkillFiles::from_files(read)
            }
        };
        files.map_err(|error| upload_error(&error))
    }
}

fn read_staged(staged: &StagedFile) -> Result<Vec<u8>, RequestError> {
    if staged.size > ARCHIVE_BYTES_MAX {
        return Err(too_large());
    }
    let mut content = Vec::new();
    let read = staged.open()?.take(ARCHIVE_BYTES_MAX).read_to_end(&mut content);
    read.map_err(|error| file_write_error(&error))?;
    Ok(content)
}

fn too_large() -> RequestError {
    let message = format!("a skill can have at most {UPLOAD_BYTES_MAX} bytes");
    Error::new(ErrorCode::RequestTooLarge, message)
        .hint("move large data to a volume or a document")
        .into()
}

/// The error of an upload, with a detail for each violation of the format.
fn upload_error(error: &UploadError) -> RequestError {
    let violations = match error {
        UploadError::TooLarge => return too_large(),
        UploadError::Invalid(violations) => violations.iter().map(ToString::to_string).collect(),
        other => vec![other.to_string()],
    };
    let detail = |message: String| ErrorDetail {
        path: Some("/skill".to_owned()),
        message,
        ..ErrorDetail::default()
    };
    let hint = "check the folder with `belljar skill validate DIR`";
    let error = Error::new(ErrorCode::ArgsInvalid, format!("the skill is not valid: {error}"));
    RequestError {
        error: Box::new(error.hint(hint)),
        details: violations.into_iter().map(detail).collect(),
    }
}

/// The error if a workspace would have more skills, or more bytes in them, than it may.
fn quota_error(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    replaced: Option<u64>,
    skill: &UploadedSkill,
) -> Result<Option<RequestError>, db::DatabaseError> {
    let (count, bytes) = tx.skill_totals(workspace)?;
    let total = bytes.saturating_sub(replaced.unwrap_or(0)).saturating_add(skill.bytes);
    let message = if replaced.is_none() && count >= SKILLS_MAX {
        format!("limit of {SKILLS_MAX} skills in this workspace reached")
    } else if total > WORKSPACE_BYTES_MAX {
        format!(
            "the skills of this workspace would have {total} bytes; the limit is {WORKSPACE_BYTES_MAX}"
        )
    } else {
        return Ok(None);
    };
    let error = Error::new(ErrorCode::QuotaExceeded, message);
    Ok(Some(error.hint("delete a skill that is no longer needed").into()))
}
