//! The environments in use. Each is built once and has its own pool.

use crate::config::Config;
use crate::egress::{INSIDE_CERTIFICATES, certificate_variables};
use crate::package_installer::INSIDE_PACKAGES;
use environment::{
    BuildError, BuiltEnvironment, Definition, DefinitionStamp, EnvironmentLease, Environments,
    INSIDE_INTERPRETER, Imports, Origin, PackageIndex, PackageVersion, ProcessesSetting, Progress,
    PythonVersion, Recipe,
};
use sandbox::{Pool, PoolConfig, RunnerFiles, SandboxSpec, ZygoteHostConfig};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::OnceCell;
use types::{Error, ErrorCode};

/// The exact versions in an environment.
#[derive(Debug, Clone)]
pub struct InstalledVersions {
    pub python: PythonVersion,
    pub packages: Vec<PackageVersion>,
}

/// An environment with a pool of sandboxes.
#[derive(Debug)]
pub(crate) struct RunningEnvironment {
    pub(crate) environment: EnvironmentLease,
    pub(crate) pool: Arc<Pool>,
    /// Package index for installs of its sessions.
    pub(crate) index: PackageIndex,
}

/// How to start the Python of an environment without isolation, for comparison.
#[derive(Debug, Clone)]
pub struct UnsandboxedPython {
    pub interpreter: PathBuf,
    pub site_packages: PathBuf,
    /// Directory of the runner's sources.
    pub runner: PathBuf,
    pub variables: Vec<(String, String)>,
    pub preload: Vec<String>,
}

impl RunningEnvironment {
    pub(crate) fn versions(&self) -> InstalledVersions {
        let BuiltEnvironment { python, packages, .. } = &*self.environment;
        InstalledVersions { python: python.version, packages: packages.clone() }
    }

    pub(crate) fn unsandboxed_python(&self, config: &Config) -> Result<UnsandboxedPython, Error> {
        let environment = &self.environment;
        Ok(UnsandboxedPython {
            interpreter: environment.python.executable.clone(),
            site_packages: environment.site_packages(),
            runner: install_runner_files(config)?.runner_directory(),
            variables: environment.variables.clone().into_iter().collect(),
            preload: preload(environment),
        })
    }
}

/// The environments that were requested, by name.
#[derive(Debug, Default)]
pub(crate) struct EnvironmentCache {
    opened: OnceLock<Arc<Environments>>,
    slots: Mutex<BTreeMap<String, Arc<CacheSlot>>>,
}

/// An existing environment, started at its first use. Concurrent requests for it wait for the same
/// start; requests for other environments do not wait.
#[derive(Debug)]
pub(crate) struct CacheSlot {
    recipe: Recipe,
    /// Stamp of the definition that this slot was created from.
    stamp: Option<DefinitionStamp>,
    running: OnceCell<Arc<RunningEnvironment>>,
    /// The previous environment of this name. It serves until this one is ready, and stays if this
    /// one fails.
    previous: Mutex<Option<Arc<RunningEnvironment>>>,
    /// Why this environment cannot replace the previous one.
    failed: OnceLock<Error>,
}

impl CacheSlot {
    pub(crate) fn lock(&self) -> &str {
        self.recipe.lock()
    }

    fn previous(&self) -> MutexGuard<'_, Option<Arc<RunningEnvironment>>> {
        self.previous.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The environment that serves now.
    fn current(&self) -> Option<Arc<RunningEnvironment>> {
        self.running.get().cloned().or_else(|| self.previous().clone())
    }
}

impl EnvironmentCache {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Arc<CacheSlot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn environments(&self, config: &Config) -> Result<Arc<Environments>, Error> {
        if let Some(opened) = self.opened.get() {
            return Ok(Arc::clone(opened));
        }
        let opened = Environments::open(&config.data).map_err(|error| build_error(&error))?;
        Ok(Arc::clone(self.opened.get_or_init(|| Arc::new(opened))))
    }

    /// The slot of an environment, if one of that name exists. If its definition was replaced, the
    /// slot is recreated, while the previous environment still serves.
    pub(crate) fn find(&self, config: &Config, name: &str) -> Result<Arc<CacheSlot>, Error> {
        let known = self.slots().get(name).cloned();
        if let Some(slot) = known.as_ref().filter(|it| it.recipe.origin == Origin::Shipped) {
            return Ok(Arc::clone(slot));
        }
        let environments = self.environments(config)?;
        let stamp = environments.stamp(name);
        if let Some(slot) = known.as_ref().filter(|slot| slot.stamp == stamp) {
            return Ok(Arc::clone(slot));
        }
        let recipe = match (environments.find(name), &known) {
            (Ok(recipe), _) => recipe,
            (Err(error @ BuildError::Unknown { .. }), _) | (Err(error), None) => {
                self.remove(name);
                return Err(Error::new(ErrorCode::ArgsInvalid, error.to_string()));
            }
            // An unreadable definition does not replace the existing slot.
            (Err(_), Some(slot)) => return Ok(Arc::clone(slot)),
        };
        let before = known.and_then(|slot| slot.current());
        let replaces = before.is_some();
        let before = Mutex::new(before);
        let (ready, failed) = (OnceCell::new(), OnceLock::new());
        let slot = Arc::new(CacheSlot { recipe, stamp, running: ready, previous: before, failed });
        match self.slots().entry(name.to_owned()) {
            // A concurrent call was faster.
            Entry::Occupied(there) if there.get().stamp == stamp => return Ok(there.get().clone()),
            Entry::Occupied(mut there) => drop(there.insert(Arc::clone(&slot))),
            Entry::Vacant(free) => drop(free.insert(Arc::clone(&slot))),
        }
        if replaces {
            tokio::spawn(build_replacement(Arc::clone(&slot), config.clone(), environments));
        }
        Ok(slot)
    }

    /// The environment of that name, built and started if necessary.
    pub(crate) async fn get(
        &self,
        config: &Config,
        name: &str,
        progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Arc<RunningEnvironment>, Error> {
        let slot = self.find(config, name)?;
        if let Some(serving) = slot.current() {
            return Ok(serving);
        }
        let environments = self.environments(config)?;
        let made = slot.running.get_or_try_init(|| {
            build_and_start(config, environments, slot.recipe.clone(), progress)
        });
        made.await.cloned()
    }

    /// Like [`EnvironmentCache::get`], for code that runs in the environment.
    pub(crate) async fn get_for_code(
        &self,
        config: &Config,
        name: &str,
    ) -> Result<Arc<RunningEnvironment>, Error> {
        self.get(config, name, |_| {}).await.map_err(|error| unusable_error(name, error))
    }

    /// Makes this environment serve new requests; running ones keep theirs.
    pub(crate) fn insert(
        &self,
        name: &str,
        stamp: DefinitionStamp,
        recipe: Recipe,
        ready: Arc<RunningEnvironment>,
    ) {
        let slot = CacheSlot {
            recipe,
            stamp: Some(stamp),
            running: OnceCell::new_with(Some(ready)),
            previous: Mutex::default(),
            failed: OnceLock::new(),
        };
        let replaced = self.slots().insert(name.to_owned(), Arc::new(slot));
        drop(replaced);
    }

    /// Why the definition with this stamp does not serve, although its name refers to it.
    pub(crate) fn failure(&self, name: &str, stamp: Option<DefinitionStamp>) -> Option<Error> {
        let slot = self.slots().get(name).cloned()?;
        slot.failed.get().filter(|_| slot.stamp == stamp).cloned()
    }

    pub(crate) fn remove(&self, name: &str) -> Option<Arc<CacheSlot>> {
        self.slots().remove(name)
    }

    /// Empties the cache and returns the pools, which end when they are dropped.
    pub(crate) fn clear(&self) -> Vec<Arc<Pool>> {
        let slots = std::mem::take(&mut *self.slots());
        let serving = slots.into_values().filter_map(|slot| slot.current());
        serving.map(|ready| Arc::clone(&ready.pool)).collect()
    }
}

/// The error of code whose environment cannot be used. It does not run in another one, which could
/// import other things.
fn unusable_error(name: &str, error: Error) -> Error {
    let quoted = format!("`{name}`");
    let message = match error.message.contains(&quoted) {
        true => error.message,
        false => format!("environment {quoted} cannot be used: {}", error.message),
    };
    let hint = error.hint.unwrap_or_else(|| {
        format!(
            "build it with `belljar exec --env {name} pass`, or name another environment in the tool, \
             the agent or the request, or for all of this kind with `serve --environment-for`"
        )
    });
    Error { message, hint: Some(hint), ..error }
}

/// Builds and starts a changed definition. If that fails, the previous environment serves until the
/// definition is replaced again.
async fn build_replacement(slot: Arc<CacheSlot>, config: Config, environments: Arc<Environments>) {
    let recipe = slot.recipe.clone();
    let made = slot
        .running
        .get_or_try_init(|| build_and_start(&config, environments, recipe, |_| {}))
        .await;
    match made {
        Ok(_) => *slot.previous() = None,
        // Not set yet: this runs once per slot.
        Err(failure) => drop(slot.failed.set(failure)),
    }
}

pub(crate) async fn build_and_start(
    config: &Config,
    environments: Arc<Environments>,
    recipe: Recipe,
    mut progress: impl FnMut(Progress) + Send + 'static,
) -> Result<Arc<RunningEnvironment>, Error> {
    let usual = config.python.clone();
    let wanted = recipe.clone();
    let built = run_blocking(move || {
        let python = wanted.python.or(usual);
        environments.ensure(&wanted.definition, python.as_ref(), &mut progress)
    });
    start_pool(config, &recipe.definition, built.await?).await
}

/// Starts the Python of a built environment.
pub(crate) async fn start_pool(
    config: &Config,
    definition: &Definition,
    environment: EnvironmentLease,
) -> Result<Arc<RunningEnvironment>, Error> {
    let pool = Pool::start(pool_config(config, definition, &environment)?)
        .await
        .map_err(|error| crate::execution_outcome::spawn_error(&error))?;
    Ok(Arc::new(RunningEnvironment { environment, pool, index: definition.index.clone() }))
}

/// Runs a build on a thread that may block.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BuildError> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| build_error(&error)),
        Err(error) => Err(Error::new(ErrorCode::SandboxUnreachable, error.to_string())),
    }
}

/// The error for the caller: either the request or the host has to change.
pub(crate) fn build_error(error: &BuildError) -> Error {
    let code = match error {
        BuildError::Unknown { .. } => ErrorCode::ObjectNotFound,
        BuildError::Lock { .. } | BuildError::Definition(_) | BuildError::Shipped { .. } => {
            ErrorCode::ArgsInvalid
        }
        _ => ErrorCode::SandboxUnreachable,
    };
    let failure = Error::new(code, error.to_string());
    if matches!(error, BuildError::Killed { .. }) { failure.retryable() } else { failure }
}

fn install_runner_files(config: &Config) -> Result<RunnerFiles, Error> {
    RunnerFiles::install(&config.data, &config.runner).map_err(|error| {
        let place = config.data.display();
        let message = format!("cannot write the runner to {place}: {error}");
        Error::new(ErrorCode::SandboxUnreachable, message)
    })
}

fn preload(environment: &BuiltEnvironment) -> Vec<String> {
    environment.preload.iter().map(|module| module.as_str().to_owned()).collect()
}

/// The modules that both the operator and the environment allow, by top-level name.
pub(crate) fn imports(operator: Option<&[String]>, environment: &Imports) -> Option<Vec<String>> {
    let top = |module: &str| module.trim().split('.').next().unwrap_or_default().to_owned();
    let operator: Option<Vec<String>> =
        operator.map(|listed| listed.iter().map(|module| top(module)).collect());
    let listed = match environment {
        Imports::Any => return operator,
        Imports::Only(modules) => modules.iter().map(|module| module.as_str()),
    };
    let both = |module: &String| operator.as_ref().is_none_or(|listed| listed.contains(module));
    Some(listed.map(top).filter(both).collect())
}

fn pool_config(
    config: &Config,
    definition: &Definition,
    environment: &BuiltEnvironment,
) -> Result<PoolConfig, Error> {
    let mounts = environment.mounts().into_iter().chain(config.mounts.clone());
    let installs = definition.index != PackageIndex::None;
    let package_root = config.package_root.as_ref().filter(|_| installs);
    let package_root = package_root
        .map(|package_root| (package_root.directory().to_owned(), INSIDE_PACKAGES.into()));
    let certificates = config.certificates.as_ref();
    let trusted = certificates.map(|bundle| (bundle.clone(), INSIDE_CERTIFICATES.into()));
    let mounts = mounts.map(|mount| (mount.host, mount.inside));
    let binds = mounts.chain(package_root).chain(trusted).collect();
    let mut variables: Vec<_> = environment.variables.clone().into_iter().collect();
    variables.extend(certificates.into_iter().flat_map(|_| certificate_variables()));
    let view = SandboxSpec {
        environment: definition.name.to_string(),
        binds,
        volumes: config.volumes.as_ref().map(|volumes| volumes.path().to_owned()),
        interpreter: INSIDE_INTERPRETER.into(),
        variables,
        preload: preload(environment),
        processes: match definition.processes {
            ProcessesSetting::Allow => sandbox::ProcessPolicy::Allow,
            ProcessesSetting::Deny => sandbox::ProcessPolicy::Deny,
        },
        installs,
        imports: imports(config.imports.as_deref(), &definition.imports),
    };
    Ok(PoolConfig {
        zygote_host: ZygoteHostConfig {
            warden_program: config.warden_program.clone(),
            runtime: install_runner_files(config)?,
            spec: view,
            preload: config.preload,
            allowed_missing_layers: config.allowed_missing_layers.clone(),
            jails_ready: config.jails_ready,
        },
        ready: config.pool_ready,
        rotate_after_spawns: config.rotate_after_spawns,
        rotate_after: config.rotate_after,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(modules: &[&str]) -> Imports {
        let modules = modules.iter().map(|module| String::from(*module).try_into().unwrap());
        Imports::Only(modules.collect())
    }

    #[test]
    fn a_module_must_be_on_both_lists() {
        let operator = ["numpy", "six"].map(str::to_owned);
        assert_eq!(imports(None, &Imports::Any), None);
        assert_eq!(imports(Some(&operator), &Imports::Any).unwrap(), operator);
        assert_eq!(imports(None, &only(&["six", "idna.core"])).unwrap(), ["six", "idna"]);
        assert_eq!(imports(Some(&operator), &only(&["six", "idna"])).unwrap(), ["six"]);
        assert_eq!(imports(Some(&[]), &only(&["six"])).unwrap(), [""; 0]);
        let written = ["numpy", " pandas", "matplotlib.pyplot"].map(str::to_owned);
        let read = imports(Some(&written), &Imports::Any).unwrap();
        assert_eq!(read, ["numpy", "pandas", "matplotlib"], "as people write them");
    }
}
