//! Uploaded skills: a row has the skill and an archive of its files.

use crate::columns::{from_json_column, to_json};
use crate::named_objects::NamedTable;
use crate::{DatabaseError, ObjectFilter, PageRequest, Reader, RowPage, Tx};
use types::{SkillId, UploadedSkill, WorkspaceId};

const SKILLS: NamedTable = NamedTable { table: "skills", grant_kind: "skill", noun: "skill" };

impl Tx<'_> {
    pub fn insert_skill(
        &self,
        workspace: WorkspaceId,
        skill: &UploadedSkill,
        archive: &[u8],
    ) -> Result<(), DatabaseError> {
        self.execute(
            "INSERT INTO skills (workspace, id, name, owner, bytes, body, archive) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            (
                workspace.uuid(),
                skill.id.uuid(),
                &skill.name,
                skill.owner.uuid(),
                skill.bytes,
                to_json("skill", skill)?,
                archive,
            ),
        )
        .map_err(|error| error.or_name_taken("skill", &skill.name))?;
        Ok(())
    }

    /// Without `archive`, the stored files stay. False if there is no such skill. The name does not
    /// change.
    pub fn update_skill(
        &self,
        workspace: WorkspaceId,
        skill: &UploadedSkill,
        archive: Option<&[u8]>,
    ) -> Result<bool, DatabaseError> {
        let changed = self.execute(
            "UPDATE skills SET owner = ?3, bytes = ?4, body = ?5, archive = coalesce(?6, archive) \
             WHERE workspace = ?1 AND id = ?2",
            (
                workspace.uuid(),
                skill.id.uuid(),
                skill.owner.uuid(),
                skill.bytes,
                to_json("skill", skill)?,
                archive,
            ),
        )?;
        Ok(changed == 1)
    }

    pub fn delete_skill(&self, workspace: WorkspaceId, id: SkillId) -> Result<bool, DatabaseError> {
        self.delete_named(SKILLS, workspace, id.uuid())
    }
}

impl Reader<'_> {
    pub fn skill(
        &self,
        workspace: WorkspaceId,
        id: SkillId,
    ) -> Result<Option<UploadedSkill>, DatabaseError> {
        self.find_by_id(SKILLS, workspace, id.uuid())
    }

    pub fn skill_by_name(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Option<UploadedSkill>, DatabaseError> {
        self.find_by_name(SKILLS, workspace, name)
    }

    /// A skill and the archive of its files, read together.
    pub fn skill_archive(
        &self,
        workspace: WorkspaceId,
        id: SkillId,
    ) -> Result<Option<(UploadedSkill, Vec<u8>)>, DatabaseError> {
        let sql = "SELECT body, archive FROM skills WHERE workspace = ?1 AND id = ?2";
        self.query_one(sql, (workspace.uuid(), id.uuid()), |row| {
            Ok((from_json_column("skill", row, "body")?, row.get("archive")?))
        })
    }

    /// The number of skills of a workspace, and the bytes of their files.
    pub fn skill_totals(&self, workspace: WorkspaceId) -> Result<(u64, u64), DatabaseError> {
        let sql = "SELECT count(*), coalesce(sum(bytes), 0) FROM skills WHERE workspace = ?1";
        let totals =
            self.query_one(sql, [workspace.uuid()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(totals.unwrap_or_default())
    }

    /// Lists skills; `search` looks in their names.
    pub fn skills(
        &self,
        workspace: WorkspaceId,
        filter: &ObjectFilter,
        page: PageRequest,
    ) -> Result<RowPage<UploadedSkill>, DatabaseError> {
        self.list_named(SKILLS, workspace, filter, page)
    }
}
