//! A whole Belljar for one client or one command: its records live as long as it does.

use super::setup::EngineArgs;
use super::{Failure, serve};
use crate::client::Client;
use crate::http::{self, App, Bounds, Names};
use agent::{Agents, ModelSettings, Models};
use mcp::{Asker, Door, Manners};
use metrics_exporter_prometheus::PrometheusBuilder;
use service::{Config, Service, Started};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Any port of this machine.
const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
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
pub(super) struct Own {
    pub(super) service: Arc<Service>,
    pub(super) agents: Arc<Agents>,
    pub(super) asker: Asker,
    key: service::Secret,
    /// Removed when it goes.
    _records: TempDir,
}

impl Own {
    pub(super) async fn start(
        args: &EngineArgs,
        fetch_exceptions: Vec<String>,
        models: ModelSettings,
    ) -> Result<Self, Failure> {
        let models = Models::new(models).map_err(|error| Failure::usage(error.to_string()))?;
        let engine = args.service()?;
        let home = engine.data.join(HOME);
        forget_the_dead(&home);
        let records = records(&home).map_err(|error| {
            Failure::belljar(format!("{} cannot be written: {error}", home.display()))
        })?;
        let config = Config {
            environment: args.environment().to_owned(),
            fetch_exceptions,
            ..Config::new(records.path().into())
        };
        let started = Service::start(config, engine).await;
        let Started { service, owner_key } =
            started.map_err(|error| Failure::belljar(error.to_string()))?;
        let key = owner_key.ok_or_else(|| Failure::belljar("new records have an owner already"))?;
        let caller = service.authenticate(key.reveal()).map_err(|refused| *refused.fault)?;
        let asker = Asker { caller: Arc::new(caller), place: None };
        let agents = Agents::new(Arc::clone(&service), models, None);
        Ok(Self { service, agents, asker, key, _records: records })
    }

    /// The same over HTTP, for this process alone: nobody else knows the key.
    pub(super) async fn client(&self) -> Result<Client, Failure> {
        let failed = |error: std::io::Error| Failure::belljar(error.to_string());
        let listener = serve::listen(HERE).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let bounds = Bounds { rate_per_second: u32::MAX, concurrency: u32::MAX, mcp_sessions: 1 };
        let (service, agents) = (Arc::clone(&self.service), Arc::clone(&self.agents));
        let names = Names::new(address, &[]);
        let app = App::new(service, Arc::clone(&agents), names, bounds, metrics, None);
        let manners = Manners { task_after: Duration::MAX, address: None };
        let router = http::router(app, Door::new(agents, None, manners));
        let never = std::future::pending();
        tokio::spawn(http::serve(listener, router, never, DRAIN, serve::descriptors()));
        Ok(Client::new(&format!("http://{address}"), self.key.reveal())?)
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
