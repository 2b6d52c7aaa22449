//! The environments as people look after them: listed, added, replaced, removed, collected.
//!
//! One that is added is built and started before its name stands for it, so that whatever fails on
//! the way leaves what was there before.

use crate::builds::{Change, Happening};
use crate::engine::Engine;
use crate::environments::{aside, fault, make, start};
use chrono::DateTime;
use environment::{
    BuildError, Environments, Order, Origin, Prepared, Progress, PythonChoice, Recipe,
};
use std::sync::Arc;
use std::time::SystemTime;
use types::{Code, Environment, EnvironmentOrigin, EnvironmentStatus, Fault, InstalledPackage};

/// All environments that can be asked for, without their definitions and locks.
pub fn list(environments: &Environments, python: Option<&PythonChoice>) -> Vec<Environment> {
    let names = environments.names().into_iter();
    names.map(|name| described(environments, python, &name)).map(without_texts).collect()
}

/// One environment, with its definition and its lock.
pub fn show(
    environments: &Environments,
    python: Option<&PythonChoice>,
    name: &str,
) -> Result<Environment, Fault> {
    let recipe = environments.find(name).map_err(|error| fault(&error))?;
    Ok(of_recipe(environments, python, &recipe))
}

/// A definition that cannot be read any more is shown as one that has failed.
fn described(
    environments: &Environments,
    python: Option<&PythonChoice>,
    name: &str,
) -> Environment {
    show(environments, python, name).unwrap_or_else(|fault| failed(name, fault))
}

fn of_recipe(
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
            Origin::Own | Origin::Needed => EnvironmentOrigin::Own,
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
        origin: EnvironmentOrigin::Own,
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

fn failed(name: &str, fault: Fault) -> Environment {
    Environment { error: Some(fault), ..empty(name, EnvironmentStatus::Failed) }
}

fn without_texts(environment: Environment) -> Environment {
    Environment { definition: None, lock: None, ..environment }
}

impl Happening {
    fn shown(self, known: Environment) -> Environment {
        match self {
            Self::Building { progress } => Environment {
                status: EnvironmentStatus::Building,
                progress: Some(progress),
                ..known
            },
            // What was built before serves, so that it has not become another.
            Self::Failed(fault) => {
                let status = match known.status {
                    EnvironmentStatus::Unbuilt => EnvironmentStatus::Failed,
                    status => status,
                };
                Environment { status, error: Some(fault), ..known }
            }
        }
    }
}

impl Engine {
    /// Fails if there is no environment of that name.
    pub fn check_environment(&self, name: &str) -> Result<(), Fault> {
        self.shelf.find(&self.config, name).map(drop)
    }

    /// The exact packages that the name stands for now.
    pub fn lock_of(&self, name: &str) -> Result<String, Fault> {
        Ok(self.shelf.find(&self.config, name)?.lock().to_owned())
    }

    pub fn environments(&self) -> Result<Vec<Environment>, Fault> {
        let environments = self.shelf.environments(&self.config)?;
        let mut ordered = self.builds.names();
        let mut listed = list(&environments, self.config.python.as_ref());
        for known in &mut listed {
            ordered.retain(|name| *name != known.name);
            if let Some(happening) = self.happening(&environments, &known.name) {
                *known = happening.shown(known.clone());
            }
        }
        listed.extend(ordered.into_iter().filter_map(|name| {
            let happening = self.happening(&environments, &name)?;
            Some(happening.shown(empty(&name, EnvironmentStatus::Unbuilt)))
        }));
        Ok(listed)
    }

    pub fn environment(&self, name: &str) -> Result<Environment, Fault> {
        let environments = self.shelf.environments(&self.config)?;
        let shown = show(&environments, self.config.python.as_ref(), name);
        match self.happening(&environments, name) {
            None => shown,
            Some(happening) => {
                let known = shown.unwrap_or_else(|_| empty(name, EnvironmentStatus::Unbuilt));
                Ok(happening.shown(known))
            }
        }
    }

    fn happening(&self, environments: &Environments, name: &str) -> Option<Happening> {
        let stamp = environments.stamp(name);
        let failed = || self.shelf.failure(name, stamp).map(Happening::Failed);
        self.builds.happening(name, stamp).or_else(failed)
    }

    /// Builds what was ordered, starts it, and lets its name stand for it. Sandboxes that were made
    /// before keep what they have, and no request has to wait that the one before can serve.
    ///
    /// It is said to be building from the call on, before anybody waits for what is given.
    pub fn add_environment(
        self: &Arc<Self>,
        order: Order,
        mut progress: impl FnMut(&Progress) + Send + 'static,
    ) -> impl Future<Output = Result<Environment, Fault>> + Send + 'static {
        let engine = Arc::clone(self);
        let name = order.draft.name().to_string();
        let turn = self.builds.queue(&name, Change::Order);
        let (builds, watched) = (self.builds.clone(), name.clone());
        let told = move |event: Progress| {
            progress(&event);
            builds.tell(&watched, &event);
        };
        async move {
            turn.come().await;
            let environments = engine.shelf.environments(&engine.config)?;
            let made = engine.replace_environment(Arc::clone(&environments), order, told).await;
            turn.ended(made.clone().err(), environments.stamp(&name));
            made.and_then(|()| engine.environment(&name))
        }
    }

    /// Whether an environment that is built can also be started.
    pub async fn prove(&self, recipe: &Recipe) -> Result<(), Fault> {
        let environments = self.shelf.environments(&self.config)?;
        make(&self.config, environments, recipe.clone(), |_| {})
            .await
            .map(drop)
            .map_err(not_started)
    }

    async fn replace_environment(
        &self,
        environments: Arc<Environments>,
        order: Order,
        mut progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<(), Fault> {
        let builder = Arc::clone(&environments);
        let prepared = aside(move || Ok(builder.prepare(&order, &mut progress)));
        let Prepared { recipe, built } = prepared.await?.map_err(|error| not_made(&error))?;
        let ready = match start(&self.config, &recipe.definition, built).await {
            Ok(ready) => ready,
            Err(fault) => {
                aside(move || environments.abandon(&recipe)).await?;
                return Err(not_started(fault));
            }
        };
        let name = recipe.definition.name.to_string();
        let kept = recipe.clone();
        let stamp = aside(move || environments.keep(&kept)).await?;
        self.shelf.put(&name, stamp, recipe, ready);
        Ok(())
    }

    /// Removes an environment, once it is built if it is just being; of one that ships, what was built.
    /// What is in use of it goes later.
    pub async fn remove_environment(&self, name: &str) -> Result<(), Fault> {
        let environments = self.shelf.environments(&self.config)?;
        let turn = self.builds.queue(name, Change::Removal);
        turn.come().await;
        let was_failed = self.builds.forgive(name);
        let place = self.shelf.forget(name);
        drop(place);
        let name = name.to_owned();
        match aside(move || environments.remove(&name)).await {
            Err(fault) if was_failed && fault.code == Code::ObjectNotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes environments that nobody needs any more.
    pub async fn collect_environments(&self) -> Result<Vec<String>, Fault> {
        let environments = self.shelf.environments(&self.config)?;
        aside(move || environments.collect(SystemTime::now())).await
    }
}

/// Whoever orders an environment chooses its Python, unlike those who run code in it.
fn not_made(error: &BuildError) -> Fault {
    match error {
        BuildError::NoPython { .. }
        | BuildError::OldPython { .. }
        | BuildError::OtherPython { .. }
        | BuildError::UnusablePython { .. } => Fault::new(Code::ArgsInvalid, error.to_string()),
        _ => fault(error),
    }
}

/// What was built does not start, most often for a module of `preload`.
fn not_started(fault: Fault) -> Fault {
    let message = format!("the environment is built and does not start: {}", fault.message);
    Fault { message, ..fault }
}
