//! Sessions: sandboxes that live as long as a conversation.
//!
//! A session is used by whoever has its [`Turn`], one at a time, and a session that is closed gives
//! no more turns. A memory that is lost, in whatever way, is told by its generation.

use crate::capacity::Slot;
use crate::command::Lent;
use crate::config::{EndReason, Expiry};
use crate::engine::Engine;
use crate::environments::Ready;
use crate::installs::Packages;
use crate::outlet::{self, Outlet, OutletGuard};
use crate::redact::Redactor;
use crate::stores::{Held, Reserved};
use chrono::{DateTime, TimeDelta, Utc};
use sandbox::{Sandbox, Stopper};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;
use types::{Code, Fault, Limits, SandboxId};

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
pub(crate) struct Session {
    pub(crate) id: SandboxId,
    pub(crate) ready: Arc<Ready>,
    pub(crate) limits: Limits,
    inside: Arc<Mutex<Inside>>,
    outside: SyncMutex<Outside>,
    opened: Instant,
    opened_at: DateTime<Utc>,
    _slot: Slot,
}

/// What only the one whose turn it is may touch.
#[derive(Debug)]
struct Inside {
    /// `None` after the interpreter has died; the next execution starts another one.
    home: Option<Home>,
    /// The memory was lost, and no record has said it yet.
    loss_untold: bool,
}

#[derive(Debug)]
struct Outside {
    generation: u64,
    executions: u64,
    expiry: Expiry,
    last_used: Instant,
    /// Of the one whose turn it is.
    stopper: Option<Stopper>,
    closed: bool,
    equipment: Option<Equipment>,
}

/// What a sandbox of the session has besides its working directory.
#[derive(Debug)]
pub(crate) struct Equipment {
    pub(crate) lent: Lent,
    pub(crate) _reserved: Reserved,
}

/// A sandbox, and what it holds besides its working directory.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) sandbox: Sandbox,
    pub(crate) held: Held,
    /// What was installed in it.
    pub(crate) packages: Arc<Packages>,
    /// For everything that code in it was ever given.
    pub(crate) redactor: Redactor,
    _outlet: Option<OutletGuard>,
}

impl Home {
    pub(crate) fn new(
        mut sandbox: Sandbox,
        held: Held,
        outlet: Option<&Outlet>,
        redactor: Redactor,
    ) -> Self {
        let _outlet = outlet::open(&mut sandbox, outlet);
        Self { sandbox, held, packages: Arc::default(), redactor, _outlet }
    }
}

/// What a session is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) id: SandboxId,
    pub(crate) generation: u64,
    pub(crate) limits: Limits,
    pub(crate) expiry: Expiry,
    pub(crate) ready: Arc<Ready>,
    pub(crate) equipment: Equipment,
    pub(crate) home: Home,
    pub(crate) slot: Slot,
}

impl Session {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { id, generation, limits, expiry, ready, equipment, home, slot } = parts;
        let opened = Instant::now();
        let outside = Outside {
            generation,
            executions: 0,
            expiry,
            last_used: opened,
            stopper: None,
            closed: false,
            equipment: Some(equipment),
        };
        Self {
            id,
            ready,
            limits,
            inside: Arc::new(Mutex::new(Inside { home: Some(home), loss_untold: generation > 1 })),
            outside: SyncMutex::new(outside),
            opened,
            opened_at: Utc::now(),
            _slot: slot,
        }
    }

    fn outside(&self) -> MutexGuard<'_, Outside> {
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lent(&self) -> Lent {
        self.outside().equipment.as_ref().map_or_else(Lent::default, |it| it.lent.clone())
    }

    /// Told to all that runs in it.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let Lent { variables, outlet, .. } = self.lent();
        let proxy = outlet.map(|_| outlet::proxy_variables()).unwrap_or_default();
        proxy.into_iter().chain(variables).collect()
    }

    /// The interpreter is gone, and with it what it remembered.
    fn lose_memory(&self) -> u64 {
        let mut outside = self.outside();
        outside.generation += 1;
        outside.generation
    }

    /// The turn to use it, which `stopper` can end.
    pub(crate) fn turn(self: &Arc<Self>, stopper: Stopper) -> Result<Turn, Fault> {
        let inside = Arc::clone(&self.inside).try_lock_owned().map_err(|_| self.busy())?;
        let mut outside = self.outside();
        if outside.closed {
            return Err(not_found(self.id));
        }
        outside.stopper = Some(stopper);
        outside.last_used = Instant::now();
        drop(outside);
        Ok(Turn { session: Arc::clone(self), inside, lent: false })
    }

    /// Asks the running execution to end; whether there was one.
    pub(crate) fn interrupt(&self) -> bool {
        let outside = self.outside();
        outside.stopper.as_ref().inspect(|stopper| stopper.stop()).is_some()
    }

    /// Gives no more turns, and ends the present one without waiting for the code to agree.
    pub(crate) fn close(&self) {
        let mut outside = self.outside();
        outside.closed = true;
        outside.stopper.iter().for_each(Stopper::kill);
    }

    /// What it holds, once the last turn is over.
    pub(crate) async fn emptied(&self) -> Option<Sandbox> {
        self.inside.lock().await.home.take().map(|home| home.sandbox)
    }

    /// Closes it if it is time, and says why.
    pub(crate) fn expire(&self, now: Instant) -> Option<EndReason> {
        let mut outside = self.outside();
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
        outside.stopper.iter().for_each(Stopper::kill);
        Some(reason)
    }

    pub(crate) fn expiry(&self) -> Expiry {
        self.outside().expiry
    }

    pub(crate) fn set_expiry(&self, expiry: Expiry) {
        self.outside().expiry = expiry;
    }

    pub(crate) fn info(&self) -> SessionInfo {
        let outside = self.outside();
        let used = outside.last_used.saturating_duration_since(self.opened);
        let idle = used.saturating_add(outside.expiry.idle);
        SessionInfo {
            id: self.id,
            environment: self.ready.environment.name.as_str().to_owned(),
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

    fn busy(&self) -> Fault {
        Fault::new(Code::SessionBusy, format!("session {} is running something else", self.id))
            .hint("wait for it to end, or interrupt it")
    }
}

pub(crate) fn not_found(id: SandboxId) -> Fault {
    let message = format!("session {id} is not there, or not any more");
    Fault::new(Code::SessionNotFound, message).hint("open a new one")
}

/// The turn to use a session, for an execution or for its files. When it is dropped while the
/// sandbox is out, the caller has gone away in the middle of something: that ended the sandbox, and
/// the memory is lost.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) session: Arc<Session>,
    inside: OwnedMutexGuard<Inside>,
    lent: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.lent {
            self.lose_memory();
            self.inside.loss_untold = true;
        }
        let mut outside = self.session.outside();
        outside.stopper = None;
        outside.last_used = Instant::now();
    }
}

impl Turn {
    pub(crate) fn generation(&self) -> u64 {
        self.session.outside().generation
    }

    /// The number of the execution that begins now.
    pub(crate) fn count_execution(&self) -> u64 {
        let mut outside = self.session.outside();
        outside.executions += 1;
        outside.executions
    }

    /// Its sandbox, or a new one in the place of one that died. To be given back.
    pub(crate) async fn borrow(&mut self, engine: &Engine) -> Result<Home, Fault> {
        let home = match self.inside.home.take() {
            Some(home) => home,
            None => {
                let Session { ready, limits, .. } = &*self.session;
                engine.furnish(ready, limits, &self.session.lent()).await?
            }
        };
        self.lent = true;
        Ok(home)
    }

    pub(crate) fn give_back(&mut self, home: Home) {
        self.inside.home = Some(home);
        self.lent = false;
    }

    /// The sandbox is gone, and with it what it remembered; tells the new generation.
    pub(crate) fn lose_memory(&mut self) -> u64 {
        self.lent = false;
        self.session.lose_memory()
    }

    /// Whether a loss of memory is still to be told. Who asks tells it.
    pub(crate) fn take_untold_loss(&mut self) -> bool {
        std::mem::take(&mut self.inside.loss_untold)
    }

    /// A new generation without equipment, and the sandbox of the old one, to be ended.
    pub(crate) fn reset(&mut self) -> (u64, Option<Sandbox>) {
        self.session.outside().equipment = None;
        // Both at once: whoever goes away while the old one ends leaves no session that still
        // counts on it.
        (self.lose_memory(), self.inside.home.take().map(|home| home.sandbox))
    }

    pub(crate) fn equip(&mut self, equipment: Equipment) {
        self.session.outside().equipment = Some(equipment);
    }

    /// Memory that ending the sandbox would give back.
    pub(crate) fn private_bytes(&self) -> u64 {
        self.inside.home.as_ref().map_or(0, |home| home.sandbox.private_bytes())
    }
}
