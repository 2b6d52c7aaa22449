//! The skills of agents: which ones an agent may use, and the directories in which its code sees their
//! files.
//!
//! A name refers to a built-in skill, to one of the operator, or to an uploaded one, in this order.
//! An uploaded skill is an object with grants: the principal that the agent's code runs as must have
//! USAGE on it, and so must the author of the specification.

use crate::catalog::agents::ResolvedAgent;
use crate::catalog::specification::{SkillLoad, SkillReference};
use crate::data::staging::hex;
use crate::error::{RequestError, missing_privilege};
use crate::identity::caller::Caller;
use crate::runs::sessions::AuthorizedAgent;
use crate::runs::{CONVERSATION_ROOT, SKILLS_ROOT};
use crate::service::Service;
use crate::tasks::run_blocking;
use engine::{GrantedDirectory, Header, SharedDirectory};
use sha2::{Digest, Sha256};
use skill::{Skill, SkillFiles};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use types::{
    Agent, Error, ErrorCode, ObjectRef, Principal, PrincipalId, Privilege, SandboxId,
    UploadedSkill, WorkspaceId,
};

/// Limit of the uploaded skills of one agent together: a run has their files in memory.
const AGENT_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// A skill with only its instructions needs no directory.
const INSTRUCTIONS_ONLY: usize = 1;

/// A skill that an agent may use.
#[derive(Debug, Clone)]
pub struct AgentSkill {
    pub skill: Arc<Skill>,
    /// Whether its instructions are part of those of the agent.
    pub always_loaded: bool,
    /// The principal who uploaded it; absent for a skill of the server.
    pub author: Option<PrincipalId>,
}

/// A skill that the specification of an agent names, or why the agent cannot use it.
#[derive(Debug, Clone)]
pub struct ListedSkill {
    pub name: String,
    pub found: Result<AgentSkill, Error>,
}

/// Uploaded skills that runs use now, by the digest of their files, so that runs share the memory.
pub(crate) type LoadedSkills = SharedByDigest<Skill>;
/// The directories with the files of skills that sandboxes see now, by the digest of the files.
pub(crate) type SkillDirectories = SharedByDigest<SharedDirectory>;

/// Values that live as long as something uses them.
#[derive(Debug)]
pub(crate) struct SharedByDigest<T>(Mutex<HashMap<String, Weak<T>>>);

impl<T> Default for SharedByDigest<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> SharedByDigest<T> {
    fn find(&self, digest: &str) -> Option<Arc<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(digest)?.upgrade()
    }

    fn insert(&self, digest: String, value: &Arc<T>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, value| value.strong_count() > 0);
        known.insert(digest, Arc::downgrade(value));
    }
}

impl Service {
    /// The skills that the specification of an agent names. A missing one is an error.
    pub async fn agent_skills(
        &self,
        caller: &Caller,
        work: &ResolvedAgent,
    ) -> Result<Vec<AgentSkill>, RequestError> {
        let run_as = self.effective_principal(caller.workspace, &caller.principal, &work.agent)?;
        let who = (&run_as, work.agent.author);
        self.load_skills(caller.workspace, who, &work.orchestration.skills).await
    }

    async fn load_skills(
        &self,
        workspace: WorkspaceId,
        who: (&Principal, PrincipalId),
        references: &[SkillReference],
    ) -> Result<Vec<AgentSkill>, RequestError> {
        let mut skills = Vec::with_capacity(references.len());
        let mut left = AGENT_BYTES_MAX;
        for reference in references {
            skills.push(self.load_skill(workspace, who, reference, &mut left).await?);
        }
        Ok(skills)
    }

    /// Loads one skill. Uploaded ones take their size from `left`.
    async fn load_skill(
        &self,
        workspace: WorkspaceId,
        who: (&Principal, PrincipalId),
        reference: &SkillReference,
        left: &mut u64,
    ) -> Result<AgentSkill, RequestError> {
        let (skill, author) = match self.server_skill(&reference.name).await? {
            Some(skill) => (Arc::new(skill), None),
            None => {
                let row = self.usable_skill_row(workspace, who, &reference.name)?;
                *left = left.checked_sub(row.bytes).ok_or_else(too_many_bytes)?;
                (self.load_uploaded_skill(workspace, &row).await?, Some(row.author))
            }
        };
        let always_loaded = match reference.load {
            Some(load) => load == SkillLoad::Always,
            None => skill.always_loaded,
        };
        Ok(AgentSkill { skill, always_loaded, author })
    }

    /// Each skill that the specification of an agent names, or why the agent cannot use it.
    pub(crate) async fn listed_skills(
        &self,
        caller: &Caller,
        agent: &Agent,
        references: &[SkillReference],
    ) -> Vec<ListedSkill> {
        let run_as = self.effective_principal(caller.workspace, &caller.principal, agent);
        let (mut listed, mut left) = (Vec::with_capacity(references.len()), AGENT_BYTES_MAX);
        for reference in references {
            let found = match &run_as {
                Ok(run_as) => {
                    let who = (run_as, agent.author);
                    let found = self.load_skill(caller.workspace, who, reference, &mut left).await;
                    found.map_err(|error| *error.error)
                }
                Err(error) => Err((*error.error).clone()),
            };
            listed.push(ListedSkill { name: reference.name.clone(), found });
        }
        listed
    }

    /// A skill that the caller may use.
    pub async fn find_usable_skill(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<AgentSkill, RequestError> {
        let reference = SkillReference { name: name.to_owned(), load: None };
        let (who, mut left) = ((&caller.principal, caller.id()), AGENT_BYTES_MAX);
        self.load_skill(caller.workspace, who, &reference, &mut left).await
    }

    /// A built-in skill, or one of the operator.
    async fn server_skill(&self, name: &str) -> Result<Option<Skill>, RequestError> {
        let (name, folder) = (name.to_owned(), self.config.skills.clone());
        run_blocking(move || find_server_skill(&name, folder.as_deref())).await
    }

    /// Whether a name refers to a skill of the server, so that no uploaded one can have it.
    pub(crate) async fn is_server_skill(&self, name: &str) -> Result<bool, RequestError> {
        Ok(self.server_skill(name).await?.is_some())
    }

    async fn load_uploaded_skill(
        &self,
        workspace: WorkspaceId,
        UploadedSkill { id, name, sha256, .. }: &UploadedSkill,
    ) -> Result<Arc<Skill>, RequestError> {
        if let Some(skill) = self.loaded_skills.find(sha256) {
            return Ok(skill);
        }
        // One at a time, so that those who wait share what the first one has loaded.
        let _turn = self.skill_loads.lock().await;
        if let Some(skill) = self.loaded_skills.find(sha256) {
            return Ok(skill);
        }
        let id = *id;
        let found = self.db.read_off_thread(move |rows| rows.skill_archive(workspace, id)).await?;
        let (row, archive) = found.ok_or_else(|| skill_not_found(name))?;
        let files = run_blocking(move || read_stored(&archive)).await??;
        let skill = files.into_skill().map_err(|error| unreadable(name, &error.to_string()))?;
        let skill = Arc::new(skill);
        self.loaded_skills.insert(row.sha256, &skill);
        Ok(skill)
    }

    /// The row of an uploaded skill that an agent of this author may use as this principal.
    fn usable_skill_row(
        &self,
        workspace: WorkspaceId,
        (run_as, author): (&Principal, PrincipalId),
        name: &str,
    ) -> Result<UploadedSkill, RequestError> {
        let found = self.db.read(|rows| rows.skill_by_name(workspace, name))?;
        let row = found.ok_or_else(|| skill_not_found(name))?;
        let object = ObjectRef::Skill(row.id);
        if self.permit(workspace, run_as, Privilege::Usage, object)?.is_none() {
            return Err(missing_privilege(Privilege::Usage, object));
        }
        if author != run_as.id {
            self.require_author(workspace, author, Privilege::Usage, object)?;
        }
        Ok(row)
    }

    /// The directories that the code of an agent sees: its skills and its conversation.
    pub(crate) async fn granted_directories(
        &self,
        workspace: WorkspaceId,
        authorized: &AuthorizedAgent,
    ) -> Result<Vec<GrantedDirectory>, RequestError> {
        let who = (&authorized.run_as, authorized.agent.author);
        let mut directories = Vec::new();
        for skill in self.load_skills(workspace, who, &authorized.skills).await? {
            directories.extend(self.skill_directory(&skill).await?);
        }
        if !authorized.section.hides_conversation {
            let directory = self.engine.create_shared_directory(BTreeMap::new()).await?;
            let path = PathBuf::from(CONVERSATION_ROOT);
            directories.push(GrantedDirectory { path, version: None, directory });
        }
        Ok(directories)
    }

    /// The directory with the files of a skill, if it has any besides its instructions.
    async fn skill_directory(
        &self,
        AgentSkill { skill, author, .. }: &AgentSkill,
    ) -> Result<Option<GrantedDirectory>, RequestError> {
        let name = skill.summary.name.clone();
        let (read, label) = (Arc::clone(skill), name.clone());
        let contents = run_blocking(move || {
            let contents =
                read.contents().map_err(|error| unreadable(&label, &error.to_string()))?;
            Ok::<_, RequestError>((files_digest(&contents.files), contents.files))
        });
        let (digest, files) = contents.await??;
        if files.len() <= INSTRUCTIONS_ONLY {
            return Ok(None);
        }
        let directory = match self.skill_directories.find(&digest) {
            Some(directory) => directory,
            None => {
                let directory = self.engine.create_shared_directory(files).await?;
                self.skill_directories.insert(digest.clone(), &directory);
                directory
            }
        };
        let path = Path::new(SKILLS_ROOT).join(&name);
        // A skill of the server changes with the server, not with the workspace.
        let version = author.map(|_| digest);
        Ok(Some(GrantedDirectory { path, version, directory }))
    }

    /// Whether a session has the uploaded skills that its agent names now, with their current files.
    pub(crate) fn has_current_skills(
        &self,
        workspace: WorkspaceId,
        authorized: &AuthorizedAgent,
        granted: &[GrantedDirectory],
    ) -> Result<bool, RequestError> {
        let mut current = BTreeMap::new();
        for SkillReference { name, .. } in &authorized.skills {
            let row = self.db.read(|rows| rows.skill_by_name(workspace, name))?;
            if let Some(row) = row.filter(|row| row.file_count > INSTRUCTIONS_ONLY) {
                self.usable_skill_row(
                    workspace,
                    (&authorized.run_as, authorized.agent.author),
                    name,
                )?;
                current.insert(Path::new(SKILLS_ROOT).join(name), row.sha256);
            }
        }
        let granted = granted
            .iter()
            .filter_map(|it| Some((it.path.clone(), it.version.clone()?)))
            .collect::<BTreeMap<_, _>>();
        Ok(current == granted)
    }

    /// Refuses a script of a skill whose files the session does not show, because it is older than the
    /// specification.
    pub fn check_skill_in_session(
        &self,
        caller: &Caller,
        session: SandboxId,
        name: &str,
    ) -> Result<(), RequestError> {
        self.usable_session(caller, session)?;
        let path = Path::new(SKILLS_ROOT).join(name);
        let grants = self.engine.session_grants(session)?;
        if grants.directories.iter().any(|granted| granted.path == path) {
            return Ok(());
        }
        let message = format!("the session was opened before its agent had the skill {name:?}");
        let hint = "reset the session to continue with the files of the skill";
        Err(Error::new(ErrorCode::SessionLost, message).hint(hint).into())
    }

    /// Refuses a script of a skill in a session that has more than the author of the skill may use.
    pub async fn check_skill_author(
        &self,
        caller: &Caller,
        session: SandboxId,
        author: Option<PrincipalId>,
    ) -> Result<(), RequestError> {
        match author {
            Some(author) => {
                let (workspace, principal) = (caller.workspace, &caller.principal);
                self.check_author_in_session(workspace, principal, session, author).await
            }
            None => Ok(()),
        }
    }

    /// The packages that a script declares (PEP 723) and the environment of a session lacks, as
    /// requirements. An error if its Python is another one than the script needs.
    pub async fn unmet_requirements(
        &self,
        caller: &Caller,
        session: SandboxId,
        script: &str,
    ) -> Result<Vec<String>, RequestError> {
        let environment = self.usable_session(caller, session)?.environment;
        let header = Header::of(script)
            .map_err(|error| Error::new(ErrorCode::ArgsInvalid, error.to_string()))?;
        if header == Header::default() {
            return Ok(Vec::new());
        }
        let installed = self.engine.prepare(&environment, |_| {}).await?;
        let mut packages = Vec::new();
        for unmet in header.unmet(installed.python, &installed.packages) {
            match unmet {
                engine::UnmetRequirement::Package { required, .. } => {
                    packages.push(required.original_text().to_owned());
                }
                engine::UnmetRequirement::Python { .. } => {
                    let message = format!("the script needs {unmet}");
                    return Err(Error::new(ErrorCode::ToolUnavailable, message)
                        .hint("name another `environment` in the specification of the agent")
                        .into());
                }
            }
        }
        Ok(packages)
    }
}

/// Finds a built-in skill or one of the operator's.
fn find_server_skill(name: &str, folder: Option<&Path>) -> Option<Skill> {
    let is_name = !name.is_empty() && !name.contains(['/', '\\', '\0']) && !name.starts_with('.');
    Skill::built_in(name).or_else(|| {
        let folder = folder.filter(|_| is_name)?;
        Skill::open(&folder.join(name)).ok()
    })
}

/// Reads the files of a skill from its row.
pub(crate) fn read_stored(archive: &[u8]) -> Result<SkillFiles, RequestError> {
    SkillFiles::from_archive(archive).map_err(|error| {
        Error::new(ErrorCode::DatabaseUnavailable, format!("a stored skill is damaged: {error}"))
            .hint("upload the skill again")
            .into()
    })
}

/// The digest of names and contents, with lengths, so that different skills have different digests.
pub(crate) fn files_digest(files: &BTreeMap<String, Vec<u8>>) -> String {
    let mut hash = Sha256::new();
    for (name, bytes) in files {
        for part in [name.as_bytes(), bytes] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hex(&hash.finalize())
}

fn too_many_bytes() -> RequestError {
    let message =
        format!("the uploaded skills of an agent can have at most {AGENT_BYTES_MAX} bytes");
    Error::new(ErrorCode::ToolUnavailable, message)
        .hint("remove some from the specification, or move large data to a volume")
        .into()
}

fn unreadable(name: &str, reason: &str) -> RequestError {
    Error::new(ErrorCode::ToolUnavailable, format!("skill {name:?} cannot be read: {reason}"))
        .into()
}

pub(crate) fn skill_not_found(name: &str) -> RequestError {
    let known: Vec<&str> = Skill::built_in_names().collect();
    Error::new(ErrorCode::ObjectNotFound, format!("skill {name:?} not found"))
        .hint(format!("the built-in skills are {}; upload others", known.join(", ")))
        .into()
}
