//! An embedded service for one client or one command. Its records are deleted when it ends.

use super::CliError;
use super::engine_args::EngineArgs;
use crate::client::ApiClient;
use agent::{Agents, ModelSettings, Models};
use api::{AllowedHosts, AppState, InProcessApi, RequestLimits};
use mcp::{McpOptions, McpServer};
use service::{Config, RequestCaller, Service, StartedService};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Value of the Host header of requests inside this process. Nothing listens there.
const HOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Directory of the records of all clients, with one subdirectory per client.
const RECORDS_DIRECTORY: &str = "mcp";
/// Maximum age of records without a lock that another process may still be creating.
const SETUP_TIME_MAX: Duration = Duration::from_secs(60);
/// Time between creating a lock and taking it. Only older records are checked, so that two
/// processes that start at once do not consider each other dead.
const LOCK_GRACE: Duration = Duration::from_secs(2);
/// Executions are not awaited after the client has disconnected.
pub(super) const DRAIN_TIME: Duration = Duration::ZERO;

/// A service and its only principal.
pub(super) struct EmbeddedService {
    pub(super) service: Arc<Service>,
    pub(super) agents: Arc<Agents>,
    pub(super) caller: RequestCaller,
    key: service::ApiKeyText,
    /// Deleted on drop.
    _records: TempDir,
}

impl EmbeddedService {
    pub(super) async fn start(
        args: &EngineArgs,
        fetch_exceptions: Vec<String>,
        models: ModelSettings,
    ) -> Result<Self, CliError> {
        let models = Models::new(models).map_err(|error| CliError::usage(error.to_string()))?;
        let engine = args.service_config()?;
        let records = engine.data.join(RECORDS_DIRECTORY);
        remove_stale_records(&records);
        let records = create_records(&records).map_err(|error| {
            CliError::internal(format!("cannot write {}: {error}", records.display()))
        })?;
        // One environment for all work of one command, which builds it before it starts.
        let config = Config::new(records.path().into()).in_environment(args.environment());
        let config = Config { fetch_exceptions, ..config };
        let started = Service::start(config, engine).await;
        let StartedService { service, owner_key } =
            started.map_err(|error| CliError::internal(error.to_string()))?;
        let key = owner_key
            .ok_or_else(|| CliError::internal("the new data directory already has an owner"))?;
        let caller = service.authenticate_key(key.reveal()).map_err(|rejected| *rejected.error)?;
        let caller = RequestCaller { caller: Arc::new(caller), permit: None };
        let agents = Agents::new(Arc::clone(&service), models);
        Ok(Self { service, agents, caller, key, _records: records })
    }

    /// Returns a client of the API of this service. Requests stay in this process.
    pub(super) fn client(&self) -> Result<ApiClient, CliError> {
        let limits =
            RequestLimits { rate_per_second: u32::MAX, concurrency: u32::MAX, mcp_sessions: 1 };
        let (service, agents) = (Arc::clone(&self.service), Arc::clone(&self.agents));
        let hosts = AllowedHosts::new(HOST, &[]);
        let app = AppState::new(service, Arc::clone(&agents), hosts, limits, None);
        let options = McpOptions { task_after: Duration::MAX, base_url: None };
        let api = InProcessApi::new(api::router(app, McpServer::new(agents, None, options)));
        Ok(ApiClient::in_process(api, &format!("http://{HOST}"), self.key.reveal())?)
    }
}

fn create_records(records: &Path) -> std::io::Result<TempDir> {
    fs::create_dir_all(records)?;
    tempfile::Builder::new().prefix("client-").tempdir_in(records)
}

/// Removes the records of killed processes: those whose lock no process holds.
fn remove_stale_records(records: &Path) {
    let entries = fs::read_dir(records).into_iter().flatten().flatten();
    for directory in entries.map(|entry| entry.path()).filter(|path| is_stale(path)) {
        // Another process that starts may remove it at the same time.
        let _ = fs::remove_dir_all(directory);
    }
}

fn is_stale(directory: &Path) -> bool {
    let modified = fs::metadata(directory).and_then(|about| about.modified());
    let age = modified.ok().and_then(|modified| modified.elapsed().ok()).unwrap_or_default();
    match fs::File::open(directory.join("db/lock")) {
        Ok(lock) => age > LOCK_GRACE && lock.try_lock().is_ok(),
        // The process was killed while it created or removed them.
        Err(_) => age > SETUP_TIME_MAX,
    }
}
