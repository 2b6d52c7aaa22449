//! Sessions: sandboxes that live as long as a conversation.

use crate::capacity::Slot;
use crate::environments::Ready;
use chrono::{DateTime, Utc};
use sandbox::{Sandbox, Stopper};
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use tokio::sync::Mutex;
use tokio::time::Instant;
use types::{Code, Fault, Limits, SandboxId};

/// What can be said of a session from outside.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    pub id: SandboxId,
    pub environment: String,
    pub generation: u64,
    pub busy: bool,
    pub opened_at: DateTime<Utc>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SandboxId,
    pub(crate) ready: Arc<Ready>,
    pub(crate) limits: Limits,
    /// Held by the execution that is running.
    pub(crate) inside: Mutex<Inside>,
    outside: SyncMutex<Outside>,
    opened: Instant,
    opened_at: DateTime<Utc>,
    _slot: Slot,
}

/// What only the running execution may touch.
#[derive(Debug)]
pub(crate) struct Inside {
    /// `None` after the interpreter has died; the next execution starts another one.
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) cells: u64,
    /// The sandbox is with an execution. Found true by the next one when the caller of this one
    /// went away in the middle of it, which ended the sandbox.
    pub(crate) lent: bool,
    /// The memory was lost so, and no record has said it yet.
    pub(crate) loss_untold: bool,
}

/// An execution in a session: over when dropped, also when its caller went away.
#[derive(Debug)]
pub(crate) struct Running<'a>(&'a Session);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut outside = self.0.outside();
        outside.stopper = None;
        outside.last_used = Instant::now();
    }
}

#[derive(Debug)]
struct Outside {
    generation: u64,
    last_used: Instant,
    stopper: Option<Stopper>,
}

impl Session {
    pub(crate) fn new(
        id: SandboxId,
        ready: Arc<Ready>,
        limits: Limits,
        sandbox: Sandbox,
        slot: Slot,
        now: DateTime<Utc>,
    ) -> Self {
        let outside = Outside { generation: 1, last_used: Instant::now(), stopper: None };
        Self {
            id,
            ready,
            limits,
            inside: Mutex::new(Inside {
                sandbox: Some(sandbox),
                cells: 0,
                lent: false,
                loss_untold: false,
            }),
            outside: SyncMutex::new(outside),
            opened: Instant::now(),
            opened_at: now,
            _slot: slot,
        }
    }

    fn outside(&self) -> MutexGuard<'_, Outside> {
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.outside().generation
    }

    /// The interpreter is gone, and with it what it remembered.
    pub(crate) fn lose_memory(&self) -> u64 {
        let mut outside = self.outside();
        outside.generation += 1;
        outside.generation
    }

    pub(crate) fn begin(&self, stopper: Stopper) -> Running<'_> {
        let mut outside = self.outside();
        outside.stopper = Some(stopper);
        outside.last_used = Instant::now();
        Running(self)
    }

    /// Asks the running execution to end; whether there was one.
    pub(crate) fn interrupt(&self) -> bool {
        let outside = self.outside();
        outside.stopper.as_ref().inspect(|stopper| stopper.stop()).is_some()
    }

    /// Ends the running execution without waiting for the code to agree.
    pub(crate) fn kill(&self) {
        if let Some(stopper) = &self.outside().stopper {
            stopper.kill();
        }
    }

    pub(crate) fn idle_since(&self) -> Instant {
        self.outside().last_used
    }

    pub(crate) fn opened(&self) -> Instant {
        self.opened
    }

    pub(crate) fn info(&self) -> SessionInfo {
        let outside = self.outside();
        SessionInfo {
            id: self.id,
            environment: self.ready.environment.name.as_str().to_owned(),
            generation: outside.generation,
            busy: outside.stopper.is_some(),
            opened_at: self.opened_at,
        }
    }

    pub(crate) fn busy(&self) -> Fault {
        Fault::new(Code::SessionBusy, format!("session {} is running something else", self.id))
            .hint("wait for it to end, or interrupt it")
    }
}
