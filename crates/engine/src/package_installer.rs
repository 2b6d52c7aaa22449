//! Packages that code requests while it runs: from the request to a package directory of its
//! session.
//!
//! The caller's [`InstallHandler`] decides about each request whether packages may be installed,
//! and which. No text of the sandbox reaches a program before it was parsed as a package name.

use crate::environment_cache::RunningEnvironment;
use environment::{
    BuildError, CancelFlag, DiskUsage, Environments, InstallError, PackageRequest, PackageRoot,
    PackageVersion, Requirement, ResolutionFailure, ResolvedPackages, SessionPackages,
};
use sandbox::{InstallFailure, InstallFuture, InstallSuccess};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use types::{Error, ErrorCode};

/// Path of the package directories inside a sandbox.
pub(crate) const INSIDE_PACKAGES: &str = "/opt/packages";
/// Each install is a program that downloads, unpacks and writes.
pub(crate) const INSTALLS_AT_ONCE: usize = 4;

/// Handles requests for packages on behalf of the caller whose code runs.
#[derive(Clone)]
pub struct InstallHandler(Arc<dyn Fn(InstallRequest) -> PendingInstall + Send + Sync>);

type PendingInstall = Pin<Box<dyn Future<Output = Result<InstallResult, Error>> + Send>>;

impl InstallHandler {
    pub fn new<F>(answer: impl Fn(InstallRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<InstallResult, Error>> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(answer(request))))
    }
}

impl fmt::Debug for InstallHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Installer")
    }
}

/// The packages that one interpreter has installed. Dropping it removes them.
#[derive(Debug, Default)]
pub(crate) struct PackageInstalls(Mutex<PackageInstallsState>);

#[derive(Debug, Default)]
struct PackageInstallsState {
    directories: Vec<SessionPackages>,
    packages: Vec<PackageVersion>,
    amount: DiskUsage,
}

impl PackageInstalls {
    fn state(&self) -> MutexGuard<'_, PackageInstallsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PackageInstalls {
    fn drop(&mut self) {
        let directories = std::mem::take(&mut self.state().directories);
        match Handle::try_current() {
            // Removing many files takes a while, and this may be a thread that serves requests.
            Ok(runtime) if !directories.is_empty() => {
                drop(runtime.spawn_blocking(move || drop(directories)))
            }
            _ => drop(directories),
        }
    }
}

/// Where the packages of a session are installed.
#[derive(Debug, Clone)]
pub(crate) struct PackageInstaller {
    pub(crate) environments: Arc<Environments>,
    pub(crate) environment: Arc<RunningEnvironment>,
    pub(crate) package_root: Arc<PackageRoot>,
    pub(crate) packages: Arc<PackageInstalls>,
    pub(crate) permits: Arc<Semaphore>,
}

/// Handles every install request of one run.
pub(crate) fn handle_install_request(
    requirements: &[String],
    installer: Option<&InstallHandler>,
    package_installer: Option<&PackageInstaller>,
) -> InstallFuture {
    let adding = match (installer, package_installer) {
        (Some(installer), Some(package_installer)) => {
            parse_requirements(requirements).map(|requirements| {
                (installer.0)(InstallRequest { requirements, installer: package_installer.clone() })
            })
        }
        _ => Err(install_denied_error()),
    };
    Box::pin(async {
        let InstallResult { directory, packages } =
            adding.map_err(to_install_failure)?.await.map_err(to_install_failure)?;
        let packages = packages.into_iter().map(|it| (it.name, it.version)).collect();
        Ok(InstallSuccess {
            path: directory.map(|directory| format!("{INSIDE_PACKAGES}/{directory}")),
            packages,
        })
    })
}

fn to_install_failure(error: Error) -> InstallFailure {
    InstallFailure {
        denied: error.code == ErrorCode::PackageDenied,
        message: error.message,
        hint: error.hint.unwrap_or_default(),
    }
}

fn parse_requirements(requirements: &[String]) -> Result<Vec<Requirement>, Error> {
    let read = |text: &String| {
        text.parse().map_err(|error: environment::RequirementError| {
            Error::new(ErrorCode::PackageUnavailable, error.to_string()).hint(
                "use the name of a package in the index, with optional versions, such as \
                     six>=1.16",
            )
        })
    };
    requirements.iter().map(read).collect()
}

/// The error for code that was not granted the right to install.
pub fn install_denied_error() -> Error {
    let message = "packages can only be installed in the session of an agent whose specification \
                   has artifact_repositories in tool_resources.code_execution";
    Error::new(ErrorCode::PackageDenied, message).hint(
        "open a session with the agent_id of such an agent, or use an environment that has the \
         packages",
    )
}

/// Packages that code requests, as it named them.
#[derive(Debug)]
pub struct InstallRequest {
    requirements: Vec<Requirement>,
    installer: PackageInstaller,
}

/// The exact packages that are missing; none of them is downloaded yet.
#[derive(Debug)]
pub struct ResolvedInstall {
    resolved: ResolvedPackages,
    installer: PackageInstaller,
    _permit: OwnedSemaphorePermit,
}

/// The packages that were added to the session.
#[derive(Debug)]
pub struct InstallResult {
    /// None if no package was missing.
    directory: Option<String>,
    pub packages: Vec<PackageVersion>,
}

impl InstallRequest {
    /// Chooses versions compatible with the session's packages and with these pins.
    pub async fn resolve(self, pins: Vec<PackageVersion>) -> Result<ResolvedInstall, Error> {
        let Self { requirements, installer } = self;
        let index = installer.environment.index.clone();
        let permit = Arc::clone(&installer.permits).acquire_owned().await;
        let permit = permit.map_err(|error| internal_error(&error))?;
        let present = installer.packages.state().packages.clone();
        let request = PackageRequest { requirements, present, pins, index };
        let resolved = installer
            .run_blocking(|installer, cancel| {
                installer.with_installer(cancel, |it| it.resolve(request))
            })
            .await?;
        Ok(ResolvedInstall { resolved, installer, _permit: permit })
    }
}

impl ResolvedInstall {
    pub fn packages(&self) -> &[PackageVersion] {
        &self.resolved.packages
    }

    pub async fn install(self) -> Result<InstallResult, Error> {
        let Self { resolved, installer, _permit } = self;
        if resolved.packages.is_empty() {
            return Ok(InstallResult { directory: None, packages: Vec::new() });
        }
        let present = installer.packages.state().amount;
        let packages = resolved.packages.clone();
        let fetched = installer.run_blocking(move |installer, cancel| {
            let session_packages = installer
                .package_root
                .create_session_packages()
                .map_err(|error| internal_error(&error))?;
            let target = session_packages.directory();
            let fetch =
                |it: &environment::SessionInstaller<'_>| it.install(&resolved, &target, present);
            let amount = installer.with_installer(cancel, fetch)?;
            Ok((session_packages, amount))
        });
        let (session_packages, amount) = fetched.await?;
        let name = session_packages.name().to_owned();
        let mut state = installer.packages.state();
        state.directories.push(session_packages);
        state.packages.extend(packages.iter().cloned());
        state.amount = amount;
        Ok(InstallResult { directory: Some(name), packages })
    }
}

impl PackageInstaller {
    /// Runs `work` on a thread that may block. Dropping the future cancels it.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, CancelFlag) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (installer, guard) = (self.clone(), CancelOnDrop::default());
        let cancel = guard.0.clone();
        spawn_blocking(move || work(&installer, cancel))
            .await
            .unwrap_or_else(|error| Err(internal_error(&error)))
    }

    fn with_installer<T>(
        &self,
        cancel: CancelFlag,
        work: impl FnOnce(&environment::SessionInstaller<'_>) -> Result<T, InstallError>,
    ) -> Result<T, Error> {
        work(&self.environments.session_installer(&self.environment.environment, cancel))
            .map_err(|error| install_error(&error))
    }
}

#[derive(Default)]
struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

fn internal_error(error: &dyn std::error::Error) -> Error {
    Error::new(
        ErrorCode::PackageUnavailable,
        format!("the server could not install the packages: {error}"),
    )
    .hint("try again; if the error persists, ask the operator")
}

fn install_error(error: &InstallError) -> Error {
    let hint = match error {
        InstallError::Unavailable { failure, .. } => hint_for(*failure),
        InstallError::NoIndex => {
            "use another environment, or set index = \"pypi\" in its definition"
        }
        InstallError::IndexUnreachable { .. } => {
            "try again later, or use the packages of the environment"
        }
        InstallError::TooLarge => "install fewer packages, or use an environment that has them",
        InstallError::Build(BuildError::Killed { .. }) => return internal_error(error).retryable(),
        InstallError::Lock(_) | InstallError::Build(_) => return internal_error(error),
    };
    let code = match error {
        InstallError::NoIndex => ErrorCode::PackageDenied,
        _ => ErrorCode::PackageUnavailable,
    };
    Error::new(code, error.to_string()).hint(hint)
}

fn hint_for(failure: ResolutionFailure) -> &'static str {
    match failure {
        ResolutionFailure::Unknown => {
            "no such package in the index; the name of a package often differs from that of its \
             module"
        }
        ResolutionFailure::NoVersion => "no such version; request another one",
        ResolutionFailure::NoWheel => {
            "it has no wheel for this Python, and the server builds nothing from source, because \
             that would run code of its author outside of any sandbox; use another version or \
             package"
        }
        ResolutionFailure::Yanked => "its authors yanked this version; request another one",
        ResolutionFailure::Offline => {
            "the server has no access to the index; use the packages of the environment"
        }
        ResolutionFailure::Conflict => {
            "installed packages of the environment and the session do not change; request \
             versions that are compatible with them, or use another environment"
        }
    }
}
