//! Authors of code: the principal that wrote the current version of an agent, a tool or a function.
//!
//! Code runs with the rights of a principal, and may use only what its author may use, too.
//! Otherwise a principal that can write code for others would gain their rights. An owner that has
//! reviewed a version can confirm it, and becomes its author. No other change by an owner is a
//! confirmation: code that an editor has written or attached stays the editor's.

use crate::catalog::tool_definition::insert_code;
use crate::error::{RequestError, missing_privilege, not_found};
use crate::identity::caller::Caller;
use crate::identity::grants::exists;
use crate::service::Service;
use chrono::{DateTime, Utc};
use db::{DatabaseError, Tx};
use serde::Deserialize;
use types::{
    Agent, AgentId, Error, ErrorCode, Function, FunctionId, ObjectRef, Principal, PrincipalId,
    Privilege, Tool, ToolId, WorkspaceId,
};
use utoipa::ToSchema;

const CONFIRM_HINT: &str =
    "an owner can confirm the code after reading it: `belljar grant confirm KIND:NAME`";

/// The version of an object that its owner has reviewed.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmRequest {
    /// `updated_at` of that version. If the object was changed since, nothing is confirmed.
    pub updated_at: DateTime<Utc>,
}

impl Service {
    /// Whether the author of code has this privilege, too. A deleted principal has none.
    pub(crate) fn author_may(
        &self,
        workspace: WorkspaceId,
        author: PrincipalId,
        privilege: Privilege,
        object: ObjectRef,
    ) -> Result<bool, RequestError> {
        match self.db.read(|rows| rows.principal(workspace, author))? {
            Some(author) => Ok(self.permit(workspace, &author, privilege, object)?.is_some()),
            None => Ok(false),
        }
    }

    /// Requires a privilege of the author of code.
    pub(crate) fn require_author(
        &self,
        workspace: WorkspaceId,
        author: PrincipalId,
        privilege: Privilege,
        object: ObjectRef,
    ) -> Result<(), RequestError> {
        if self.author_may(workspace, author, privilege, object)? {
            return Ok(());
        }
        let mut error = missing_privilege(privilege, object);
        error.error.message =
            format!("the author of this code, {author}, does not have {privilege} on {object}");
        error.error.hint = Some(CONFIRM_HINT.to_owned());
        Err(error)
    }

    /// The author of code as a principal; an error if it was deleted.
    pub(crate) fn author_principal(
        &self,
        workspace: WorkspaceId,
        author: PrincipalId,
    ) -> Result<Principal, RequestError> {
        let found = self.db.read(|rows| rows.principal(workspace, author))?;
        found.ok_or_else(|| {
            let message = format!("the author of this code, principal {author}, was deleted");
            Error::new(ErrorCode::GrantMissing, message).hint(CONFIRM_HINT).into()
        })
    }

    /// Checks that an agent's specification may run with the rights of the agent's owner: an owner
    /// must have written or confirmed it.
    pub(crate) fn check_specification_confirmed(
        &self,
        workspace: WorkspaceId,
        agent: &Agent,
    ) -> Result<(), RequestError> {
        let object = ObjectRef::Agent(agent.id);
        if self.is_confirmed(workspace, object, agent.owner, agent.author)? {
            return Ok(());
        }
        let message = format!(
            "agent {:?} does not run with the rights of its owner: {} changed its specification, \
             and no owner has confirmed it",
            agent.name, agent.author
        );
        Err(Error::new(ErrorCode::GrantMissing, message).hint(CONFIRM_HINT).into())
    }

    /// Whether the author of code is an owner of it.
    fn is_confirmed(
        &self,
        workspace: WorkspaceId,
        object: ObjectRef,
        owner: PrincipalId,
        author: PrincipalId,
    ) -> Result<bool, RequestError> {
        Ok(author == owner || self.author_may(workspace, author, Privilege::Ownership, object)?)
    }

    /// The author of code after a change by the caller. An owner becomes the author of their own
    /// change, but does not confirm an editor's code by it: that requires an explicit confirmation
    /// of the reviewed version.
    pub(crate) fn author_of_change(
        &self,
        caller: &Caller,
        object: ObjectRef,
        (owner, author): (PrincipalId, PrincipalId),
    ) -> Result<PrincipalId, RequestError> {
        let workspace = caller.workspace;
        let owns = self.permit(workspace, &caller.principal, Privilege::Ownership, object)?;
        let stays = owns.is_some() && !self.is_confirmed(workspace, object, owner, author)?;
        Ok(if stays { author } else { caller.id() })
    }

    /// Makes the caller, an owner, the author of the version that it has reviewed.
    pub async fn confirm_agent(
        &self,
        caller: &Caller,
        id: AgentId,
        request: ConfirmRequest,
    ) -> Result<Agent, RequestError> {
        let author = caller.id();
        self.confirm_code(
            caller,
            ObjectRef::Agent(id),
            request,
            move |tx, workspace, read_at, now| {
                let found = tx.agent(workspace, id)?.filter(|found| found.updated_at == read_at);
                let confirmed = found.map(|agent| Agent { author, updated_at: now, ..agent });
                if let Some(agent) = &confirmed {
                    tx.update_agent(workspace, agent)?;
                }
                Ok(confirmed)
            },
        )
        .await
    }

    /// Makes the caller, an owner, the author of the version that it has reviewed.
    pub async fn confirm_tool(
        &self,
        caller: &Caller,
        id: ToolId,
        request: ConfirmRequest,
    ) -> Result<Tool, RequestError> {
        let author = caller.id();
        self.confirm_code(
            caller,
            ObjectRef::Tool(id),
            request,
            move |tx, workspace, read_at, now| {
                let found =
                    tx.tool(workspace, id)?.filter(|(found, _)| found.updated_at == read_at);
                let Some((tool, source)) = found else { return Ok(None) };
                let mut tool = Tool { author, updated_at: now, ..tool };
                tx.update_tool(workspace, &tool, &source)?;
                insert_code(&mut tool, source);
                Ok(Some(tool))
            },
        )
        .await
    }

    /// Makes the caller, an owner, the author of the deployment that it has reviewed.
    pub async fn confirm_function(
        &self,
        caller: &Caller,
        id: FunctionId,
        request: ConfirmRequest,
    ) -> Result<Function, RequestError> {
        let author = caller.id();
        self.confirm_code(
            caller,
            ObjectRef::Function(id),
            request,
            move |tx, workspace, read_at, _| {
                let found = tx.function(workspace, id)?.filter(|found| found.updated_at == read_at);
                let Some(mut function) = found else { return Ok(None) };
                // `updated_at` must not change: a deployment in progress identifies the function by
                // it.
                if let Some(deployed) = &mut function.deployed {
                    deployed.author = author;
                }
                tx.update_function(workspace, &function, None)?;
                Ok(Some(function))
            },
        )
        .await
    }

    /// Writes a confirmation and its audit entry; `write` returns `None` if the version is another
    /// one.
    async fn confirm_code<T: Send + 'static>(
        &self,
        caller: &Caller,
        object: ObjectRef,
        request: ConfirmRequest,
        write: impl FnOnce(
            &Tx<'_>,
            WorkspaceId,
            DateTime<Utc>,
            DateTime<Utc>,
        ) -> Result<Option<T>, DatabaseError>
        + Send
        + 'static,
    ) -> Result<T, RequestError> {
        let is_there = self.db.read(|rows| exists(rows, caller.workspace, object))?;
        if !is_there || !self.can_see(caller, object)? {
            return Err(not_found(object.kind(), object.uuid()));
        }
        self.require_privilege(caller, Privilege::Ownership, object)?;
        let (workspace, read_at) = (caller.workspace, request.updated_at);
        let entry = caller.audit_entry("code.confirm", object, format!("version of {read_at}"));
        let clock = self.config.clock.clone();
        let written = self.db.write(move |tx| {
            let confirmed = write(tx, workspace, read_at, clock.now())?;
            if confirmed.is_some() {
                tx.append_audit_entry(&entry)?;
            }
            Ok(confirmed)
        });
        written.await?.ok_or_else(|| {
            let message = format!("{object} was changed since {read_at}");
            Error::new(ErrorCode::ObjectInUse, message)
                .hint("read it again, then confirm it")
                .into()
        })
    }
}
