//! Whether new work can be done: something can be written, there is room on the disks, and a sandbox
//! can be had. Each is tried as a request would, within a bound, and the answer is good for a while,
//! so that asking is no way to keep the server busy.

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
/// Time for one check. A machine that is only busy is faster.
const CHECK_MAX: Duration = Duration::from_secs(4);
/// Below this, records of a few executions fill the disk.
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
    fn from(is_well: bool) -> Self {
        if is_well { Self::Ok } else { Self::Failed }
    }
}

/// The last result, and its time. The holder of the lock checks; the others wait for it.
pub(crate) type ReadinessCache = Mutex<Option<(Instant, Readiness)>>;

impl Service {
    pub async fn readiness(self: &Arc<Self>) -> Readiness {
        let mut last = self.readiness.lock().await;
        let found = match *last {
            Some((at, found)) if at.elapsed() < AGE_MAX => found,
            _ => {
                let found = self.check_readiness().await;
                *last = Some((Instant::now(), found));
                found
            }
        };
        drop(last);
        let status = if self.is_stopping() { ReadinessStatus::Draining } else { found.status };
        Readiness { status, ..found }
    }

    /// The checks are beside each other, so that together they take no longer than one.
    async fn check_readiness(self: &Arc<Self>) -> Readiness {
        let (database, disk, sandboxes) =
            tokio::join!(self.can_write(), self.has_room(), self.can_run());
        let [database, disk, sandboxes] = [database, disk, sandboxes].map(CheckResult::from);
        let is_well = [database, disk, sandboxes].iter().all(|check| *check == CheckResult::Ok);
        let status = if is_well { ReadinessStatus::Ready } else { ReadinessStatus::Unready };
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
                tracing::warn!("not ready: a write takes too long");
                false
            }
        }
    }

    async fn has_room(&self) -> bool {
        let data = self.config.data.clone();
        let looked = tokio::task::spawn_blocking(move || free_bytes(&data));
        match timeout(CHECK_MAX, looked).await {
            Ok(Ok(Ok(bytes))) if bytes >= ROOM_BYTES_MIN => true,
            found => {
                tracing::warn!(?found, "not ready: the disk of the database is full");
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
                tracing::warn!("not ready: a sandbox takes too long");
                false
            }
        }
    }
}

fn free_bytes(data: &Path) -> rustix::io::Result<u64> {
    let disk = statvfs(data)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}
