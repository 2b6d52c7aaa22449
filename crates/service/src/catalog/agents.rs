//! Agents: their specifications, stored as they were written, and the tools that are attached to
//! them.

mod resolve;

pub use resolve::{OfferedTool, RemoteToolRef, ResolvedAgent};

use crate::catalog::agent_tools::{kept_actions, specified_tools};
use crate::catalog::capabilities::AgentChange;
use crate::catalog::specification::{
    self, CodeExecution, NamedKind, NamedObject, Specification, SpecificationText,
};
use crate::catalog::{AGENTS_MAX, too_many};
use crate::data::volumes::privilege_for;
use crate::error::{RequestError, invalid_field, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::identity::ownership::ObjectQuery;
use crate::names;
use crate::page::{Page, page_request};
use crate::service::Service;
use crate::tasks::run_blocking;
use chrono::{DateTime, Utc};
use db::{DatabaseError, NewAuditEntry, ObjectFilter, Reader, Tx};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::{
    Agent, AgentId, Error, ErrorCode, MembersError, ObjectRef, PrincipalId, Privilege, RunAs,
    ToolBinding, WorkspaceId,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// An agent as its author writes it.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentRequest {
    /// Default: `name` in the specification for a new agent; unchanged for an existing one.
    pub name: Option<String>,
    /// YAML or JSON text in a string, or a JSON object.
    pub specification: SpecificationText,
    /// Principal whose privileges the code has. Default: `owner` for a new agent; unchanged for an
    /// existing one.
    pub run_as: Option<RunAs>,
}

/// The query parameters of a specification that is sent as YAML.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AgentQuery {
    /// Name of an agent that is sent as `application/yaml`; in JSON it is part of the body.
    pub name: Option<String>,
    #[param(inline)]
    pub run_as: Option<RunAs>,
}

/// An agent, with the consequences of its specification.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AgentView {
    #[serde(flatten)]
    pub agent: Agent,
    /// The attached tools.
    pub tools: Vec<ToolBinding>,
    /// The tools of the specification, among them `code_execution`, with their approval actions.
    pub specification_tools: Vec<ToolBinding>,
    pub code_execution: CodeExecution,
    /// Parts of the specification that have no effect, in sentences.
    pub warnings: Vec<String>,
    pub reach: AgentRights,
}

/// The rights that the code of an agent has.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AgentRights {
    pub owner: PrincipalId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_name: Option<String>,
    /// The rights in a sentence, for the user who enables code execution.
    pub text: String,
}

impl AgentRequest {
    /// The JSON of a request with its specification as a string, even if it was an object.
    pub fn with_specification_as_text(request: &str) -> Result<String, MembersError> {
        specification::as_text(request, "specification")
    }

    pub fn from_yaml(query: AgentQuery, specification: Vec<u8>) -> Result<Self, RequestError> {
        let specification = String::from_utf8(specification)
            .map_err(|_| invalid_field("/specification", "is not valid UTF-8"))?;
        let specification = SpecificationText(specification);
        Ok(Self { name: query.name, specification, run_as: query.run_as })
    }
}

impl Service {
    pub async fn create_agent(
        &self,
        caller: &Caller,
        request: AgentRequest,
    ) -> Result<AgentView, RequestError> {
        self.require_create(caller)?;
        let specification = self.check_specification(caller, &request.specification.0).await?;
        let name_missing =
            || invalid_field("/name", "a new agent requires a name, here or in its specification");
        let references = self.workspace_references(&specification).await?;
        let name = request.name.or(specification.name).ok_or_else(name_missing)?;
        names::check_name("/name", &name)?;
        self.check_references(caller, &references, &[])?;
        let now = self.now();
        let agent = Agent {
            id: AgentId::new(Uuid::now_v7()),
            name,
            owner: caller.id(),
            author: caller.id(),
            specification: request.specification.0,
            format: specification.format,
            run_as: request.run_as.unwrap_or_default(),
            approval_actions: BTreeMap::new(),
            created_at: now,
            updated_at: now,
        };
        let object = ObjectRef::Agent(agent.id);
        let grant = caller.ownership_grant(object, now);
        let entry = caller.audit_entry("agent.create", object, &agent.name);
        let (workspace, row) = (caller.workspace, agent.clone());
        let written = self.db.write(move |tx| {
            if let Some(error) = missing_reference(tx, workspace, &references)? {
                return Ok(Err(error));
            }
            if tx.count_agents(workspace)? >= AGENTS_MAX {
                return Ok(Err(too_many("agents", AGENTS_MAX)));
            }
            tx.insert_agent(workspace, &row)?;
            tx.replace_agent_references(workspace, row.id, &referenced_objects(&references))?;
            tx.insert_grant(workspace, &grant)?;
            tx.append_audit_entry(&entry)?;
            Ok(Ok(()))
        });
        written.await??;
        self.agent_view(caller.workspace, agent).await
    }

    /// Agents that the caller may see, newest first.
    pub async fn agents(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Page<Agent>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed = self.db.read_off_thread(move |rows| rows.agents(workspace, &filter, page));
        Ok(listed.await?.into())
    }

    pub async fn agent(&self, caller: &Caller, id: AgentId) -> Result<AgentView, RequestError> {
        let agent = self.visible_agent(caller, id)?;
        self.agent_view(caller.workspace, agent).await
    }

    /// Replaces an agent, with nothing of its previous specification.
    pub async fn replace_agent(
        &self,
        caller: &Caller,
        id: AgentId,
        request: AgentRequest,
    ) -> Result<AgentView, RequestError> {
        self.change_agent(caller, id, AgentChange::Replace(request)).await
    }

    pub(crate) async fn change_agent(
        &self,
        caller: &Caller,
        id: AgentId,
        change: AgentChange,
    ) -> Result<AgentView, RequestError> {
        // Repeated if another request has changed the agent meanwhile, so that neither change is
        // lost.
        loop {
            let before = self.modifiable_agent(caller, id)?;
            let Some(request) = change.request(self, caller, &before).await? else {
                return self.agent_view(caller.workspace, before).await;
            };
            let object = ObjectRef::Agent(id);
            let owns =
                self.permit(caller.workspace, &caller.principal, Privilege::Ownership, object)?;
            let run_as = request.run_as.unwrap_or(before.run_as);
            if run_as != before.run_as && owns.is_none() {
                return Err(missing_privilege(Privilege::Ownership, object));
            }
            // A caller who sends the stored text unchanged has not written it.
            let author = match request.specification.0 == before.specification {
                true => before.author,
                false => self.author_of_change(caller, object, (before.owner, before.author))?,
            };
            let agent = Agent {
                name: request.name.clone().unwrap_or_else(|| before.name.clone()),
                author,
                specification: request.specification.0.clone(),
                run_as,
                updated_at: self.now(),
                ..before.clone()
            };
            let (agent, specification) = self.check_replacement(caller, agent, &before).await?;
            if owns.is_none() {
                self.check_added_access(caller, &before, &specification).await?;
            }
            let references = self.workspace_references(&specification).await?;
            let entry = caller.audit_entry("agent.replace", object, &agent.name);
            let (workspace, row) = (caller.workspace, agent.clone());
            let written = self.db.write(move |tx| {
                if let Some(error) = missing_reference(tx, workspace, &references)? {
                    return Ok(Err(error));
                }
                let replaced = replace_agent(tx, workspace, &row, before.updated_at, &entry)?;
                if replaced {
                    tx.replace_agent_references(
                        workspace,
                        row.id,
                        &referenced_objects(&references),
                    )?;
                }
                Ok(Ok(replaced))
            });
            if written.await?? {
                return self.agent_view(caller.workspace, agent).await;
            }
        }
    }

    /// Reads a specification that a caller has sent, in the turn of its workspace.
    async fn check_specification(
        &self,
        caller: &Caller,
        text: &str,
    ) -> Result<Specification, RequestError> {
        let text = text.to_owned();
        let read = move || specification::parse_specification(&text);
        self.check_slots.run_check(caller.workspace, read).await?
    }

    async fn check_replacement(
        &self,
        caller: &Caller,
        agent: Agent,
        before: &Agent,
    ) -> Result<(Agent, Specification), RequestError> {
        names::check_name("/name", &agent.name)?;
        let specification = self.check_specification(caller, &agent.specification).await?;
        // A previous specification that this version cannot read names nothing.
        let previous = read_specification(&before.specification).await;
        let previous = previous.map(|previous| previous.references()).unwrap_or_default();
        let workspace = caller.workspace;
        let references = self.workspace_references(&specification).await?;
        self.check_references(caller, &references, &previous)?;
        let bindings = self.db.read(|rows| rows.tool_bindings(workspace, agent.id))?;
        match bindings.iter().find(|binding| specification.has_tool(&binding.tool_name)) {
            Some(binding) => Err(tool_name_taken(&binding.tool_name, &agent.name)),
            None => {
                let approval_actions = kept_actions(&agent, &specification);
                let agent = Agent { format: specification.format, approval_actions, ..agent };
                Ok((agent, specification))
            }
        }
    }

    /// The objects of the workspace that a specification names. Skills of the server are none.
    async fn workspace_references(
        &self,
        specification: &Specification,
    ) -> Result<Vec<NamedObject>, RequestError> {
        let mut references = Vec::new();
        for reference in specification.references() {
            let is_skill = reference.kind == NamedKind::Skill;
            if !is_skill || !self.is_server_skill(&reference.name).await? {
                references.push(reference);
            }
        }
        Ok(references)
    }

    /// Checks that every named object exists, and that the caller may use each one that the
    /// previous specification did not name: an object cannot be deleted while an agent names it. An
    /// object that the caller cannot see is reported as missing, so that callers cannot find
    /// objects of others by their names.
    fn check_references(
        &self,
        caller: &Caller,
        references: &[NamedObject],
        previous: &[NamedObject],
    ) -> Result<(), RequestError> {
        let workspace = caller.workspace;
        for reference in references {
            let found = self.db.read(|rows| referenced_object(rows, workspace, reference))?;
            let object = found.ok_or_else(|| no_such_reference(reference))?;
            let is_new = !previous.iter().any(|previous| previous.is_same_use(reference));
            if is_new
                && self.permit(workspace, &caller.principal, reference.privilege, object)?.is_none()
            {
                return Err(match self.can_see(caller, object)? {
                    true => missing_privilege(reference.privilege, object),
                    false => no_such_reference(reference),
                });
            }
        }
        Ok(())
    }

    /// A caller that does not own an agent can add only what the caller itself may use, because the
    /// code of the agent can run with the rights of others.
    async fn check_added_access(
        &self,
        caller: &Caller,
        before: &Agent,
        specification: &Specification,
    ) -> Result<(), RequestError> {
        // A previous specification that this version cannot read grants nothing.
        let (previous, previous_of_tools, previous_skills) =
            match read_specification(&before.specification).await {
                Ok(previous) => {
                    let of_tools = previous.integrations_of_tools();
                    (previous.section, of_tools, previous.orchestration.skills)
                }
                Err(_) => Default::default(),
            };
        let (workspace, section) = (caller.workspace, &specification.section);
        let added =
            section.integrations.iter().filter(|name| !previous.integrations.contains(name));
        let of_tools = specification.integrations_of_tools();
        let of_tools = of_tools.iter().filter(|name| !previous_of_tools.contains(name));
        let added: Vec<String> = added.chain(of_tools).cloned().collect();
        let requester =
            (&caller.principal, "the principal who changed the agent without owning it");
        self.check_integrations(workspace, requester, &added)?;
        for grant in section.volumes.iter().filter(|grant| !previous.volumes.contains(grant)) {
            let found = self.db.read(|rows| rows.volume_by_name(workspace, &grant.name))?;
            let volume = found.ok_or_else(|| not_found("volume", &grant.name))?;
            self.require_privilege(
                caller,
                privilege_for(grant.access),
                ObjectRef::Volume(volume.id),
            )?;
        }
        for skill in &specification.orchestration.skills {
            let is_new = !previous_skills.iter().any(|previous| previous.name == skill.name);
            let found = self.db.read(|rows| rows.skill_by_name(workspace, &skill.name))?;
            if let Some(row) = found.filter(|_| is_new) {
                self.require_privilege(caller, Privilege::Usage, ObjectRef::Skill(row.id))?;
            }
        }
        if section.installs && !previous.installs {
            self.require_privilege(caller, Privilege::Install, ObjectRef::Workspace(workspace))?;
        }
        Ok(())
    }

    pub async fn delete_agent(&self, caller: &Caller, id: AgentId) -> Result<(), RequestError> {
        let agent = self.visible_agent(caller, id)?;
        let object = ObjectRef::Agent(id);
        self.require_privilege(caller, Privilege::Ownership, object)?;
        let entry = caller.audit_entry("agent.delete", object, agent.name);
        let workspace = caller.workspace;
        let deleted = self.db.write(move |tx| {
            tx.delete_agent(workspace, id)?;
            tx.delete_grants_on(workspace, object)?;
            tx.delete_remembered_approvals_of_agent(workspace, id)?;
            tx.append_audit_entry(&entry).map(drop)
        });
        Ok(deleted.await?)
    }

    pub(crate) fn visible_agent(
        &self,
        caller: &Caller,
        id: AgentId,
    ) -> Result<Agent, RequestError> {
        match self.db.read(|rows| rows.agent(caller.workspace, id))? {
            Some(agent) if self.can_see(caller, ObjectRef::Agent(id))? => Ok(agent),
            _ => Err(not_found("agent", id)),
        }
    }

    pub(crate) fn modifiable_agent(
        &self,
        caller: &Caller,
        id: AgentId,
    ) -> Result<Agent, RequestError> {
        let agent = self.visible_agent(caller, id)?;
        self.require_privilege(caller, Privilege::Modify, ObjectRef::Agent(id))?;
        Ok(agent)
    }

    async fn agent_view(
        &self,
        workspace: WorkspaceId,
        agent: Agent,
    ) -> Result<AgentView, RequestError> {
        let (tools, owner) = self.db.read(|rows| {
            Ok((rows.tool_bindings(workspace, agent.id)?, rows.principal(workspace, agent.owner)?))
        })?;
        let attached: Vec<&str> = tools.iter().map(|binding| &*binding.tool_name).collect();
        let read = read_specification(&agent.specification).await;
        let (code_execution, mut warnings, specification_tools) = match read {
            Ok(specification) => (
                specification.code_execution.clone(),
                specification.warnings(&attached),
                specified_tools(&agent, &specification),
            ),
            // It was readable when it was stored, by another version of this server.
            Err(error) => {
                let missing = vec![error.error.message];
                (CodeExecution { enabled: false, missing }, Vec::new(), Vec::new())
            }
        };
        if agent.run_as == RunAs::Owner
            && let Err(error) = self.check_specification_confirmed(workspace, &agent)
        {
            warnings.push(error.error.message);
        }
        let reach = agent_rights(&agent, owner.map(|owner| owner.name));
        Ok(AgentView { agent, tools, specification_tools, code_execution, warnings, reach })
    }
}

/// The objects that a specification names, by kind and name.
fn referenced_objects(references: &[NamedObject]) -> Vec<(&'static str, &str)> {
    references.iter().map(|reference| (reference.kind.name(), reference.name.as_str())).collect()
}

/// The error for a missing object. Without it, the next principal that creates an object of that
/// name would decide what the agent uses.
fn missing_reference(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    references: &[NamedObject],
) -> Result<Option<RequestError>, DatabaseError> {
    for reference in references {
        if referenced_object(rows, workspace, reference)?.is_none() {
            return Ok(Some(no_such_reference(reference)));
        }
    }
    Ok(None)
}

fn referenced_object(
    rows: &Reader<'_>,
    workspace: WorkspaceId,
    NamedObject { kind, name, .. }: &NamedObject,
) -> Result<Option<ObjectRef>, DatabaseError> {
    Ok(match kind {
        NamedKind::Integration => rows
            .integration_by_name(workspace, name)?
            .map(|integration| ObjectRef::Integration(integration.id)),
        NamedKind::Volume => {
            rows.volume_by_name(workspace, name)?.map(|volume| ObjectRef::Volume(volume.id))
        }
        NamedKind::Skill => {
            rows.skill_by_name(workspace, name)?.map(|skill| ObjectRef::Skill(skill.id))
        }
    })
}

/// The same error for an object that does not exist and for one that the caller cannot see.
fn no_such_reference(NamedObject { kind, name, path, .. }: &NamedObject) -> RequestError {
    let kind = kind.name();
    let message = format!(
        "{kind} {name:?} not found, or you may not use it; create it first, or ask for a grant"
    );
    invalid_field(path, message)
}

/// Reads a stored specification on a thread that serves no requests.
pub(crate) async fn read_specification(text: &str) -> Result<Specification, RequestError> {
    let text = text.to_owned();
    run_blocking(move || specification::parse_specification(&text)).await?
}

fn agent_rights(agent: &Agent, owner_name: Option<String>) -> AgentRights {
    let owner = owner_name.clone().unwrap_or_else(|| agent.owner.to_string());
    let text = match agent.run_as {
        RunAs::Owner => format!(
            "code of this agent runs with the rights of its owner, {owner}, for every caller; keep \
             them as narrow as possible"
        ),
        RunAs::Caller => "code of this agent runs with the rights of its caller".into(),
    };
    AgentRights { owner: agent.owner, owner_name, text }
}

/// False if the agent was changed since `before`.
fn replace_agent(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    agent: &Agent,
    before: DateTime<Utc>,
    entry: &NewAuditEntry,
) -> Result<bool, DatabaseError> {
    let current = tx.agent(workspace, agent.id)?;
    if current.is_none_or(|current| current.updated_at != before) {
        return Ok(false);
    }
    tx.update_agent(workspace, agent)?;
    tx.append_audit_entry(entry)?;
    Ok(true)
}

pub(crate) fn tool_name_taken(tool: &str, agent: &str) -> RequestError {
    let message = format!("agent {agent:?} already has a tool named {tool:?}");
    let hint = "rename one of them; tool names are unique in an agent, including those of its \
                specification";
    Error::new(ErrorCode::NameTaken, message).hint(hint).into()
}
