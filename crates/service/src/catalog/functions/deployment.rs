//! Deploys functions: the environment is built first, and only then does the new version replace
//! the current one.
//!
//! During the build, the row names the environment, so that it is not removed and the next start
//! finds an interrupted deployment. Of two concurrent deployments of a function, the later one
//! wins.

use super::package::{ENVIRONMENT_PREFIX, FunctionPackage, FunctionRequest};
use crate::catalog::packages::policy_violation;
use crate::error::{RequestError, invalid_field, not_found};
use crate::identity::caller::Caller;
use crate::network::missing_integration_error;
use crate::service::Service;
use crate::tasks::{run_blocking, run_to_completion};
use chrono::{DateTime, Utc};
use db::{DatabaseError, NewAuditEntry, Tx};
use engine::{BuildRequest, PackageName};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use types::{
    Deployment, Error, ErrorCode, Function, FunctionId, FunctionStatus, Grant, InstalledPackage,
    LimitsRequest, ObjectRef, PackagePolicy, PrincipalId, Privilege, WorkspaceId,
};
use uuid::Uuid;

const MIB: u64 = 1024 * 1024;
/// Default memory: four times that of a tool.
const MEMORY_BYTES: u64 = 2048 * MIB;
/// Enough for an interpreter with a package or two.
const MEMORY_BYTES_MIN: u64 = 64 * MIB;
/// The longest time that the platform lets a model wait.
const TIMEOUT_SECONDS_MAX: u64 = contract::POLLING_SECONDS_MAX;
/// Each function may have an environment of some hundred megabytes.
const FUNCTIONS_MAX: u64 = 100;
/// Delay before the next try after a failed write, such as on a full disk.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// A function whose deployment is done or in progress.
#[derive(Debug)]
pub struct DeploymentHandle {
    pub function: Function,
    /// Whether no function had this name.
    pub new: bool,
    task: Option<JoinHandle<Result<Function, Error>>>,
}

impl DeploymentHandle {
    /// Waits for the deployment, which continues if the caller does not wait.
    pub async fn wait(self) -> Result<Function, RequestError> {
        match self.task {
            None => Ok(self.function),
            Some(done) => match done.await {
                Ok(done) => Ok(done?),
                Err(error) => {
                    Err(Error::new(ErrorCode::SandboxUnreachable, error.to_string()).into())
                }
            },
        }
    }
}

/// A deployment that is ready as soon as its environment is built.
struct PendingDeployment {
    workspace: WorkspaceId,
    id: FunctionId,
    /// `updated_at` of the row when the deployment started. If it differs, a newer deployment has
    /// started.
    begun_at: DateTime<Utc>,
    deployment: Deployment,
    source: Vec<u8>,
    build_request: BuildRequest,
    entry: NewAuditEntry,
}

/// How a deployment is stored.
enum FunctionWrite {
    /// Replaces the row of this function if it is unchanged. Author, owner and source must stay
    /// consistent, and another deployment or a transfer of ownership may have happened meanwhile.
    Replace(Box<Function>),
    /// Inserts a new function with this grant of ownership.
    Create(Grant),
}

impl Service {
    /// Deploys a function, or a new version of the one with this name.
    pub async fn deploy_function(
        self: &Arc<Self>,
        caller: &Caller,
        request: FunctionRequest,
    ) -> Result<DeploymentHandle, RequestError> {
        let name = request.declared_name().unwrap_or_default();
        let before = self.db.read(|rows| rows.function_by_name(caller.workspace, &name))?;
        match &before {
            Some(before) => {
                self.require_privilege(caller, Privilege::Modify, ObjectRef::Function(before.id))?;
            }
            None => self.require_create(caller)?,
        }
        let package = run_blocking(move || FunctionPackage::read(request)).await??;
        let (workspace, integrations) = (caller.workspace, &package.settings.integrations);
        self.check_named_integrations(caller, "the principal who deploys it", integrations)?;
        let deployment = self.new_deployment(workspace, &package, caller.id())?;
        let (service, caller) = (Arc::clone(self), caller.clone());
        run_to_completion(async move {
            service.begin_deployment(&caller, package, deployment, before).await
        })
        .await
    }

    fn new_deployment(
        &self,
        workspace: WorkspaceId,
        package: &FunctionPackage,
        author: PrincipalId,
    ) -> Result<Deployment, RequestError> {
        let (settings, caps) = (&package.settings, self.limit_caps(workspace)?);
        let memory_bytes = match settings.memory_mb {
            Some(megabytes) => megabytes.saturating_mul(MIB),
            None => MEMORY_BYTES.min(caps.0.memory_bytes),
        };
        let default_seconds = TIMEOUT_SECONDS_MAX.min(caps.0.wall_ms / 1000).max(1);
        let timeout_seconds = settings.timeout_seconds.unwrap_or(default_seconds);
        let invalid = |message: String| invalid_field("/files/function.toml", message);
        if memory_bytes < MEMORY_BYTES_MIN {
            return Err(invalid(format!("memory_mb must be at least {}", MEMORY_BYTES_MIN / MIB)));
        }
        if !(1..=TIMEOUT_SECONDS_MAX).contains(&timeout_seconds) {
            return Err(invalid(format!(
                "timeout_seconds must be from 1 to {TIMEOUT_SECONDS_MAX}"
            )));
        }
        let limits = limits_request(memory_bytes, timeout_seconds);
        limits.resolve(&caps).map_err(|error| invalid(error.to_string()))?;
        Ok(Deployment {
            description: settings.description.clone(),
            files: package.files.list(),
            sha256: package.files.sha256(),
            environment: self.environment_or_default(package.environment().map(str::to_owned)),
            python: settings.python.clone(),
            memory_bytes,
            timeout_seconds,
            integrations: settings.integrations.clone(),
            author,
            deployed_at: self.now(),
        })
    }

    /// Stores the function as deploying, or as ready if no environment has to be built.
    async fn begin_deployment(
        self: &Arc<Self>,
        caller: &Caller,
        package: FunctionPackage,
        deployment: Deployment,
        before: Option<Function>,
    ) -> Result<DeploymentHandle, RequestError> {
        let (now, new, workspace) = (self.now(), before.is_none(), caller.workspace);
        let source = package.files.to_bytes();
        let function =
            before.clone().unwrap_or_else(|| new_function(caller, package.settings.name, now));
        let object = ObjectRef::Function(function.id);
        let entry = caller.audit_entry("function.deploy", object, &function.name);
        // While this is held, the environment of this deployment is not removed.
        let guard = self.function_environments.lock().await;
        let is_missing = self.engine.check_environment(&deployment.environment).is_err();
        let has_packages = package.build_request.is_some();
        let build_request = package.build_request.filter(|_| is_missing);
        if has_packages && build_request.is_none() {
            self.check_packages(workspace, &deployment.environment).await?;
        }
        let (function, source_to_deploy) = match &build_request {
            Some(_) => (as_deploying(function, &deployment, now), None),
            None => (as_ready(function, deployment.clone(), now), Some(source.clone())),
        };
        let write = match &before {
            Some(before) => FunctionWrite::Replace(Box::new(before.clone())),
            None => FunctionWrite::Create(caller.ownership_grant(object, now)),
        };
        self.write_function(workspace, function.clone(), source_to_deploy, write, entry.clone())
            .await?;
        drop(guard);
        let Some(build_request) = build_request else {
            self.release_replaced(before.as_ref(), &function).await;
            return Ok(DeploymentHandle { function, new, task: None });
        };
        let id = function.id;
        let pending = PendingDeployment {
            workspace,
            id,
            begun_at: now,
            deployment,
            source,
            build_request,
            entry,
        };
        let task = Some(tokio::spawn(Arc::clone(self).finish_deployment(pending)));
        Ok(DeploymentHandle { function, new, task })
    }

    async fn write_function(
        &self,
        workspace: WorkspaceId,
        function: Function,
        source: Option<Vec<u8>>,
        write: FunctionWrite,
        entry: NewAuditEntry,
    ) -> Result<(), RequestError> {
        let integrations = match (&function.preparing, &function.deployed) {
            (None, Some(deployed)) => deployed.integrations.clone(),
            _ => function.preparing_integrations.clone(),
        };
        let written = self.db.write(move |tx| {
            if let Some(error) = missing_integration_error(tx, workspace, &integrations)? {
                return Ok(Err(error));
            }
            let result = write_function_row(tx, workspace, &function, source.as_deref(), write)?;
            if result.is_ok() {
                tx.append_audit_entry(&entry)?;
            }
            Ok(result)
        });
        written.await?
    }

    /// Builds the environment, then stores the function as ready or failed.
    #[boxed::future]
    async fn finish_deployment(
        self: Arc<Self>,
        pending: PendingDeployment,
    ) -> Result<Function, Error> {
        let PendingDeployment { workspace, id, begun_at, deployment, source, build_request, entry } =
            pending;
        let environment = deployment.environment.clone();
        let result = match self.engine.add_environment(build_request, |_| {}).await {
            Ok(_) => self.check_packages(workspace, &environment).await,
            Err(error) => Err(error),
        };
        let failure = result.clone().err();
        let written = loop {
            let (deployment, source, result) = (deployment.clone(), source.clone(), result.clone());
            let (mut entry, clock) = (entry.clone(), self.config.clock.clone());
            let written = self.db.write(move |tx| {
                let now = clock.now();
                entry.at = now;
                entry.detail = if result.is_ok() { "ready" } else { "failed" }.to_owned();
                write_deployment_outcome(tx, workspace, id, begun_at, &entry, |function| {
                    match result {
                        Ok(()) => (as_ready(function, deployment, now), Some(source)),
                        Err(error) => (as_failed(function, error, now), None),
                    }
                })
            });
            match written.await {
                Ok(written) => break written,
                Err(error) => {
                    tracing::error!(function = %id, %error, "cannot store the result of a \
                                                             deployment; retrying");
                    sleep(RETRY_DELAY).await;
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
            Some(error) => {
                self.release_environment(&environment).await;
                Err(error)
            }
        }
    }

    /// Checks that the policy of the workspace and the operator allow the packages of an
    /// environment. Dependencies are known only after the packages were resolved.
    async fn check_packages(&self, workspace: WorkspaceId, name: &str) -> Result<(), Error> {
        let (engine, name) = (Arc::clone(&self.engine), name.to_owned());
        let packages = run_blocking(move || {
            let packages = engine.environment(&name)?.packages;
            Ok::<_, Error>((packages, engine.unimportable_packages(&name)?))
        });
        let (packages, unlisted) = packages.await.map_err(|error| *error.error)??;
        let policy = self.db.read(|rows| rows.package_policy(workspace));
        let policy = policy.map_err(|error| *RequestError::from(error).error)?;
        check_package_policy(&policy, &packages)?;
        match unlisted.as_slice() {
            [] => Ok(()),
            [first, ..] => Err(not_listed(first)),
        }
    }

    /// Removes environments that the function no longer uses.
    async fn release_replaced(&self, before: Option<&Function>, after: &Function) {
        let used_before: Vec<String> = before.map(used_environments).unwrap_or_default();
        let still_used = used_environments(after);
        for unused in used_before.iter().filter(|unused| !still_used.contains(unused)) {
            self.release_environment(unused).await;
        }
    }

    /// Removes an environment that was built for functions if no function uses it.
    pub(crate) async fn release_environment(&self, name: &str) {
        if !name.starts_with(ENVIRONMENT_PREFIX) {
            return;
        }
        let _guard = self.function_environments.lock().await;
        match self.db.read(|rows| rows.is_environment_of_function(name)) {
            Ok(true) => {}
            Ok(false) => {
                if let Err(error) = self.engine.remove_environment(name).await {
                    tracing::warn!(environment = name, %error, "removing the environment \
                                                                        of a function failed");
                }
            }
            Err(error) => tracing::warn!(environment = name, %error, "removing the environment of \
                                                                      a function failed"),
        }
    }

    /// Marks deployments as failed that the last stop of the server interrupted.
    pub(crate) async fn mark_interrupted_deployments(&self) -> Result<(), DatabaseError> {
        for (workspace, function) in self.db.read(|rows| rows.deploying_functions())? {
            let environment = function.preparing.clone();
            let function = as_failed(function, interrupted(), self.now());
            self.db.write(move |tx| tx.update_function(workspace, &function, None)).await?;
            if let Some(environment) = environment {
                self.release_environment(&environment).await;
            }
        }
        Ok(())
    }
}

/// Writes a deployment to its row; an error if the row has changed.
fn write_function_row(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    function: &Function,
    source: Option<&[u8]>,
    write: FunctionWrite,
) -> Result<Result<(), RequestError>, DatabaseError> {
    match write {
        FunctionWrite::Replace(before) => {
            let Some(current) = tx.function(workspace, function.id)? else {
                return Ok(Err(not_found("function", function.id)));
            };
            if current != *before {
                return Ok(Err(changed_meanwhile(function)));
            }
            tx.update_function(workspace, function, source)?;
        }
        FunctionWrite::Create(_) if tx.count_functions(workspace)? >= FUNCTIONS_MAX => {
            return Ok(Err(too_many()));
        }
        FunctionWrite::Create(ownership) => {
            tx.insert_function(workspace, function, source)?;
            tx.insert_grant(workspace, &ownership)?;
        }
    }
    Ok(Ok(()))
}

/// Stores the outcome of a deployment. Returns the function before and after, or `None` if it was
/// deployed again or deleted meanwhile.
fn write_deployment_outcome(
    tx: &Tx<'_>,
    workspace: WorkspaceId,
    id: FunctionId,
    begun_at: DateTime<Utc>,
    entry: &NewAuditEntry,
    apply_outcome: impl FnOnce(Function) -> (Function, Option<Vec<u8>>),
) -> Result<Option<(Function, Function)>, DatabaseError> {
    let found = tx.function(workspace, id)?.filter(|found| found.updated_at == begun_at);
    let Some(before) = found else { return Ok(None) };
    let (after, source) = apply_outcome(before.clone());
    tx.update_function(workspace, &after, source.as_deref())?;
    tx.append_audit_entry(entry)?;
    Ok(Some((before, after)))
}

/// The environments of the current deployment and of one in progress.
pub(super) fn used_environments(function: &Function) -> Vec<String> {
    let used = function.deployed.as_ref().map(|deployed| deployed.environment.clone());
    used.into_iter().chain(function.preparing.clone()).collect()
}

/// A function that was never deployed.
fn new_function(caller: &Caller, name: String, now: DateTime<Utc>) -> Function {
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

fn as_deploying(function: Function, next: &Deployment, now: DateTime<Utc>) -> Function {
    Function {
        status: FunctionStatus::Deploying,
        preparing: Some(next.environment.clone()),
        preparing_integrations: next.integrations.clone(),
        updated_at: now,
        ..function
    }
}

fn as_ready(function: Function, deployment: Deployment, now: DateTime<Utc>) -> Function {
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

fn as_failed(function: Function, error: Error, now: DateTime<Utc>) -> Function {
    Function {
        status: FunctionStatus::Failed,
        error: Some(error),
        preparing: None,
        preparing_integrations: Vec::new(),
        updated_at: now,
        ..function
    }
}

pub(super) fn limits_request(memory_bytes: u64, timeout_seconds: u64) -> LimitsRequest {
    LimitsRequest {
        memory_bytes: Some(memory_bytes),
        wall_ms: Some(timeout_seconds.saturating_mul(1000)),
        ..LimitsRequest::default()
    }
}

fn check_package_policy(
    policy: &PackagePolicy,
    packages: &[InstalledPackage],
) -> Result<(), Error> {
    let denied = |message: String| policy_violation(format!("requirements.txt: {message}"));
    let names_and_versions: Vec<(String, &str)> = packages
        .iter()
        .filter_map(|it| Some((PackageName::new(&it.name)?.to_string(), &*it.version)))
        .collect();
    policy::check_install(policy, names_and_versions.iter().map(|(name, _)| name.as_str()))
        .map_err(|error| denied(error.to_string()))?;
    let mismatch = names_and_versions.iter().find_map(|(name, version)| {
        let pinned = policy.pins.get(name).filter(|pinned| pinned != version)?;
        Some(format!(
            "{name} resolves to {version}, and the package policy of this workspace pins \
                      it to {pinned}"
        ))
    });
    mismatch.map_or(Ok(()), |message| Err(denied(message)))
}

fn not_listed(package: &PackageName) -> Error {
    let message = format!(
        "requirements.txt: importing {package} is not allowed by \
         PYTHON_PACKAGES_WHITELIST_IMPORT"
    );
    Error::new(ErrorCode::ImportDenied, message)
        .hint("remove it, or ask the operator to add it to the list")
}

fn changed_meanwhile(function: &Function) -> RequestError {
    let message = format!("function {:?} was changed during its deployment", function.name);
    Error::new(ErrorCode::ObjectInUse, message)
        .hint("check its current version, then deploy it again")
        .into()
}

fn too_many() -> RequestError {
    let message = format!("limit of {FUNCTIONS_MAX} functions in this workspace reached");
    Error::new(ErrorCode::QuotaExceeded, message)
        .hint("delete a function that is no longer needed")
        .into()
}

fn superseded() -> Error {
    let message = "the function was deployed again or deleted in the meantime";
    Error::new(ErrorCode::ObjectNotFound, message).hint("check its current version")
}

fn interrupted() -> Error {
    let message = "the server stopped during the deployment";
    Error::new(ErrorCode::ExecutionInterrupted, message).hint("deploy it again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use db::Database;
    use std::collections::BTreeMap;
    use tempfile::TempDir;
    use types::{GrantId, Principal, PrincipalKind, Workspace};

    struct World {
        db: Arc<Database>,
        workspace: WorkspaceId,
        ann: PrincipalId,
        bob: PrincipalId,
        _data: TempDir,
    }

    impl World {
        async fn new() -> Self {
            let data = TempDir::new().unwrap();
            let db = Database::open(data.path()).unwrap();
            let workspace = WorkspaceId::new(Uuid::now_v7());
            let (ann, bob) = (principal("ann"), principal("bob"));
            let ids = (ann.id, bob.id);
            let settled = db.write(move |tx| {
                let name = "home".to_owned();
                tx.insert_workspace(&Workspace { id: workspace, name, created_at: Utc::now() })?;
                tx.insert_principal(workspace, &ann)?;
                tx.insert_principal(workspace, &bob)
            });
            settled.await.unwrap();
            Self { db, workspace, ann: ids.0, bob: ids.1, _data: data }
        }

        async fn place(
            &self,
            function: &Function,
            source: &str,
            place: FunctionWrite,
        ) -> Option<ErrorCode> {
            let (workspace, function) = (self.workspace, function.clone());
            let source = source.as_bytes().to_vec();
            let written = self.db.write(move |tx| {
                write_function_row(tx, workspace, &function, Some(&source), place)
            });
            written.await.unwrap().err().map(|error| error.error.code)
        }

        /// The deployed version: its author, its owner and its source.
        fn serves(&self, id: FunctionId) -> (PrincipalId, PrincipalId, Vec<u8>) {
            let found = self.db.read(|rows| rows.deployed_function(self.workspace, id));
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

    fn taken(before: &Function) -> FunctionWrite {
        FunctionWrite::Replace(Box::new(before.clone()))
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
        as_ready(before.clone(), deployment, Utc::now())
    }

    /// Both deployments have read the row before either has written it.
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
            object: ObjectRef::Function(id),
            granted_by: ann,
            created_at: now,
        };
        let first = by(ann, &unborn);
        assert_eq!(world.place(&first, "first", FunctionWrite::Create(owning)).await, None);

        let (of_ann, of_bob) = (by(ann, &first), by(bob, &first));
        assert_eq!(world.place(&of_bob, "of bob", taken(&first)).await, None);
        let late = world.place(&of_ann, "of ann", taken(&first)).await;
        assert_eq!(late, Some(ErrorCode::ObjectInUse));
        assert_eq!(world.serves(id), (bob, ann, b"of bob".to_vec()), "author beside source");

        // A new owner counts as a change, too.
        let given = Function { owner: bob, ..of_bob.clone() };
        let (workspace, handed) = (world.workspace, given.clone());
        world.db.write(move |tx| tx.update_function(workspace, &handed, None)).await.unwrap();
        let late = world.place(&by(ann, &of_bob), "of ann", taken(&of_bob)).await;
        assert_eq!(late, Some(ErrorCode::ObjectInUse));
        assert_eq!(world.serves(id), (bob, bob, b"of bob".to_vec()));

        // Counterpart: a caller that reads the function again can deploy it.
        assert_eq!(world.place(&by(ann, &given), "of ann", taken(&given)).await, None);
        assert_eq!(world.serves(id), (ann, bob, b"of ann".to_vec()));
    }
}
