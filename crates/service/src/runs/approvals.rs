//! Questions to people: asked, answered, and used for exactly the one thing that they were about.
//!
//! What is about to run is put together anew before it runs, from the records as they are then,
//! and its seal must be the one of what a person agreed to. An answer is used in the same
//! transaction that says that the execution has begun, so it is used once or not at all.

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
    Approval, ApprovalAction, ApprovalId, ApprovalState, Error, ErrorCode, ObjectRef, Privilege,
    WorkspaceId,
};

#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ApprovalQuery {
    pub state: Option<ApprovalState>,
    /// How many, from 1 to 200; 50 if absent.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
}

impl Service {
    /// For whoever asked, and whoever may answer.
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

    /// Whoever could answer a part of it sees it as well: they are told who has to answer besides.
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
        Ok(self.answer_needs(caller, approval)?.is_none())
    }

    /// The first object that the caller may not change, and would have to in order to answer. Whoever may
    /// change everything whose policy asks may say whether it runs.
    fn answer_needs(
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

    /// An object that the caller would have to be able to change in order to deny, if there is none that
    /// they may change. Each whose policy asks can deny alone: no other policy takes that from it.
    fn denial_needs(
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

    /// Whose policy asks: the agent's, the tool's own, both, or of code the workspace's. An agent does not
    /// answer for what the owner of a tool wants to be asked about, since anybody can make an agent and
    /// attach the tool to it.
    fn governing_object(
        &self,
        workspace: WorkspaceId,
        subject: &ApprovalHeader,
    ) -> Result<Vec<ObjectRef>, RequestError> {
        let of_tool = ObjectRef::Tool(subject.tool);
        let agent = match subject.agent {
            _ if subject.tool == CallTarget::python_id() => {
                return Ok(vec![ObjectRef::Workspace(workspace)]);
            }
            Some(agent) => agent,
            None => return Ok(vec![of_tool]),
        };
        let read = |rows: &Reader<'_>| rows.approval_actions(workspace, subject.tool, agent);
        let (own, of_agent) = self.db.read(read)?;
        let asks = |action| action == Some(ApprovalAction::Review);
        Ok(match (asks(own), asks(of_agent)) {
            (true, true) => vec![of_tool, ObjectRef::Agent(agent)],
            (true, false) => vec![of_tool],
            // Also of a tool that stands in the specification of the agent.
            (false, _) => vec![ObjectRef::Agent(agent)],
        })
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
        let mut listed = Page::from(self.db.read_off_thread(read).await?);
        let mut seen = Vec::with_capacity(listed.items.len());
        for approval in listed.items {
            if self.may_see_approval(caller, &approval)? {
                seen.push(approval);
            }
        }
        listed.items = seen;
        Ok(listed)
    }
}

fn approval_header(approval: &Approval) -> ApprovalHeader {
    let Approval { id, requester, tool_id: tool, agent_id: agent, .. } = *approval;
    ApprovalHeader { id, requester, tool, agent }
}

fn not_pending_error(approval: &Approval) -> RequestError {
    let (code, message) = match approval.state {
        ApprovalState::Used => (ErrorCode::ApprovalInvalid, "the approval was used already"),
        ApprovalState::Denied => (ErrorCode::ApprovalInvalid, "the question was answered: denied"),
        ApprovalState::Allowed => {
            (ErrorCode::ApprovalInvalid, "the question was answered: allowed")
        }
        ApprovalState::Void => (ErrorCode::ApprovalInvalid, "the question is void"),
        ApprovalState::Pending | ApprovalState::Expired => {
            (ErrorCode::ApprovalExpired, "the time to answer is over")
        }
    };
    Error::new(code, message).hint("call the tool again to ask again").into()
}

fn subject_changed_error() -> RequestError {
    Error::new(ErrorCode::ApprovalInvalid, "what would run is not what was asked about")
        .hint(
            "the tool, its inputs, its rights, or what its session or its agent may use have changed; \
             call the tool again to ask again",
        )
        .into()
}

pub(crate) fn directory_changed_error() -> RequestError {
    let message = "files in the working directory of the session have changed since it was asked";
    Error::new(ErrorCode::ApprovalInvalid, message).hint("run the code again to ask again").into()
}

fn requester_over() -> RequestError {
    let message = "the API key that the question was asked with is revoked or has expired, or its \
                   principal was deleted";
    Error::new(ErrorCode::ApprovalInvalid, message).hint("ask again with another key").into()
}
