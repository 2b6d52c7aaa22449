//! Sessions: sandboxes that live as long as a conversation.
//!
//! The holder of a [`SessionLease`] uses the session, one at a time, and a closed session gives no
//! more leases. If the interpreter's state is lost for any reason, the generation increases.

use crate::capacity::CapacityPermit;
use crate::clock::Clock;
use crate::config::{EndReason, Expiry};
use crate::egress::{EgressGuard, serve_proxy_socket};
use crate::engine::Engine;
use crate::environment_cache::RunningEnvironment;
use crate::package_installer::PackageInstalls;
use crate::sandbox_grants::{ReservedGrants, SandboxGrants};
use crate::volumes::WritableVolumes;
use chrono::{DateTime, TimeDelta, Utc};
use redact::OutputRedactor;
use sandbox::{Sandbox, StopHandle};
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedMutexGuard};
use types::{Error, ErrorCode, Limits, PrincipalId, SandboxId};

/// Public information about a session.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    pub id: SandboxId,
    pub environment: String,
    pub limits: Limits,
    pub generation: u64,
    pub busy: bool,
    /// The number of executions, including the running one.
    pub executions: u64,
    pub opened_at: DateTime<Utc>,
    pub last_used_at: DateTime<Utc>,
    /// Closed after that time without use.
    pub idle: Duration,
    /// When it expires if it is not used until then. Absent if that is beyond the range of dates.
    pub expires_at: Option<DateTime<Utc>>,
}

#[derive(Debug)]
pub(crate) struct LiveSession {
    pub(crate) id: SandboxId,
    pub(crate) environment: Arc<RunningEnvironment>,
    pub(crate) started_by: Option<PrincipalId>,
    pub(crate) limits: Limits,
    leased: Arc<Mutex<LeasedState>>,
    shared: SyncMutex<SharedState>,
    opened: Instant,
    opened_at: DateTime<Utc>,
    clock: Clock,
    _permit: CapacityPermit,
}

/// State that only the holder of the lease may access.
#[derive(Debug)]
struct LeasedState {
    /// `None` after the interpreter has ended; the next execution starts another one.
    handle: Option<SandboxHandle>,
    /// The state was lost, and no record has reported it yet.
    loss_unreported: bool,
}

#[derive(Debug)]
struct SharedState {
    generation: u64,
    executions: u64,
    expiry: Expiry,
    last_used: Instant,
    /// Stops the holder of the lease.
    stopper: Option<StopHandle>,
    closed: bool,
    grants: Option<ReservedGrants>,
}

/// A sandbox and its attachments.
#[derive(Debug)]
pub(crate) struct SandboxHandle {
    pub(crate) sandbox: Sandbox,
    pub(crate) grants: Arc<SandboxGrants>,
    pub(crate) volumes: WritableVolumes,
    /// The packages installed in it.
    pub(crate) packages: Arc<PackageInstalls>,
    /// For every secret that code in it ever had.
    pub(crate) redactor: OutputRedactor,
    _egress: Option<EgressGuard>,
}

impl SandboxHandle {
    pub(crate) fn new(
        mut sandbox: Sandbox,
        volumes: WritableVolumes,
        grants: Arc<SandboxGrants>,
    ) -> Self {
        let _egress = serve_proxy_socket(&mut sandbox, &grants);
        let redactor = grants.redactor.clone();
        Self { sandbox, grants, volumes, packages: Arc::default(), redactor, _egress }
    }
}

/// The parts of a new session.
#[derive(Debug)]
pub(crate) struct SessionParts {
    pub(crate) clock: Clock,
    pub(crate) id: SandboxId,
    pub(crate) generation: u64,
    pub(crate) started_by: Option<PrincipalId>,
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
            clock,
            id,
            generation,
            started_by,
            limits,
            expiry,
            environment: ready,
            grants,
            handle,
            permit,
        } = parts;
        let opened = clock.instant();
        let shared = SharedState {
            generation,
            executions: 0,
            expiry,
            last_used: opened,
            stopper: None,
            closed: false,
            grants: Some(grants),
        };
        Self {
            id,
            environment: ready,
            started_by,
            limits,
            leased: Arc::new(Mutex::new(LeasedState {
                handle: Some(handle),
                loss_unreported: generation > 1,
            })),
            shared: SyncMutex::new(shared),
            opened,
            opened_at: clock.now(),
            clock,
            _permit: permit,
        }
    }

    fn shared(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn grants(&self) -> Arc<SandboxGrants> {
        self.shared().grants.as_ref().map(|it| Arc::clone(&it.grants)).unwrap_or_default()
    }

    /// Records that the interpreter has ended and its state is lost.
    fn record_state_loss(&self) -> u64 {
        let mut shared = self.shared();
        shared.generation += 1;
        shared.generation
    }

    /// Leases the session. `stopper` can end the lease.
    pub(crate) fn lease_session(
        self: &Arc<Self>,
        stopper: StopHandle,
    ) -> Result<SessionLease, Error> {
        let state = Arc::clone(&self.leased).try_lock_owned().map_err(|_| self.busy_error())?;
        let mut shared = self.shared();
        if shared.closed {
            return Err(not_found_error(self.id));
        }
        shared.stopper = Some(stopper);
        shared.last_used = self.clock.instant();
        drop(shared);
        Ok(SessionLease { session: Arc::clone(self), state, sandbox_taken: false })
    }

    /// Asks the running execution to end. Returns whether there was one.
    pub(crate) fn interrupt(&self) -> bool {
        let shared = self.shared();
        shared.stopper.as_ref().inspect(|stopper| stopper.stop()).is_some()
    }

    /// Gives no more leases, and ends the current one without waiting for the code to react.
    pub(crate) fn close(&self) {
        let mut shared = self.shared();
        shared.closed = true;
        shared.stopper.iter().for_each(StopHandle::kill);
    }

    /// Takes its sandbox, once the last lease has ended.
    pub(crate) async fn take_sandbox(&self) -> Option<Sandbox> {
        self.leased.lock().await.handle.take().map(|handle| handle.sandbox)
    }

    /// Closes the session if it has expired, and returns the reason.
    pub(crate) fn expire(&self, now: Instant) -> Option<EndReason> {
        let mut shared = self.shared();
        // A session that runs something is not idle, however long that takes.
        let unused = shared.stopper.is_none()
            && now.saturating_duration_since(shared.last_used) > shared.expiry.idle;
        let old = now.saturating_duration_since(self.opened) > shared.expiry.absolute;
        let reason = match (old, unused) {
            (true, _) => EndReason::Age,
            (false, true) => EndReason::Idle,
            (false, false) => return None,
        };
        shared.closed = true;
        shared.stopper.iter().for_each(StopHandle::kill);
        Some(reason)
    }

    pub(crate) fn expiry(&self) -> Expiry {
        self.shared().expiry
    }

    pub(crate) fn set_expiry(&self, expiry: Expiry) {
        self.shared().expiry = expiry;
    }

    pub(crate) fn info(&self) -> SessionInfo {
        let shared = self.shared();
        let used = shared.last_used.saturating_duration_since(self.opened);
        let idle = used.saturating_add(shared.expiry.idle);
        SessionInfo {
            id: self.id,
            environment: self.environment.environment.name.as_str().to_owned(),
            limits: self.limits,
            generation: shared.generation,
            busy: shared.stopper.is_some(),
            executions: shared.executions,
            opened_at: self.opened_at,
            last_used_at: self.after(used).unwrap_or(self.opened_at),
            idle: shared.expiry.idle,
            expires_at: self.after(idle.min(shared.expiry.absolute)),
        }
    }

    /// The time this long after it was opened; `None` if that is beyond the range of dates.
    fn after(&self, duration: Duration) -> Option<DateTime<Utc>> {
        self.opened_at.checked_add_signed(TimeDelta::from_std(duration).ok()?)
    }

    fn busy_error(&self) -> Error {
        Error::new(ErrorCode::SessionBusy, format!("session {} is running something else", self.id))
            .hint("wait for it to end, or interrupt it")
    }
}

pub(crate) fn not_found_error(id: SandboxId) -> Error {
    let message = format!("session {id} does not exist or is closed");
    Error::new(ErrorCode::SessionNotFound, message).hint("open a new one")
}

/// The exclusive right to use a session, for an execution or for its files. If it is dropped while
/// the sandbox is taken, the caller went away in the middle of something: that ended the sandbox,
/// and its state is lost.
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
        let mut shared = self.session.shared();
        shared.stopper = None;
        shared.last_used = self.session.clock.instant();
    }
}

impl SessionLease {
    pub(crate) fn generation(&self) -> u64 {
        self.session.shared().generation
    }

    /// The name of the session's environment.
    pub(crate) fn environment(&self) -> &str {
        self.session.environment.environment.name.as_str()
    }

    /// Counts the execution that begins now, and returns its number.
    pub(crate) fn count_execution(&self) -> u64 {
        let mut shared = self.session.shared();
        shared.executions += 1;
        shared.executions
    }

    /// Takes its sandbox, or a new one if it died. The caller returns it afterwards.
    pub(crate) async fn take_sandbox(&mut self, engine: &Engine) -> Result<SandboxHandle, Error> {
        let handle = match self.state.handle.take() {
            Some(handle) => handle,
            None => {
                let LiveSession { environment: ready, limits, started_by, .. } = &*self.session;
                let grants = self.session.grants();
                engine.attach_session_sandbox(ready, limits, grants, *started_by).await?
            }
        };
        self.sandbox_taken = true;
        Ok(handle)
    }

    pub(crate) fn return_sandbox(&mut self, handle: SandboxHandle) {
        self.state.handle = Some(handle);
        self.sandbox_taken = false;
    }

    /// Records that the sandbox has ended and its state is lost. Returns the new generation.
    pub(crate) fn record_state_loss(&mut self) -> u64 {
        self.sandbox_taken = false;
        self.session.record_state_loss()
    }

    /// Whether a loss of state is still unreported. The caller must report it.
    pub(crate) fn take_unreported_loss(&mut self) -> bool {
        std::mem::take(&mut self.state.loss_unreported)
    }

    /// Starts a new generation without grants, and returns the old sandbox for the caller to end.
    pub(crate) fn reset(&mut self) -> (u64, Option<Sandbox>) {
        self.session.shared().grants = None;
        // In one step: if the caller goes away while the old sandbox ends, the session no longer
        // refers to it.
        (self.record_state_loss(), self.state.handle.take().map(|handle| handle.sandbox))
    }

    pub(crate) fn set_grants(&mut self, grants: ReservedGrants) {
        self.session.shared().grants = Some(grants);
    }

    /// Memory that ending the sandbox would free.
    pub(crate) fn private_bytes(&self) -> u64 {
        self.state.handle.as_ref().map_or(0, |handle| handle.sandbox.private_bytes())
    }
}
