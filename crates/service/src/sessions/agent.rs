//! Sessions of agents: an agent lends its code what its specification says, with the rights of
//! whoever its code runs as. The specification is read anew each time, since it may have changed.

use crate::agents;
use crate::caller::Caller;
use crate::network::{Grounds, Leave, Lending};
use crate::refused::{Refused, missing, not_found};
use crate::secrets::Author;
use crate::service::Service;
use crate::specification::Section;
use engine::{NewSession, StoreIn};
use std::sync::Arc;
use types::{Agent, AgentId, Code, Fault, Object, Principal, Privilege, Session, WorkspaceId};

/// An agent whose code runs for somebody.
#[derive(Debug)]
pub(crate) struct Lender {
    pub(crate) agent: Agent,
    /// What its specification gives.
    pub(crate) section: Section,
    /// Whose rights its code has.
    pub(crate) run_as: Principal,
}

/// What a session has besides its working directory.
#[derive(Debug)]
pub(super) struct Lent {
    stores: Vec<StoreIn>,
    leave: Leave,
}

impl Lent {
    pub(super) fn lending(&self) -> Lending {
        Lending::from(&self.leave)
    }

    pub(super) fn give(self, to: NewSession) -> NewSession {
        let engine::Lent { stores, variables, outlet, redactor } = self.into();
        NewSession { stores, variables, outlet, redactor, ..to }
    }
}

impl From<Lent> for engine::Lent {
    fn from(Lent { stores, leave }: Lent) -> Self {
        let Leave { variables, outlet, redactor, .. } = leave;
        Self { stores, variables, outlet, redactor }
    }
}

impl Service {
    /// The agent, if somebody may have it run code.
    pub(crate) async fn lender(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        id: AgentId,
    ) -> Result<Lender, Refused> {
        let object = Object::Agent(id);
        let found = self.store.read(|rows| rows.agent(workspace, id))?;
        let agent = found.ok_or_else(|| not_found("agent", id))?;
        if self.permit(workspace, who, Privilege::Usage, object)?.is_none() {
            return Err(missing(Privilege::Usage, object));
        }
        let specification = agents::read(&agent.specification).await?;
        if !specification.code_execution.enabled {
            let message = format!(
                "the agent {:?} may not run code: {}",
                agent.name,
                specification.code_execution.missing.join("; ")
            );
            let hint = "code_execution has to stand in both places of its specification";
            return Err(Fault::new(Code::ToolUnavailable, message).hint(hint).into());
        }
        let run_as = self.rights_of(workspace, who, &agent)?;
        Ok(Lender { agent, section: specification.section, run_as })
    }

    /// Of a session that somebody wants to open: what its agent lends, or the right to have one
    /// without an agent.
    pub(super) async fn lender_of(
        &self,
        caller: &Caller,
        agent: Option<AgentId>,
    ) -> Result<Option<Lender>, Refused> {
        match agent {
            Some(id) => self.lender(caller.workspace, &caller.principal, id).await.map(Some),
            None => self.require_usage(caller).map(|_| None),
        }
    }

    /// The same for a session that is there: it is its owner's, whoever resets it.
    pub(super) async fn equipment_again(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        session: &Session,
    ) -> Result<Lent, Refused> {
        let owner = self.known(workspace, session.owner)?;
        let lender = match session.agent {
            Some(agent) => Some(self.lender(workspace, &owner, agent).await?),
            None => None,
        };
        self.equipment(workspace, &owner, lender.as_ref(), &session.integrations).await
    }

    /// What a session is given besides its working directory: by its agent, or else what was asked
    /// for.
    pub(super) async fn equipment(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        who: &Principal,
        lender: Option<&Lender>,
        integrations: &[String],
    ) -> Result<Lent, Refused> {
        let (stores, grounds) = match lender {
            Some(lender) => (self.lent_stores(workspace, lender)?, Grounds::Agent(lender.agent.id)),
            None => {
                let (integrations, run_as) = (integrations.to_vec(), who.id);
                (Vec::new(), Grounds::Named { integrations, run_as, author: Author::Caller })
            }
        };
        Ok(Lent { stores, leave: self.leave(workspace, who, grounds).await? })
    }

    /// Whether a session still has what its agent lends to this principal, and no more. Rights and
    /// the specification may be others than when it was opened.
    pub(crate) async fn check_lent(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        session: &Session,
    ) -> Result<(), Refused> {
        self.check_exposed(workspace, who, session).await?;
        let Some(agent) = session.agent else { return Ok(()) };
        let lender = self.lender(workspace, who, agent).await?;
        if self.lent_stores(workspace, &lender)? == self.engine.stores_of(session.sandbox_id)? {
            return Ok(());
        }
        let message = format!("what the agent {:?} lends has changed", lender.agent.name);
        let hint = "reset the session to go on with what it lends now";
        Err(Fault::new(Code::SessionLost, message).hint(hint).into())
    }
}
