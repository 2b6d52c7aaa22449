//! [`Service`]: its state, its start and its stop.

use crate::catalog::agent_skills::{LoadedSkills, SkillDirectories};
use crate::catalog::mcp_servers::McpAccess;
use crate::catalog::tools::ContractCache;
use crate::check_slots::CheckSlots;
use crate::config::Config;
use crate::error::RequestError;
use crate::identity::CallerTokens;
use crate::identity::api_key::ApiKeyText;
use crate::identity::caller::Caller;
use crate::identity::self_service_rate::SelfServiceRateLimit;
use crate::identity::tokens::TokenVerifier;
use crate::metrics::ExecutionMetrics;
use crate::network::{self, EgressLogQueue};
use crate::runs::approvals::{ApprovalChange, ApprovalJsonCache};
use crate::runs::executions::ActiveExecution;
use crate::runs::output_budget::OutputBudget;
use crate::{mac_keys, maintenance, readiness};
use chrono::{DateTime, Utc};
use db::{Database, DatabaseError, NewAuditEntry};
use egress::{FetchConfig, Fetcher, Proxy};
use engine::{Clock, Engine, PackageRoot, VolumeBase};
use policy::{ApprovalKey, FileUrlKey};
use redact::SecretEncodingsCache;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::RwLock;
use tokio::sync::broadcast;
use tokio::sync::mpsc::unbounded_channel;
use types::{ExecutionId, ObjectRef, PrincipalId, Privilege, WorkKind, WorkspaceId};
use vault::{Vault, VaultError};

/// Changes of approvals that a slow watcher may be behind; missed ones are in the list of
/// approvals.
const APPROVAL_CHANGES_BUFFERED: usize = 256;
/// Changes of tools that a watcher may be behind; a slower watcher learns only that there were
/// some.
const TOOL_CHANGES_BUFFERED: usize = 64;

#[derive(Debug)]
pub struct Service {
    pub(crate) config: Config,
    pub(crate) db: Arc<Database>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) fetcher: Fetcher,
    /// The MCP servers that the operator allows.
    pub(crate) mcp: McpAccess,
    pub(crate) approval_key: ApprovalKey,
    pub(crate) file_url_key: FileUrlKey,
    /// Locked for writing while all values are encrypted with a new key.
    pub(crate) vault: Arc<RwLock<Vault>>,
    /// Absent if no issuer is trusted: then only API keys are accepted.
    pub(crate) token_verifier: Option<TokenVerifier>,
    /// Tokens that the egress proxy may pass on.
    pub(crate) caller_tokens: CallerTokens,
    pub(crate) contracts: ContractCache,
    /// Threads for checks of definitions and arguments.
    pub(crate) check_slots: CheckSlots,
    /// The memory of the output of all running executions.
    pub(crate) output_budget: Arc<OutputBudget>,
    /// Held while a function starts to use an environment or an unused one is removed, so that no
    /// function loses its environment.
    pub(crate) function_environments: AsyncMutex<()>,
    active: Mutex<HashMap<ExecutionId, Arc<ActiveExecution>>>,
    pub(crate) execution_metrics: ExecutionMetrics,
    pub(crate) proxy: Proxy,
    /// Shared by sandboxes with the same secrets.
    pub(crate) secret_encodings: SecretEncodingsCache,
    pub(crate) egress_log_queue: Arc<EgressLogQueue>,
    pub(crate) loaded_skills: LoadedSkills,
    /// Held while an uploaded skill is read.
    pub(crate) skill_loads: tokio::sync::Mutex<()>,
    pub(crate) skill_directories: SkillDirectories,
    pub(crate) approval_changes: broadcast::Sender<ApprovalChange>,
    pub(crate) approval_json: ApprovalJsonCache,
    /// Held while approvals are ended that have expired or whose requester was revoked.
    pub(crate) approval_ends: AsyncMutex<()>,
    pub(crate) tool_changes: broadcast::Sender<WorkspaceId>,
    pub(crate) self_service_rate: SelfServiceRateLimit,
    pub(crate) readiness: readiness::ReadinessCache,
}

/// A running service, and the owner's key if this was its first start.
#[derive(Debug)]
pub struct StartedService {
    pub service: Arc<Service>,
    pub owner_key: Option<ApiKeyText>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("cannot use the approval key: {0}")]
    ApprovalKey(keyfile::Error),
    #[error("cannot use the key of the file URLs: {0}")]
    FileUrlKey(keyfile::Error),
    #[error("cannot use the master key of the secrets: {0}")]
    Vault(#[from] VaultError),
    #[error("cannot create the directory for packages of sessions: {0}")]
    PackageRoot(std::io::Error),
    #[error("{0}")]
    Fetch(#[from] egress::FetchExceptionParseError),
    #[error("--mcp-server: {0}")]
    McpHost(#[from] egress::HostPortError),
    #[error("{0}")]
    FirstKey(types::Error),
    #[error("cannot use the directory of the volumes: {0}")]
    Volumes(std::io::Error),
    #[error("{0}")]
    Quarantine(types::Error),
    #[error(transparent)]
    Proxy(#[from] network::ProxyError),
}

impl Service {
    /// The clock in the configuration of the service.
    pub fn clock(&self) -> &Clock {
        &self.config.clock
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.config.clock.now()
    }

    /// Opens the records, marks what the last stop has interrupted, and starts the engine. Must be
    /// called inside a tokio runtime.
    #[boxed::future]
    pub async fn start(
        config: Config,
        engine: engine::Config,
    ) -> Result<StartedService, StartError> {
        let db = Database::open_with(&config.data, config.audit_key.as_deref())?;
        if let Some(quarantined) = db.quarantined() {
            let (files, directory) = (quarantined.files, quarantined.directory.display());
            tracing::warn!(files, %directory, "files without a record were moved aside");
        }
        let approval_key = mac_keys::approval_key(&config.data).map_err(StartError::ApprovalKey)?;
        let file_url_key = mac_keys::file_url_key(&config.data).map_err(StartError::FileUrlKey)?;
        let in_use = db.read(|rows| rows.sealing_keys())?;
        let vault = Vault::open_with(config.secrets_key.clone(), &config.data, &in_use)?;
        let fetcher = new_fetcher(&config)?;
        let mcp = McpAccess::new(&config.mcp_hosts, &config.mcp_commands)?;
        let (ended_sender, ended) = unbounded_channel();
        let (proxy, certificates) = network::new_proxy(&config)?;
        let volumes =
            VolumeBase::open(db::volumes_directory(&config.data)).map_err(StartError::Volumes)?;
        let package_root = PackageRoot::open(&engine.data).map_err(StartError::PackageRoot)?;
        let (volumes, package_root, session_ended) =
            (Some(volumes), Some(package_root), Some(ended_sender));
        let certificates = Some(certificates);
        let engine = Engine::start(engine::Config {
            volumes,
            package_root,
            certificates,
            session_ended,
            clock: config.clock.clone(),
            ..engine
        });
        let service = Arc::new(Self {
            token_verifier: config.issuer.clone().map(TokenVerifier::new),
            caller_tokens: CallerTokens::default(),
            output_budget: OutputBudget::new(config.output_bytes_max),
            config,
            db,
            engine,
            fetcher,
            mcp,
            approval_key,
            file_url_key,
            vault: Arc::new(RwLock::new(vault)),
            approval_changes: broadcast::Sender::new(APPROVAL_CHANGES_BUFFERED),
            approval_json: ApprovalJsonCache::default(),
            approval_ends: AsyncMutex::default(),
            tool_changes: broadcast::Sender::new(TOOL_CHANGES_BUFFERED),
            contracts: ContractCache::default(),
            check_slots: CheckSlots::new(),
            function_environments: AsyncMutex::default(),
            active: Mutex::default(),
            execution_metrics: ExecutionMetrics::new(),
            proxy,
            secret_encodings: SecretEncodingsCache::default(),
            egress_log_queue: Arc::default(),
            loaded_skills: LoadedSkills::default(),
            skill_loads: tokio::sync::Mutex::default(),
            skill_directories: SkillDirectories::default(),
            self_service_rate: SelfServiceRateLimit::default(),
            readiness: readiness::ReadinessCache::default(),
        });
        tokio::spawn(network::flush_loop(
            Arc::downgrade(&service),
            Arc::clone(&service.egress_log_queue),
        ));
        service
            .quarantine_orphaned_volumes()
            .await
            .map_err(|error| StartError::Quarantine(*error.error))?;
        service.mark_interrupted().await?;
        service.mark_interrupted_deployments().await?;
        let owner_key = service.create_first_workspace().await?;
        service.backfill_workspaces().await?;
        service.resume_approvals().await?;
        maintenance::spawn_maintenance(&service, ended);
        Ok(StartedService { service, owner_key })
    }

    /// Refuses new executions, and lets running ones continue for at most `drain`.
    pub async fn stop(&self, drain: Duration) {
        let stop_runs =
            || self.started_executions().iter().for_each(|running| running.request_stop());
        let mut shutdown = std::pin::pin!(self.engine.shutdown(drain));
        tokio::select! {
            biased;
            // Runs of models stop before their code does, so that no model reacts to the stop.
            () = tokio::time::sleep(drain) => {
                stop_runs();
                shutdown.await;
            }
            () = &mut shutdown => {}
        }
        // Without the engine, runs of models cannot continue.
        stop_runs();
        // Executions write their last events after their sandboxes have ended.
        for running in self.started_executions() {
            running.live.wait_closed().await;
        }
        if let Err(error) = self.flush_egress_log().await {
            tracing::error!(%error, "the last entries of the egress log could not be stored");
        }
    }

    pub(crate) fn active_executions(
        &self,
    ) -> MutexGuard<'_, HashMap<ExecutionId, Arc<ActiveExecution>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executions that have started, without those that wait for an approval, possibly for days.
    pub(crate) fn started_executions(&self) -> Vec<Arc<ActiveExecution>> {
        self.active_executions().values().filter(|running| running.has_started()).cloned().collect()
    }

    /// Builds the default environment before the first request needs it.
    pub async fn prepare_environment(
        &self,
        progress: impl FnMut(engine::Progress) + Send + 'static,
    ) -> Result<(), types::Error> {
        self.engine.prepare(&self.config.environment, progress).await.map(drop)
    }

    pub fn is_stopping(&self) -> bool {
        self.engine.is_stopping()
    }

    /// The environment of code that is no other kind of work: executions, sessions without an
    /// agent, and functions.
    pub(crate) fn environment_or_default(&self, requested: Option<String>) -> String {
        requested.unwrap_or_else(|| self.config.environment.clone())
    }

    /// The environment of a kind of work: as its object or request says, or as the operator says,
    /// or that of the kind. Another one never takes its place: what it could import would differ.
    pub(crate) fn environment_for(&self, kind: WorkKind, requested: Option<String>) -> String {
        requested.unwrap_or_else(|| self.config.environment_of(kind).to_owned())
    }

    /// The principal whose objects a list shows; `None` for an owner of the workspace, who sees all
    /// objects.
    pub(crate) fn owner_filter(
        &self,
        caller: &Caller,
    ) -> Result<Option<PrincipalId>, RequestError> {
        let all = ObjectRef::Workspace(caller.workspace);
        let permit = self.permit(caller.workspace, &caller.principal, Privilege::Ownership, all)?;
        Ok(permit.is_none().then(|| caller.id()))
    }
}

impl Caller {
    /// An audit entry for an action of the caller.
    pub(crate) fn audit_entry(
        &self,
        action: &str,
        object: impl std::fmt::Display,
        detail: impl Into<String>,
    ) -> NewAuditEntry {
        NewAuditEntry {
            at: self.clock.now(),
            workspace: self.workspace,
            principal: Some(self.id()),
            key: self.key(),
            action: action.to_owned(),
            object: object.to_string(),
            detail: detail.into(),
        }
    }
}

fn new_fetcher(config: &Config) -> Result<Fetcher, egress::FetchExceptionParseError> {
    let exceptions = config.fetch_exceptions.iter().map(|text| text.parse());
    Ok(Fetcher::new(FetchConfig {
        exceptions: exceptions.collect::<Result<_, _>>()?,
        bytes_max: config.document_bytes_max,
        ..FetchConfig::default()
    }))
}
