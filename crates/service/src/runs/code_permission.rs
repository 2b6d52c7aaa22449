//! The approval policy for submitted code: it runs, is denied, or needs an approval.
//!
//! A principal with MODIFY on the workspace sets the policy, since it could also create a tool. The
//! policy applies to REST, MCP and agents alike.

use crate::error::{RequestError, missing_privilege};
use crate::identity::caller::Caller;
use crate::runs::call_target::{CallTarget, EXECUTE_PYTHON};
use crate::runs::calls::ResolvedTarget;
use crate::runs::run_request::SubmittedCode;
use crate::service::Service;
use db::Tx;
use serde::{Deserialize, Serialize};
use types::{
    ApprovalAction, ApprovalScope, Error, ErrorCode, ObjectRef, Permission, Principal, PrincipalId,
    Privilege, Session, WorkspaceId,
};
use utoipa::ToSchema;

/// The approval policy of a built-in tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolPermission {
    /// `execute_python`, which stands for all submitted code.
    pub tool: &'static str,
    pub permission: Permission,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PermissionChange {
    pub permission: Permission,
}

impl Service {
    pub fn code_permission(&self, caller: &Caller) -> Result<ToolPermission, RequestError> {
        self.require_usage(caller)?;
        let permission = self.db.read(|rows| rows.code_permission(caller.workspace))?;
        Ok(ToolPermission { tool: EXECUTE_PYTHON, permission })
    }

    /// Applies from the next run on. Remembered approvals are no longer valid.
    pub async fn set_code_permission(
        &self,
        caller: &Caller,
        change: PermissionChange,
    ) -> Result<ToolPermission, RequestError> {
        self.require_create(caller)?;
        let (workspace, permission) = (caller.workspace, change.permission);
        let entry = caller.audit_entry("permission.set", EXECUTE_PYTHON, permission.name());
        let written = move |tx: &Tx<'_>| {
            tx.set_code_permission(workspace, permission)?;
            tx.delete_remembered_approvals_of_tool(workspace, CallTarget::python_id())?;
            tx.append_audit_entry(&entry)?;
            Ok(())
        };
        self.db.write(written).await?;
        Ok(ToolPermission { tool: EXECUTE_PYTHON, permission })
    }

    /// Whether this principal may run code in a fresh sandbox, and under which conditions.
    pub(crate) fn permission_for_code(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
    ) -> Result<(ApprovalAction, ApprovalScope), RequestError> {
        self.require_code_usage(workspace, requester)?;
        let permission = self.db.read(|rows| rows.code_permission(workspace))?;
        Ok((permission_action(permission)?, ApprovalScope::Once))
    }

    fn require_code_usage(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
    ) -> Result<PrincipalId, RequestError> {
        let all = ObjectRef::Workspace(workspace);
        let permit = self.permit(workspace, requester, Privilege::Usage, all)?;
        permit.map(|_| requester.id).ok_or_else(|| missing_privilege(Privilege::Usage, all))
    }

    /// Decides whether this principal may run code, with whose rights, and under which conditions.
    pub(crate) async fn resolve_code(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
        session: Option<&Session>,
        source: SubmittedCode,
    ) -> Result<ResolvedTarget, RequestError> {
        let agent = session.and_then(|session| session.agent);
        let (run_as, of_agent) = match agent {
            Some(agent) => {
                let authorized = self.authorize_agent(workspace, requester, agent).await?;
                (authorized.run_as.id, authorized.code_action())
            }
            None => (self.require_code_usage(workspace, requester)?, ApprovalAction::Allow),
        };
        let permission = self.db.read(|rows| rows.code_permission(workspace))?;
        let (action, default_scope) = match (permission_action(permission)?, of_agent) {
            (_, ApprovalAction::Deny) => return Err(denied_by_agent()),
            // The agent asks about each piece of code.
            (of_workspace, ApprovalAction::Confirm | ApprovalAction::Review) => {
                (of_workspace.max(of_agent), ApprovalScope::Once)
            }
            (action, ApprovalAction::Allow) => {
                let once = permission == Permission::AskOnce && session.is_some();
                (action, if once { ApprovalScope::Session } else { ApprovalScope::Once })
            }
        };
        let environment = match session {
            Some(session) => session.environment.clone(),
            None => self.environment_or_default(source.environment.clone()),
        };
        let target = CallTarget::Code { source, environment };
        Ok(ResolvedTarget { target, agent, run_as, action, default_scope })
    }
}

/// What the policy of the workspace says about one piece of code.
fn permission_action(permission: Permission) -> Result<ApprovalAction, RequestError> {
    match permission {
        Permission::Deny => Err(denied()),
        Permission::Allow => Ok(ApprovalAction::Allow),
        Permission::Ask | Permission::AskOnce => Ok(ApprovalAction::Review),
    }
}

fn denied_by_agent() -> RequestError {
    let message = "code execution is denied by the approval policy of the agent";
    Error::new(ErrorCode::ApprovalDenied, message)
        .hint("continue without running code; the owner of the agent can change the policy")
        .into()
}

fn denied() -> RequestError {
    let message = format!("'{EXECUTE_PYTHON}' is denied in this workspace");
    Error::new(ErrorCode::ApprovalDenied, message)
        .hint(
            "continue without running code; a principal with MODIFY on the workspace can change \
             the policy",
        )
        .into()
}
