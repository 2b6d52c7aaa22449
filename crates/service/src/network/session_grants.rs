//! What open sessions were lent, as far as it has to be known again later.

use super::egress_log::EgressLog;
use super::sandbox_egress::{IntegrationSource, SandboxEgress};
use crate::error::RequestError;
use crate::service::Service;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use types::{Error, ErrorCode, Principal, SandboxId, SecretId, Session, WorkspaceId};

#[derive(Debug, Default)]
pub(crate) struct SessionGrantRegistry(Mutex<HashMap<SandboxId, RecordedGrants>>);

#[derive(Debug, Default, Clone)]
pub(crate) struct RecordedGrants {
    egress_log: Weak<EgressLog>,
    exposed_secrets: BTreeSet<(SecretId, u64)>,
}

impl From<&SandboxEgress> for RecordedGrants {
    fn from(leave: &SandboxEgress) -> Self {
        let trail = leave.egress_log.as_ref().map(Arc::downgrade).unwrap_or_default();
        Self { egress_log: trail, exposed_secrets: leave.exposed_secrets.clone() }
    }
}

impl SessionGrantRegistry {
    fn sessions(&self) -> MutexGuard<'_, HashMap<SandboxId, RecordedGrants>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// What a session has from now on. To be told when the engine has given it.
    pub(crate) fn record_session_grants(&self, session: SandboxId, lending: RecordedGrants) {
        let mut all = self.session_grants.sessions();
        all.retain(|id, _| self.engine.info(*id).is_ok());
        all.insert(session, lending);
    }

    pub(crate) fn session_egress_log(&self, session: SandboxId) -> Option<Arc<EgressLog>> {
        self.session_grants
            .sessions()
            .get(&session)
            .and_then(|lending| lending.egress_log.upgrade())
    }

    /// Whether somebody may run code in a session with all that it can read. Values cannot be taken
    /// back from an interpreter, so one that has too many runs nothing until it is reset.
    pub(crate) async fn check_exposed_secrets(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        session: &Session,
    ) -> Result<(), RequestError> {
        let owner = session.owner;
        if who.id != owner {
            let own = self.db.read(|rows| rows.private_secrets(workspace, owner))?;
            if !own.is_empty() {
                let message = "the session can use secrets that are its owner's own";
                let hint = "let its owner run the code, or open another session";
                return Err(Error::new(ErrorCode::GrantMissing, message).hint(hint).into());
            }
        }
        let lent =
            self.session_grants.sessions().get(&session.sandbox_id).cloned().unwrap_or_default();
        if lent.exposed_secrets.is_empty() {
            return Ok(());
        }
        let grounds = IntegrationSource::from_session(session);
        let now = self
            .readable_secrets_now(workspace, &self.find_principal(workspace, owner)?, &grounds)
            .await?;
        let now: BTreeSet<_> = now.into_iter().map(|secret| (secret.id, secret.version)).collect();
        if lent.exposed_secrets.is_subset(&now) {
            return Ok(());
        }
        let message = "a secret that the session can read was changed, or may not be used any more";
        let hint = "reset the session to go on with what it may use now";
        Err(Error::new(ErrorCode::SessionLost, message).hint(hint).into())
    }
}
