//! The launch of a run: the only way from a request to a sandbox. Direct calls, tests of tools, calls
//! of agents and calls that a person has approved all pass through [`Service::launch`], so that
//! each meets the same checks when it starts.

use crate::error::{RequestError, invalid_field};
use crate::identity::caller::Caller;
use crate::runs::approvals::directory_changed_error;
use crate::runs::call_target::CallTarget;
use crate::runs::calls::ResolvedRun;
use crate::runs::executions::{ExecutionHandle, RunContext, SubmitOptions};
use crate::runs::mcp_calls::MCP_ENTRY;
use crate::runs::pending_call::StoredInputs;
use crate::runs::run_request::RunRequest;
use crate::service::Service;
use crate::tasks::run_blocking;
use engine::{Command, EntryPoint, FileCollection, StagingDirectory, preflight};
use std::sync::Arc;
use types::{
    Error, ErrorCode, ExecutionId, LimitsRequest, OperatorCaps, Principal, SandboxId, WorkspaceId,
};
use uuid::Uuid;

/// A run that has started, or that waits for an approval.
#[derive(Debug)]
pub enum Submitted {
    Started(ExecutionHandle),
    /// Dropping the handle does not withdraw the request for approval.
    AwaitingApproval(ExecutionHandle),
}

/// What the record of a run says about its entry point.
#[derive(Debug)]
pub(crate) struct EntryRecord {
    pub(crate) name: String,
    /// The name of the called tool, if it is one.
    pub(crate) tool: Option<String>,
    pub(crate) code: String,
}

/// Where the input files of a run come from.
pub(crate) enum InputFiles<'a> {
    /// The request. They are loaded before the run takes capacity, because a URL may be slow.
    Requested(&'a Caller),
    /// They were stored with the approval request. They are read after the run has its capacity,
    /// because a run that waits for capacity would read and hash them at every attempt.
    Stored(&'a StoredInputs),
}

impl Service {
    /// Starts a run, or requests the approval that it needs.
    #[boxed::future]
    pub async fn run(
        self: &Arc<Self>,
        caller: &Caller,
        request: RunRequest,
        options: SubmitOptions,
    ) -> Result<Submitted, RequestError> {
        let run = self.resolve_run(caller.workspace, &caller.principal, request).await?;
        let asks = run.action.asks() && !self.has_remembered_approval(caller, &run).await?;
        if asks && run.target.has_unsaved_values() {
            return Err(unsaved_values_error());
        }
        if asks {
            return self.request_approval(caller, run, options).await;
        }
        let id = ExecutionId::new(Uuid::now_v7());
        let context = RunContext::for_caller(caller, options);
        let files = InputFiles::Requested(caller);
        Ok(Submitted::Started(self.launch(id, &caller.principal, run, files, context).await?))
    }

    /// Checks a run against the current records, takes capacity, and starts it.
    #[boxed::future]
    pub(crate) async fn launch(
        self: &Arc<Self>,
        id: ExecutionId,
        requester: &Principal,
        mut run: ResolvedRun,
        inputs: InputFiles<'_>,
        context: RunContext,
    ) -> Result<ExecutionHandle, RequestError> {
        let workspace = context.workspace;
        self.check_run(workspace, requester, &run).await?;
        let requested = std::mem::take(&mut run.files);
        let ResolvedRun { target, session, on_session_files, limits, agent, run_as, .. } = run;
        let target = match target {
            CallTarget::McpTool(call) => {
                let conditions = (run_as, limits);
                return self.launch_mcp_call(id, requester, *call, conditions, context).await;
            }
            target => target,
        };
        let (session, session_files) =
            if on_session_files { (None, session) } else { (session, None) };
        let (environment, function) = (target.environment().to_owned(), target.function_id());
        let needs = (target.integrations(), target.author());
        let mut files = target.source_files();
        let entry = self.check_entry(workspace, target, id).await?;
        let warnings = match &inputs {
            InputFiles::Requested(caller) => {
                let (loaded, warnings) = self.load_inputs(caller, requested).await?;
                files.extend(loaded);
                warnings
            }
            InputFiles::Stored(stored) => stored.warnings.clone(),
        };
        let caps = self.limit_caps(workspace)?;
        // An approved call is registered while it waits, and is cancelled there.
        let waiting = self.active_executions().get(&id).map(|waiting| waiting.stop_handle());
        let command = Command {
            id,
            stop: waiting.unwrap_or_default(),
            principal: Some(requester.name.clone()),
            started_by: Some(requester.id),
            session,
            session_files,
            files,
            warnings,
            limits,
            caps: Some(caps),
            collect_files: self.file_collection(),
            installer: self.installer(workspace, requester.id, session),
            ..Command::new(environment, entry)
        };
        let command = self.attach_grants(command, workspace, requester, run_as, needs).await?;
        let admitted = self.engine.admit(command).await;
        let mut admitted = admitted.map_err(|failure| admission_error(failure, &limits, &caps))?;
        if let InputFiles::Stored(stored) = inputs {
            // No other run can change the files from now on: the session is leased to this run.
            if let Some(expected) = &stored.working_directory
                && admitted.directory_digest().await?.as_ref() != Some(expected)
            {
                return Err(directory_changed_error());
            }
            admitted.add_files(self.open_stored_inputs(workspace, &stored.files).await?);
        }
        let context = RunContext { run_as, agent, function, ..context };
        self.start_execution(admitted, context).await
    }

    /// The entry point of a run as its record shows it.
    pub(crate) async fn entry_record(
        &self,
        workspace: WorkspaceId,
        target: &CallTarget,
        id: ExecutionId,
    ) -> Result<EntryRecord, RequestError> {
        if let CallTarget::McpTool(call) = target {
            return Ok(EntryRecord {
                name: MCP_ENTRY.to_owned(),
                tool: Some(call.offered.clone()),
                code: String::new(),
            });
        }
        let entry = self.check_entry(workspace, target.clone(), id).await?;
        Ok(EntryRecord {
            name: entry.name().to_owned(),
            tool: entry.tool().map(str::to_owned),
            code: entry.code().to_owned(),
        })
    }

    /// The entry point of a run. Arguments are checked on no thread that serves requests; submitted
    /// code has none.
    pub(crate) async fn check_entry(
        &self,
        workspace: WorkspaceId,
        target: CallTarget,
        id: ExecutionId,
    ) -> Result<EntryPoint, RequestError> {
        if target.is_submitted_code() {
            return target.into_entry(id);
        }
        self.check_slots.run_check(workspace, move || target.into_entry(id)).await?
    }

    /// Everything that can have changed since a run was resolved or approved: its session, what the
    /// session may use, and the programs of its environment.
    pub(crate) async fn check_run(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
        run: &ResolvedRun,
    ) -> Result<(), RequestError> {
        self.check_session_access(workspace, requester, run.session).await?;
        self.check_programs(&run.target).await
    }

    /// Whether a principal may use a session, if one is named, with everything that it has.
    pub(crate) async fn check_session_access(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        id: Option<SandboxId>,
    ) -> Result<(), RequestError> {
        let Some(id) = id else { return Ok(()) };
        let session = self.usable_session_of(workspace, who, id)?;
        self.check_session_grants(workspace, who, &session).await
    }

    /// Refuses a tool whose environment lacks a program that the tool starts.
    async fn check_programs(&self, target: &CallTarget) -> Result<(), RequestError> {
        if target.required_programs().is_empty() {
            return Ok(());
        }
        let environment = target.environment().to_owned();
        let (engine, programs) = (Arc::clone(&self.engine), target.required_programs().to_vec());
        run_blocking(move || {
            let missing = engine.environment_contents(&environment)?.missing_programs(&programs);
            if missing.is_empty() {
                return Ok(());
            }
            Err(preflight::missing_programs_error(&environment, &missing).into())
        })
        .await?
    }

    /// The upper bounds of limits in this workspace.
    pub(crate) fn limit_caps(&self, workspace: WorkspaceId) -> Result<OperatorCaps, RequestError> {
        let (all, of_workspaces) = (self.engine.caps(), &self.config.workspace_limits);
        if of_workspaces.is_empty() {
            return Ok(all);
        }
        let found = self.db.read(|rows| rows.workspace(workspace))?;
        let lower = found.and_then(|found| of_workspaces.get(&found.name));
        Ok(lower.map_or(all, |lower| all.lowered_by(lower)))
    }

    fn file_collection(&self) -> FileCollection {
        // A separate directory for each; the next start removes leftover ones.
        let directory = self.db.blobs().staging_path();
        FileCollection::Staged(StagingDirectory {
            directory,
            bytes_max: self.config.execution_files_bytes_max,
        })
    }
}

/// A test that waits for an approval is stored, and values of variables are stored encrypted, with
/// their tool.
fn unsaved_values_error() -> RequestError {
    let message = "must be absent: this test has to wait for an approval, and values of variables \
                   are stored only with a saved tool";
    invalid_field("/configuration/env_variables", message)
}

/// The engine's refusal, with the field of the request if it is about a limit.
fn admission_error(failure: Error, limits: &LimitsRequest, caps: &OperatorCaps) -> RequestError {
    match limits.resolve(caps) {
        Err(error) if failure.code == ErrorCode::ArgsInvalid => error.into(),
        _ => failure.into(),
    }
}
