//! A few warmed sandboxes waiting, and the nursery they come from, which is replaced from time to
//! time and when it has died.

use crate::live::Sandbox;
use crate::nursery::{BirthError, Nursery, NurseryConfig, RESTOCK_PAUSE};
use jail::StoreMount;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;
use types::Limits;

#[derive(Debug, Clone)]
pub struct PoolConfig {
    pub nursery: NurseryConfig,
    /// How many sandboxes wait.
    pub ready: usize,
    /// All sandboxes of one zygote share its hash seed and its address layout: what one learns of
    /// them is worth less the sooner they change.
    pub rotate_after_births: u64,
    pub rotate_after: Duration,
}

#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    current: AsyncMutex<Option<Current>>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Clone)]
struct Current {
    nursery: Arc<Nursery>,
    since: Instant,
}

#[derive(Debug, Default)]
struct Waiting {
    sandboxes: VecDeque<Sandbox>,
    on_the_way: usize,
    rotating: bool,
}

impl Pool {
    /// Starts the nursery and fills the pool in the background.
    pub async fn start(config: PoolConfig) -> Result<Arc<Self>, BirthError> {
        let pool =
            Arc::new(Self { config, current: AsyncMutex::new(None), waiting: Mutex::default() });
        pool.nursery().await?;
        pool.refill();
        Ok(pool)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nursery in use; a new one if it has died.
    pub async fn nursery(self: &Arc<Self>) -> Result<Arc<Nursery>, BirthError> {
        let mut current = self.current.lock().await;
        if let Some(found) = current.as_ref().filter(|current| !current.nursery.is_gone()) {
            if self.is_due(found) {
                self.rotate();
            }
            return Ok(Arc::clone(&found.nursery));
        }
        let nursery = Nursery::start(self.config.nursery.clone()).await?;
        *current = Some(Current { nursery: Arc::clone(&nursery), since: Instant::now() });
        Ok(nursery)
    }

    fn is_due(&self, current: &Current) -> bool {
        current.nursery.births() >= self.config.rotate_after_births
            || current.since.elapsed() >= self.config.rotate_after
    }

    /// Puts a new nursery in the place of the old one once it is ready; until then the old one
    /// serves, and its sandboxes live on as long as they are wanted.
    fn rotate(self: &Arc<Self>) {
        if std::mem::replace(&mut self.waiting().rotating, true) {
            return;
        }
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            if let Ok(nursery) = Nursery::start(pool.config.nursery.clone()).await {
                *pool.current.lock().await = Some(Current { nursery, since: Instant::now() });
                let old = std::mem::take(&mut pool.waiting().sandboxes);
                drop(old);
            }
            pool.waiting().rotating = false;
            pool.refill();
        });
    }

    /// A sandbox with these limits: one that waits, if they are the usual ones.
    pub async fn lease(self: &Arc<Self>, limits: &Limits) -> Result<Sandbox, BirthError> {
        let usual = Limits { wall_ms: 0, cpu_ms: 0, output_bytes: 0, result_bytes: 0, ..*limits }
            == Limits {
                wall_ms: 0,
                cpu_ms: 0,
                output_bytes: 0,
                result_bytes: 0,
                ..Limits::DEFAULT
            };
        let waiting = if usual { self.take_waiting() } else { None };
        match waiting {
            Some(sandbox) => {
                self.refill();
                Ok(sandbox)
            }
            None => self.fresh(limits).await,
        }
    }

    /// The first that still lives: with its warden all of them may have died.
    fn take_waiting(&self) -> Option<Sandbox> {
        let mut waiting = self.waiting();
        std::iter::from_fn(|| waiting.sandboxes.pop_front()).find(Sandbox::is_alive)
    }

    /// A sandbox that is born now.
    pub async fn fresh(self: &Arc<Self>, limits: &Limits) -> Result<Sandbox, BirthError> {
        self.with_stores(limits, &[]).await
    }

    /// The same, with directories beside its working directory, which none that waits has.
    pub async fn with_stores(
        self: &Arc<Self>,
        limits: &Limits,
        stores: &[StoreMount],
    ) -> Result<Sandbox, BirthError> {
        let nursery = self.nursery().await?;
        match nursery.birth(limits, stores).await {
            // Its zygote or its warden has ended, or hung and was ended. No code was sent there, so that
            // nothing runs twice.
            Err(_) if nursery.is_gone() => self.nursery().await?.birth(limits, stores).await,
            born => born,
        }
    }

    /// How many sandboxes wait now.
    pub fn ready(&self) -> usize {
        self.waiting().sandboxes.len()
    }

    /// Lets go of it, and returns when nothing is left of what waits here and of the nursery, which
    /// is not before everybody else has let go of the pool and its sandboxes.
    pub async fn close(self: Arc<Self>) {
        let over = self.current.lock().await.as_ref().map(|current| current.nursery.over());
        drop(self);
        if let Some(over) = over {
            over.await;
        }
    }

    fn refill(self: &Arc<Self>) {
        let missing = {
            let mut waiting = self.waiting();
            let missing =
                self.config.ready.saturating_sub(waiting.sandboxes.len() + waiting.on_the_way);
            waiting.on_the_way += missing;
            missing
        };
        for _ in 0..missing {
            let pool = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(RESTOCK_PAUSE).await;
                let born = pool.warmed().await;
                let mut waiting = pool.waiting();
                waiting.on_the_way -= 1;
                waiting.sandboxes.extend(born);
            });
        }
    }

    async fn warmed(self: &Arc<Self>) -> Option<Sandbox> {
        let mut sandbox = self.fresh(&Limits::DEFAULT).await.ok()?;
        sandbox.warm().await.ok()?;
        Some(sandbox)
    }
}
