//! Deploying: the environment is made first, and only then does the function serve.
//!
//! While it is made, its row says so, so that nobody takes the environment away and the next start
//! knows what the last stop has interrupted. Of two deployments of one function the later one counts.

use super::package::{ENVIRONMENT_PREFIX, FunctionRequest, Package};
use crate::apart::{aside, to_the_end};
use crate::caller::Caller;
use crate::network::gone_integration;
use crate::packages::against_policy;
use crate::refused::{Refused, invalid, not_found};
use crate::service::Service;
use chrono::{DateTime, Utc};
use engine::{Order, PackageName};
use std::sync::Arc;
use std::time::Duration;
use store::{AuditLine, StoreError, Tx};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use types::{
    Code, Deployment, Fault, Function, FunctionId, FunctionStatus, Grant, InstalledPackage,
    LimitsRequest, Object, PackagePolicy, PrincipalId, Privilege, WorkspaceId,
};
use uuid::Uuid;

const MIB: u64 = 1024 * 1024;
/// Four times what a tool has by default.
const MEMORY_BYTES: u64 = 2048 * MIB;
/// An interpreter with a package or two.
const MEMORY_BYTES_MIN: u64 = 64 * MIB;
/// As long as the platform lets a model wait.
const TIMEOUT_SECONDS_MAX: u64 = contract::POLLING_SECONDS_MAX;
/// Each may have an environment of some hundred megabytes.
const FUNCTIONS_MAX: u64 = 100;
/// Between two tries to write down what the disk had no room for.
const AGAIN: Duration = Duration::from_secs(5);

/// A function that is being deployed, or is deployed.
#[derive(Debug)]
pub struct Deploying {
    pub function: Function,
    /// Whether there was none of that name.
    pub new: bool,
    done: Option<JoinHandle<Result<Function, Fault>>>,
}

impl Deploying {
    /// Waits for it. It goes on, too, if nobody does.
    pub async fn done(self) -> Result<Function, Refused> {
        match self.done {
            None => Ok(self.function),
            Some(done) => match done.await {
                Ok(done) => Ok(done?),
                Err(error) => Err(Fault::new(Code::SandboxUnreachable, error.to_string()).into()),
            },
        }
    }
}

/// What will serve once its environment is there.
struct Next {
    workspace: WorkspaceId,
    id: FunctionId,
    /// When it was begun, as the row says: another time is another deployment.
    begun_at: DateTime<Utc>,
    deployment: Deployment,
    source: Vec<u8>,
    order: Order,
    entry: AuditLine,
}

/// Where a deployment is written.
enum Place {
    /// Over this function, if it is still the same: author, owner and source belong together, and another
    /// deployment or a new owner may have come in between.
    Taken(Box<Function>),
    /// As a new function with this owner.
    New(Grant),
}

impl Service {
    /// Deploys a function, or replaces what is deployed under its name.
    pub async fn deploy_function(
        self: &Arc<Self>,
        caller: &Caller,
        request: FunctionRequest,
    ) -> Result<Deploying, Refused> {
        let name = request.named().unwrap_or_default();
        let before = self.store.read(|rows| rows.function_by_name(caller.workspace, &name))?;
        match &before {
            Some(before) => {
                self.require(caller, Privilege::Modify, Object::Function(before.id))?;
            }
            None => self.require_maker(caller)?,
        }
        let package = aside(move || Package::read(request)).await??;
        let (workspace, integrations) = (caller.workspace, &package.settings.integrations);
        self.check_integrations(workspace, (&caller.principal, "who deploys it"), integrations)?;
        let deployment = self.deployment(workspace, &package, caller.id())?;
        let (service, caller) = (Arc::clone(self), caller.clone());
        to_the_end(
            async move { service.begin_deployment(&caller, package, deployment, before).await },
        )
        .await
    }

    fn deployment(
        &self,
        workspace: WorkspaceId,
        package: &Package,
        author: PrincipalId,
    ) -> Result<Deployment, Refused> {
        let (settings, caps) = (&package.settings, self.caps(workspace)?);
        let memory_bytes = match settings.memory_mb {
            Some(asked) => asked.saturating_mul(MIB),
            None => MEMORY_BYTES.min(caps.0.memory_bytes),
        };
        let usual_seconds = TIMEOUT_SECONDS_MAX.min(caps.0.wall_ms / 1000).max(1);
        let timeout_seconds = settings.timeout_seconds.unwrap_or(usual_seconds);
        let wrong = |message: String| invalid("/files/function.toml", message);
        if memory_bytes < MEMORY_BYTES_MIN {
            return Err(wrong(format!("memory_mb must be at least {}", MEMORY_BYTES_MIN / MIB)));
        }
        if !(1..=TIMEOUT_SECONDS_MAX).contains(&timeout_seconds) {
            return Err(wrong(format!("timeout_seconds must be from 1 to {TIMEOUT_SECONDS_MAX}")));
        }
        let limits = limits(memory_bytes, timeout_seconds);
        limits.resolve(&caps).map_err(|error| wrong(error.to_string()))?;
        Ok(Deployment {
            description: settings.description.clone(),
            files: package.files.listed(),
            sha256: package.files.sha256(),
            environment: self.environment(package.environment().map(str::to_owned)),
            python: settings.python.clone(),
            memory_bytes,
            timeout_seconds,
            integrations: settings.integrations.clone(),
            author,
            deployed_at: Utc::now(),
        })
    }

    /// Writes down what will be, or what is if there is nothing to be made first.
    async fn begin_deployment(
        self: &Arc<Self>,
        caller: &Caller,
        package: Package,
        deployment: Deployment,
        before: Option<Function>,
    ) -> Result<Deploying, Refused> {
        let (now, new, workspace) = (Utc::now(), before.is_none(), caller.workspace);
        let source = package.files.to_bytes();
        let function = before.clone().unwrap_or_else(|| unborn(caller, package.settings.name, now));
        let object = Object::Function(function.id);
        let entry = caller.did("function.deploy", object, &function.name);
        // From here on nobody removes the environment that this one will use.
        let turn = self.function_environments.lock().await;
        let is_missing = self.engine.check_environment(&deployment.environment).is_err();
        let has_packages = package.order.is_some();
        let order = package.order.filter(|_| is_missing);
        if has_packages && order.is_none() {
            self.check_packages(workspace, &deployment.environment).await?;
        }
        let (function, serves) = match &order {
            Some(_) => (deploying(function, &deployment, now), None),
            None => (ready(function, deployment.clone(), now), Some(source.clone())),
        };
        let place = match &before {
            Some(before) => Place::Taken(Box::new(before.clone())),
            None => Place::New(caller.owning(object, now)),
        };
        self.write_function(workspace, function.clone(), serves, place, entry.clone()).await?;
        drop(turn);
        let Some(order) = order else {
            self.release_replaced(before.as_ref(), &function).await;
            return Ok(Deploying { function, new, done: None });
        };
        let id = function.id;
        let next = Next { workspace, id, begun_at: now, deployment, source, order, entry };
        let done = Some(tokio::spawn(Arc::clone(self).finish_deployment(next)));
        Ok(Deploying { function, new, done })
    }

    async fn write_function(
        &self,
        workspace: WorkspaceId,
        function: Function,
        serves: Option<Vec<u8>>,
        place: Place,
        entry: AuditLine,
    ) -> Result<(), Refused> {
        let integrations = match (&function.preparing, &function.deployed) {
            (None, Some(deployed)) => deployed.integrations.clone(),
            _ => function.preparing_integrations.clone(),
        };
        let written = self.store.write(move |tx| {
            if let Some(gone) = gone_integration(tx, workspace, &integrations)? {
                return Ok(Err(gone));
            }
            let placed = place_function(tx, workspace, &function, serves.as_deref(), place)?;
            if placed.is_ok() {
                tx.audit(&entry)?;
            }
            Ok(placed)
        });
        written.await?
    }

    /// Makes the environment, and lets the function serve in it, or says why it cannot.
    async fn finish_deployment(self: Arc<Self>, next: Next) -> Result<Function, Fault> {
        let Next { workspace, id, begun_at, deployment, source, order, entry } = next;
        let environment = deployment.environment.clone();
        let made = match self.engine.add_environment(order, |_| {}).await {
            Ok(_) => self.check_packages(workspace, &environment).await,
            Err(fault) => Err(fault),
        };
        let failure = made.clone().err();
        let written = loop {
            let (deployment, source, made) = (deployment.clone(), source.clone(), made.clone());
            let mut entry = entry.clone();
            let written = self.store.write(move |tx| {
                let now = Utc::now();
                entry.at = now;
                entry.detail = if made.is_ok() { "ready" } else { "failed" }.to_owned();
                conclude(tx, workspace, id, begun_at, &entry, |function| match made {
                    Ok(()) => (ready(function, deployment, now), Some(source)),
                    Err(fault) => (failed(function, fault, now), None),
                })
            });
            match written.await {
                Ok(written) => break written,
                Err(error) => {
                    tracing::error!(function = %id, %error, "its deployment will be written down later");
                    sleep(AGAIN).await;
                }
            }
        };
        let Some((before, function)) = written else {
            self.release_environment(&environment).await;
            return Err(superseded());
        };
        match failure {
            None => {
                self.release_replaced(Some(&before), &function).await;
                Ok(function)
            }
            Some(fault) => {
                self.release_environment(&environment).await;
                Err(fault)
            }
        }
    }

    /// That the workspace and the operator allow what an environment of a function has. Which packages
    /// come along is known only when they are chosen.
    async fn check_packages(&self, workspace: WorkspaceId, name: &str) -> Result<(), Fault> {
        let (engine, name) = (Arc::clone(&self.engine), name.to_owned());
        let looked = aside(move || {
            let packages = engine.environment(&name)?.packages;
            Ok::<_, Fault>((packages, engine.unlisted(&name)?))
        });
        let (packages, unlisted) = looked.await.map_err(|refused| *refused.fault)??;
        let policy = self.store.read(|rows| rows.package_policy(workspace));
        let policy = policy.map_err(|error| *Refused::from(error).fault)?;
        allowed(&policy, &packages)?;
        match unlisted.as_slice() {
            [] => Ok(()),
            [first, ..] => Err(not_listed(first)),
        }
    }

    /// What a function has used and uses no longer.
    async fn release_replaced(&self, before: Option<&Function>, now: &Function) {
        let used: Vec<String> = before.map(environments).unwrap_or_default();
        let uses = environments(now);
        for old in used.iter().filter(|old| !uses.contains(old)) {
            self.release_environment(old).await;
        }
    }

    /// Removes an environment that was made for functions, if none needs it any more.
    pub(crate) async fn release_environment(&self, name: &str) {
        if !name.starts_with(ENVIRONMENT_PREFIX) {
            return;
        }
        let _turn = self.function_environments.lock().await;
        match self.store.read(|rows| rows.is_functions_environment(name)) {
            Ok(true) => {}
            Ok(false) => {
                if let Err(fault) = self.engine.remove_environment(name).await {
                    tracing::warn!(environment = name, error = %fault, "it was not removed");
                }
            }
            Err(error) => tracing::warn!(environment = name, %error, "it was not removed"),
        }
    }

    /// What was being deployed when the server stopped is not, and says so.
    pub(crate) async fn mark_interrupted_deployments(&self) -> Result<(), StoreError> {
        for (workspace, function) in self.store.read(|rows| rows.deploying_functions())? {
            let environment = function.preparing.clone();
            let function = failed(function, interrupted(), Utc::now());
            self.store.write(move |tx| tx.update_function(workspace, &function, None)).await?;
            if let Some(environment) = environment {
                self.release_environment(&environment).await;
            }
        }
        Ok(())
    }
}

/// Writes a deployment where it belongs, or says why it cannot be written there.
fn place_function(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    function: &Function,
    serves: Option<&[u8]>,
    place: Place,
) -> Result<Result<(), Refused>, StoreError> {
    match place {
        Place::Taken(before) => {
            let Some(now) = tx.function(workspace, function.id)? else {
                return Ok(Err(not_found("function", function.id)));
            };
            if now != *before {
                return Ok(Err(changed_meanwhile(function)));
            }
            tx.update_function(workspace, function, serves)?;
        }
        Place::New(_) if tx.count_functions(workspace)? >= FUNCTIONS_MAX => {
            return Ok(Err(too_many()));
        }
        Place::New(owning) => {
            tx.insert_function(workspace, function, serves)?;
            tx.insert_grant(workspace, &owning)?;
        }
    }
    Ok(Ok(()))
}

/// The function before and after, unless it was deployed anew or deleted meanwhile.
fn conclude(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    id: FunctionId,
    begun_at: DateTime<Utc>,
    entry: &AuditLine,
    end: impl FnOnce(Function) -> (Function, Option<Vec<u8>>),
) -> Result<Option<(Function, Function)>, StoreError> {
    let found = tx.function(workspace, id)?.filter(|found| found.updated_at == begun_at);
    let Some(before) = found else { return Ok(None) };
    let (after, source) = end(before.clone());
    tx.update_function(workspace, &after, source.as_deref())?;
    tx.audit(entry)?;
    Ok(Some((before, after)))
}

/// Those that it uses, and will use.
pub(super) fn environments(function: &Function) -> Vec<String> {
    let used = function.deployed.as_ref().map(|deployed| deployed.environment.clone());
    used.into_iter().chain(function.preparing.clone()).collect()
}

/// One that was never deployed.
fn unborn(caller: &Caller, name: String, now: DateTime<Utc>) -> Function {
    Function {
        id: FunctionId::new(Uuid::now_v7()),
        name,
        owner: caller.id(),
        status: FunctionStatus::Deploying,
        deployed: None,
        preparing: None,
        preparing_integrations: Vec::new(),
        progress: None,
        error: None,
        created_at: now,
        updated_at: now,
    }
}

fn deploying(function: Function, next: &Deployment, now: DateTime<Utc>) -> Function {
    Function {
        status: FunctionStatus::Deploying,
        preparing: Some(next.environment.clone()),
        preparing_integrations: next.integrations.clone(),
        updated_at: now,
        ..function
    }
}

fn ready(function: Function, deployment: Deployment, now: DateTime<Utc>) -> Function {
    let deployment = Deployment { deployed_at: now, ..deployment };
    Function {
        status: FunctionStatus::Ready,
        deployed: Some(deployment),
        preparing: None,
        preparing_integrations: Vec::new(),
        error: None,
        updated_at: now,
        ..function
    }
}

fn failed(function: Function, fault: Fault, now: DateTime<Utc>) -> Function {
    Function {
        status: FunctionStatus::Failed,
        error: Some(fault),
        preparing: None,
        preparing_integrations: Vec::new(),
        updated_at: now,
        ..function
    }
}

pub(super) fn limits(memory_bytes: u64, timeout_seconds: u64) -> LimitsRequest {
    LimitsRequest {
        memory_bytes: Some(memory_bytes),
        wall_ms: Some(timeout_seconds.saturating_mul(1000)),
        ..LimitsRequest::default()
    }
}

fn allowed(policy: &PackagePolicy, packages: &[InstalledPackage]) -> Result<(), Fault> {
    let denied = |message: String| against_policy(format!("requirements.txt: {message}"));
    let named: Vec<(String, &str)> = packages
        .iter()
        .filter_map(|it| Some((PackageName::new(&it.name)?.to_string(), &*it.version)))
        .collect();
    policy::may_install(policy, named.iter().map(|(name, _)| name.as_str()))
        .map_err(|refused| denied(refused.to_string()))?;
    let other = named.iter().find_map(|(name, version)| {
        let pinned = policy.pins.get(name).filter(|pinned| pinned != version)?;
        Some(format!("{name} {version} is chosen, and this workspace pins {name} to {pinned}"))
    });
    other.map_or(Ok(()), |message| Err(denied(message)))
}

fn not_listed(package: &PackageName) -> Fault {
    let message = format!(
        "requirements.txt: {package} could not be imported, not allowed by \
         PYTHON_PACKAGES_WHITELIST_IMPORT"
    );
    Fault::new(Code::ImportDenied, message).hint("do without it, or ask the operator to list it")
}

fn changed_meanwhile(function: &Function) -> Refused {
    let message =
        format!("the function {:?} was changed while it was being deployed", function.name);
    Fault::new(Code::ObjectInUse, message).hint("look at it, and deploy it again").into()
}

fn too_many() -> Refused {
    let message = format!("a workspace has at most {FUNCTIONS_MAX} functions");
    Fault::new(Code::QuotaExceeded, message).hint("delete one that is no longer needed").into()
}

fn superseded() -> Fault {
    let message = "the function was deployed anew or deleted meanwhile";
    Fault::new(Code::ObjectNotFound, message).hint("look at what it is now")
}

fn interrupted() -> Fault {
    let message = "the server stopped while it was deployed";
    Fault::new(Code::ExecutionInterrupted, message).hint("deploy it again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use store::Store;
    use tempfile::TempDir;
    use types::{GrantId, Principal, PrincipalKind, Workspace};

    struct World {
        store: Arc<Store>,
        workspace: WorkspaceId,
        ann: PrincipalId,
        bob: PrincipalId,
        _data: TempDir,
    }

    impl World {
        async fn new() -> Self {
            let data = TempDir::new().unwrap();
            let store = Store::open(data.path()).unwrap();
            let workspace = WorkspaceId::new(Uuid::now_v7());
            let (ann, bob) = (principal("ann"), principal("bob"));
            let ids = (ann.id, bob.id);
            let settled = store.write(move |tx| {
                let name = "home".to_owned();
                tx.insert_workspace(&Workspace { id: workspace, name, created_at: Utc::now() })?;
                tx.insert_principal(workspace, &ann)?;
                tx.insert_principal(workspace, &bob)
            });
            settled.await.unwrap();
            Self { store, workspace, ann: ids.0, bob: ids.1, _data: data }
        }

        async fn place(&self, function: &Function, source: &str, place: Place) -> Option<Code> {
            let (workspace, function) = (self.workspace, function.clone());
            let source = source.as_bytes().to_vec();
            let written = self
                .store
                .write(move |tx| place_function(tx, workspace, &function, Some(&source), place));
            written.await.unwrap().err().map(|refused| refused.fault.code)
        }

        /// What serves: its author, its owner and its source.
        fn serves(&self, id: FunctionId) -> (PrincipalId, PrincipalId, Vec<u8>) {
            let found = self.store.read(|rows| rows.deployed_function(self.workspace, id));
            let (function, source) = found.unwrap().unwrap();
            (function.deployed.unwrap().author, function.owner, source)
        }
    }

    fn principal(name: &str) -> Principal {
        Principal {
            id: PrincipalId::new(Uuid::now_v7()),
            name: name.to_owned(),
            kind: PrincipalKind::User,
            roles: Vec::new(),
            preferences: BTreeMap::new(),
            external_id: None,
            created_at: Utc::now(),
            updated_at: Utc::now(),
        }
    }

    fn taken(before: &Function) -> Place {
        Place::Taken(Box::new(before.clone()))
    }

    fn by(author: PrincipalId, before: &Function) -> Function {
        let deployment = Deployment {
            description: String::new(),
            files: Vec::new(),
            sha256: String::new(),
            environment: "bare".to_owned(),
            python: None,
            memory_bytes: MEMORY_BYTES,
            timeout_seconds: TIMEOUT_SECONDS_MAX,
            integrations: Vec::new(),
            author,
            deployed_at: Utc::now(),
        };
        ready(before.clone(), deployment, Utc::now())
    }

    /// Both have read what is there before either has written.
    #[tokio::test]
    async fn t150_of_two_deployments_at_once_one_is_refused_and_nothing_of_it_is_kept() {
        let world = World::new().await;
        let World { ann, bob, .. } = world;
        let now = Utc::now();
        let unborn = Function {
            id: FunctionId::new(Uuid::now_v7()),
            name: "f".to_owned(),
            owner: ann,
            status: FunctionStatus::Deploying,
            deployed: None,
            preparing: None,
            preparing_integrations: Vec::new(),
            progress: None,
            error: None,
            created_at: now,
            updated_at: now,
        };
        let id = unborn.id;
        let owning = Grant {
            id: GrantId::new(Uuid::now_v7()),
            principal: ann,
            privilege: Privilege::Ownership,
            object: Object::Function(id),
            granted_by: ann,
            created_at: now,
        };
        let first = by(ann, &unborn);
        assert_eq!(world.place(&first, "first", Place::New(owning)).await, None);

        let (of_ann, of_bob) = (by(ann, &first), by(bob, &first));
        assert_eq!(world.place(&of_bob, "of bob", taken(&first)).await, None);
        let late = world.place(&of_ann, "of ann", taken(&first)).await;
        assert_eq!(late, Some(Code::ObjectInUse));
        assert_eq!(world.serves(id), (bob, ann, b"of bob".to_vec()), "author beside source");

        // A new owner in between counts as well.
        let given = Function { owner: bob, ..of_bob.clone() };
        let (workspace, handed) = (world.workspace, given.clone());
        world.store.write(move |tx| tx.update_function(workspace, &handed, None)).await.unwrap();
        let late = world.place(&by(ann, &of_bob), "of ann", taken(&of_bob)).await;
        assert_eq!(late, Some(Code::ObjectInUse));
        assert_eq!(world.serves(id), (bob, bob, b"of bob".to_vec()));

        // The harmless twin: whoever reads it again deploys.
        assert_eq!(world.place(&by(ann, &given), "of ann", taken(&given)).await, None);
        assert_eq!(world.serves(id), (ann, bob, b"of ann".to_vec()));
    }
}
