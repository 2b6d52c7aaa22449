//! The service: what it holds, how it begins, and how it ends.

use crate::approvals::{ApprovalNews, QuestionTexts};
use crate::budget::OutputBudget;
use crate::caller::Caller;
use crate::config::Config;
use crate::executions::Running;
use crate::network::{self, History, Lendings};
use crate::own_changes::OwnChanges;
use crate::refused::Refused;
use crate::secret::Secret;
use crate::tokens::Tokens;
use crate::tools::Contracts;
use crate::{housekeeping, readiness, seal_key};
use egress::{FetchConfig, Fetcher, Proxy};
use engine::{Engine, House, RedactorCache, StoreBase};
use policy::SealKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{AuditLine, Store, StoreError};
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::RwLock;
use tokio::sync::broadcast;
use tokio::sync::mpsc::unbounded_channel;
use types::{ExecutionId, Object, PrincipalId, Privilege, WorkspaceId};
use vault::{Vault, VaultError};

/// Questions that a slow listener may be behind; what it misses then is in the list.
const APPROVAL_NEWS: usize = 256;
/// Changes that a listener may be behind; one who is further behind is told that there were some.
const TOOL_NEWS: usize = 64;

#[derive(Debug)]
pub struct Service {
    pub(crate) config: Config,
    pub(crate) store: Arc<Store>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) fetcher: Fetcher,
    pub(crate) seal_key: SealKey,
    /// Written to while everything gets a new key.
    pub(crate) vault: Arc<RwLock<Vault>>,
    /// Absent where no issuer is trusted: then nothing but a key is taken.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) contracts: Contracts,
    /// Of the output of all executions under way.
    pub(crate) output_budget: Arc<OutputBudget>,
    /// Held while an environment of functions is taken into use or removed, so that no function is
    /// left without.
    pub(crate) function_environments: AsyncMutex<()>,
    running: Mutex<HashMap<ExecutionId, Arc<Running>>>,
    pub(crate) proxy: Proxy,
    /// Shared by sandboxes that are given the same secrets.
    pub(crate) redactors: RedactorCache,
    pub(crate) history: Arc<History>,
    pub(crate) lendings: Lendings,
    pub(crate) approval_news: broadcast::Sender<ApprovalNews>,
    pub(crate) question_texts: QuestionTexts,
    pub(crate) tool_news: broadcast::Sender<WorkspaceId>,
    pub(crate) own_changes: OwnChanges,
    pub(crate) readiness: readiness::Last,
}

/// A service that runs, and the owner's key if this was its first start.
#[derive(Debug)]
pub struct Started {
    pub service: Arc<Service>,
    pub owner_key: Option<Secret>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the key for approvals cannot be used: {0}")]
    SealKey(keyfile::Error),
    #[error("the key of the secrets cannot be used: {0}")]
    Vault(#[from] VaultError),
    #[error("there is no place for packages that sessions install: {0}")]
    House(std::io::Error),
    #[error("{0}")]
    Fetch(#[from] egress::NotAnException),
    #[error("{0}")]
    FirstKey(types::Fault),
    #[error("the directory of the stores cannot be used: {0}")]
    Stores(std::io::Error),
    #[error("{0}")]
    Sweep(types::Fault),
    #[error(transparent)]
    Proxy(#[from] network::ProxyError),
}

impl Service {
    /// Opens what is kept, marks what the last stop has interrupted, and starts the engine. Must
    /// be called inside a tokio runtime.
    pub async fn start(config: Config, engine: engine::Config) -> Result<Started, StartError> {
        let store = Store::open_with(&config.data, config.audit_key.as_deref())?;
        if let Some(set_aside) = store.set_aside() {
            let (files, directory) = (set_aside.files, set_aside.directory.display());
            tracing::warn!(files, %directory, "files without a record were set aside");
        }
        let seal_key = seal_key::load(&config.data).map_err(StartError::SealKey)?;
        let in_use = store.read(|rows| rows.sealing_keys())?;
        let vault = Vault::open_with(config.secrets_key.clone(), &config.data, &in_use)?;
        let fetcher = fetcher(&config)?;
        let (told, ended) = unbounded_channel();
        let (proxy, certificates) = network::proxy(&config)?;
        let stores = StoreBase::open(store::volumes(&config.data)).map_err(StartError::Stores)?;
        let house = House::open(&engine.data).map_err(StartError::House)?;
        let (stores, house, ended_to) = (Some(stores), Some(house), Some(told));
        let certificates = Some(certificates);
        let engine = Engine::start(engine::Config {
            stores,
            house,
            certificates,
            ended: ended_to,
            ..engine
        });
        let service = Arc::new(Self {
            tokens: config.issuer.clone().map(Tokens::new),
            output_budget: OutputBudget::new(config.output_bytes_max),
            config,
            store,
            engine,
            fetcher,
            seal_key,
            vault: Arc::new(RwLock::new(vault)),
            approval_news: broadcast::Sender::new(APPROVAL_NEWS),
            question_texts: QuestionTexts::default(),
            tool_news: broadcast::Sender::new(TOOL_NEWS),
            contracts: Contracts::default(),
            function_environments: AsyncMutex::default(),
            running: Mutex::default(),
            proxy,
            redactors: RedactorCache::default(),
            history: Arc::default(),
            lendings: Lendings::default(),
            own_changes: OwnChanges::default(),
            readiness: readiness::Last::default(),
        });
        tokio::spawn(network::keep(Arc::downgrade(&service), Arc::clone(&service.history)));
        service
            .set_aside_unknown_stores()
            .await
            .map_err(|refused| StartError::Sweep(*refused.fault))?;
        service.mark_interrupted().await?;
        service.mark_interrupted_deployments().await?;
        let owner_key = service.first_start().await?;
        service.complete_workspaces().await?;
        service.take_up_questions().await?;
        housekeeping::begin(&service, ended);
        Ok(Started { service, owner_key })
    }

    /// Lets what runs end, but not longer than `drain`, and takes nothing new.
    pub async fn stop(&self, drain: Duration) {
        let stop_runs = || self.begun().iter().for_each(|running| running.stop());
        let mut shutdown = std::pin::pin!(self.engine.shutdown(drain));
        tokio::select! {
            biased;
            // Before their code is ended: a model would be asked what to do about it.
            () = tokio::time::sleep(drain) => {
                stop_runs();
                shutdown.await;
            }
            () = &mut shutdown => {}
        }
        // Without an engine, a model has nothing left to do.
        stop_runs();
        // Their last writes come after their sandboxes have ended.
        for running in self.begun() {
            running.live.over().await;
        }
        if let Err(error) = self.write_history().await {
            tracing::error!(%error, "the last attempts to reach hosts could not be written down");
        }
    }

    pub(crate) fn running(&self) -> MutexGuard<'_, HashMap<ExecutionId, Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that run; a question to a person may stay open for days.
    fn begun(&self) -> Vec<Arc<Running>> {
        self.running().values().filter(|running| running.has_begun()).cloned().collect()
    }

    /// Builds the usual environment before the first request needs it.
    pub async fn prepare(
        &self,
        progress: impl FnMut(engine::Progress) + Send + 'static,
    ) -> Result<(), types::Fault> {
        self.engine.prepare(&self.config.environment, progress).await.map(drop)
    }

    /// How full it is, as counts.
    pub fn gauge(&self) {
        let load = self.engine.load();
        metrics::gauge!("belljar_sandboxes_in_use").set(f64::from(load.in_use));
        metrics::gauge!("belljar_sandboxes_max").set(f64::from(load.most));
        metrics::gauge!("belljar_requests_queued").set(load.waiting as f64);
        metrics::gauge!("belljar_output_bytes").set(self.output_budget.in_use() as f64);
        metrics::gauge!("belljar_executions_running").set(self.begun().len() as f64);
    }

    pub fn is_stopping(&self) -> bool {
        self.engine.is_stopping()
    }

    pub(crate) fn environment(&self, asked: Option<String>) -> String {
        asked.unwrap_or_else(|| self.config.environment.clone())
    }

    /// Whose things a list shows: all of them to an owner of the workspace, and to others theirs.
    pub(crate) fn only_own(&self, caller: &Caller) -> Result<Option<PrincipalId>, Refused> {
        let all = Object::Workspace(caller.workspace);
        let permit = self.permit(caller.workspace, &caller.principal, Privilege::Ownership, all)?;
        Ok(permit.is_none().then(|| caller.id()))
    }
}

impl Caller {
    /// A line for the audit log.
    pub(crate) fn did(
        &self,
        action: &str,
        object: impl std::fmt::Display,
        detail: impl Into<String>,
    ) -> AuditLine {
        AuditLine {
            at: chrono::Utc::now(),
            workspace: self.workspace,
            principal: Some(self.id()),
            key: self.key(),
            action: action.to_owned(),
            object: object.to_string(),
            detail: detail.into(),
        }
    }
}

fn fetcher(config: &Config) -> Result<Fetcher, egress::NotAnException> {
    let exceptions = config.fetch_exceptions.iter().map(|text| text.parse());
    Ok(Fetcher::new(FetchConfig {
        exceptions: exceptions.collect::<Result<_, _>>()?,
        bytes_max: config.document_bytes_max,
        ..FetchConfig::default()
    }))
}
