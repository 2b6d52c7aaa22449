//! Management of environments: list, add, replace, remove, collect.
//!
//! A new environment is built and started before its name refers to it, so that a failure on the
//! way leaves the previous one in place.

use crate::build_queues::{BuildStatus, QueuedChange};
use crate::engine::Engine;
use crate::environment_cache::{build_and_start, build_error, run_blocking, start_pool};
use chrono::DateTime;
use environment::{
    BuildError, BuildRequest, Environments, Origin, PreparedEnvironment, Progress, PythonChoice,
    Recipe,
};
use std::sync::Arc;
use types::{
    Environment, EnvironmentOrigin, EnvironmentStatus, Error, ErrorCode, InstalledPackage,
};

/// Lists all environments, without their definitions and locks.
pub fn list(environments: &Environments, python: Option<&PythonChoice>) -> Vec<Environment> {
    let names = environments.names().into_iter();
    names.map(|name| describe_or_failed(environments, python, &name)).map(without_texts).collect()
}

/// Describes one environment, with its definition and its lock.
pub fn describe(
    environments: &Environments,
    python: Option<&PythonChoice>,
    name: &str,
) -> Result<Environment, Error> {
    let recipe = environments.find(name).map_err(|error| build_error(&error))?;
    Ok(describe_recipe(environments, python, &recipe))
}

/// An environment whose definition is no longer readable has the status failed.
fn describe_or_failed(
    environments: &Environments,
    python: Option<&PythonChoice>,
    name: &str,
) -> Environment {
    describe(environments, python, name).unwrap_or_else(|error| failed(name, error))
}

fn describe_recipe(
    environments: &Environments,
    python: Option<&PythonChoice>,
    recipe: &Recipe,
) -> Environment {
    let definition = &recipe.definition;
    let built = environments.built(recipe, python);
    let status = if environments.is_building(&definition.name) {
        EnvironmentStatus::Building
    } else if built.is_some() {
        EnvironmentStatus::Ready
    } else {
        EnvironmentStatus::Unbuilt
    };
    let described = Environment {
        description: definition.description.clone(),
        origin: match recipe.origin {
            Origin::Shipped => EnvironmentOrigin::Shipped,
            Origin::Custom | Origin::Derived => EnvironmentOrigin::Custom,
        },
        python: definition.python.to_string(),
        definition: Some(recipe.toml.clone()),
        lock: Some(recipe.lock().to_owned()),
        ..empty(definition.name.as_str(), status)
    };
    let Some((built, last_used)) = built else { return described };
    let packages = built.packages.into_iter();
    Environment {
        python_version: Some(built.python.version.to_string()),
        packages: packages
            .map(|it| InstalledPackage { name: it.name, version: it.version })
            .collect(),
        bytes: Some(built.bytes),
        built_at: DateTime::from_timestamp(i64::try_from(built.built_at).unwrap_or_default(), 0),
        last_used_at: Some(last_used.into()),
        ..described
    }
}

fn empty(name: &str, status: EnvironmentStatus) -> Environment {
    Environment {
        name: name.to_owned(),
        description: String::new(),
        origin: EnvironmentOrigin::Custom,
        status,
        python: String::new(),
        python_version: None,
        packages: Vec::new(),
        bytes: None,
        built_at: None,
        last_used_at: None,
        progress: None,
        error: None,
        definition: None,
        lock: None,
    }
}

fn failed(name: &str, error: Error) -> Environment {
    Environment { error: Some(error), ..empty(name, EnvironmentStatus::Failed) }
}

fn without_texts(environment: Environment) -> Environment {
    Environment { definition: None, lock: None, ..environment }
}

impl BuildStatus {
    fn apply_to(self, environment: Environment) -> Environment {
        match self {
            Self::Building { progress } => Environment {
                status: EnvironmentStatus::Building,
                progress: Some(progress),
                ..environment
            },
            // The previous build still serves, so its status does not change.
            Self::Failed(error) => {
                let status = match environment.status {
                    EnvironmentStatus::Unbuilt => EnvironmentStatus::Failed,
                    status => status,
                };
                Environment { status, error: Some(error), ..environment }
            }
        }
    }
}

impl Engine {
    /// Fails if there is no environment of that name.
    pub fn check_environment(&self, name: &str) -> Result<(), Error> {
        self.environment_cache.find(&self.config, name).map(drop)
    }

    /// The exact packages that the name refers to.
    pub fn lock_of(&self, name: &str) -> Result<String, Error> {
        Ok(self.environment_cache.find(&self.config, name)?.lock().to_owned())
    }

    pub fn environments(&self) -> Result<Vec<Environment>, Error> {
        let environments = self.environment_cache.environments(&self.config)?;
        let mut ordered = self.builds.names();
        let mut listed = list(&environments, self.config.python.as_ref());
        for environment in &mut listed {
            ordered.retain(|name| *name != environment.name);
            if let Some(build_status) = self.build_status(&environments, &environment.name) {
                *environment = build_status.apply_to(environment.clone());
            }
        }
        listed.extend(ordered.into_iter().filter_map(|name| {
            let build_status = self.build_status(&environments, &name)?;
            Some(build_status.apply_to(empty(&name, EnvironmentStatus::Unbuilt)))
        }));
        Ok(listed)
    }

    pub fn environment(&self, name: &str) -> Result<Environment, Error> {
        let environments = self.environment_cache.environments(&self.config)?;
        let described = describe(&environments, self.config.python.as_ref(), name);
        match self.build_status(&environments, name) {
            None => described,
            Some(build_status) => {
                let environment =
                    described.unwrap_or_else(|_| empty(name, EnvironmentStatus::Unbuilt));
                Ok(build_status.apply_to(environment))
            }
        }
    }

    fn build_status(&self, environments: &Environments, name: &str) -> Option<BuildStatus> {
        let stamp = environments.stamp(name);
        let failed = || self.environment_cache.failure(name, stamp).map(BuildStatus::Failed);
        self.builds.status(name, stamp).or_else(failed)
    }

    /// Builds the requested environment, starts it, and then points its name to it. Existing
    /// sandboxes keep their environment, and requests that the previous one can serve do not wait.
    ///
    /// The environment has the status building from the call on, before the returned future is
    /// polled.
    pub fn add_environment(
        self: &Arc<Self>,
        order: BuildRequest,
        mut progress: impl FnMut(&Progress) + Send + 'static,
    ) -> impl Future<Output = Result<Environment, Error>> + Send + 'static {
        let engine = Arc::clone(self);
        let name = order.draft.name().to_string();
        let queue_entry = self.builds.enqueue(&name, QueuedChange::Build);
        let (builds, watched) = (self.builds.clone(), name.clone());
        let on_progress = move |event: Progress| {
            progress(&event);
            builds.set_progress(&watched, &event);
        };
        async move {
            queue_entry.wait_for_turn().await;
            let environments = engine.environment_cache.environments(&engine.config)?;
            let result =
                engine.replace_environment(Arc::clone(&environments), order, on_progress).await;
            queue_entry.record_result(result.clone().err(), environments.stamp(&name));
            result.and_then(|()| engine.environment(&name))
        }
    }

    /// Checks that a built environment also starts.
    pub async fn check_starts(&self, recipe: &Recipe) -> Result<(), Error> {
        let environments = self.environment_cache.environments(&self.config)?;
        build_and_start(&self.config, environments, recipe.clone(), |_| {})
            .await
            .map(drop)
            .map_err(not_started)
    }

    async fn replace_environment(
        &self,
        environments: Arc<Environments>,
        order: BuildRequest,
        mut progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<(), Error> {
        let builder = Arc::clone(&environments);
        let prepared = run_blocking(move || Ok(builder.prepare(&order, &mut progress)));
        let PreparedEnvironment { recipe, built } =
            prepared.await?.map_err(|error| not_made(&error))?;
        let ready = match start_pool(&self.config, &recipe.definition, built).await {
            Ok(ready) => ready,
            Err(error) => {
                run_blocking(move || environments.discard_build(&recipe)).await?;
                return Err(not_started(error));
            }
        };
        let name = recipe.definition.name.to_string();
        let definition = recipe.clone();
        let stamp = run_blocking(move || environments.save_definition(&definition)).await?;
        self.environment_cache.insert(&name, stamp, recipe, ready);
        Ok(())
    }

    /// Removes an environment, after its build if one is in progress. For an environment that ships
    /// with Belljar it removes the build only. Parts that are in use are removed later.
    pub async fn remove_environment(&self, name: &str) -> Result<(), Error> {
        let environments = self.environment_cache.environments(&self.config)?;
        let turn = self.builds.enqueue(name, QueuedChange::Removal);
        turn.wait_for_turn().await;
        let was_failed = self.builds.clear_failure(name);
        let slot = self.environment_cache.remove(name);
        drop(slot);
        let name = name.to_owned();
        match run_blocking(move || environments.remove(&name)).await {
            Err(error) if was_failed && error.code == ErrorCode::ObjectNotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes environments that are no longer needed.
    pub async fn remove_unused_environments(&self) -> Result<Vec<String>, Error> {
        let environments = self.environment_cache.environments(&self.config)?;
        let now = self.config.clock.file_time();
        run_blocking(move || environments.remove_unused(now)).await
    }
}

/// Unlike a caller that runs code, the caller that adds an environment chooses its Python.
fn not_made(error: &BuildError) -> Error {
    match error {
        BuildError::NoPython { .. }
        | BuildError::PythonNotFetched { .. }
        | BuildError::OldPython { .. }
        | BuildError::OtherPython { .. }
        | BuildError::UnusablePython { .. } => {
            Error::new(ErrorCode::ArgsInvalid, error.to_string())
        }
        _ => build_error(error),
    }
}

/// The built environment does not start, most often because of a module in `preload`.
fn not_started(error: Error) -> Error {
    let message = format!("the environment was built but does not start: {}", error.message);
    Error { message, ..error }
}
