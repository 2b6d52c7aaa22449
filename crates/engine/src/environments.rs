//! The environments in use: each built once, each with a pool of its own.

use crate::config::Config;
use environment::{
    Definition, Environment, Environments, INSIDE_INTERPRETER, Package, PackageIndex, Processes,
    Progress, PythonVersion,
};
use sandbox::{NurseryConfig, Pool, PoolConfig, Runtime, View};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OnceCell;
use types::{Code, Fault};

/// The exact versions that an environment has.
#[derive(Debug, Clone)]
pub struct Installed {
    pub python: PythonVersion,
    pub packages: Vec<Package>,
}

/// An environment that sandboxes can be had of.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) environment: Environment,
    pub(crate) pool: Arc<Pool>,
}

/// How to start the Python of an environment outside of any wall, to compare with.
#[derive(Debug, Clone)]
pub struct Outside {
    pub interpreter: PathBuf,
    pub site_packages: PathBuf,
    /// Where the sources of the kernel are.
    pub kernel: PathBuf,
    pub variables: Vec<(String, String)>,
    pub preload: Vec<String>,
}

impl Ready {
    pub(crate) fn installed(&self) -> Installed {
        let Environment { python, packages, .. } = &self.environment;
        Installed { python: python.version, packages: packages.clone() }
    }

    pub(crate) fn outside(&self, config: &Config) -> Result<Outside, Fault> {
        let environment = &self.environment;
        Ok(Outside {
            interpreter: environment.python.executable.clone(),
            site_packages: environment.site_packages(),
            kernel: runtime(config)?.path().join("kernel"),
            variables: environment.variables.clone().into_iter().collect(),
            preload: preload(environment),
        })
    }
}

/// The environments that were asked for, by their names.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    places: Mutex<BTreeMap<String, Arc<Place>>>,
}

/// An environment that exists, made at its first use. Whoever asks for it meanwhile waits for the
/// same one, and nobody waits who asks for another.
#[derive(Debug)]
pub(crate) struct Place {
    definition: Definition,
    ready: OnceCell<Arc<Ready>>,
}

impl Shelf {
    fn places(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of an environment, if there is one of that name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Place>, Fault> {
        if let Some(found) = self.places().get(name) {
            return Ok(Arc::clone(found));
        }
        let definition = Definition::built_in(name)
            .map_err(|error| Fault::new(Code::ArgsInvalid, error.to_string()))?;
        let place = Arc::new(Place { definition, ready: OnceCell::new() });
        Ok(Arc::clone(self.places().entry(name.to_owned()).or_insert(place)))
    }

    /// The environment of that name, built and started if it was not yet.
    pub(crate) async fn get(
        &self,
        config: &Config,
        name: &str,
        progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Arc<Ready>, Fault> {
        let place = self.find(name)?;
        let made = place.ready.get_or_try_init(|| make(config, &place.definition, progress));
        made.await.cloned()
    }

    /// Lets go of all of them, which ends what waits in their pools.
    pub(crate) fn clear(&self) {
        self.places().clear();
    }
}

async fn make(
    config: &Config,
    definition: &Definition,
    progress: impl FnMut(Progress) + Send + 'static,
) -> Result<Arc<Ready>, Fault> {
    let environment = build(config, definition.clone(), progress).await?;
    let pool = Pool::start(pool_config(config, definition, &environment)?)
        .await
        .map_err(|error| crate::outcome::birth_fault(&error))?;
    Ok(Arc::new(Ready { environment, pool }))
}

async fn build(
    config: &Config,
    definition: Definition,
    mut progress: impl FnMut(Progress) + Send + 'static,
) -> Result<Environment, Fault> {
    let (data, python) = (config.data.clone(), config.python.clone());
    let built = tokio::task::spawn_blocking(move || {
        Environments::open(&data)?.ensure(&definition, python.as_deref(), &mut progress)
    })
    .await;
    match built {
        Ok(Ok(environment)) => Ok(environment),
        Ok(Err(error)) => Err(Fault::new(Code::SandboxUnreachable, error.to_string())),
        Err(error) => Err(Fault::new(Code::SandboxUnreachable, error.to_string())),
    }
}

fn runtime(config: &Config) -> Result<Runtime, Fault> {
    Runtime::install(&config.data, &config.kernel).map_err(|error| {
        let place = config.data.display();
        let message = format!("the files of the kernel cannot be put into {place}: {error}");
        Fault::new(Code::SandboxUnreachable, message)
    })
}

fn preload(environment: &Environment) -> Vec<String> {
    environment.preload.iter().map(|module| module.as_str().to_owned()).collect()
}

fn pool_config(
    config: &Config,
    definition: &Definition,
    environment: &Environment,
) -> Result<PoolConfig, Fault> {
    let mounts = environment.mounts().into_iter().chain(config.mounts.clone());
    let binds = mounts.map(|mount| (mount.host, mount.inside)).collect();
    let view = View {
        environment: definition.name.to_string(),
        binds,
        stores: config.stores.as_ref().map(|stores| stores.path().to_owned()),
        interpreter: INSIDE_INTERPRETER.into(),
        variables: environment.variables.clone().into_iter().collect(),
        preload: preload(environment),
        processes: match definition.processes {
            Processes::Allow => sandbox::Processes::Allow,
            Processes::Deny => sandbox::Processes::Deny,
        },
        installs: definition.index != PackageIndex::None,
        imports: config.imports.clone(),
    };
    Ok(PoolConfig {
        nursery: NurseryConfig {
            helper: config.helper.clone(),
            runtime: runtime(config)?,
            view,
            warmth: config.warmth,
            without: config.without.clone(),
            jails_ready: config.jails_ready,
        },
        ready: config.pool_ready,
        rotate_after_births: config.rotate_after_births,
        rotate_after: config.rotate_after,
    })
}
