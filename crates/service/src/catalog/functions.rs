//! Functions: code that is deployed independently of agents, with its own packages, memory and time
//! limit.
//!
//! A new deployment replaces the current one as a whole, and only once it is ready: if it fails,
//! the current one stays in use. An environment that was built for functions is removed with the
//! last function that uses it.

mod calls;
mod deployment;
mod package;

pub use calls::{FunctionCallQuery, FunctionCallRequest};
pub use deployment::DeploymentHandle;
pub(crate) use package::{ENVIRONMENT_PREFIX, FunctionFiles};
pub use package::{FunctionRequest, FunctionSource};

use self::deployment::used_environments;
use crate::error::{RequestError, in_use, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::identity::ownership::ObjectQuery;
use crate::page::{Page, page_request};
use crate::service::Service;
use crate::tasks::{run_blocking, run_to_completion};
use db::ObjectFilter;
use std::sync::Arc;
use types::{
    Deployment, Error, ErrorCode, Function, FunctionId, FunctionStatus, ObjectRef, Principal,
    Privilege, WorkspaceId,
};

/// The deployment that a call runs.
#[derive(Debug)]
pub(crate) struct DeployedFunction {
    pub(crate) id: FunctionId,
    pub(crate) name: String,
    pub(crate) deployment: Deployment,
    pub(crate) handler: contract::FunctionContract,
    pub(crate) files: FunctionFiles,
    /// The exact packages of its environment.
    pub(crate) lock: String,
}

impl Service {
    /// Functions that the caller may see, newest first.
    pub async fn functions(
        &self,
        caller: &Caller,
        query: ObjectQuery,
    ) -> Result<Page<Function>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = ObjectFilter { search: query.search, seen_by: self.viewers(caller)? };
        let workspace = caller.workspace;
        let listed = self.db.read_off_thread(move |rows| rows.functions(workspace, &filter, page));
        Ok(listed.await?.into())
    }

    pub fn function(&self, caller: &Caller, id: FunctionId) -> Result<Function, RequestError> {
        let found = self.db.read(|rows| rows.function(caller.workspace, id))?;
        match found {
            Some(function) if self.can_see(caller, ObjectRef::Function(id))? => {
                Ok(self.with_progress(function))
            }
            _ => Err(not_found("function", id)),
        }
    }

    fn with_progress(&self, function: Function) -> Function {
        let preparing = function.preparing.as_deref();
        let environment = preparing.and_then(|name| self.engine.environment(name).ok());
        Function { progress: environment.and_then(|it| it.progress), ..function }
    }

    /// Deletes a function that no tool calls. Running calls continue.
    pub async fn delete_function(
        self: &Arc<Self>,
        caller: &Caller,
        id: FunctionId,
    ) -> Result<(), RequestError> {
        let function = self.function(caller, id)?;
        let object = ObjectRef::Function(id);
        self.require_privilege(caller, Privilege::Ownership, object)?;
        let entry = caller.audit_entry("function.delete", object, &function.name);
        let (service, workspace, name) = (Arc::clone(self), caller.workspace, function.name);
        run_to_completion(async move {
            let deleted = service.db.write(move |tx| {
                let tools = tx.tools_with_function(workspace, &name)?;
                if !tools.is_empty() {
                    let users = tools.iter().map(|it| format!("tool {it:?}"));
                    let users: Vec<_> = users.collect();
                    return Ok(Err(in_use(&format!("function {name:?}"), &users)));
                }
                // Read again: the function may have been deployed meanwhile.
                let last = tx.function(workspace, id)?;
                tx.delete_function(workspace, id)?;
                tx.delete_grants_on(workspace, object)?;
                tx.append_audit_entry(&entry)?;
                Ok(Ok(last))
            });
            for environment in deleted.await??.as_ref().map(used_environments).unwrap_or_default() {
                service.release_environment(&environment).await;
            }
            Ok(())
        })
        .await
    }

    /// Checks the function that a tool names in `externalId`: the caller must see it, and it must
    /// be deployed.
    pub(crate) fn check_function(&self, caller: &Caller, name: &str) -> Result<(), Error> {
        let unboxed = |error: RequestError| *error.error;
        let found = self.db.read(|rows| rows.function_by_name(caller.workspace, name));
        let found = found.map_err(|error| unboxed(error.into()))?;
        let function = found.ok_or_else(|| no_function_error(name))?;
        if !self.can_see(caller, ObjectRef::Function(function.id)).map_err(unboxed)? {
            return Err(no_function_error(name));
        }
        if function.deployed.is_none() { Err(not_deployed_error(&function)) } else { Ok(()) }
    }

    /// The function that a tool calls, for the principal that the tool runs as.
    pub(crate) async fn function_named(
        &self,
        workspace: WorkspaceId,
        run_as: &Principal,
        name: &str,
    ) -> Result<Arc<DeployedFunction>, RequestError> {
        let found = self.db.read(|rows| rows.function_by_name(workspace, name))?;
        let function = found.ok_or_else(|| no_function_error(name))?;
        self.usable_function(workspace, run_as, function.id).await
    }

    /// The current deployment, for a principal that may use it.
    pub(crate) async fn usable_function(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        id: FunctionId,
    ) -> Result<Arc<DeployedFunction>, RequestError> {
        let object = ObjectRef::Function(id);
        if self.permit(workspace, principal, Privilege::Usage, object)?.is_none() {
            return Err(missing_privilege(Privilege::Usage, object));
        }
        let read = move |rows: &db::Reader<'_>| rows.deployed_function(workspace, id);
        let Some((function, source)) = self.db.read_off_thread(read).await? else {
            let found = self.db.read(|rows| rows.function(workspace, id))?;
            let function = found.ok_or_else(|| not_found("function", id))?;
            return Err(not_deployed_error(&function).into());
        };
        let not_deployed = not_deployed_error(&function);
        let Some(deployment) = function.deployed else { return Err(not_deployed.into()) };
        let lock = self.engine.lock_of(&deployment.environment).map_err(|error| {
            let message = format!("function {:?} cannot run: {}", function.name, error.message);
            Error::new(ErrorCode::ToolUnavailable, message).hint("deploy it again")
        })?;
        let input_bytes_max = self.config.tool_bytes_max;
        let read = move || {
            let files = FunctionFiles::from_bytes(&source).ok_or(not_deployed)?;
            let mut handler = files.handler()?;
            handler.input_bytes_max = input_bytes_max;
            Ok::<_, RequestError>((files, handler))
        };
        let (files, handler) = run_blocking(read).await??;
        let Function { id, name, .. } = function;
        Ok(Arc::new(DeployedFunction { id, name, deployment, handler, files, lock }))
    }
}

pub(crate) fn no_function_error(name: &str) -> Error {
    Error::new(ErrorCode::ToolUnavailable, format!("function {name:?} is not deployed"))
        .hint("deploy it first: `belljar tool deploy DIR`, or POST /v1/functions")
}

fn not_deployed_error(function: &Function) -> Error {
    let name = &function.name;
    let (message, hint) = match (&function.status, &function.error) {
        (FunctionStatus::Deploying, _) => {
            (format!("function {name:?} is being deployed"), "retry when it is ready")
        }
        (_, Some(error)) => (
            format!("function {name:?} is not deployed: {}", error.message),
            "correct the function and deploy it again",
        ),
        (_, None) => (format!("function {name:?} is not deployed"), "deploy it again"),
    };
    Error::new(ErrorCode::ToolUnavailable, message).hint(hint)
}
