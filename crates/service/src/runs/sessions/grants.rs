//! Sessions of agents: an agent lends its code what its specification says, with the rights of
//! whoever its code runs as. The specification is read anew each time, since it may have changed.

use crate::catalog::agents;
use crate::catalog::specification::CodeExecutionSection;
use crate::error::{RequestError, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::network::{IntegrationSource, RecordedGrants, SandboxEgress};
use crate::secrets::CodeAuthor;
use crate::service::Service;
use engine::{NewSession, VolumeIn};
use std::sync::Arc;
use types::{
    Agent, AgentId, Error, ErrorCode, ObjectRef, Principal, Privilege, Session, WorkspaceId,
};

/// An agent whose code runs for somebody.
#[derive(Debug)]
pub(crate) struct AuthorizedAgent {
    pub(crate) agent: Agent,
    /// What its specification gives.
    pub(crate) section: CodeExecutionSection,
    /// Whose rights its code has.
    pub(crate) run_as: Principal,
}

/// What a session has besides its working directory.
#[derive(Debug)]
pub(super) struct SessionGrants {
    volumes: Vec<VolumeIn>,
    egress: SandboxEgress,
}

impl SessionGrants {
    pub(super) fn recorded(&self) -> RecordedGrants {
        RecordedGrants::from(&self.egress)
    }

    pub(super) fn apply_to(self, to: NewSession) -> NewSession {
        let engine::SandboxGrants { volumes, variables, egress: outlet, redactor } = self.into();
        NewSession { volumes, variables, egress: outlet, redactor, ..to }
    }
}

impl From<SessionGrants> for engine::SandboxGrants {
    fn from(SessionGrants { volumes, egress: leave }: SessionGrants) -> Self {
        let SandboxEgress { variables, handler: outlet, redactor, .. } = leave;
        Self { volumes, variables, egress: outlet, redactor }
    }
}

impl Service {
    /// The agent, if somebody may have it run code.
    pub(crate) async fn authorize_agent(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        id: AgentId,
    ) -> Result<AuthorizedAgent, RequestError> {
        let object = ObjectRef::Agent(id);
        let found = self.db.read(|rows| rows.agent(workspace, id))?;
        let agent = found.ok_or_else(|| not_found("agent", id))?;
        if self.permit(workspace, who, Privilege::Usage, object)?.is_none() {
            return Err(missing_privilege(Privilege::Usage, object));
        }
        let specification = agents::read_specification(&agent.specification).await?;
        if !specification.code_execution.enabled {
            let message = format!(
                "the agent {:?} may not run code: {}",
                agent.name,
                specification.code_execution.missing.join("; ")
            );
            let hint = "code_execution has to stand in both places of its specification";
            return Err(Error::new(ErrorCode::ToolUnavailable, message).hint(hint).into());
        }
        let run_as = self.effective_principal(workspace, who, &agent)?;
        Ok(AuthorizedAgent { agent, section: specification.section, run_as })
    }

    /// Of a session that somebody wants to open: what its agent lends, or the right to have one
    /// without an agent.
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

    /// The same for a session that is there: it is its owner's, whoever resets it.
    pub(super) async fn renew_session_grants(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        session: &Session,
    ) -> Result<SessionGrants, RequestError> {
        let owner = self.find_principal(workspace, session.owner)?;
        let lender = match session.agent {
            Some(agent) => Some(self.authorize_agent(workspace, &owner, agent).await?),
            None => None,
        };
        self.new_session_grants(workspace, &owner, lender.as_ref(), &session.integrations).await
    }

    /// What a session is given besides its working directory: by its agent, or else what was asked
    /// for.
    pub(super) async fn new_session_grants(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        who: &Principal,
        lender: Option<&AuthorizedAgent>,
        integrations: &[String],
    ) -> Result<SessionGrants, RequestError> {
        let (volumes, grounds) = match lender {
            Some(lender) => (
                self.granted_volumes(workspace, lender)?,
                IntegrationSource::Agent(lender.agent.id),
            ),
            None => {
                let (integrations, run_as) = (integrations.to_vec(), who.id);
                (
                    Vec::new(),
                    IntegrationSource::Named { integrations, run_as, author: CodeAuthor::Caller },
                )
            }
        };
        Ok(SessionGrants { volumes, egress: self.sandbox_egress(workspace, who, grounds).await? })
    }

    /// Whether a session still has what its agent lends to this principal, and no more. Rights and
    /// the specification may be others than when it was opened.
    pub(crate) async fn check_session_grants(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        session: &Session,
    ) -> Result<(), RequestError> {
        self.check_exposed_secrets(workspace, who, session).await?;
        let Some(agent) = session.agent else { return Ok(()) };
        let lender = self.authorize_agent(workspace, who, agent).await?;
        if self.granted_volumes(workspace, &lender)?
            == self.engine.volumes_of(session.sandbox_id)?
        {
            return Ok(());
        }
        let message = format!("what the agent {:?} lends has changed", lender.agent.name);
        let hint = "reset the session to go on with what it lends now";
        Err(Error::new(ErrorCode::SessionLost, message).hint(hint).into())
    }
}
