//! Environments: whoever may run code sees them, and whoever runs the server looks after them.
//!
//! They are those of the server and not of a workspace. What is asked for from outside names packages
//! and versions, and never a place on the machine of the server.

use crate::apart::aside;
use crate::caller::Caller;
use crate::functions::ENVIRONMENT_PREFIX;
use crate::refused::{Refused, invalid};
use crate::service::Service;
use engine::{Draft, Name, Order, PythonChoice, SourceKind};
use serde::Deserialize;
use std::sync::Arc;
use types::{Code, Environment, Fault};
use utoipa::ToSchema;

/// What an environment shall be: exactly one of `definition`, `requirements` and `script`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentRequest {
    /// A definition in TOML.
    pub definition: Option<String>,
    /// The text of a `requirements.txt`.
    pub requirements: Option<String>,
    /// A Python script with a block `# /// script` (PEP 723), which is not run.
    pub script: Option<String>,
    /// The version of Python, as `3.12`; otherwise the newest that the server has and the text allows.
    pub python: Option<String>,
    /// The exact packages with their hashes, in requirements format; chosen now if absent.
    pub lock: Option<String>,
}

/// An environment that is being made.
#[derive(Debug)]
pub struct Making {
    pub name: String,
    /// Whether there was none of that name.
    pub new: bool,
    done: tokio::task::JoinHandle<Result<Environment, Fault>>,
}

impl Making {
    /// Waits for it. It goes on, too, if nobody does.
    pub async fn done(self) -> Result<Environment, Refused> {
        match self.done.await {
            Ok(done) => Ok(done?),
            Err(error) => Err(Fault::new(Code::SandboxUnreachable, error.to_string()).into()),
        }
    }
}

impl EnvironmentRequest {
    fn order(self, name: &str) -> Result<Order, Refused> {
        let name = Name::try_from(name.to_owned()).map_err(|error| invalid("/name", error))?;
        let (path, kind, text) = match (self.definition, self.requirements, self.script) {
            (Some(text), None, None) => ("/definition", SourceKind::Toml, text),
            (None, Some(text), None) => ("/requirements", SourceKind::Requirements, text),
            (None, None, Some(text)) => ("/script", SourceKind::Script, text),
            _ => return Err(invalid("", "give one of definition, requirements and script")),
        };
        let draft = Draft::read(kind, &text, Some(&name));
        let draft = draft.map_err(|error| invalid(path, error.to_string()))?;
        if let Some(lock) = &self.lock {
            draft.locked(lock).map_err(|error| invalid("/lock", error.to_string()))?;
        }
        let version = |text: String| match text.parse() {
            Ok(version) => Ok(PythonChoice::Version(version)),
            Err(_) => Err(invalid("/python", "must be a version such as 3.12")),
        };
        Ok(Order { draft, lock: self.lock, python: self.python.map(version).transpose()? })
    }
}

impl Service {
    pub async fn environments(&self, caller: &Caller) -> Result<Vec<Environment>, Refused> {
        self.require_usage(caller)?;
        let engine = Arc::clone(&self.engine);
        let mut environments = aside(move || engine.environments()).await??;
        if self.require_operator(caller).is_err() {
            environments.retain(|environment| !is_of_functions(&environment.name));
        }
        Ok(environments)
    }

    pub async fn environment_named(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Environment, Refused> {
        self.require_usage(caller)?;
        if is_of_functions(name) && self.require_operator(caller).is_err() {
            return Err(unknown(name).into());
        }
        let (engine, name) = (Arc::clone(&self.engine), name.to_owned());
        Ok(aside(move || engine.environment(&name)).await??)
    }

    /// Begins to make an environment, or to make it anew.
    pub async fn put_environment(
        &self,
        caller: &Caller,
        name: &str,
        request: EnvironmentRequest,
    ) -> Result<Making, Refused> {
        self.require_operator(caller)?;
        let order = request.order(name)?;
        let new = self.engine.check_environment(name).is_err();
        let entry = caller.did("environment.put", format!("environment {name}"), "");
        self.store.write(move |tx| tx.audit(&entry)).await?;
        let done = tokio::spawn(self.engine.add_environment(order, |_| {}));
        Ok(Making { name: name.to_owned(), new, done })
    }

    pub async fn remove_environment(&self, caller: &Caller, name: &str) -> Result<(), Refused> {
        self.require_operator(caller)?;
        self.engine.remove_environment(name).await?;
        let entry = caller.did("environment.delete", format!("environment {name}"), "");
        self.store.write(move |tx| tx.audit(&entry)).await?;
        Ok(())
    }

    pub(crate) fn check_environment(&self, name: Option<&str>) -> Result<(), Refused> {
        let Some(name) = name else { return Ok(()) };
        let checked = match is_of_functions(name) {
            true => Err(unknown(name)),
            false => self.engine.check_environment(name),
        };
        checked.map_err(|fault| {
            // The engine lists what there is, with what is hidden here.
            let hidden = fault.message.contains(ENVIRONMENT_PREFIX);
            let message = if hidden { unknown(name).message } else { fault.message };
            invalid("/environment", message)
        })
    }
}

/// Refuses code that is to run in an environment of functions without being one.
pub(crate) fn check_not_of_functions(name: &str) -> Result<(), Refused> {
    if is_of_functions(name) { Err(unknown(name).into()) } else { Ok(()) }
}

/// Whether an environment was made for functions. Their packages are a matter of the workspace that
/// deployed them: nobody names such an environment, and only the operator sees it.
fn is_of_functions(name: &str) -> bool {
    name.starts_with(ENVIRONMENT_PREFIX)
}

fn unknown(name: &str) -> Fault {
    Fault::new(Code::ObjectNotFound, format!("there is no environment {name:?}"))
        .hint("`belljar env ls` lists those that there are")
}
