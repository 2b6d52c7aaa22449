//! Whether the server can start new work: it writes to the database, checks free disk space and
//! starts a sandbox, each with a timeout. The result is cached for some seconds, so that frequent
//! probes cost nothing.

use crate::service::Service;
use rustix::fs::statvfs;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a result is reused.
const AGE_MAX: Duration = Duration::from_secs(5);
/// Timeout of one check. A server that is only busy is faster.
const CHECK_MAX: Duration = Duration::from_secs(4);
/// With less free space, records of a few executions fill the disk.
const ROOM_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// The result, without any stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Readiness {
    pub status: ReadinessStatus,
    pub database: CheckResult,
    pub disk: CheckResult,
    pub sandboxes: CheckResult,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadinessStatus {
    Ready,
    Unready,
    /// The server is stopping: executions may end, and new ones are refused.
    Draining,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    Ok,
    Failed,
}

impl From<bool> for CheckResult {
    fn from(is_ok: bool) -> Self {
        if is_ok { Self::Ok } else { Self::Failed }
    }
}

/// The last result, and its time. The holder of the lock checks; the others wait for it.
pub(crate) type ReadinessCache = Mutex<Option<(Instant, Readiness)>>;

impl Service {
    pub async fn readiness(self: &Arc<Self>) -> Readiness {
        let mut last = self.readiness.lock().await;
        let readiness = match *last {
            Some((at, readiness)) if at.elapsed() < AGE_MAX => readiness,
            _ => {
                let readiness = self.check_readiness().await;
                *last = Some((Instant::now(), readiness));
                readiness
            }
        };
        drop(last);
        let status = if self.is_stopping() { ReadinessStatus::Draining } else { readiness.status };
        Readiness { status, ..readiness }
    }

    /// The checks run concurrently, so that together they take no longer than the slowest.
    async fn check_readiness(self: &Arc<Self>) -> Readiness {
        let (database, disk, sandboxes) =
            tokio::join!(self.can_write(), self.has_room(), self.can_run());
        let [database, disk, sandboxes] = [database, disk, sandboxes].map(CheckResult::from);
        let is_ok = [database, disk, sandboxes].iter().all(|check| *check == CheckResult::Ok);
        let status = if is_ok { ReadinessStatus::Ready } else { ReadinessStatus::Unready };
        Readiness { status, database, disk, sandboxes }
    }

    async fn can_write(&self) -> bool {
        match timeout(CHECK_MAX, self.db.probe_write()).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready: writing to the database failed");
                false
            }
            Err(_) => {
                tracing::warn!("not ready: no write to the database within {CHECK_MAX:?}");
                false
            }
        }
    }

    async fn has_room(&self) -> bool {
        let data = self.config.data.clone();
        let free = tokio::task::spawn_blocking(move || free_bytes(&data));
        match timeout(CHECK_MAX, free).await {
            Ok(Ok(Ok(bytes))) if bytes >= ROOM_BYTES_MIN => true,
            readiness => {
                tracing::warn!(
                    ?readiness,
                    "not ready: less than {ROOM_BYTES_MIN} bytes free on the disk of the database"
                );
                false
            }
        }
    }

    async fn can_run(&self) -> bool {
        if self.is_stopping() {
            return true;
        }
        match timeout(CHECK_MAX, self.engine.probe(&self.config.environment)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready: no sandbox could be started");
                false
            }
            Err(_) => {
                tracing::warn!("not ready: no sandbox within {CHECK_MAX:?}");
                false
            }
        }
    }
}

fn free_bytes(data: &Path) -> rustix::io::Result<u64> {
    let disk = statvfs(data)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}
