//! Sessions: sandboxes that live as long as a conversation.
//!
//! A session is used by whoever has its [`Turn`], one at a time, and a session that is closed gives
//! no more turns. A memory that is lost, in whatever way, is told by its generation.

use crate::capacity::CapacityPermit;
use crate::command::SandboxGrants;
use crate::config::{EndReason, Expiry};
use crate::egress::{self, EgressGuard, EgressHandler};
use crate::engine::Engine;
use crate::environment_cache::RunningEnvironment;
use crate::package_installer::PackageInstalls;
use crate::redact::OutputRedactor;
use crate::volumes::{MemoryReservation, WritableVolumes};
use chrono::{DateTime, TimeDelta, Utc};
use sandbox::{Sandbox, StopHandle};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;
use types::{Error, ErrorCode, Limits, SandboxId};

/// What can be said of a session from outside.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    pub id: SandboxId,
    pub environment: String,
    pub limits: Limits,
    pub generation: u64,
    pub busy: bool,
    /// How many there were, with the one that is running.
    pub executions: u64,
    pub opened_at: DateTime<Utc>,
    pub last_used_at: DateTime<Utc>,
    /// Closed after that time without use.
    pub idle: Duration,
    /// If nobody uses it until then. Absent when it is never.
    pub expires_at: Option<DateTime<Utc>>,
}

#[derive(Debug)]
pub(crate) struct LiveSession {
    pub(crate) id: SandboxId,
    pub(crate) environment: Arc<RunningEnvironment>,
    pub(crate) limits: Limits,
    leased: Arc<Mutex<LeasedState>>,
    shared: SyncMutex<SharedState>,
    opened: Instant,
    opened_at: DateTime<Utc>,
    _permit: CapacityPermit,
}

/// What only the one whose turn it is may touch.
#[derive(Debug)]
struct LeasedState {
    /// `None` after the interpreter has died; the next execution starts another one.
    handle: Option<SandboxHandle>,
    /// The memory was lost, and no record has said it yet.
    loss_unreported: bool,
}

#[derive(Debug)]
struct SharedState {
    generation: u64,
    executions: u64,
    expiry: Expiry,
    last_used: Instant,
    /// Of the one whose turn it is.
    stopper: Option<StopHandle>,
    closed: bool,
    grants: Option<ReservedGrants>,
}

/// What a sandbox of the session has besides its working directory.
#[derive(Debug)]
pub(crate) struct ReservedGrants {
    pub(crate) grants: SandboxGrants,
    pub(crate) _reserved: MemoryReservation,
}

/// A sandbox, and what it holds besides its working directory.
#[derive(Debug)]
pub(crate) struct SandboxHandle {
    pub(crate) sandbox: Sandbox,
    pub(crate) volumes: WritableVolumes,
    /// What was installed in it.
    pub(crate) packages: Arc<PackageInstalls>,
    /// For everything that code in it was ever given.
    pub(crate) redactor: OutputRedactor,
    _egress: Option<EgressGuard>,
}

impl SandboxHandle {
    pub(crate) fn new(
        mut sandbox: Sandbox,
        held: WritableVolumes,
        outlet: Option<&EgressHandler>,
        redactor: OutputRedactor,
    ) -> Self {
        let _outlet = egress::serve_proxy_socket(&mut sandbox, outlet);
        Self { sandbox, volumes: held, packages: Arc::default(), redactor, _egress: _outlet }
    }
}

/// What a session is made of.
#[derive(Debug)]
pub(crate) struct SessionParts {
    pub(crate) id: SandboxId,
    pub(crate) generation: u64,
    pub(crate) limits: Limits,
    pub(crate) expiry: Expiry,
    pub(crate) environment: Arc<RunningEnvironment>,
    pub(crate) grants: ReservedGrants,
    pub(crate) handle: SandboxHandle,
    pub(crate) permit: CapacityPermit,
}

impl LiveSession {
    pub(crate) fn new(parts: SessionParts) -> Self {
        let SessionParts {
            id,
            generation,
            limits,
            expiry,
            environment: ready,
            grants: equipment,
            handle: home,
            permit: slot,
        } = parts;
        let opened = Instant::now();
        let outside = SharedState {
            generation,
            executions: 0,
            expiry,
            last_used: opened,
            stopper: None,
            closed: false,
            grants: Some(equipment),
        };
        Self {
            id,
            environment: ready,
            limits,
            leased: Arc::new(Mutex::new(LeasedState {
                handle: Some(home),
                loss_unreported: generation > 1,
            })),
            shared: SyncMutex::new(outside),
            opened,
            opened_at: Utc::now(),
            _permit: slot,
        }
    }

    fn shared(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn grants(&self) -> SandboxGrants {
        self.shared().grants.as_ref().map_or_else(SandboxGrants::default, |it| it.grants.clone())
    }

    /// Told to all that runs in it.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let SandboxGrants { variables, egress: outlet, .. } = self.grants();
        let proxy = outlet.map(|_| egress::proxy_variables()).unwrap_or_default();
        proxy.into_iter().chain(variables).collect()
    }

    /// The interpreter is gone, and with it what it remembered.
    fn record_state_loss(&self) -> u64 {
        let mut outside = self.shared();
        outside.generation += 1;
        outside.generation
    }

    /// The turn to use it, which `stopper` can end.
    pub(crate) fn lease(self: &Arc<Self>, stopper: StopHandle) -> Result<SessionLease, Error> {
        let inside = Arc::clone(&self.leased).try_lock_owned().map_err(|_| self.busy_error())?;
        let mut outside = self.shared();
        if outside.closed {
            return Err(not_found_error(self.id));
        }
        outside.stopper = Some(stopper);
        outside.last_used = Instant::now();
        drop(outside);
        Ok(SessionLease { session: Arc::clone(self), state: inside, sandbox_taken: false })
    }

    /// Asks the running execution to end; whether there was one.
    pub(crate) fn interrupt(&self) -> bool {
        let outside = self.shared();
        outside.stopper.as_ref().inspect(|stopper| stopper.stop()).is_some()
    }

    /// Gives no more turns, and ends the present one without waiting for the code to agree.
    pub(crate) fn close(&self) {
        let mut outside = self.shared();
        outside.closed = true;
        outside.stopper.iter().for_each(StopHandle::kill);
    }

    /// What it holds, once the last turn is over.
    pub(crate) async fn take_sandbox(&self) -> Option<Sandbox> {
        self.leased.lock().await.handle.take().map(|home| home.sandbox)
    }

    /// Closes it if it is time, and says why.
    pub(crate) fn expire(&self, now: Instant) -> Option<EndReason> {
        let mut outside = self.shared();
        // One that is running something is not idle, however long that takes.
        let unused = outside.stopper.is_none()
            && now.saturating_duration_since(outside.last_used) > outside.expiry.idle;
        let old = now.saturating_duration_since(self.opened) > outside.expiry.absolute;
        let reason = match (old, unused) {
            (true, _) => EndReason::Age,
            (false, true) => EndReason::Idle,
            (false, false) => return None,
        };
        outside.closed = true;
        outside.stopper.iter().for_each(StopHandle::kill);
        Some(reason)
    }

    pub(crate) fn expiry(&self) -> Expiry {
        self.shared().expiry
    }

    pub(crate) fn set_expiry(&self, expiry: Expiry) {
        self.shared().expiry = expiry;
    }

    pub(crate) fn info(&self) -> SessionInfo {
        let outside = self.shared();
        let used = outside.last_used.saturating_duration_since(self.opened);
        let idle = used.saturating_add(outside.expiry.idle);
        SessionInfo {
            id: self.id,
            environment: self.environment.environment.name.as_str().to_owned(),
            limits: self.limits,
            generation: outside.generation,
            busy: outside.stopper.is_some(),
            executions: outside.executions,
            opened_at: self.opened_at,
            last_used_at: self.after(used).unwrap_or(self.opened_at),
            idle: outside.expiry.idle,
            expires_at: self.after(idle.min(outside.expiry.absolute)),
        }
    }

    /// That long after it was opened; `None` is later than there are dates for.
    fn after(&self, duration: Duration) -> Option<DateTime<Utc>> {
        self.opened_at.checked_add_signed(TimeDelta::from_std(duration).ok()?)
    }

    fn busy_error(&self) -> Error {
        Error::new(ErrorCode::SessionBusy, format!("session {} is running something else", self.id))
            .hint("wait for it to end, or interrupt it")
    }
}

pub(crate) fn not_found_error(id: SandboxId) -> Error {
    let message = format!("session {id} is not there, or not any more");
    Error::new(ErrorCode::SessionNotFound, message).hint("open a new one")
}

/// The turn to use a session, for an execution or for its files. When it is dropped while the
/// sandbox is out, the caller has gone away in the middle of something: that ended the sandbox, and
/// the memory is lost.
#[derive(Debug)]
pub(crate) struct SessionLease {
    pub(crate) session: Arc<LiveSession>,
    state: OwnedMutexGuard<LeasedState>,
    sandbox_taken: bool,
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        if self.sandbox_taken {
            self.record_state_loss();
            self.state.loss_unreported = true;
        }
        let mut outside = self.session.shared();
        outside.stopper = None;
        outside.last_used = Instant::now();
    }
}

impl SessionLease {
    pub(crate) fn generation(&self) -> u64 {
        self.session.shared().generation
    }

    /// The number of the execution that begins now.
    pub(crate) fn count_execution(&self) -> u64 {
        let mut outside = self.session.shared();
        outside.executions += 1;
        outside.executions
    }

    /// Its sandbox, or a new one in the place of one that died. To be given back.
    pub(crate) async fn take_sandbox(&mut self, engine: &Engine) -> Result<SandboxHandle, Error> {
        let home = match self.state.handle.take() {
            Some(home) => home,
            None => {
                let LiveSession { environment: ready, limits, .. } = &*self.session;
                engine.attach_sandbox(ready, limits, &self.session.grants()).await?
            }
        };
        self.sandbox_taken = true;
        Ok(home)
    }

    pub(crate) fn return_sandbox(&mut self, home: SandboxHandle) {
        self.state.handle = Some(home);
        self.sandbox_taken = false;
    }

    /// The sandbox is gone, and with it what it remembered; tells the new generation.
    pub(crate) fn record_state_loss(&mut self) -> u64 {
        self.sandbox_taken = false;
        self.session.record_state_loss()
    }

    /// Whether a loss of memory is still to be told. Who asks tells it.
    pub(crate) fn take_unreported_loss(&mut self) -> bool {
        std::mem::take(&mut self.state.loss_unreported)
    }

    /// A new generation without equipment, and the sandbox of the old one, to be ended.
    pub(crate) fn reset(&mut self) -> (u64, Option<Sandbox>) {
        self.session.shared().grants = None;
        // Both at once: whoever goes away while the old one ends leaves no session that still
        // counts on it.
        (self.record_state_loss(), self.state.handle.take().map(|home| home.sandbox))
    }

    pub(crate) fn set_grants(&mut self, equipment: ReservedGrants) {
        self.session.shared().grants = Some(equipment);
    }

    /// Memory that ending the sandbox would give back.
    pub(crate) fn private_bytes(&self) -> u64 {
        self.state.handle.as_ref().map_or(0, |home| home.sandbox.private_bytes())
    }
}
