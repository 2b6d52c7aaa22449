//! Environments: principals that may run code see them, and the operator manages them.
//!
//! Environments belong to the server and not to a workspace. A request names packages and versions,
//! and never a path on the server.

use crate::catalog::functions::ENVIRONMENT_PREFIX;
use crate::error::{RequestError, invalid_field};
use crate::identity::caller::Caller;
use crate::service::Service;
use crate::tasks::run_blocking;
use engine::{BuildRequest, Name, PythonChoice, SourceKind, UnlockedDefinition};
use serde::Deserialize;
use std::sync::Arc;
use types::{Environment, Error, ErrorCode};
use utoipa::ToSchema;

/// The request for an environment: exactly one of `definition`, `requirements` and `script`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentRequest {
    /// A definition in TOML.
    pub definition: Option<String>,
    /// The text of a `requirements.txt`.
    pub requirements: Option<String>,
    /// A Python script with a block `# /// script` (PEP 723), which is not run.
    pub script: Option<String>,
    /// The version of Python, such as `3.12`; default: the newest one on the server that the
    /// packages allow.
    pub python: Option<String>,
    /// The exact packages with their hashes, in requirements format; resolved now if absent.
    pub lock: Option<String>,
}

/// An environment that is being built.
#[derive(Debug)]
pub struct EnvironmentBuild {
    pub name: String,
    /// Whether no environment had this name.
    pub new: bool,
    task: tokio::task::JoinHandle<Result<Environment, Error>>,
}

impl EnvironmentBuild {
    /// Waits for the build, which continues if the caller does not wait.
    pub async fn wait(self) -> Result<Environment, RequestError> {
        match self.task.await {
            Ok(environment) => Ok(environment?),
            Err(error) => Err(Error::new(ErrorCode::SandboxUnreachable, error.to_string()).into()),
        }
    }
}

impl EnvironmentRequest {
    fn into_build_request(self, name: &str) -> Result<BuildRequest, RequestError> {
        let name =
            Name::try_from(name.to_owned()).map_err(|error| invalid_field("/name", error))?;
        let (path, kind, text) = match (self.definition, self.requirements, self.script) {
            (Some(text), None, None) => ("/definition", SourceKind::Toml, text),
            (None, Some(text), None) => ("/requirements", SourceKind::Requirements, text),
            (None, None, Some(text)) => ("/script", SourceKind::Script, text),
            _ => {
                return Err(invalid_field(
                    "",
                    "pass exactly one of definition, requirements and script",
                ));
            }
        };
        let draft = UnlockedDefinition::parse(kind, &text, Some(&name));
        let draft = draft.map_err(|error| invalid_field(path, error.to_string()))?;
        if let Some(lock) = &self.lock {
            draft.with_lock(lock).map_err(|error| invalid_field("/lock", error.to_string()))?;
        }
        let version = |text: String| match text.parse() {
            Ok(version) => Ok(PythonChoice::Version(version)),
            Err(_) => Err(invalid_field("/python", "must be a version such as 3.12")),
        };
        Ok(BuildRequest { draft, lock: self.lock, python: self.python.map(version).transpose()? })
    }
}

impl Service {
    pub async fn environments(&self, caller: &Caller) -> Result<Vec<Environment>, RequestError> {
        self.require_usage(caller)?;
        let engine = Arc::clone(&self.engine);
        let mut environments = run_blocking(move || engine.environments()).await??;
        if self.require_operator(caller).is_err() {
            environments.retain(|environment| !is_function_environment(&environment.name));
        }
        Ok(environments)
    }

    pub async fn environment_named(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Environment, RequestError> {
        self.require_usage(caller)?;
        if is_function_environment(name) && self.require_operator(caller).is_err() {
            return Err(unknown_environment(name).into());
        }
        let (engine, name) = (Arc::clone(&self.engine), name.to_owned());
        Ok(run_blocking(move || engine.environment(&name)).await??)
    }

    /// Starts to build or rebuild an environment.
    pub async fn put_environment(
        &self,
        caller: &Caller,
        name: &str,
        request: EnvironmentRequest,
    ) -> Result<EnvironmentBuild, RequestError> {
        self.require_operator(caller)?;
        let build_request = request.into_build_request(name)?;
        let new = self.engine.check_environment(name).is_err();
        let entry = caller.audit_entry("environment.put", format!("environment {name}"), "");
        self.db.write(move |tx| tx.append_audit_entry(&entry)).await?;
        let build = tokio::spawn(self.engine.add_environment(build_request, |_| {}));
        Ok(EnvironmentBuild { name: name.to_owned(), new, task: build })
    }

    pub async fn remove_environment(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<(), RequestError> {
        self.require_operator(caller)?;
        self.engine.remove_environment(name).await?;
        let entry = caller.audit_entry("environment.delete", format!("environment {name}"), "");
        self.db.write(move |tx| tx.append_audit_entry(&entry)).await?;
        Ok(())
    }

    pub(crate) fn check_environment(&self, name: Option<&str>) -> Result<(), RequestError> {
        let Some(name) = name else { return Ok(()) };
        let checked = match is_function_environment(name) {
            true => Err(unknown_environment(name)),
            false => self.engine.check_environment(name),
        };
        checked.map_err(|error| {
            // The engine also lists environments that are hidden here.
            let hidden = error.message.contains(ENVIRONMENT_PREFIX);
            let message = if hidden { unknown_environment(name).message } else { error.message };
            invalid_field("/environment", message)
        })
    }
}

/// Rejects an environment of functions for other code.
pub(crate) fn check_not_function_environment(name: &str) -> Result<(), RequestError> {
    if is_function_environment(name) { Err(unknown_environment(name).into()) } else { Ok(()) }
}

/// Whether an environment was built for functions. Its packages are private to the workspace that
/// deployed them: requests cannot name such an environment, and only the operator sees it.
fn is_function_environment(name: &str) -> bool {
    name.starts_with(ENVIRONMENT_PREFIX)
}

fn unknown_environment(name: &str) -> Error {
    Error::new(ErrorCode::ObjectNotFound, format!("environment {name:?} not found"))
        .hint("list them with `belljar env ls`")
}
