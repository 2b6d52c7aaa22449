//! A pool of prepared sandboxes, and the zygote host that spawns them, which is replaced regularly and
//! when it has died.

use crate::sandbox::Sandbox;
use crate::zygote_host::{REFILL_DELAY, SpawnError, ZygoteHost, ZygoteHostConfig};
use jail::VolumeMount;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;
use types::Limits;

#[derive(Debug, Clone)]
pub struct PoolConfig {
    pub zygote_host: ZygoteHostConfig,
    /// Number of prepared sandboxes.
    pub ready: usize,
    /// Spawns after which the zygote host is replaced. All sandboxes of one zygote share its hash seed
    /// and address layout; the sooner these change, the less an attacker gains by knowing them.
    pub rotate_after_spawns: u64,
    pub rotate_after: Duration,
}

#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    current: AsyncMutex<Option<CurrentHost>>,
    state: Mutex<PoolState>,
}

#[derive(Debug, Clone)]
struct CurrentHost {
    host: Arc<ZygoteHost>,
    since: Instant,
}

#[derive(Debug, Default)]
struct PoolState {
    sandboxes: VecDeque<Sandbox>,
    starting: usize,
    rotating: bool,
}

impl Pool {
    /// Starts the zygote host and fills the pool in the background.
    #[boxed::future]
    pub async fn start(config: PoolConfig) -> Result<Arc<Self>, SpawnError> {
        let pool =
            Arc::new(Self { config, current: AsyncMutex::new(None), state: Mutex::default() });
        pool.zygote_host().await?;
        pool.refill();
        Ok(pool)
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The zygote host in use; a new one if it has died.
    #[boxed::future]
    pub async fn zygote_host(self: &Arc<Self>) -> Result<Arc<ZygoteHost>, SpawnError> {
        let mut current = self.current.lock().await;
        if let Some(found) = current.as_ref().filter(|current| !current.host.is_gone()) {
            if self.is_rotation_due(found) {
                self.rotate();
            }
            return Ok(Arc::clone(&found.host));
        }
        let host = ZygoteHost::start(self.config.zygote_host.clone()).await?;
        *current = Some(CurrentHost { host: Arc::clone(&host), since: Instant::now() });
        Ok(host)
    }

    fn is_rotation_due(&self, current: &CurrentHost) -> bool {
        current.host.spawn_count() >= self.config.rotate_after_spawns
            || current.since.elapsed() >= self.config.rotate_after
    }

    /// Replaces the zygote host once a new one is ready. Sandboxes of the old one continue until they
    /// are dropped.
    fn rotate(self: &Arc<Self>) {
        if std::mem::replace(&mut self.state().rotating, true) {
            return;
        }
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            if let Ok(host) = ZygoteHost::start(pool.config.zygote_host.clone()).await {
                *pool.current.lock().await = Some(CurrentHost { host, since: Instant::now() });
                let old = std::mem::take(&mut pool.state().sandboxes);
                drop(old);
            }
            pool.state().rotating = false;
            pool.refill();
        });
    }

    /// A sandbox with these limits: a ready one, if they are the default ones and more than
    /// `ready_left` are ready.
    pub async fn lease(
        self: &Arc<Self>,
        limits: &Limits,
        ready_left: usize,
    ) -> Result<Sandbox, SpawnError> {
        let is_default =
            Limits { wall_ms: 0, cpu_ms: 0, output_bytes: 0, result_bytes: 0, ..*limits }
                == Limits {
                    wall_ms: 0,
                    cpu_ms: 0,
                    output_bytes: 0,
                    result_bytes: 0,
                    ..Limits::DEFAULT
                };
        let waiting = if is_default { self.take_ready(ready_left) } else { None };
        match waiting {
            Some(sandbox) => {
                self.refill();
                Ok(sandbox)
            }
            None => self.spawn(limits).await,
        }
    }

    /// Takes the first prepared sandbox, if more than `left` are ready. Dead ones are dropped first.
    fn take_ready(&self, left: usize) -> Option<Sandbox> {
        let mut state = self.state();
        state.sandboxes.retain(Sandbox::is_alive);
        if state.sandboxes.len() > left { state.sandboxes.pop_front() } else { None }
    }

    /// Spawns a sandbox instead of taking a prepared one.
    pub async fn spawn(self: &Arc<Self>, limits: &Limits) -> Result<Sandbox, SpawnError> {
        self.spawn_with_volumes(limits, &[]).await
    }

    /// Spawns a sandbox with volumes, which no prepared sandbox has.
    #[boxed::future]
    pub async fn spawn_with_volumes(
        self: &Arc<Self>,
        limits: &Limits,
        volumes: &[VolumeMount],
    ) -> Result<Sandbox, SpawnError> {
        let host = self.zygote_host().await?;
        match host.spawn(limits, volumes).await {
            // Its zygote or warden has exited, or was killed because it hung. No code was sent, so that
            // nothing runs twice.
            Err(_) if host.is_gone() => self.zygote_host().await?.spawn(limits, volumes).await,
            spawned => spawned,
        }
    }

    /// Current number of prepared sandboxes.
    pub fn ready_count(&self) -> usize {
        self.state().sandboxes.len()
    }

    /// Drops the pool, and returns when its zygote host has ended. That is after all other owners have
    /// dropped the pool and its sandboxes.
    pub async fn close(self: Arc<Self>) {
        let terminated =
            self.current.lock().await.as_ref().map(|current| current.host.terminated());
        drop(self);
        if let Some(terminated) = terminated {
            terminated.await;
        }
    }

    fn refill(self: &Arc<Self>) {
        let missing = {
            let mut waiting = self.state();
            let missing =
                self.config.ready.saturating_sub(waiting.sandboxes.len() + waiting.starting);
            waiting.starting += missing;
            missing
        };
        for _ in 0..missing {
            let pool = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(REFILL_DELAY).await;
                let spawned = pool.spawn_warm().await;
                let mut waiting = pool.state();
                waiting.starting -= 1;
                waiting.sandboxes.extend(spawned);
            });
        }
    }

    async fn spawn_warm(self: &Arc<Self>) -> Option<Sandbox> {
        let mut sandbox = self.spawn(&Limits::DEFAULT).await.ok()?;
        sandbox.warm_up().await.ok()?;
        Some(sandbox)
    }
}
