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
use store::{Reader, Subject};
use types::{
    Approval, ApprovalAction, ApprovalId, ApprovalState, Code, Fault, Object, Privilege,
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

    /// Whoever could answer a part of it sees it as well: they are told who has to answer besides.
    fn may_see_subject(&self, caller: &Caller, subject: &Subject) -> Result<bool, Refused> {
        if subject.requester == caller.id() {
            return Ok(true);
        }
        for object in self.asked_about(caller.workspace, subject)? {
            if self.may_change(caller, object)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn may_answer(&self, caller: &Caller, approval: &Approval) -> Result<bool, Refused> {
        Ok(self.answer_needs(caller, approval)?.is_none())
    }

    /// The first object that the caller may not change, and would have to in order to answer. Whoever may
    /// change everything whose policy asks may say whether it runs.
    fn answer_needs(
        &self,
        caller: &Caller,
        approval: &Approval,
    ) -> Result<Option<Object>, Refused> {
        for object in self.asked_about(caller.workspace, &subject(approval))? {
            if !self.may_change(caller, object)? {
                return Ok(Some(object));
            }
        }
        Ok(None)
    }

    fn may_change(&self, caller: &Caller, object: Object) -> Result<bool, Refused> {
        let permit = self.permit(caller.workspace, &caller.principal, Privilege::Modify, object)?;
        Ok(permit.is_some())
    }

    /// Whose policy asks: the agent's, the tool's own, both, or of code the workspace's. An agent does not
    /// answer for what the owner of a tool wants to be asked about, since anybody can make an agent and
    /// attach the tool to it.
    fn asked_about(
        &self,
        workspace: WorkspaceId,
        subject: &Subject,
    ) -> Result<Vec<Object>, Refused> {
        let of_tool = Object::Tool(subject.tool);
        let agent = match subject.agent {
            _ if subject.tool == Callee::python_id() => {
                return Ok(vec![Object::Workspace(workspace)]);
            }
            Some(agent) => agent,
            None => return Ok(vec![of_tool]),
        };
        let read = |rows: &Reader<'_>| rows.approval_actions(workspace, subject.tool, agent);
        let (own, of_agent) = self.store.read(read)?;
        let asks = |action| action == Some(ApprovalAction::Review);
        Ok(match (asks(own), asks(of_agent)) {
            (true, true) => vec![of_tool, Object::Agent(agent)],
            (true, false) => vec![of_tool],
            // Also of a tool that stands in the specification of the agent.
            (false, _) => vec![Object::Agent(agent)],
        })
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
