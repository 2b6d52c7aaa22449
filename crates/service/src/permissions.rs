//! Whether code that somebody sends is run, refused, or shown to a person first.
//!
//! Whoever may make tools in a workspace decides, since a tool is code as well. The same holds in
//! every door.

use crate::callee::{Callee, EXECUTE_PYTHON};
use crate::caller::Caller;
use crate::calls::Route;
use crate::refused::{Refused, missing};
use crate::service::Service;
use serde::{Deserialize, Serialize};
use store::Tx;
use types::{
    ApprovalAction, ApprovalScope, Code, Fault, Object, Permission, Principal, Privilege, Session,
    WorkspaceId,
};
use utoipa::ToSchema;

/// Of a tool that every workspace has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolPermission {
    /// `execute_python`: code that somebody sends, in whichever way.
    pub tool: &'static str,
    pub permission: Permission,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PermissionChange {
    pub permission: Permission,
}

impl Service {
    pub fn code_permission(&self, caller: &Caller) -> Result<ToolPermission, Refused> {
        self.require_usage(caller)?;
        let permission = self.store.read(|rows| rows.code_permission(caller.workspace))?;
        Ok(ToolPermission { tool: EXECUTE_PYTHON, permission })
    }

    /// Holds from the next run on. Answers that were remembered are asked for again.
    pub async fn set_code_permission(
        &self,
        caller: &Caller,
        change: PermissionChange,
    ) -> Result<ToolPermission, Refused> {
        self.require_maker(caller)?;
        let (workspace, permission) = (caller.workspace, change.permission);
        let entry = caller.did("permission.set", EXECUTE_PYTHON, permission.name());
        let written = move |tx: &Tx<'_>| {
            tx.set_code_permission(workspace, permission)?;
            tx.forget_tool(workspace, Callee::python_id())?;
            tx.audit(&entry)?;
            Ok(())
        };
        self.store.write(written).await?;
        Ok(ToolPermission { tool: EXECUTE_PYTHON, permission })
    }

    /// Whether this principal may have code run, with whose rights, and on which terms.
    pub(crate) async fn python_route(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        session: Option<&Session>,
        environment: Option<String>,
    ) -> Result<Route, Refused> {
        let agent = session.and_then(|session| session.agent);
        let run_as = match agent {
            Some(agent) => self.lender(workspace, who, agent).await?.run_as.id,
            None => {
                let all = Object::Workspace(workspace);
                let permit = self.permit(workspace, who, Privilege::Usage, all)?;
                permit.map(|_| who.id).ok_or_else(|| missing(Privilege::Usage, all))?
            }
        };
        let permission = self.store.read(|rows| rows.code_permission(workspace))?;
        let (action, good_for) = match permission {
            Permission::Deny => return Err(denied()),
            Permission::Allow => (ApprovalAction::Allow, ApprovalScope::Once),
            Permission::AskOnce if session.is_some() => {
                (ApprovalAction::Review, ApprovalScope::Session)
            }
            Permission::Ask | Permission::AskOnce => (ApprovalAction::Review, ApprovalScope::Once),
        };
        let environment = match session {
            Some(session) => session.environment.clone(),
            None => self.environment(environment),
        };
        let callee = Callee::Python { environment };
        Ok(Route { callee, agent, run_as, action, good_for })
    }
}

fn denied() -> Refused {
    let message = format!("'{EXECUTE_PYTHON}' is denied in this workspace");
    Fault::new(Code::ApprovalDenied, message)
        .hint("go on without running code; whoever may change the workspace decides about it")
        .into()
}
