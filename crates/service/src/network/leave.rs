//! The way out of one sandbox. On which grounds it has one is fixed when the sandbox is made; what
//! they open is asked anew for each request, so that a change is felt by the next one. What was
//! found is kept for as long as nothing by which it was decided has changed, and not for longer.

use super::credentials;
use super::integrations::INTERNET;
use super::trail::Trail;
use crate::refused::{Refused, not_found};
use crate::secrets::{Author, Borrower};
use crate::service::Service;
use crate::sessions::Lender;
use crate::stores::needed_for;
use egress::{Asked, Attempt, Authority, NamedIn, Way};
use engine::{Command, Outlet, Redactor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use store::Revision;
use types::{
    AgentId, Code, Fault, Integration, Object, Principal, PrincipalId, Privilege, SandboxId,
    Secret, SecretId, SecretScope, Session, StoreId, WorkspaceId,
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
}

/// By which integrations code may leave at this moment, and who answers for it.
pub(super) struct Resolved {
    pub(super) integrations: Vec<String>,
    pub(super) run_as: Principal,
    pub(super) author: Author,
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
        let Resolved { integrations: names, run_as, author } =
            self.named(workspace, caller, &grounds).await?;
        self.check_integrations(workspace, (&run_as, "as whom this code runs"), &names)?;
        self.check_author_leaves(workspace, author.principal(), &names)?;
        let (integrations, _) = &self.granted_to_both(workspace, &run_as, author, &names)?;
        let caller = caller.id;
        let borrower = Borrower { workspace, run_as: &run_as, caller, author, integrations };
        let secrets = self.lent_secrets(borrower, |_| true).await?;
        let mut leave = Leave {
            variables: credentials::variables(&secrets),
            redactor: self.redactors.redactor(credentials::redacted(&secrets)).await?,
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
        let lent = self.lent_now(workspace, caller, grounds).await?;
        Ok(lent.into_iter().filter(|secret| secret.exposed).collect())
    }

    /// The secrets that code can use at this moment, without their values.
    async fn lent_now(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: &Grounds,
    ) -> Result<Vec<Secret>, Refused> {
        let Resolved { integrations: names, run_as, author } =
            self.named(workspace, caller, grounds).await?;
        let (integrations, _) = &self.granted_to_both(workspace, &run_as, author, &names)?;
        let caller = caller.id;
        let borrower = Borrower { workspace, run_as: &run_as, caller, author, integrations };
        self.lendable(borrower)
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
            if let Some(author) = author.principal() {
                self.check_author_in_session(workspace, caller, session, author).await?;
            }
            return Ok((command, self.trail_of(session)));
        }
        let grounds = Grounds::Named { integrations, run_as, author };
        let leave = self.leave(workspace, caller, grounds).await?;
        let Leave { outlet, variables, redactor, trail, .. } = leave;
        Ok((Command { outlet, variables, redactor, ..command }, trail))
    }

    /// Refuses code in a session that has more than the author of the code may use: volumes, integrations
    /// and values of secrets that code can read.
    async fn check_author_in_session(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        session: SandboxId,
        author: PrincipalId,
    ) -> Result<(), Refused> {
        let session = self.session_row(workspace, session)?;
        if author == session.owner {
            return Ok(());
        }
        let integrations = match session.agent {
            Some(agent) => self.lender(workspace, caller, agent).await?.section.integrations,
            None => session.integrations.clone(),
        };
        self.check_author_leaves(workspace, Some(author), &integrations)?;
        for store in self.engine.stores_of(session.sandbox_id)? {
            let privilege = needed_for(store.access);
            let id: Result<StoreId, _> = store.directory.parse();
            let id = id.map_err(|_| not_found("store", &store.name))?;
            self.require_author(workspace, author, privilege, Object::Store(id))?;
        }
        let owner = self.known(workspace, session.owner)?;
        for secret in self.lent_now(workspace, &owner, &Grounds::of(&session)).await? {
            match secret.scope {
                SecretScope::Workspace => {
                    let object = Object::Secret(secret.id);
                    self.require_author(workspace, author, Privilege::Usage, object)?;
                }
                SecretScope::Caller if secret.exposed => {
                    let message = "the session can read secrets that are its owner's own";
                    let hint = "call the tool without a session";
                    return Err(Fault::new(Code::GrantMissing, message).hint(hint).into());
                }
                // Code of others may act with a credential of the caller's own, and cannot read it.
                SecretScope::Caller => {}
            }
        }
        Ok(())
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
    ) -> Result<Resolved, Refused> {
        match grounds {
            Grounds::Named { integrations, run_as, author } => {
                let run_as = self.known(workspace, *run_as)?;
                Ok(Resolved { integrations: integrations.clone(), run_as, author: *author })
            }
            Grounds::Agent(id) => {
                let Lender { agent, section, run_as } = self.lender(workspace, caller, *id).await?;
                let author = Author::Other { by: agent.author, has_values: false };
                Ok(Resolved { integrations: section.integrations, run_as, author })
            }
        }
    }

    /// Refuses code whose author may not leave by its integrations: others would carry out for them what
    /// they may not send themselves.
    pub(crate) fn check_author_leaves(
        &self,
        workspace: WorkspaceId,
        author: Option<PrincipalId>,
        names: &[String],
    ) -> Result<(), Refused> {
        let Some(author) = author.filter(|_| !names.is_empty()) else { return Ok(()) };
        let author = self.author(workspace, author)?;
        self.check_integrations(workspace, (&author, "who wrote this code"), names)
    }

    /// Integrations that both the principal that code runs as and its author may use: those that are on,
    /// and those that are switched off.
    pub(crate) fn granted_to_both(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        author: Author,
        names: &[String],
    ) -> Result<(Vec<Integration>, Vec<Integration>), Refused> {
        let (mut on, mut off) = self.granted_integrations(workspace, run_as, names)?;
        let author = author.principal().filter(|author| *author != run_as.id);
        if let Some(author) = author {
            for granted in [&mut on, &mut off] {
                let mut kept = Vec::new();
                for integration in granted.drain(..) {
                    let object = Object::Integration(integration.id);
                    if self.author_may(workspace, author, Privilege::Usage, object)? {
                        kept.push(integration);
                    }
                }
                *granted = kept;
            }
        }
        Ok((on, off))
    }

    async fn way_now(&self, gate: &Gate) -> Result<Way, Refused> {
        let caller = self.known(gate.workspace, gate.caller)?;
        let Resolved { integrations: names, run_as, author } =
            self.named(gate.workspace, &caller, &gate.grounds).await?;
        let workspace = gate.workspace;
        let (integrations, off) = &self.granted_to_both(workspace, &run_as, author, &names)?;
        let openings = self.openings(workspace, integrations)?;
        let switched_off = self.openings(workspace, off)?;
        let caller = gate.caller;
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

    fn workspace(&self) -> WorkspaceId {
        self.workspace
    }
}

/// Nobody serves a sandbox that is gone.
struct EndWithGuard(tokio::task::JoinHandle<()>);

impl Drop for EndWithGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}
