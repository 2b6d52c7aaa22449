//! Periodic work: sessions that ended are marked, approvals without a decision
//! are closed, what keys that are over have begun is ended, what is over is forgotten, and environments out of use are removed. While the wall clock
//! is in doubt nothing is forgotten.

use crate::error::RequestError;
use crate::memory_trim;
use crate::service::Service;
use chrono::TimeDelta;
use db::{ClockReading, DatabaseError, PurgeOutcome, Retention, was_quarantined_before};
use engine::SessionEnded;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use types::WorkspaceId;

/// Often enough that an expired question is not shown as open for long.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(30);
/// A key that expires is refused at once; what runs with it ends at the next look, which is promised
/// within 5 seconds. One costs a row for each execution that runs.
const STOP_INTERVAL: Duration = Duration::from_secs(1);
/// Its sessions and questions end at the next look for those, which costs two queries.
const REMAINS_INTERVAL: Duration = Duration::from_secs(5);
/// Between two tries to write down what the disk had no room for.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Environments are replaced by hand and go out of use over days.
const COLLECTION_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// All tasks end with the service.
pub(crate) fn spawn_maintenance(service: &Arc<Service>, ended: UnboundedReceiver<SessionEnded>) {
    tokio::spawn(mark_expired(Arc::downgrade(service), ended));
    tokio::spawn(maintenance_loop(Arc::downgrade(service)));
    tokio::spawn(stop_loop(Arc::downgrade(service)));
    tokio::spawn(remains_loop(Arc::downgrade(service)));
    tokio::spawn(environment_collection_loop(Arc::downgrade(service)));
    tokio::spawn(memory_trim::trim_periodically(Arc::downgrade(service)));
}

/// Each is tried until it is written: its key is not free before.
async fn mark_expired(service: Weak<Service>, mut ended: UnboundedReceiver<SessionEnded>) {
    while let Some(SessionEnded { id, .. }) = ended.recv().await {
        while let Some(service) = service.upgrade() {
            let now = service.now();
            let marked = service.db.write(move |tx| tx.expire_session(id, now)).await;
            let Err(error) = marked else { break };
            tracing::error!(session = %id, %error, "the end of an execution will be stored later");
            drop(service);
            sleep(RETRY_DELAY).await;
        }
    }
}

async fn maintenance_loop(service: Weak<Service>) {
    let mut was_confirmed = true;
    while let Some(service) = service.upgrade() {
        let clock = service.config.clock.clone();
        let now = ClockReading { wall: clock.now(), monotonic: clock.instant() };
        match service.run_maintenance(now).await {
            Ok(forgetting) => {
                let is_confirmed = forgetting != PurgeOutcome::ClockUnconfirmed;
                match (was_confirmed, is_confirmed) {
                    (true, false) => tracing::warn!(
                        "the system clock is not trusted after a jump or a pause of the server; \
                         nothing expires until it has been stable for 6 hours"
                    ),
                    (false, true) => tracing::info!("the system clock is trusted again"),
                    _ => {}
                }
                was_confirmed = is_confirmed;
            }
            Err(refused) => {
                tracing::error!(error = %refused.error, "maintenance failed; retrying later");
            }
        }
        drop(service);
        clock.sleep(MAINTENANCE_INTERVAL).await;
    }
}

/// Apart from all writes: neither a slow disk nor the remains of another workspace delay it.
async fn stop_loop(service: Weak<Service>) {
    while let Some(service) = service.upgrade() {
        service.stop_over();
        let clock = service.config.clock.clone();
        drop(service);
        clock.sleep(STOP_INTERVAL).await;
    }
}

/// A workspace in which there is much to end holds up no other: each has a task of its own.
async fn remains_loop(service: Weak<Service>) {
    let mut under_way: HashMap<WorkspaceId, JoinHandle<()>> = HashMap::new();
    while let Some(service) = service.upgrade() {
        under_way.retain(|_, task| !task.is_finished());
        match service.remains(service.now()).await {
            Ok(remains) => {
                for (workspace, origins) in remains {
                    under_way.entry(workspace).or_insert_with(|| {
                        let service = Arc::clone(&service);
                        tokio::spawn(async move {
                            let ended = service.end_remains(workspace, origins).await;
                            ended.unwrap_or_else(|refused| log_remains(&refused));
                        })
                    });
                }
            }
            Err(refused) => log_remains(&refused),
        }
        let clock = service.config.clock.clone();
        drop(service);
        clock.sleep(REMAINS_INTERVAL).await;
    }
}

fn log_remains(refused: &RequestError) {
    tracing::error!(
        error = %refused.error,
        "ending executions and sessions of expired keys failed; retrying later"
    );
}

async fn environment_collection_loop(service: Weak<Service>) {
    let mut clock = tokio::time::interval(COLLECTION_INTERVAL);
    loop {
        clock.tick().await;
        let Some(service) = service.upgrade() else { return };
        match service.engine.remove_unused_environments().await {
            Ok(gone) if gone.is_empty() => {}
            Ok(gone) => tracing::info!(?gone, "unused environments were removed"),
            Err(error) => tracing::error!(%error, "removing unused environments failed"),
        }
    }
}

impl Service {
    async fn run_maintenance(
        self: &Arc<Self>,
        now: ClockReading,
    ) -> Result<PurgeOutcome, RequestError> {
        self.expire_approvals(now.wall).await?;
        let days = |time| TimeDelta::from_std(time).unwrap_or(TimeDelta::MAX);
        let retention = Retention {
            executions: days(self.config.retention),
            audit: days(self.config.audit_retention),
            remembered_approvals: days(self.config.approval_retention),
        };
        let forgetting = self.db.purge(now, retention).await?;
        let before = now.wall.checked_sub_signed(retention.executions);
        if let (PurgeOutcome::Completed(_), Some(before)) = (forgetting, before) {
            let is_over = move |name: &str| was_quarantined_before(name, before);
            self.engine.remove_volumes_set_aside(is_over).await?;
        }
        Ok(forgetting)
    }

    /// Marks executions that the last stop of the server interrupted.
    pub(crate) async fn mark_interrupted(&self) -> Result<(), DatabaseError> {
        let now = self.now();
        let (executions, sessions) = self
            .db
            .write(move |tx| {
                tx.interrupt_all_requests()?;
                let executions = tx.interrupt_all_executions(now)?;
                tx.release_interrupted_cursors()?;
                Ok((executions, tx.mark_all_sessions_lost(now)?))
            })
            .await?;
        if !executions.is_empty() || sessions > 0 {
            tracing::warn!(
                executions = executions.len(),
                sessions,
                "executions were interrupted by the last stop of the server"
            );
        }
        Ok(())
    }
}
