//! The engine: what it keeps, and everything about sessions but running code in them.

use crate::builds::Builds;
use crate::capacity::{Capacity, Load};
use crate::command::{Lent, NewSession};
use crate::config::{Config, ExpiryRequest, SessionEnded};
use crate::environments::{Installed, Outside, Ready, Shelf};
use crate::installs::INSTALLS_AT_ONCE;
use crate::limits;
use crate::outcome::birth_fault;
use crate::running::Running;
use crate::session::{Equipment, Home, Parts, Session, SessionInfo, not_found};
use crate::stores::{Budget, Held, StoreIn, Writers};
use environment::Progress;
use sandbox::Stopper;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use types::{Code, ExecutionId, Fault, Limits, LimitsRequest, OperatorCaps, SandboxId};

/// How often expired sessions are looked for.
const EXPIRY_CHECK: Duration = Duration::from_millis(500);
/// Enough that whoever comes back to a session the next day is still told what became of it.
const EXPIRED_REMEMBERED: usize = 1024;
/// How long code may take to end that was asked to, and what it leaves to be gone: more than the
/// longest grace that an interrupt gives.
const END_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) shelf: Shelf,
    pub(crate) builds: Builds,
    pub(crate) capacity: Capacity,
    pub(crate) running: Running,
    pub(crate) installs: Arc<Semaphore>,
    pub(crate) writers: Writers,
    stores_budget: Arc<Budget>,
    sessions: Mutex<HashMap<SandboxId, Arc<Session>>>,
    /// The last ones that were closed because nobody used them, for a better answer.
    expired: Mutex<VecDeque<SandboxId>>,
}

impl Engine {
    /// Must be called inside a tokio runtime, which also closes expired sessions.
    pub fn start(config: Config) -> Arc<Self> {
        let engine = Arc::new(Self {
            capacity: Capacity::new(&config),
            running: Running::default(),
            installs: Arc::new(Semaphore::new(INSTALLS_AT_ONCE)),
            shelf: Shelf::default(),
            writers: Writers::default(),
            stores_budget: Budget::new(config.stores_bytes_max),
            builds: Builds::default(),
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
    ) -> Result<Installed, Fault> {
        let ready = self.shelf.get(&self.config, environment, progress).await?;
        Ok(ready.installed())
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
        Ok(self.session(id)?.turn(Stopper::default())?.private_bytes())
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self, id: SandboxId) -> Result<Arc<Session>, Fault> {
        self.sessions().get(&id).cloned().ok_or_else(|| {
            if self.expired().contains(&id) {
                let message = format!("session {id} has expired");
                Fault::new(Code::SessionExpired, message).hint("open a new one")
            } else {
                not_found(id)
            }
        })
    }

    fn expired(&self) -> MutexGuard<'_, VecDeque<SandboxId>> {
        self.expired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn open(&self, request: &NewSession) -> Result<SessionInfo, Fault> {
        let NewSession { id, generation, .. } = *request;
        let caps = request.caps.unwrap_or(self.config.caps);
        let limits = limits::of_fresh(&caps, &request.limits)?;
        let expiry = request.expiry.resolve(self.config.expiry, self.config.expiry)?;
        self.shelf.find(&self.config, &request.environment)?;
        let slot = self.capacity.take().await?;
        let equipment = self.equipment(request.lent())?;
        let ready = self.shelf.get(&self.config, &request.environment, |_| {}).await?;
        let home = self.furnish(&ready, &limits, &equipment.lent).await?;
        let parts = Parts { id, generation, limits, expiry, ready, equipment, home, slot };
        let session = Arc::new(Session::new(parts));
        match self.sessions().entry(id) {
            Entry::Vacant(free) => free.insert(Arc::clone(&session)),
            Entry::Occupied(_) => {
                let message = format!("session {id} is open already");
                return Err(Fault::new(Code::ArgsInvalid, message));
            }
        };
        if let Err(stopping) = self.capacity.check_open() {
            // Whoever stops the engine may have looked for sessions before this one was there.
            let _ = self.close(id).await;
            return Err(stopping);
        }
        Ok(session.info())
    }

    /// A sandbox with the stores of its session, brought up to date.
    pub(crate) async fn furnish(
        &self,
        ready: &Ready,
        limits: &Limits,
        lent: &Lent,
    ) -> Result<Home, Fault> {
        let (stores, outlet, redactor) =
            (&lent.stores, lent.outlet.as_ref(), lent.redactor.clone());
        if stores.is_empty() {
            let leased = ready.pool.lease(limits).await;
            let mut sandbox = leased.map_err(|error| birth_fault(&error))?;
            sandbox.stay();
            return Ok(Home::new(sandbox, Held::default(), outlet, redactor));
        }
        let mounts: Vec<_> = stores.iter().map(StoreIn::mount).collect();
        let born = ready.pool.with_stores(limits, &mounts).await;
        let mut sandbox = born.map_err(|error| birth_fault(&error))?;
        sandbox.stay();
        let held = Held::of(&sandbox, stores, self.store_base()?, &self.writers);
        let mut held = held.map_err(|error| {
            Fault::new(Code::SandboxUnreachable, format!("its stores cannot be reached: {error}"))
        })?;
        held.refresh().await?;
        Ok(Home::new(sandbox, held, outlet, redactor))
    }

    /// The most that anybody can ask for.
    pub fn caps(&self) -> OperatorCaps {
        self.config.caps
    }

    pub fn list(&self) -> Vec<SessionInfo> {
        self.sessions().values().map(|session| session.info()).collect()
    }

    pub fn info(&self, id: SandboxId) -> Result<SessionInfo, Fault> {
        Ok(self.session(id)?.info())
    }

    /// Changes when a session is closed by itself.
    pub fn set_expiry(&self, id: SandboxId, asked: ExpiryRequest) -> Result<SessionInfo, Fault> {
        let session = self.session(id)?;
        session.set_expiry(asked.resolve(session.expiry(), self.config.expiry)?);
        Ok(session.info())
    }

    /// Asks an execution to end, wherever it is on its way; says whether it was still on it. The
    /// state of a session is kept if the code lets itself be interrupted.
    pub fn cancel(&self, id: ExecutionId) -> bool {
        self.running.stop(id)
    }

    /// Asks what the session is running to end. Says whether anything was running.
    pub fn interrupt(&self, id: SandboxId) -> Result<bool, Fault> {
        Ok(self.session(id)?.interrupt())
    }

    /// What a session has besides its working directory.
    pub fn stores_of(&self, id: SandboxId) -> Result<Vec<StoreIn>, Fault> {
        Ok(self.session(id)?.lent().stores)
    }

    fn equipment(&self, lent: Lent) -> Result<Equipment, Fault> {
        let _reserved = self.stores_budget.reserve(&lent.stores)?;
        Ok(Equipment { lent, _reserved })
    }

    /// A new interpreter and an empty working directory for the session.
    pub async fn reset(&self, id: SandboxId) -> Result<u64, Fault> {
        self.reset_with(id, self.session(id)?.lent()).await
    }

    /// The same, with this instead of what it had besides its working directory.
    pub async fn reset_with(&self, id: SandboxId, lent: Lent) -> Result<u64, Fault> {
        let mut turn = self.session(id)?.turn(Stopper::default())?;
        let (generation, sandbox) = turn.reset();
        if let Some(sandbox) = sandbox {
            sandbox.end().await;
        }
        // What it had was given back before.
        turn.equip(self.equipment(lent)?);
        Ok(generation)
    }

    /// Ends the session; nothing of it is left when this returns.
    pub async fn close(&self, id: SandboxId) -> Result<(), Fault> {
        let session = self.session(id)?;
        self.sessions().remove(&id);
        session.close();
        if let Some(sandbox) = session.emptied().await {
            sandbox.end().await;
        }
        Ok(())
    }

    /// Takes a sandbox of the environment and ends it: whether one can be had now. Where all are in use
    /// nothing is tried, since that is not a failure.
    pub async fn probe(&self, environment: &str) -> Result<(), Fault> {
        if self.capacity.load().in_use >= self.capacity.load().most {
            return Ok(());
        }
        let _slot = self.capacity.take().await?;
        let limits = limits::of_fresh(&self.config.caps, &LimitsRequest::default())?;
        let ready = self.shelf.get(&self.config, environment, |_| {}).await?;
        let sandbox = ready.pool.lease(&limits).await.map_err(|error| birth_fault(&error))?;
        sandbox.end().await;
        Ok(())
    }

    /// How full it is.
    pub fn load(&self) -> Load {
        self.capacity.load()
    }

    /// Whether nothing new is let in.
    pub fn is_stopping(&self) -> bool {
        self.capacity.check_open().is_err()
    }

    /// Lets nothing in any more, gives what runs until `patience` is over to end, cancels the rest,
    /// and closes every session. Nothing is left when this returns.
    pub async fn shutdown(&self, patience: Duration) {
        self.capacity.stop();
        if timeout(patience, self.running.none_left()).await.is_err() {
            self.running.stop_all();
            // Somebody may have been let in and never run; the sandboxes are counted below.
            let _ = timeout(END_PATIENCE, self.running.none_left()).await;
        }
        let ids: Vec<SandboxId> = self.sessions().keys().copied().collect();
        for id in ids {
            let _ = timeout(END_PATIENCE, self.close(id)).await;
        }
        let _ = timeout(END_PATIENCE, self.capacity.emptied()).await;
        let pools = self.shelf.clear();
        let closed = async {
            for pool in pools {
                pool.close().await;
            }
        };
        let _ = timeout(END_PATIENCE, closed).await;
        self.config.house.iter().for_each(|house| house.close());
    }

    fn close_expired(&self) {
        let now = Instant::now();
        let due = |session: &Arc<Session>| {
            let ended = SessionEnded { id: session.id, reason: session.expire(now)? };
            Some((ended, Arc::clone(session)))
        };
        // Held on to until the lock is given back: with a session go its sandbox and perhaps a nursery.
        let expired: Vec<(SessionEnded, Arc<Session>)> = {
            let mut sessions = self.sessions();
            let expired: Vec<_> = sessions.values().filter_map(due).collect();
            expired.iter().for_each(|(ended, _)| drop(sessions.remove(&ended.id)));
            expired
        };
        for (ended, _session) in expired {
            let mut remembered = self.expired();
            remembered.push_back(ended.id);
            if remembered.len() > EXPIRED_REMEMBERED {
                remembered.pop_front();
            }
            // Nobody may be listening any more.
            let _ = self.config.ended.as_ref().map(|listener| listener.send(ended));
        }
    }
}
