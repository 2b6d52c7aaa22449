//! A whole Belljar for one client: its records live as long as it does.

use super::{Own, PATIENCE, reader};
use crate::cli::setup::EngineArgs;
use crate::cli::{Failure, progress, serve};
use mcp::{Asker, Door, Manners};
use service::{Config, PermissionChange, Service, Started};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Where the records of clients are, each in a directory of its own.
const HOME: &str = "mcp";
/// Records without a lock are being made, for so long at most.
const BEGINNING: Duration = Duration::from_secs(60);
/// Between making a lock and taking it. Only older records are looked at, so that two that begin at
/// once do not take each other for dead.
const LOCKING: Duration = Duration::from_secs(2);
/// What runs when the client goes has nobody to tell.
pub(super) const DRAIN: Duration = Duration::ZERO;

/// A service of its own, and the only one who can ask it for something.
pub(super) struct Embedded {
    pub(super) service: Arc<Service>,
    pub(super) asker: Asker,
    /// Removed when it goes.
    _records: TempDir,
}

pub(super) async fn run(args: &EngineArgs, own: Own) -> Result<(), Failure> {
    let embedded = Embedded::start(args, own.fetch_from).await?;
    let service = &embedded.service;
    let change = PermissionChange { permission: own.permission.unwrap_or_default() };
    let set = service.set_code_permission(&embedded.asker.caller, change).await;
    set.map_err(|refused| *refused.fault)?;
    // The client is answered meanwhile: it would give up on a server that builds first.
    let preparing = tokio::spawn({
        let service = Arc::clone(service);
        async move { service.prepare(progress::show()).await }
    });
    let manners = Manners { task_after: Duration::from_secs(own.task_seconds), address: None };
    let door = Door::new(Arc::clone(service), Some(embedded.asker.clone()), manners);
    let served = tokio::select! {
        served = mcp::stdio(door, PATIENCE) => served,
        () = reader::gone() => Ok(()),
        () = serve::told_to_stop() => Ok(()),
    };
    preparing.abort();
    service.stop(DRAIN).await;
    served.map_err(Failure::belljar)
}

impl Embedded {
    pub(super) async fn start(
        args: &EngineArgs,
        fetch_exceptions: Vec<String>,
    ) -> Result<Self, Failure> {
        let engine = args.service()?;
        let home = engine.data.join(HOME);
        forget_the_dead(&home);
        let records = records(&home).map_err(|error| {
            Failure::belljar(format!("{} cannot be written: {error}", home.display()))
        })?;
        let config = Config {
            environment: args.environment.clone(),
            fetch_exceptions,
            ..Config::new(records.path().into())
        };
        let started = Service::start(config, engine).await;
        let Started { service, owner_key } =
            started.map_err(|error| Failure::belljar(error.to_string()))?;
        let key = owner_key.ok_or_else(|| Failure::belljar("new records have an owner already"))?;
        let caller = service.authenticate(key.reveal()).map_err(|refused| *refused.fault)?;
        let asker = Asker { caller: Arc::new(caller), place: None };
        Ok(Self { service, asker, _records: records })
    }
}

fn records(home: &Path) -> std::io::Result<TempDir> {
    fs::create_dir_all(home)?;
    tempfile::Builder::new().prefix("client-").tempdir_in(home)
}

/// Whoever was killed has left its records; a store that nobody holds is nobody's.
fn forget_the_dead(home: &Path) {
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    for directory in entries.map(|entry| entry.path()).filter(|path| is_dead(path)) {
        // Another one that starts may be doing the same.
        let _ = fs::remove_dir_all(directory);
    }
}

fn is_dead(directory: &Path) -> bool {
    let made = fs::metadata(directory).and_then(|about| about.modified());
    let age = made.ok().and_then(|made| made.elapsed().ok()).unwrap_or_default();
    match fs::File::open(directory.join("store/lock")) {
        Ok(lock) => age > LOCKING && lock.try_lock().is_ok(),
        // It was killed while it began, or while it removed them.
        Err(_) => age > BEGINNING,
    }
}
