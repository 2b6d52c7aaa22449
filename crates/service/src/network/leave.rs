//! The way out of one sandbox. On which grounds it has one is fixed when the sandbox is made; what
//! they open is asked anew for each connection, so that a change is felt by the next one.

use super::credentials;
use super::integrations::INTERNET;
use super::trail::Trail;
use crate::refused::Refused;
use crate::secrets::Usable;
use crate::service::Service;
use egress::{Asked, Attempt, Authority, Way};
use engine::{Command, Outlet, Redactor};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use types::{
    AgentId, Code, Fault, Inject, Integration, Principal, PrincipalId, SandboxId, Secret,
    WorkspaceId,
};

/// By what a sandbox may be left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grounds {
    /// By these integrations, with the rights of one principal.
    Named { integrations: Vec<String>, run_as: PrincipalId },
    /// By what the specification of the agent names, with the rights of whoever its code runs as.
    Agent(AgentId),
}

/// What a request or a tool asks for in two ways.
pub(crate) fn asked(mut integrations: Vec<String>, allow_network: bool) -> Vec<String> {
    if allow_network && !integrations.iter().any(|name| name == INTERNET) {
        integrations.push(INTERNET.to_owned());
    }
    integrations
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
        self.check_integrations(workspace, &run_as, &names)?;
        let secrets = self.lent_secrets(workspace, &run_as, caller.id, &names).await?;
        let variables = credentials::variables(&secrets);
        let redactor = credentials::redactor(&secrets);
        if names.is_empty() && secrets.iter().all(|secret| secret.target().is_none()) {
            return Ok(Leave { variables, redactor, ..Leave::default() });
        }
        let trail =
            Arc::new(Trail::new(workspace, caller.id, self.network_log.clone(), redactor.clone()));
        let gate = Gate {
            service: Arc::downgrade(self),
            workspace,
            caller: caller.id,
            grounds,
            trail: Arc::clone(&trail),
        };
        let outlet = self.outlet(Arc::new(gate));
        Ok(Leave { outlet: Some(outlet), variables, redactor, trail: Some(trail) })
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

    /// The secrets that code has: credentials of services, if it may use them, and variables that one
    /// of its integrations allows besides.
    async fn lent_secrets(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        caller: PrincipalId,
        integrations: &[String],
    ) -> Result<Vec<Usable>, Refused> {
        let held = self.held_integrations(workspace, run_as, integrations)?;
        let mut secrets = self.usable_secrets(workspace, run_as, caller).await?;
        secrets.retain(|secret| is_lent(&held, &secret.inject, &secret.name));
        Ok(secrets)
    }

    /// Those of them that code can read, without their values.
    pub(crate) fn exposed_secrets(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        caller: PrincipalId,
        integrations: &[String],
    ) -> Result<Vec<Secret>, Refused> {
        let held = self.held_integrations(workspace, run_as, integrations)?;
        let mut secrets = self.usable(workspace, run_as, caller)?;
        secrets.retain(|secret| secret.exposed && is_lent(&held, &secret.inject, &secret.name));
        Ok(secrets)
    }

    /// The same for one execution. A session has a way of its own, which must be wide enough.
    pub(crate) async fn give_way(
        self: &Arc<Self>,
        command: Command,
        workspace: WorkspaceId,
        caller: &Principal,
        run_as: PrincipalId,
        integrations: Vec<String>,
    ) -> Result<(Command, Option<Arc<Trail>>), Refused> {
        if let Some(session) = command.session {
            self.check_wide_enough(workspace, caller, session, &integrations).await?;
            return Ok((command, self.trail_of(session)));
        }
        let grounds = Grounds::Named { integrations, run_as };
        let leave = self.leave(workspace, caller, grounds).await?;
        let Leave { outlet, variables, redactor, trail } = leave;
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
    async fn named(
        &self,
        workspace: WorkspaceId,
        caller: &Principal,
        grounds: &Grounds,
    ) -> Result<(Vec<String>, Principal), Refused> {
        match grounds {
            Grounds::Named { integrations, run_as } => {
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
        let held = self.held_integrations(gate.workspace, &run_as, &names)?;
        let openings = self.openings(gate.workspace, &held)?;
        let secrets = self.usable_secrets(gate.workspace, &run_as, gate.caller).await?;
        Ok(Way { openings, credentials: credentials::credentials(secrets) })
    }
}

/// A credential does not come into the sandbox; a value that does has to be allowed by name.
fn is_lent(held: &[Integration], inject: &Inject, name: &str) -> bool {
    match inject {
        Inject::Client(_) | Inject::Header { .. } => true,
        Inject::Env { .. } => held.iter().any(|it| it.allowed_secrets.has(name)),
    }
}

impl Authority for Gate {
    fn way(&self) -> Asked<'_> {
        Box::pin(async {
            let service = self.service.upgrade().ok_or("the server is stopping")?;
            let way = service.way_now(self).await;
            way.map(Arc::new).map_err(|refused| refused.fault.message)
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
