//! Questions to people: asked, answered, and used for exactly the one thing that they were about.
//!
//! What is about to run is put together anew before it runs, from the records as they are then,
//! and its seal must be the one of what a person agreed to. An answer is used in the same
//! transaction that says that the execution has begun, so it is used once or not at all.

mod answer;
mod ask;
mod carry_out;
mod ending;
mod matter;

pub use answer::{Decision, DecisionRequest};

use crate::callee::Callee;
use crate::caller::Caller;
use crate::page::{Listed, page};
use crate::refused::{Refused, not_found};
use crate::service::Service;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, future, stream};
use policy::Seal;
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
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
        Ok(approval.requester == caller.id() || self.may_answer(caller, approval)?)
    }

    /// Whoever may change the agent, the tool, or for code the workspace, may say whether it runs.
    fn may_answer(&self, caller: &Caller, approval: &Approval) -> Result<bool, Refused> {
        let object = asked_about(caller.workspace, approval);
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

    pub(crate) fn tell_approval(&self, workspace: WorkspaceId, approval: &Approval) {
        // Nobody may be listening.
        let _ = self.approval_news.send((workspace, approval.clone()));
    }

    /// Every question that is open, and then each as it is asked or answered.
    pub async fn follow_approvals(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> Result<BoxStream<'static, Approval>, Refused> {
        let news = self.approval_news.subscribe();
        let open = self.open_questions(caller).await?;
        let (service, caller) = (Arc::clone(self), caller.clone());
        let fresh = stream::unfold(news, |mut news| async move {
            loop {
                match news.recv().await {
                    Ok(told) => return Some((told, news)),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        let seen = fresh.filter_map(move |(workspace, approval)| {
            // Their roles may be others by now.
            let here = service.still(&caller).filter(|caller| caller.workspace == workspace);
            let seen = here.is_some_and(|caller| {
                service.may_see_approval(&caller, &approval).unwrap_or(false)
            });
            future::ready(seen.then_some(approval))
        });
        Ok(stream::iter(open).chain(seen).boxed())
    }

    /// All that the caller may see, oldest first.
    async fn open_questions(&self, caller: &Caller) -> Result<Vec<Approval>, Refused> {
        let mut open = Vec::new();
        let mut query = ApprovalQuery { state: Some(ApprovalState::Pending), ..Default::default() };
        loop {
            let Listed { items, next_cursor } = self.approvals(caller, query.clone()).await?;
            open.extend(items);
            if next_cursor.is_none() {
                open.reverse();
                return Ok(open);
            }
            query.cursor = next_cursor;
        }
    }
}

/// Whose policy asks: the agent's, the tool's own, or of code the workspace's.
fn asked_about(workspace: WorkspaceId, approval: &Approval) -> Object {
    match approval.agent_id {
        _ if approval.tool_id == Callee::python_id() => Object::Workspace(workspace),
        Some(agent) => Object::Agent(agent),
        None => Object::Tool(approval.tool_id),
    }
}

fn over(approval: &Approval) -> Refused {
    let (code, message) = match approval.state {
        ApprovalState::Used => (Code::ApprovalInvalid, "the approval was used already"),
        ApprovalState::Denied => (Code::ApprovalInvalid, "the question was answered: denied"),
        ApprovalState::Allowed => (Code::ApprovalInvalid, "the question was answered: allowed"),
        ApprovalState::Pending | ApprovalState::Expired => {
            (Code::ApprovalExpired, "the time to answer is over")
        }
    };
    Fault::new(code, message).hint("call the tool again to ask again").into()
}

fn changed() -> Refused {
    Fault::new(Code::ApprovalInvalid, "what would run is not what was asked about")
        .hint("the tool, its inputs or its rights have changed; call the tool again to ask again")
        .into()
}
