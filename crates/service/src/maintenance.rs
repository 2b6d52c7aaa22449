//! Periodic work: marks expired sessions, closes approvals without a decision, ends what expired
//! keys have started, deletes expired records, and removes unused environments. Nothing is deleted
//! while the wall clock is not trusted.

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

/// Short enough that expired approvals are not shown as pending for long.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(30);
/// Requests of an expired key are refused at once; its executions must end within 5 seconds. One
/// check reads a row per running execution.
const STOP_INTERVAL: Duration = Duration::from_secs(1);
/// Sessions and approvals of an expired key end in this interval; one check costs two queries.
const ORIGIN_CLEANUP_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before the next try after a failed write, such as on a full disk.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Environments become unused over days.
const COLLECTION_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Starts all periodic tasks, which end with the service.
pub(crate) fn spawn_maintenance(service: &Arc<Service>, ended: UnboundedReceiver<SessionEnded>) {
    tokio::spawn(mark_expired(Arc::downgrade(service), ended));
    tokio::spawn(maintenance_loop(Arc::downgrade(service)));
    tokio::spawn(stop_loop(Arc::downgrade(service)));
    tokio::spawn(origin_cleanup_loop(Arc::downgrade(service)));
    tokio::spawn(environment_collection_loop(Arc::downgrade(service)));
    tokio::spawn(memory_trim::trim_periodically(Arc::downgrade(service)));
}

/// Marks expired sessions. Repeats each write until it succeeds, because the session's key is free
/// only after that.
async fn mark_expired(service: Weak<Service>, mut ended: UnboundedReceiver<SessionEnded>) {
    while let Some(SessionEnded { id, .. }) = ended.recv().await {
        while let Some(service) = service.upgrade() {
            let now = service.now();
            let marked = service.db.write(move |tx| tx.expire_session(id, now)).await;
            let Err(error) = marked else { break };
            tracing::error!(session = %id, %error, "cannot store the end of a session; retrying");
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
            Ok(outcome) => {
                let is_confirmed = outcome != PurgeOutcome::ClockUnconfirmed;
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
            Err(error) => {
                tracing::error!(error = %error.error, "maintenance failed; retrying later");
            }
        }
        drop(service);
        clock.sleep(MAINTENANCE_INTERVAL).await;
    }
}

/// Stops executions of expired keys. It never writes, so that neither a slow disk nor another
/// workspace delays it.
async fn stop_loop(service: Weak<Service>) {
    while let Some(service) = service.upgrade() {
        service.stop_revoked();
        let clock = service.config.clock.clone();
        drop(service);
        clock.sleep(STOP_INTERVAL).await;
    }
}

/// Ends sessions and approvals of expired keys, in one task per workspace, so that a workspace with
/// many does not delay others.
async fn origin_cleanup_loop(service: Weak<Service>) {
    let mut tasks: HashMap<WorkspaceId, JoinHandle<()>> = HashMap::new();
    while let Some(service) = service.upgrade() {
        tasks.retain(|_, task| !task.is_finished());
        match service.ended_origins(service.now()).await {
            Ok(ended_origins) => {
                for (workspace, origins) in ended_origins {
                    tasks.entry(workspace).or_insert_with(|| {
                        let service = Arc::clone(&service);
                        tokio::spawn(async move {
                            let ended = service.end_origins(workspace, origins).await;
                            ended.unwrap_or_else(|error| log_cleanup_error(&error));
                        })
                    });
                }
            }
            Err(error) => log_cleanup_error(&error),
        }
        let clock = service.config.clock.clone();
        drop(service);
        clock.sleep(ORIGIN_CLEANUP_INTERVAL).await;
    }
}

fn log_cleanup_error(error: &RequestError) {
    tracing::error!(
        error = %error.error,
        "ending executions and sessions of expired keys failed; retrying later"
    );
}

async fn environment_collection_loop(service: Weak<Service>) {
    let mut clock = tokio::time::interval(COLLECTION_INTERVAL);
    loop {
        clock.tick().await;
        let Some(service) = service.upgrade() else { return };
        match service.engine.remove_unused_environments().await {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => tracing::info!(?removed, "unused environments were removed"),
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
        let outcome = self.db.purge(now, retention).await?;
        let before = now.wall.checked_sub_signed(retention.executions);
        if let (PurgeOutcome::Completed(_), Some(before)) = (outcome, before) {
            let is_expired = move |name: &str| was_quarantined_before(name, before);
            self.engine.remove_volumes_set_aside(is_expired).await?;
        }
        Ok(outcome)
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
