//! The way out of one sandbox. On which grounds it has one is fixed when the sandbox is made; what
//! they open is asked anew for each request, so that a change is felt by the next one. What was
//! found is kept for as long as nothing by which it was decided has changed, and not for longer.

use super::credentials;
use super::integrations::INTERNET;
use super::trail::Trail;
use crate::refused::Refused;
use crate::secrets::{Author, Borrower};
use crate::service::Service;
use egress::{Asked, Attempt, Authority, NamedIn, Way};
use engine::{Command, Outlet, Redactor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use store::Revision;
use types::{
    AgentId, Code, Fault, Principal, PrincipalId, SandboxId, Secret, SecretId, Session, WorkspaceId,
};

/// By what a sandbox may be left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grounds {
    /// By these integrations, with the rights of one principal.
    Named { integrations: Vec<String>, run_as: PrincipalId, author: Author },
    /// By what the specification of the agent names, with the rights of whoever its code runs as.
    Agent(AgentId),
}

impl Grounds {
    /// Of all sandboxes of a session.
    pub(crate) fn of(session: &Session) -> Self {
        match session.agent {
            Some(agent) => Self::Agent(agent),
            None => {
                let integrations = session.integrations.clone();
                Self::Named { integrations, run_as: session.owner, author: Author::Caller }
            }
        }
    }

    fn named_in(&self) -> NamedIn {
        match self {
            Self::Named { .. } => NamedIn::Request,
            Self::Agent(_) => NamedIn::Specification,
        }
    }

    pub(super) fn author(&self) -> Author {
        match self {
            Self::Named { author, .. } => *author,
            Self::Agent(_) => Author::Other,
        }
    }
}

/// What a request or a tool asks for in two ways.
pub(crate) fn asked(mut integrations: Vec<String>, allow_network: bool) -> Vec<String> {
    if allow_network && !integrations.iter().any(|name| name == INTERNET) {
        integrations.push(INTERNET.to_owned());
    }
    integrations
}

pub(crate) fn of_tool(tool: &contract::Tool) -> Vec<String> {
    asked(tool.integrations.clone(), tool.allow_network)
}

/// What a sandbox is given of the world outside.
#[derive(Debug, Default)]
pub(crate) struct Leave {
    /// Absent if it can reach nobody.
    pub(crate) outlet: Option<Outlet>,
    /// What its secrets, or the placeholders of them, are called inside.
    pub(crate) variables: BTreeMap<String, String>,
    /// Takes the values of its secrets out of what comes back.
    pub(crate) redactor: Redactor,
    pub(crate) trail: Option<Arc<Trail>>,
    /// The secrets that it can read, by their versions.
    pub(crate) exposed: BTreeSet<(SecretId, u64)>,
}

/// Answers the proxy of one sandbox.
#[derive(Debug)]
struct Gate {
    /// The engine holds this for as long as the sandbox lives, and the service holds the engine.
    service: Weak<Service>,
    workspace: WorkspaceId,
    caller: PrincipalId,
    grounds: Grounds,
    trail: Arc<Trail>,
    /// What was found last, and what the records were then.
    found: Mutex<Option<(Revision, Arc<Way>)>>,
}

impl Gate {
    fn found(&self, revision: Revision) -> Option<Arc<Way>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.as_ref().filter(|(then, _)| *then == revision).map(|(_, way)| Arc::clone(way))
    }

    async fn find(&self, service: &Service) -> Result<Arc<Way>, Refused> {
        // Before anything is read, so that what is changed meanwhile is of another revision.
        let revision = service.store.revision();
        if let Some(way) = self.found(revision) {
            return Ok(way);
        }
        let way = Arc::new(service.way_now(self).await?);
        let found = Some((revision, Arc::clone(&way)));
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(way)
    }
}

impl Service {
    /// How a sandbox can be left. What it is to have and may not is an error now, and not a host that
    /// cannot be reached later.
    pub(crate) async fn leave(
        self: &Arc<Self>,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: Grounds,
    ) -> Result<Leave, Refused> {
        let (names, run_as) = self.named(workspace, caller, &grounds).await?;
        self.check_integrations(workspace, (&run_as, "as whom this code runs"), &names)?;
        let integrations = &self.held_integrations(workspace, &run_as, &names)?;
        let (caller, author) = (caller.id, grounds.author());
        let borrower = Borrower { workspace, run_as: &run_as, caller, author, integrations };
        let secrets = self.lent_secrets(borrower, |_| true).await?;
        let mut leave = Leave {
            variables: credentials::variables(&secrets),
            redactor: credentials::redactor(&secrets),
            exposed: credentials::exposed(&secrets),
            ..Leave::default()
        };
        if names.is_empty() && secrets.iter().all(|secret| secret.target().is_none()) {
            return Ok(leave);
        }
        let (history, redactor) = (Arc::clone(&self.history), leave.redactor.clone());
        let trail = Arc::new(Trail::new(workspace, caller, history, redactor));
        let gate = Gate {
            service: Arc::downgrade(self),
            workspace,
            caller,
            grounds,
            trail: Arc::clone(&trail),
            found: Mutex::default(),
        };
        leave.outlet = Some(self.outlet(Arc::new(gate)));
        leave.trail = Some(trail);
        Ok(leave)
    }

    fn outlet(&self, gate: Arc<Gate>) -> Outlet {
        let proxy = self.proxy.clone();
        Outlet::new(move |listener| {
            let (proxy, gate) = (proxy.clone(), Arc::clone(&gate));
            let serving = async move {
                if let Err(error) = proxy.serve(listener, gate).await {
                    tracing::error!(%error, "the outlet of a sandbox cannot be served");
                }
            };
            Box::new(EndWithGuard(tokio::spawn(serving)))
        })
    }

    /// The secrets that code can read at this moment, without their values.
    pub(crate) async fn exposed_now(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: &Grounds,
    ) -> Result<Vec<Secret>, Refused> {
        let (names, run_as) = self.named(workspace, caller, grounds).await?;
        let integrations = &self.held_integrations(workspace, &run_as, &names)?;
        let (caller, author) = (caller.id, grounds.author());
        let borrower = Borrower { workspace, run_as: &run_as, caller, author, integrations };
        Ok(self.lendable(borrower)?.into_iter().filter(|secret| secret.exposed).collect())
    }

    /// The same for one execution. A session has a way of its own, which must be wide enough.
    pub(crate) async fn give_way(
        self: &Arc<Self>,
        command: Command,
        workspace: WorkspaceId,
        caller: &Principal,
        run_as: PrincipalId,
        (integrations, author): (Vec<String>, Author),
    ) -> Result<(Command, Option<Arc<Trail>>), Refused> {
        if let Some(session) = command.session {
            self.check_wide_enough(workspace, caller, session, &integrations).await?;
            return Ok((command, self.trail_of(session)));
        }
        let grounds = Grounds::Named { integrations, run_as, author };
        let leave = self.leave(workspace, caller, grounds).await?;
        let Leave { outlet, variables, redactor, trail, .. } = leave;
        Ok((Command { outlet, variables, redactor, ..command }, trail))
    }

    async fn check_wide_enough(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        session: SandboxId,
        needed: &[String],
    ) -> Result<(), Refused> {
        if needed.is_empty() {
            return Ok(());
        }
        let session = self.session_row(workspace, session)?;
        let has = match session.agent {
            Some(agent) => self.lender(workspace, caller, agent).await?.section.integrations,
            None => session.integrations,
        };
        match needed.iter().find(|name| !has.contains(name)) {
            None => Ok(()),
            Some(name) => {
                let message = format!("it leaves by {name:?}, and the session does not have that");
                let hint = "call it without a session, or open one with this integration";
                Err(Fault::new(Code::NetworkDenied, message).hint(hint).into())
            }
        }
    }

    /// The names of integrations, and with whose rights they are used.
    pub(super) async fn named(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: &Grounds,
    ) -> Result<(Vec<String>, Principal), Refused> {
        match grounds {
            Grounds::Named { integrations, run_as, .. } => {
                Ok((integrations.clone(), self.known(workspace, *run_as)?))
            }
            Grounds::Agent(id) => {
                let lender = self.lender(workspace, caller, *id).await?;
                Ok((lender.section.integrations, lender.run_as))
            }
        }
    }

    async fn way_now(&self, gate: &Gate) -> Result<Way, Refused> {
        let caller = self.known(gate.workspace, gate.caller)?;
        let (names, run_as) = self.named(gate.workspace, &caller, &gate.grounds).await?;
        let workspace = gate.workspace;
        let (integrations, off) = &self.granted_integrations(workspace, &run_as, &names)?;
        let openings = self.openings(workspace, integrations)?;
        let switched_off = self.openings(workspace, off)?;
        let (caller, author) = (gate.caller, gate.grounds.author());
        let borrower = Borrower { workspace, run_as: &run_as, caller, author, integrations };
        let secrets = self.lent_secrets(borrower, |secret| !secret.exposed).await?;
        let named_in = gate.grounds.named_in();
        Ok(Way { openings, switched_off, named_in, credentials: credentials::credentials(secrets) })
    }
}

impl Authority for Gate {
    fn way(&self) -> Asked<'_> {
        Box::pin(async {
            let service = self.service.upgrade().ok_or("the server is stopping")?;
            self.find(&service).await.map_err(|refused| refused.fault.message)
        })
    }

    fn attempted(&self, attempt: Attempt) {
        self.trail.add(attempt);
    }
}

/// Nobody serves a sandbox that is gone.
struct EndWithGuard(tokio::task::JoinHandle<()>);

impl Drop for EndWithGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}
