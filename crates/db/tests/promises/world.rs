//! A database for each test, with two workspaces in it that must not see each other.

use crate::wait_blocking;
use belljar_db::{
    ClockReading, Database, DatabaseError, PageRequest, PurgeCounts, PurgeOutcome, Retention, Tx,
};
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use types::{
    Execution, ExecutionId, ExecutionStatus, Grant, GrantId, Limits, ObjectRef, Principal,
    PrincipalId, PrincipalKind, Privilege, SandboxId, Session, SessionStatus, Workspace,
    WorkspaceId,
};
use uuid::Uuid;

pub(crate) const ALL: PageRequest = PageRequest { after: None, limit: 1000 };

pub(crate) struct World {
    pub(crate) db: Arc<Database>,
    pub(crate) data: TempDir,
    pub(crate) home: WorkspaceId,
    pub(crate) other: WorkspaceId,
    pub(crate) alice: PrincipalId,
    /// In the other workspace.
    pub(crate) mallory: PrincipalId,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(&std::env::temp_dir()).await
    }

    pub(crate) async fn on(disk: &Path) -> Self {
        let data = TempDir::new_in(disk).unwrap();
        let db = Database::open(data.path()).unwrap();
        let (home, alice) = settle(&db, "home", "alice").await;
        let (other, mallory) = settle(&db, "other", "mallory").await;
        Self { db, data, home, other, alice, mallory }
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> T {
        self.db.write(job).await.unwrap()
    }

    /// As if the server had ended and was started again.
    pub(crate) fn restart(self) -> Self {
        drop(self.db);
        // A child that another test starts has a copy of the lock until it executes its program.
        let db = wait_blocking::until_some("the lock of the database", || {
            match Database::open(self.data.path()) {
                Err(DatabaseError::Locked { .. }) => None,
                opened => Some(opened.unwrap()),
            }
        });
        Self { db, ..self }
    }
}

async fn settle(db: &Database, workspace: &str, name: &str) -> (WorkspaceId, PrincipalId) {
    let workspace =
        Workspace { id: WorkspaceId::new(id()), name: workspace.into(), created_at: Utc::now() };
    let principal = principal(name);
    let ids = (workspace.id, principal.id);
    let settled = db.write(move |tx| {
        tx.insert_workspace(&workspace)?;
        tx.insert_principal(workspace.id, &principal)
    });
    settled.await.unwrap();
    ids
}

pub(crate) fn id() -> Uuid {
    Uuid::now_v7()
}

/// On a whole second, so that it is easy to read in a failure.
pub(crate) fn moment(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + second, 0).unwrap()
}

pub(crate) fn principal(name: &str) -> Principal {
    Principal {
        id: PrincipalId::new(id()),
        name: name.into(),
        kind: PrincipalKind::User,
        roles: vec!["analyst".into()],
        preferences: BTreeMap::from([("code_model".into(), "small".into())]),
        external_id: None,
        created_at: Utc::now(),
        updated_at: Utc::now(),
    }
}

pub(crate) fn session(owner: PrincipalId, key: Option<&str>) -> Session {
    Session {
        integrations: Vec::new(),
        agent: None,
        sandbox_id: SandboxId::new(id()),
        name: None,
        owner,
        environment: "default".into(),
        key: key.map(Into::into),
        status: SessionStatus::Ready,
        generation: 1,
        limits: Limits::DEFAULT,
        idle_seconds: 1800,
        created_at: moment(0),
        updated_at: moment(0),
        expires_at: Some(moment(1800)),
    }
}

pub(crate) fn execution(principal: PrincipalId, status: ExecutionStatus) -> Execution {
    Execution {
        sandbox_id: Some(SandboxId::new(id())),
        environment: "default".into(),
        status,
        entry: "cell".into(),
        principal: Some(principal),
        code: "1 + 1".into(),
        ..Execution::new(ExecutionId::new(id()), Limits::DEFAULT, moment(0))
    }
}

pub(crate) fn grant(principal: PrincipalId, privilege: Privilege, object: ObjectRef) -> Grant {
    let (id, created_at) = (GrantId::new(id()), Utc::now());
    Grant { id, principal, privilege, object, granted_by: principal, created_at }
}

/// With a clock that is right, whatever it says.
pub(crate) async fn purge(world: &World, now: DateTime<Utc>, retention: Retention) -> PurgeCounts {
    let now = ClockReading { wall: now, monotonic: std::time::Instant::now() };
    match world.db.purge(now, retention).await.unwrap() {
        PurgeOutcome::Completed(purged) => purged,
        PurgeOutcome::ClockUnconfirmed => panic!("the clock is not believed"),
    }
}
