//! Questions to people: asked, answered, and used for exactly the one thing that they were about.
//!
//! What is about to run is put together anew before it runs, from the records as they are then,
//! and its seal must be the one of what a person agreed to. An answer is used in the same
//! transaction that says that the execution has begun, so it is used once or not at all.

mod answer;
mod ask;
mod carry_out;
mod ending;
mod follow;
mod matter;

pub use answer::{Decision, DecisionRequest};
pub use follow::QuestionText;
pub(crate) use follow::{ApprovalNews, QuestionTexts};

use crate::callee::Callee;
use crate::caller::Caller;
use crate::page::{Listed, page};
use crate::refused::{Refused, not_found};
use crate::service::Service;
use policy::Seal;
use serde::Deserialize;
use store::Subject;
use types::{Approval, ApprovalId, ApprovalState, Code, Fault, Object, Privilege, WorkspaceId};

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
    pub fn approval(&self, caller: &Caller, id: ApprovalId) -> Result<Approval, Refused> {
        self.seen_approval(caller, id).map(|(approval, _)| approval)
    }

    fn seen_approval(&self, caller: &Caller, id: ApprovalId) -> Result<(Approval, Seal), Refused> {
        let found = self.store.read(|rows| rows.approval(caller.workspace, id))?;
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
    ) -> Result<bool, Refused> {
        self.may_see_subject(caller, &subject(approval))
    }

    fn may_see_subject(&self, caller: &Caller, subject: &Subject) -> Result<bool, Refused> {
        Ok(subject.requester == caller.id() || self.may_answer_subject(caller, subject)?)
    }

    /// Whoever may change the agent, the tool, or for code the workspace, may say whether it runs.
    fn may_answer(&self, caller: &Caller, approval: &Approval) -> Result<bool, Refused> {
        self.may_answer_subject(caller, &subject(approval))
    }

    fn may_answer_subject(&self, caller: &Caller, subject: &Subject) -> Result<bool, Refused> {
        let object = asked_about(caller.workspace, subject);
        let principal = &caller.principal;
        Ok(self.permit(caller.workspace, principal, Privilege::Modify, object)?.is_some())
    }

    /// Newest first.
    pub async fn approvals(
        &self,
        caller: &Caller,
        query: ApprovalQuery,
    ) -> Result<Listed<Approval>, Refused> {
        let page = page(query.limit, query.cursor.as_deref())?;
        let workspace = caller.workspace;
        let read = move |rows: &store::Reader<'_>| rows.approvals(workspace, query.state, page);
        let mut listed = Listed::from(self.store.read_long(read).await?);
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

/// Whose policy asks: the agent's, the tool's own, or of code the workspace's.
fn asked_about(workspace: WorkspaceId, subject: &Subject) -> Object {
    match subject.agent {
        _ if subject.tool == Callee::python_id() => Object::Workspace(workspace),
        Some(agent) => Object::Agent(agent),
        None => Object::Tool(subject.tool),
    }
}

fn subject(approval: &Approval) -> Subject {
    let Approval { id, requester, tool_id: tool, agent_id: agent, .. } = *approval;
    Subject { id, requester, tool, agent }
}

fn over(approval: &Approval) -> Refused {
    let (code, message) = match approval.state {
        ApprovalState::Used => (Code::ApprovalInvalid, "the approval was used already"),
        ApprovalState::Denied => (Code::ApprovalInvalid, "the question was answered: denied"),
        ApprovalState::Allowed => (Code::ApprovalInvalid, "the question was answered: allowed"),
        ApprovalState::Void => (Code::ApprovalInvalid, "the question is void"),
        ApprovalState::Pending | ApprovalState::Expired => {
            (Code::ApprovalExpired, "the time to answer is over")
        }
    };
    Fault::new(code, message).hint("call the tool again to ask again").into()
}

fn changed() -> Refused {
    Fault::new(Code::ApprovalInvalid, "what would run is not what was asked about")
        .hint(
            "the tool, its inputs, its rights, or what its session or its agent may use have changed; \
             call the tool again to ask again",
        )
        .into()
}

fn directory_changed() -> Refused {
    let message = "files in the working directory of the session have changed since it was asked";
    Fault::new(Code::ApprovalInvalid, message).hint("run the code again to ask again").into()
}

fn requester_over() -> Refused {
    let message = "the API key that the question was asked with is revoked or has expired, or its \
                   principal was deleted";
    Fault::new(Code::ApprovalInvalid, message).hint("ask again with another key").into()
}
