//! The engine: what it keeps, and everything about sessions but running code in them.

use crate::capacity::Capacity;
use crate::command::{FileIn, NewSession};
use crate::config::Config;
use crate::environments::{Outside, Shelf};
use crate::run::{Lease, file_fault};
use crate::session::{Session, SessionInfo};
use chrono::Utc;
use environment::Progress;
use sandbox::{FileError, Listing, Sandbox};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use types::{Code, Fault, SandboxId};

/// How often expired sessions are looked for.
const EXPIRY_CHECK: Duration = Duration::from_millis(500);
/// Enough that whoever comes back to a session the next day is still told what became of it.
const EXPIRED_REMEMBERED: usize = 1024;

#[derive(Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) shelf: Shelf,
    pub(crate) capacity: Capacity,
    sessions: Mutex<HashMap<SandboxId, Arc<Session>>>,
    /// The last ones that were closed because nobody used them, for a better answer.
    expired: Mutex<VecDeque<SandboxId>>,
}

impl Engine {
    /// Must be called inside a tokio runtime, which also closes expired sessions.
    pub fn start(config: Config) -> Arc<Self> {
        let engine = Arc::new(Self {
            capacity: Capacity::new(config.sandboxes_max),
            shelf: Shelf::new(),
            sessions: Mutex::default(),
            expired: Mutex::default(),
            config,
        });
        let watched = Arc::downgrade(&engine);
        tokio::spawn(async move {
            while let Some(engine) = watched.upgrade() {
                engine.close_expired();
                drop(engine);
                tokio::time::sleep(EXPIRY_CHECK).await;
            }
        });
        engine
    }

    /// Builds the environment and starts its Python, unless that was done before.
    pub async fn prepare(
        &self,
        environment: &str,
        progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<crate::Packages, Fault> {
        let ready = self.shelf.get(&self.config, environment, progress).await?;
        Ok(ready.environment.packages.clone())
    }

    /// How the same Python is started without walls, for those who measure what walls cost.
    pub async fn outside(&self, environment: &str) -> Result<Outside, Fault> {
        self.shelf.get(&self.config, environment, |_| {}).await?.outside(&self.config)
    }

    /// How many warmed sandboxes of an environment wait now.
    pub async fn waiting(&self, environment: &str) -> Result<usize, Fault> {
        Ok(self.shelf.get(&self.config, environment, |_| {}).await?.pool.ready())
    }

    /// Memory that the session alone uses: what ending it would give back.
    pub async fn memory_of(&self, id: SandboxId) -> Result<u64, Fault> {
        let session = self.session(id)?;
        let inside = session.inside.try_lock().map_err(|_| session.busy())?;
        Ok(inside.sandbox.as_ref().map_or(0, Sandbox::private_bytes))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self, id: SandboxId) -> Result<Arc<Session>, Fault> {
        self.sessions().get(&id).cloned().ok_or_else(|| {
            let (code, state) = if self.expired().contains(&id) {
                (Code::SessionExpired, "has expired")
            } else {
                (Code::SessionNotFound, "is not there, or not any more")
            };
            Fault::new(code, format!("session {id} {state}")).hint("open a new one")
        })
    }

    fn expired(&self) -> MutexGuard<'_, VecDeque<SandboxId>> {
        self.expired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn open(&self, request: &NewSession) -> Result<SandboxId, Fault> {
        let limits = self.admit(&request.limits)?;
        let slot = self.capacity.take()?;
        let Lease { ready, sandbox, sandbox_id, slot, .. } =
            self.lease(&request.environment, &limits, slot).await?;
        let Some(slot) = slot else {
            return Err(Fault::new(Code::CapacityExhausted, "no room for the session"));
        };
        let session = Session::new(sandbox_id, ready, limits, sandbox, slot, Utc::now());
        self.sessions().insert(sandbox_id, Arc::new(session));
        Ok(sandbox_id)
    }

    pub fn list(&self) -> Vec<SessionInfo> {
        self.sessions().values().map(|session| session.info()).collect()
    }

    /// Asks what the session is running to end; its state is kept if the code lets itself be
    /// interrupted. Says whether anything was running.
    pub fn interrupt(&self, id: SandboxId) -> Result<bool, Fault> {
        Ok(self.session(id)?.interrupt())
    }

    /// A new interpreter and an empty working directory for the session.
    pub async fn reset(&self, id: SandboxId) -> Result<u64, Fault> {
        let session = self.session(id)?;
        let mut inside = session.inside.try_lock().map_err(|_| session.busy())?;
        if let Some(sandbox) = inside.sandbox.take() {
            sandbox.end().await;
        }
        Ok(session.lose_memory())
    }

    /// Ends the session; nothing of it is left when this returns.
    pub async fn close(&self, id: SandboxId) -> Result<(), Fault> {
        let session = self.session(id)?;
        self.sessions().remove(&id);
        session.kill();
        if let Some(sandbox) = session.inside.lock().await.sandbox.take() {
            sandbox.end().await;
        }
        Ok(())
    }

    pub async fn list_files(&self, id: SandboxId) -> Result<Listing, Fault> {
        self.with_sandbox(id, |sandbox| Ok(sandbox.list_files())).await
    }

    pub async fn read_file(&self, id: SandboxId, name: &str, most: u64) -> Result<Vec<u8>, Fault> {
        self.with_sandbox(id, |sandbox| sandbox.read_file(name, most)).await
    }

    pub async fn write_file(&self, id: SandboxId, file: &FileIn) -> Result<u64, Fault> {
        self.with_sandbox(id, |sandbox| sandbox.write_file(&file.name, &mut &*file.content)).await
    }

    async fn with_sandbox<T>(
        &self,
        id: SandboxId,
        work: impl FnOnce(&mut Sandbox) -> Result<T, FileError>,
    ) -> Result<T, Fault> {
        let session = self.session(id)?;
        let mut inside = session.inside.try_lock().map_err(|_| session.busy())?;
        let mut lease = self.resume(&session, &mut inside).await?;
        let result = work(&mut lease.sandbox).map_err(|error| file_fault(&error));
        inside.sandbox = Some(lease.sandbox);
        inside.lent = false;
        inside.cells -= 1;
        result
    }

    fn close_expired(&self) {
        let expiry = self.config.expiry;
        let now = Instant::now();
        let over = |session: &Arc<Session>| {
            let unused = now.saturating_duration_since(session.idle_since()) > expiry.idle;
            let old = now.saturating_duration_since(session.opened()) > expiry.absolute;
            // One that is running something is not idle, however long that takes.
            (unused && session.inside.try_lock().is_ok()) || old
        };
        let expired: Vec<Arc<Session>> = {
            let mut sessions = self.sessions();
            let ids: Vec<SandboxId> =
                sessions.values().filter(|session| over(session)).map(|s| s.id).collect();
            ids.iter().filter_map(|id| sessions.remove(id)).collect()
        };
        for session in expired {
            let mut remembered = self.expired();
            remembered.push_back(session.id);
            if remembered.len() > EXPIRED_REMEMBERED {
                remembered.pop_front();
            }
            session.kill();
        }
    }
}
