//! The engine: its state, and everything about sessions except running code in them.

use crate::build_queues::BuildQueues;
use crate::capacity::{Capacity, EngineLoad};
use crate::command::NewSession;
use crate::config::{Config, ExpiryRequest, SessionEnded};
use crate::environment_cache::{
    EnvironmentCache, InstalledVersions, RunningEnvironment, UnsandboxedPython,
};
use crate::execution_outcome::spawn_error;
use crate::limits;
use crate::package_installer::INSTALLS_AT_ONCE;
use crate::running_executions::RunningExecutions;
use crate::sandbox_grants::{ReservedGrants, SandboxGrants};
use crate::session::{LiveSession, SandboxHandle, SessionInfo, SessionParts, not_found_error};
use crate::shared_directory::GrantedDirectory;
use crate::start_queue::{CountedExecution, StartQueue, starts_at_once};
use crate::volumes::{GrantedVolume, VolumeLocks, VolumeMemoryBudget, WritableVolumes};
use environment::Progress;
use sandbox::StopHandle;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use types::{Error, ErrorCode, Limits, LimitsRequest, OperatorCaps, PrincipalId, SandboxId};

/// How often the engine looks for expired sessions.
const EXPIRY_CHECK: Duration = Duration::from_millis(500);
/// Enough that a caller that comes back to a session the next day still learns that it expired.
const EXPIRED_REMEMBERED: usize = 1024;
/// How long cancelled code may take to end, and its sandbox to be removed: more than the longest
/// grace period of an interrupt.
const END_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) environment_cache: EnvironmentCache,
    pub(crate) builds: BuildQueues,
    pub(crate) capacity: Capacity,
    pub(crate) start_queue: Arc<StartQueue>,
    pub(crate) executions: RunningExecutions,
    pub(crate) install_permits: Arc<Semaphore>,
    pub(crate) volume_locks: VolumeLocks,
    volumes_budget: Arc<VolumeMemoryBudget>,
    sessions: Mutex<HashMap<SandboxId, Arc<LiveSession>>>,
    /// The sessions that expired last, for a better error message.
    expired: Mutex<VecDeque<SandboxId>>,
}

impl Engine {
    /// Must be called inside a tokio runtime, which also closes expired sessions.
    pub fn start(config: Config) -> Arc<Self> {
        let engine = Arc::new(Self {
            capacity: Capacity::new(&config),
            start_queue: StartQueue::new(starts_at_once()),
            executions: RunningExecutions::default(),
            install_permits: Arc::new(Semaphore::new(INSTALLS_AT_ONCE)),
            environment_cache: EnvironmentCache::default(),
            volume_locks: VolumeLocks::default(),
            volumes_budget: VolumeMemoryBudget::new(config.volumes_bytes_max),
            builds: BuildQueues::default(),
            sessions: Mutex::default(),
            expired: Mutex::default(),
            config,
        });
        let watched = Arc::downgrade(&engine);
        tokio::spawn(async move {
            while let Some(engine) = watched.upgrade() {
                engine.close_expired();
                let clock = engine.config.clock.clone();
                drop(engine);
                clock.sleep(EXPIRY_CHECK).await;
            }
        });
        engine
    }

    /// Builds the environment and starts its Python, if not done yet.
    pub async fn prepare(
        &self,
        environment: &str,
        progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<InstalledVersions, Error> {
        let ready = self.environment_cache.get(&self.config, environment, progress).await?;
        Ok(ready.versions())
    }

    /// How to start the same Python without isolation, to measure the cost of the layers.
    pub async fn unsandboxed_python(&self, environment: &str) -> Result<UnsandboxedPython, Error> {
        self.environment_cache
            .get(&self.config, environment, |_| {})
            .await?
            .unsandboxed_python(&self.config)
    }

    /// The number of warm sandboxes of an environment that are ready.
    pub async fn ready_sandboxes(&self, environment: &str) -> Result<usize, Error> {
        Ok(self.environment_cache.get(&self.config, environment, |_| {}).await?.pool.ready_count())
    }

    /// The session's private memory: closing it would free that much.
    pub async fn memory_of(&self, id: SandboxId) -> Result<u64, Error> {
        Ok(self.session(id)?.lease_session(StopHandle::default())?.private_bytes())
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<LiveSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self, id: SandboxId) -> Result<Arc<LiveSession>, Error> {
        self.sessions().get(&id).cloned().ok_or_else(|| {
            if self.expired().contains(&id) {
                let message = format!("session {id} has expired");
                Error::new(ErrorCode::SessionExpired, message).hint("open a new one")
            } else {
                not_found_error(id)
            }
        })
    }

    fn expired(&self) -> MutexGuard<'_, VecDeque<SandboxId>> {
        self.expired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[boxed::future]
    pub async fn open(&self, request: NewSession) -> Result<SessionInfo, Error> {
        let NewSession { id, generation, started_by, environment, limits, caps, expiry, grants } =
            request;
        let limits = limits::resolve_for_sandbox(&caps.unwrap_or(self.config.caps), &limits)?;
        let expiry = expiry.resolve(self.config.expiry, self.config.expiry)?;
        self.environment_cache.find(&self.config, &environment)?;
        let permit = self.capacity.acquire(started_by).await?;
        let grants = self.reserve_grants(grants)?;
        let environment = self.environment_cache.get_for_code(&self.config, &environment).await?;
        let granted = Arc::clone(&grants.grants);
        let handle =
            self.attach_session_sandbox(&environment, &limits, granted, started_by).await?;
        let parts = SessionParts {
            clock: self.config.clock.clone(),
            id,
            generation,
            started_by,
            limits,
            expiry,
            environment,
            grants,
            handle,
            permit,
        };
        let session = Arc::new(LiveSession::new(parts));
        match self.sessions().entry(id) {
            Entry::Vacant(free) => free.insert(Arc::clone(&session)),
            Entry::Occupied(_) => {
                let message = format!("session {id} is already open");
                return Err(Error::new(ErrorCode::ArgsInvalid, message));
            }
        };
        if let Err(stopping) = self.capacity.check_open() {
            // A concurrent shutdown may have listed the sessions before this one was inserted.
            let _ = self.close(id).await;
            return Err(stopping);
        }
        Ok(session.info())
    }

    /// Leases a sandbox that stays after its first execution, with the grants of its session.
    pub(crate) async fn attach_session_sandbox(
        &self,
        ready: &RunningEnvironment,
        limits: &Limits,
        grants: Arc<SandboxGrants>,
        started_by: Option<PrincipalId>,
    ) -> Result<SandboxHandle, Error> {
        let active = self.start_queue.enter(started_by);
        let mut handle = self.attach_sandbox(ready, limits, grants, &active).await?;
        handle.sandbox.keep_alive();
        Ok(handle)
    }

    /// Leases a sandbox and applies the grants to it, with its volumes refreshed.
    #[boxed::future]
    pub(crate) async fn attach_sandbox(
        &self,
        ready: &RunningEnvironment,
        limits: &Limits,
        grants: Arc<SandboxGrants>,
        active: &CountedExecution,
    ) -> Result<SandboxHandle, Error> {
        let start = active.start().await;
        let volumes = &grants.volumes;
        if volumes.is_empty() && grants.directories.is_empty() {
            let leased = ready.pool.lease(limits, start.ready_left).await;
            let sandbox = leased.map_err(|error| spawn_error(&error))?;
            return Ok(SandboxHandle::new(sandbox, WritableVolumes::default(), grants));
        }
        let directories = grants.directories.iter().map(GrantedDirectory::mount);
        let mounts: Vec<_> = volumes.iter().map(GrantedVolume::mount).chain(directories).collect();
        let spawned = ready.pool.spawn_with_volumes(limits, &mounts).await;
        drop(start);
        let sandbox = spawned.map_err(|error| spawn_error(&error))?;
        let volumes =
            WritableVolumes::open(&sandbox, volumes, self.volume_base()?, &self.volume_locks);
        let mut volumes = volumes.map_err(|error| {
            Error::new(
                ErrorCode::SandboxUnreachable,
                format!("cannot access the volumes of the sandbox: {error}"),
            )
        })?;
        volumes.refresh().await?;
        Ok(SandboxHandle::new(sandbox, volumes, grants))
    }

    /// The upper bounds of limits that a request can ask for.
    pub fn caps(&self) -> OperatorCaps {
        self.config.caps
    }

    pub fn list(&self) -> Vec<SessionInfo> {
        self.sessions().values().map(|session| session.info()).collect()
    }

    pub fn info(&self, id: SandboxId) -> Result<SessionInfo, Error> {
        Ok(self.session(id)?.info())
    }

    /// Changes when a session expires.
    pub fn set_expiry(&self, id: SandboxId, request: ExpiryRequest) -> Result<SessionInfo, Error> {
        let session = self.session(id)?;
        session.set_expiry(request.resolve(session.expiry(), self.config.expiry)?);
        Ok(session.info())
    }

    /// Asks the running execution of the session to end. Returns whether there was one.
    pub fn interrupt(&self, id: SandboxId) -> Result<bool, Error> {
        Ok(self.session(id)?.interrupt())
    }

    /// The grants that the sandboxes of a session have.
    pub fn session_grants(&self, id: SandboxId) -> Result<Arc<SandboxGrants>, Error> {
        Ok(self.session(id)?.grants())
    }

    pub(crate) fn reserve_grants(&self, grants: SandboxGrants) -> Result<ReservedGrants, Error> {
        let _memory = self.volumes_budget.reserve(&grants.volumes)?;
        Ok(ReservedGrants { grants: Arc::new(grants), _memory })
    }

    /// Gives the session a new interpreter and an empty working directory.
    pub async fn reset(&self, id: SandboxId) -> Result<u64, Error> {
        self.reset_with(id, (*self.session_grants(id)?).clone()).await
    }

    /// Like [`Engine::reset`], with new grants for the session.
    pub async fn reset_with(&self, id: SandboxId, grants: SandboxGrants) -> Result<u64, Error> {
        let mut lease = self.session(id)?.lease_session(StopHandle::default())?;
        let (generation, sandbox) = lease.reset();
        if let Some(sandbox) = sandbox {
            sandbox.end().await;
        }
        // The old grants were released before.
        lease.set_grants(self.reserve_grants(grants)?);
        Ok(generation)
    }

    /// Closes the session. No process and no file of it is left when this returns.
    #[boxed::future]
    pub async fn close(&self, id: SandboxId) -> Result<(), Error> {
        let session = self.session(id)?;
        self.sessions().remove(&id);
        session.close();
        if let Some(sandbox) = session.take_sandbox().await {
            sandbox.end().await;
        }
        Ok(())
    }

    /// Leases a sandbox of the environment and ends it, to check that this works. If all sandboxes
    /// are in use, the check is skipped and succeeds.
    pub async fn probe(&self, environment: &str) -> Result<(), Error> {
        if self.capacity.load().in_use >= self.capacity.load().max {
            return Ok(());
        }
        let _capacity = self.capacity.acquire(None).await?;
        let limits = limits::resolve_for_sandbox(&self.config.caps, &LimitsRequest::default())?;
        let ready = self.environment_cache.get(&self.config, environment, |_| {}).await?;
        let sandbox = ready.pool.lease(&limits, 0).await.map_err(|error| spawn_error(&error))?;
        sandbox.end().await;
        Ok(())
    }

    /// How full the engine is.
    pub fn load(&self) -> EngineLoad {
        self.capacity.load()
    }

    /// Whether the engine refuses new requests.
    pub fn is_stopping(&self) -> bool {
        self.capacity.check_open().is_err()
    }

    /// Refuses new requests, lets running ones continue for `grace_period`, cancels the rest, and
    /// closes every session. No sandbox is left when this returns.
    pub async fn shutdown(&self, grace_period: Duration) {
        self.capacity.stop();
        if timeout(grace_period, self.executions.wait_until_idle()).await.is_err() {
            self.executions.stop_all();
            // An admitted command may never run; its sandbox is counted below.
            let _ = timeout(END_PATIENCE, self.executions.wait_until_idle()).await;
        }
        let ids: Vec<SandboxId> = self.sessions().keys().copied().collect();
        for id in ids {
            let _ = timeout(END_PATIENCE, self.close(id)).await;
        }
        let _ = timeout(END_PATIENCE, self.capacity.wait_until_empty()).await;
        let pools = self.environment_cache.clear();
        let closed = async {
            for pool in pools {
                pool.close().await;
            }
        };
        let _ = timeout(END_PATIENCE, closed).await;
        self.config.package_root.iter().for_each(|root| root.close());
    }

    fn close_expired(&self) {
        let now = self.config.clock.instant();
        let due = |session: &Arc<LiveSession>| {
            let event = SessionEnded { id: session.id, reason: session.expire(now)? };
            Some((event, Arc::clone(session)))
        };
        // Dropped only after the lock is released: dropping a session ends its sandbox and perhaps
        // a zygote host.
        let expired: Vec<(SessionEnded, Arc<LiveSession>)> = {
            let mut sessions = self.sessions();
            let expired: Vec<_> = sessions.values().filter_map(due).collect();
            expired.iter().for_each(|(event, _)| drop(sessions.remove(&event.id)));
            expired
        };
        for (event, _session) in expired {
            let mut remembered = self.expired();
            remembered.push_back(event.id);
            if remembered.len() > EXPIRED_REMEMBERED {
                remembered.pop_front();
            }
            // The receiver may be gone.
            let _ = self.config.session_ended.as_ref().map(|listener| listener.send(event));
        }
    }
}
