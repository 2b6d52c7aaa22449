//! The environments in use: each built once, each with a pool of its own.

use crate::config::Config;
use environment::{Definition, Environment, Environments, INSIDE_INTERPRETER, Progress};
use sandbox::{NurseryConfig, Pool, PoolConfig, Runtime, View};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Mutex;
use types::{Code, Fault};

/// The exact versions that an environment has.
pub type Packages = Vec<environment::Package>;

/// An environment that sandboxes can be had of.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) environment: Environment,
    pub(crate) pool: Arc<Pool>,
}

#[derive(Debug)]
pub(crate) struct Shelf {
    ready: Mutex<BTreeMap<String, Arc<Ready>>>,
}

impl Shelf {
    pub(crate) fn new() -> Self {
        Self { ready: Mutex::default() }
    }

    /// The environment of that name, built and started if it was not yet.
    pub(crate) async fn get(
        &self,
        config: &Config,
        name: &str,
        progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Arc<Ready>, Fault> {
        // Held over the build: a second request for it waits for the same one.
        let mut ready = self.ready.lock().await;
        if let Some(found) = ready.get(name) {
            return Ok(Arc::clone(found));
        }
        let environment = build(config, name, progress).await?;
        let pool = Pool::start(pool_config(config, &environment)?)
            .await
            .map_err(|error| crate::outcome::birth_fault(&error))?;
        let made = Arc::new(Ready { environment, pool });
        ready.insert(name.to_owned(), Arc::clone(&made));
        Ok(made)
    }
}

async fn build(
    config: &Config,
    name: &str,
    mut progress: impl FnMut(Progress) + Send + 'static,
) -> Result<Environment, Fault> {
    let definition = Definition::built_in(name)
        .map_err(|error| Fault::new(Code::ArgsInvalid, error.to_string()))?;
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

fn pool_config(config: &Config, environment: &Environment) -> Result<PoolConfig, Fault> {
    let runtime = Runtime::install(&config.data, &config.kernel).map_err(|error| {
        Fault::new(
            Code::SandboxUnreachable,
            format!(
                "the files of the kernel cannot be put into {}: {error}",
                config.data.display()
            ),
        )
    })?;
    let binds = environment.mounts().into_iter().map(|mount| (mount.host, mount.inside)).collect();
    let view = View {
        binds,
        interpreter: INSIDE_INTERPRETER.into(),
        variables: environment.variables.clone().into_iter().collect(),
        preload: environment.preload.iter().map(|module| module.as_str().to_owned()).collect(),
    };
    Ok(PoolConfig {
        nursery: NurseryConfig {
            helper: config.helper.clone(),
            runtime,
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
