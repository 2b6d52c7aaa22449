//! What open sessions were lent, as far as it has to be known again later.

use super::leave::{Grounds, Leave};
use super::trail::Trail;
use crate::refused::Refused;
use crate::service::Service;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use types::{Code, Fault, Principal, SandboxId, SecretId, Session, WorkspaceId};

#[derive(Debug, Default)]
pub(crate) struct Lendings(Mutex<HashMap<SandboxId, Lending>>);

#[derive(Debug, Default, Clone)]
pub(crate) struct Lending {
    trail: Weak<Trail>,
    exposed: BTreeSet<(SecretId, u64)>,
}

impl From<&Leave> for Lending {
    fn from(leave: &Leave) -> Self {
        let trail = leave.trail.as_ref().map(Arc::downgrade).unwrap_or_default();
        Self { trail, exposed: leave.exposed.clone() }
    }
}

impl Lendings {
    fn all(&self) -> MutexGuard<'_, HashMap<SandboxId, Lending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// What a session has from now on. To be told when the engine has given it.
    pub(crate) fn note_lending(&self, session: SandboxId, lending: Lending) {
        let mut all = self.lendings.all();
        all.retain(|id, _| self.engine.info(*id).is_ok());
        all.insert(session, lending);
    }

    pub(crate) fn trail_of(&self, session: SandboxId) -> Option<Arc<Trail>> {
        self.lendings.all().get(&session).and_then(|lending| lending.trail.upgrade())
    }

    /// Whether somebody may run code in a session with all that it can read. Values cannot be taken
    /// back from an interpreter, so one that has too many runs nothing until it is reset.
    pub(crate) async fn check_exposed(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        session: &Session,
    ) -> Result<(), Refused> {
        let owner = session.owner;
        if who.id != owner {
            let own = self.store.read(|rows| rows.secrets_of_one(workspace, owner))?;
            if !own.is_empty() {
                let message = "the session can use secrets that are its owner's own";
                let hint = "let its owner run the code, or open another session";
                return Err(Fault::new(Code::GrantMissing, message).hint(hint).into());
            }
        }
        let lent = self.lendings.all().get(&session.sandbox_id).cloned().unwrap_or_default();
        if lent.exposed.is_empty() {
            return Ok(());
        }
        let grounds = Grounds::of(session);
        let now = self.exposed_now(workspace, &self.known(workspace, owner)?, &grounds).await?;
        let now: BTreeSet<_> = now.into_iter().map(|secret| (secret.id, secret.version)).collect();
        if lent.exposed.is_subset(&now) {
            return Ok(());
        }
        let message = "a secret that the session can read was changed, or may not be used any more";
        let hint = "reset the session to go on with what it may use now";
        Err(Fault::new(Code::SessionLost, message).hint(hint).into())
    }
}
