//! The grants of sessions. An agent grants its code what its specification says, with the rights of
//! the principal that its code runs as. The specification is read again each time, since it may have
//! changed.

use crate::catalog::agents;
use crate::catalog::specification::{CODE_EXECUTION, CodeExecutionSection, SkillReference};
use crate::error::{RequestError, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::network::IntegrationSource;
use crate::secrets::CodeAuthor;
use crate::service::Service;
use engine::SandboxGrants;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::{
    Agent, AgentId, ApprovalAction, Error, ErrorCode, ObjectRef, Principal, Privilege, Session,
    WorkspaceId,
};

/// An agent that the caller may have run code.
#[derive(Debug)]
pub(crate) struct AuthorizedAgent {
    pub(crate) agent: Agent,
    /// The section of its specification that grants.
    pub(crate) section: CodeExecutionSection,
    /// The skills that its specification names.
    pub(crate) skills: Vec<SkillReference>,
    /// The principal whose rights its code has.
    pub(crate) run_as: Principal,
}

impl AuthorizedAgent {
    /// The approval action for its code.
    pub(crate) fn code_action(&self) -> ApprovalAction {
        let set_apart = self.agent.approval_actions.get(CODE_EXECUTION).copied();
        set_apart.unwrap_or(self.section.approval_action)
    }
}

impl Service {
    /// The agent, if the principal may have it run code.
    #[boxed::future]
    pub(crate) async fn authorize_agent(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        id: AgentId,
    ) -> Result<AuthorizedAgent, RequestError> {
        let object = ObjectRef::Agent(id);
        let found = self.db.read(|rows| rows.agent(workspace, id))?;
        let agent = found.ok_or_else(|| not_found("agent", id))?;
        if self.permit(workspace, principal, Privilege::Usage, object)?.is_none() {
            return Err(missing_privilege(Privilege::Usage, object));
        }
        let specification = agents::read_specification(&agent.specification).await?;
        if !specification.code_execution.enabled {
            let message = format!(
                "agent {:?} may not run code: {}",
                agent.name,
                specification.code_execution.missing.join("; ")
            );
            let hint =
                "its specification needs code_execution both in `tools` and in `tool_resources`";
            return Err(Error::new(ErrorCode::ToolUnavailable, message).hint(hint).into());
        }
        let run_as = self.effective_principal(workspace, principal, &agent)?;
        let (section, skills) = (specification.section, specification.orchestration.skills);
        Ok(AuthorizedAgent { agent, section, skills, run_as })
    }

    /// Authorizes a new session: by its agent, or by the right to open a session without one.
    pub(super) async fn authorize_session_agent(
        &self,
        caller: &Caller,
        agent: Option<AgentId>,
    ) -> Result<Option<AuthorizedAgent>, RequestError> {
        match agent {
            Some(id) => {
                self.authorize_agent(caller.workspace, &caller.principal, id).await.map(Some)
            }
            None => self.require_usage(caller).map(|_| None),
        }
    }

    /// Resolves the grants of an existing session with the rights of its owner, whichever principal
    /// resets it.
    #[boxed::future]
    pub(super) async fn renew_session_grants(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        session: &Session,
    ) -> Result<SandboxGrants, RequestError> {
        let owner = self.find_principal(workspace, session.owner)?;
        let authorized = match session.agent {
            Some(agent) => Some(self.authorize_agent(workspace, &owner, agent).await?),
            None => None,
        };
        self.new_session_grants(workspace, &owner, authorized.as_ref(), &session.integrations).await
    }

    /// Resolves the grants of a session: those of its agent, or else those of the request.
    pub(super) async fn new_session_grants(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        principal: &Principal,
        agent: Option<&AuthorizedAgent>,
        integrations: &[String],
    ) -> Result<SandboxGrants, RequestError> {
        let (volumes, source) = match agent {
            Some(authorized) => (
                self.granted_volumes(workspace, authorized)?,
                IntegrationSource::Agent(authorized.agent.id),
            ),
            None => {
                let (integrations, run_as) = (integrations.to_vec(), principal.id);
                (
                    Vec::new(),
                    IntegrationSource::Named { integrations, run_as, author: CodeAuthor::Caller },
                )
            }
        };
        let directories = match agent {
            Some(authorized) => self.granted_directories(workspace, authorized).await?,
            None => Vec::new(),
        };
        let grants = self.resolve_grants(workspace, principal, source, volumes).await?;
        Ok(SandboxGrants { directories, ..grants })
    }

    /// Refuses a session whose grants differ from what its owner and its agent may grant now. Rights
    /// and the specification may have changed since it was opened.
    pub(crate) async fn check_session_grants(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        session: &Session,
    ) -> Result<(), RequestError> {
        let granted = self.engine.session_grants(session.sandbox_id)?;
        self.check_exposed_secrets(workspace, principal, session, &granted).await?;
        let Some(agent) = session.agent else { return Ok(()) };
        let authorized = self.authorize_agent(workspace, principal, agent).await?;
        if self.granted_volumes(workspace, &authorized)? == granted.volumes
            && self.has_current_skills(workspace, &authorized, &granted.directories)?
        {
            return Ok(());
        }
        let message = format!("the grants of agent {:?} have changed", authorized.agent.name);
        let hint = "reset the session to continue with the new grants";
        Err(Error::new(ErrorCode::SessionLost, message).hint(hint).into())
    }

    /// Refuses code of a principal in a session that can read secrets which the principal may not
    /// use now. Values cannot be removed from an interpreter, so such a session runs nothing until
    /// it is reset.
    async fn check_exposed_secrets(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        session: &Session,
        granted: &SandboxGrants,
    ) -> Result<(), RequestError> {
        let owner = session.owner;
        if principal.id != owner {
            let personal = self.db.read(|rows| rows.private_secrets(workspace, owner))?;
            if !personal.is_empty() {
                let message = "the session can use personal secrets of its owner";
                let hint = "have its owner run the code, or open another session";
                return Err(Error::new(ErrorCode::GrantMissing, message).hint(hint).into());
            }
        }
        if principal.id != owner {
            let names = self.session_integrations(workspace, principal, session).await?;
            self.check_no_caller_token(workspace, &names)?;
        }
        if granted.exposed_secrets.is_empty() {
            return Ok(());
        }
        let source = IntegrationSource::from_session(session);
        let owner = self.find_principal(workspace, owner)?;
        let readable = self.readable_secrets_now(workspace, &owner, &source).await?;
        let readable: BTreeSet<_> =
            readable.into_iter().map(|secret| (secret.id, secret.version)).collect();
        if granted.exposed_secrets.is_subset(&readable) {
            return Ok(());
        }
        let message = "a secret that the session can read was changed, or may no longer be used";
        let hint = "reset the session to continue with the secrets that it may use now";
        Err(Error::new(ErrorCode::SessionLost, message).hint(hint).into())
    }
}
