//! Approvals: requested, decided, and each used for exactly the call that it is about.
//!
//! Before a call runs, its subject is built again from the current records, and the MAC of that
//! subject must equal the MAC that was approved. An approval is consumed in the same transaction
//! that records the start of the execution, so it is used at most once.

mod decide;
mod request;
mod run_approved;
mod subject;
mod unstarted;
mod watch;

pub use decide::{ApprovalDecision, DecisionRequest};
pub use watch::ApprovalJson;
pub(crate) use watch::{ApprovalChange, ApprovalJsonCache};

use crate::error::{RequestError, not_found};
use crate::identity::caller::Caller;
use crate::page::{Page, page_request};
use crate::runs::call_target::CallTarget;
use crate::service::Service;
use db::{ApprovalHeader, Reader};
use policy::MacTag;
use serde::Deserialize;
use types::{
    Approval, ApprovalAction, ApprovalId, ApprovalState, Error, ErrorCode, ObjectRef, Permission,
    Privilege, WorkspaceId,
};

#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ApprovalQuery {
    pub state: Option<ApprovalState>,
    /// Number of items, 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

impl Service {
    /// The approval, for the requester and for principals that may decide about it.
    pub fn approval(&self, caller: &Caller, id: ApprovalId) -> Result<Approval, RequestError> {
        self.visible_approval(caller, id).map(|(approval, _)| approval)
    }

    fn visible_approval(
        &self,
        caller: &Caller,
        id: ApprovalId,
    ) -> Result<(Approval, MacTag), RequestError> {
        let found = self.db.read(|rows| rows.approval(caller.workspace, id))?;
        let found = found.ok_or_else(|| not_found("approval", id))?;
        if self.may_see_approval(caller, &found.0)? {
            Ok(found)
        } else {
            Err(not_found("approval", id))
        }
    }

    pub(crate) fn may_see_approval(
        &self,
        caller: &Caller,
        approval: &Approval,
    ) -> Result<bool, RequestError> {
        self.may_see_header(caller, &approval_header(approval))
    }

    /// A principal that could decide about a part of the approval sees it too: it shows who else
    /// has to decide.
    fn may_see_header(
        &self,
        caller: &Caller,
        subject: &ApprovalHeader,
    ) -> Result<bool, RequestError> {
        if subject.requester == caller.id() {
            return Ok(true);
        }
        for object in self.governing_object(caller.workspace, subject)? {
            if self.may_change(caller, object)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn may_decide(&self, caller: &Caller, approval: &Approval) -> Result<bool, RequestError> {
        Ok(self.missing_to_allow(caller, approval)?.is_none())
    }

    /// The first object on which the caller lacks MODIFY and needs it to allow the call. To allow a
    /// call, a principal must have MODIFY on every object whose policy requires the approval.
    fn missing_to_allow(
        &self,
        caller: &Caller,
        approval: &Approval,
    ) -> Result<Option<ObjectRef>, RequestError> {
        for object in self.governing_object(caller.workspace, &approval_header(approval))? {
            if !self.may_change(caller, object)? {
                return Ok(Some(object));
            }
        }
        Ok(None)
    }

    /// An object on which the caller would need MODIFY to deny the call, if the caller has MODIFY
    /// on none of them. MODIFY on any object whose policy requires the approval is enough to deny.
    fn missing_to_deny(
        &self,
        caller: &Caller,
        approval: &Approval,
    ) -> Result<Option<ObjectRef>, RequestError> {
        let objects = self.governing_object(caller.workspace, &approval_header(approval))?;
        for object in &objects {
            if self.may_change(caller, *object)? {
                return Ok(None);
            }
        }
        Ok(objects.first().copied())
    }

    fn may_change(&self, caller: &Caller, object: ObjectRef) -> Result<bool, RequestError> {
        let permit = self.permit(caller.workspace, &caller.principal, Privilege::Modify, object)?;
        Ok(permit.is_some())
    }

    /// The objects whose policy requires the approval: the agent, the tool, or both, and for
    /// submitted code the workspace. An agent cannot waive the policy of a tool, since any
    /// principal can create an agent and attach the tool to it.
    fn governing_object(
        &self,
        workspace: WorkspaceId,
        subject: &ApprovalHeader,
    ) -> Result<Vec<ObjectRef>, RequestError> {
        let of_tool = ObjectRef::Tool(subject.tool);
        let agent = match subject.agent {
            agent if subject.tool == CallTarget::python_id() => {
                let permission = self.db.read(|rows| rows.code_permission(workspace))?;
                // A workspace that allows all code asks about none, so it was the agent that did.
                let of_agent = agent.filter(|_| permission == Permission::Allow);
                return Ok(vec![
                    of_agent.map_or(ObjectRef::Workspace(workspace), ObjectRef::Agent),
                ]);
            }
            Some(agent) => agent,
            None => return Ok(vec![of_tool]),
        };
        let read = |rows: &Reader<'_>| rows.approval_actions(workspace, subject.tool, agent);
        let (of_itself, of_agent) = self.db.read(read)?;
        // A confirmation is given by the caller, so it adds no principal to those who decide about a review.
        let review = Some(ApprovalAction::Review);
        let is_review = of_itself == review || of_agent == review;
        let requires_approval = |action: Option<ApprovalAction>| match is_review {
            true => action == review,
            false => action.is_some_and(ApprovalAction::asks),
        };
        Ok(match (requires_approval(of_itself), requires_approval(of_agent)) {
            (true, true) => vec![of_tool, ObjectRef::Agent(agent)],
            (true, false) => vec![of_tool],
            // This also holds for a tool in the specification of the agent.
            (false, _) => vec![ObjectRef::Agent(agent)],
        })
    }

    /// Whether the user of the agent or of the MCP client that makes the call may confirm it: no
    /// policy requires the approval of another principal.
    fn is_confirmation(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
    ) -> Result<bool, RequestError> {
        let tool = approval.tool_id;
        let (of_tool, of_agent) = match approval.agent_id {
            Some(agent) => self.db.read(|rows| rows.approval_actions(workspace, tool, agent))?,
            None => {
                let found = self.db.read(|rows| rows.tool(workspace, tool))?;
                (found.map(|(tool, _)| tool.approval_action), None)
            }
        };
        let Some(of_tool) = of_tool else { return Ok(false) };
        Ok(policy::effective_action(of_tool, of_agent) == ApprovalAction::Confirm)
    }

    /// Newest first.
    pub async fn approvals(
        &self,
        caller: &Caller,
        query: ApprovalQuery,
    ) -> Result<Page<Approval>, RequestError> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let workspace = caller.workspace;
        let read = move |rows: &db::Reader<'_>| rows.approvals(workspace, query.state, page);
        let mut page_of_all = Page::from(self.db.read_off_thread(read).await?);
        let mut visible = Vec::with_capacity(page_of_all.items.len());
        for approval in page_of_all.items {
            if self.may_see_approval(caller, &approval)? {
                visible.push(approval);
            }
        }
        page_of_all.items = visible;
        Ok(page_of_all)
    }
}

fn approval_header(approval: &Approval) -> ApprovalHeader {
    let Approval { id, requester, tool_id: tool, agent_id: agent, .. } = *approval;
    ApprovalHeader { id, requester, tool, agent }
}

fn not_pending_error(approval: &Approval) -> RequestError {
    let (code, message) = match approval.state {
        ApprovalState::Used => (ErrorCode::ApprovalInvalid, "the approval was already used"),
        ApprovalState::Denied => (ErrorCode::ApprovalInvalid, "the approval was denied"),
        ApprovalState::Allowed => (ErrorCode::ApprovalInvalid, "the approval was already allowed"),
        ApprovalState::Void => (ErrorCode::ApprovalInvalid, "the approval is void"),
        ApprovalState::Pending | ApprovalState::Expired => {
            (ErrorCode::ApprovalExpired, "the approval has expired")
        }
    };
    Error::new(code, message).hint("call the tool again to request a new approval").into()
}

fn subject_changed_error() -> RequestError {
    Error::new(
        ErrorCode::ApprovalInvalid,
        "the call differs from the one that was submitted for approval",
    )
    .hint(
        "the tool, its inputs, its rights, or the grants of its session or agent have \
             changed; call the tool again to request a new approval",
    )
    .into()
}

pub(crate) fn directory_changed_error() -> RequestError {
    let message = "files in the working directory of the session have changed since the approval \
                   was requested";
    Error::new(ErrorCode::ApprovalInvalid, message)
        .hint("run the code again to request a new approval")
        .into()
}

fn requester_revoked_error() -> RequestError {
    let message = "the API key that requested the approval is revoked or has expired, or its \
                   principal was deleted";
    Error::new(ErrorCode::ApprovalInvalid, message)
        .hint("request a new approval with another key")
        .into()
}
