//! Confirmations: what somebody is asked before a tool runs, and what their reply is good for.

use crate::agent_loop::AgentLoop;
use crate::conversation::{Conversation, PendingApproval};
use crate::interpreter::{ApprovalGuard, drain_events};
use crate::model::{ToolCall, ToolResult};
use crate::toolbox::{CODE_EXECUTION, Toolbox, record_ended, tool_result};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use service::{ApprovalDecision, Caller, RequestError, Service};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use types::{ApprovalId, ApprovalState, Error, ErrorCode, Execution, ExecutionId};
use utoipa::ToSchema;

/// The reply to one question.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// `toolConfirmation`
    #[serde(rename = "type")]
    pub kind: ConfirmationKind,
    /// Of the action that is replied to.
    #[serde(rename = "actionId")]
    pub action_id: String,
    pub status: ConfirmationStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
pub enum ConfirmationKind {
    #[serde(rename = "toolConfirmation")]
    Tool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ConfirmationStatus {
    Allow,
    Deny,
}

/// A reply, and its place among all messages.
#[derive(Debug)]
pub(crate) struct IndexedConfirmation {
    pub(crate) index: usize,
    pub(crate) confirmation: Confirmation,
}

/// A reply that may be given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApprovalReply {
    approval_id: ApprovalId,
    decision: ApprovalDecision,
}

/// All replies, if each is to a question that is open and that the caller may answer, and none is
/// left open. Nothing is decided here, so that one that is wrong leaves all as they were.
pub(crate) async fn check_replies(
    service: &Service,
    caller: &Caller,
    talk: &Conversation,
    confirmations: &[IndexedConfirmation],
) -> Result<Vec<ApprovalReply>, RequestError> {
    let (mut replies, mut seen) = (Vec::new(), BTreeSet::new());
    for IndexedConfirmation { index, confirmation: given } in confirmations {
        let path = format!("/messages/{index}/actionId");
        let asked = talk.pending.iter().find(|pending| pending.id() == given.action_id);
        let asked = asked.ok_or_else(|| {
            RequestError::invalid_field(&path, "is of no action that waits for a reply here")
        })?;
        if !seen.insert(given.action_id.clone()) {
            return Err(RequestError::invalid_field(&path, "is replied to twice"));
        }
        let approval = service.approval(caller, asked.approval_id)?;
        if approval.state != ApprovalState::Pending {
            return Err(RequestError::invalid_field(
                &path,
                "was answered before; go on without a reply to it",
            ));
        }
        service.check_may_confirm(caller, &approval).await?;
        let decision = match given.status {
            ConfirmationStatus::Allow => ApprovalDecision::Allow,
            ConfirmationStatus::Deny => ApprovalDecision::Deny,
        };
        replies.push(ApprovalReply { approval_id: asked.approval_id, decision });
    }
    for pending in talk.pending.iter().filter(|pending| !seen.contains(&pending.id())) {
        if service.approval(caller, pending.approval_id)?.state == ApprovalState::Pending {
            return Err(still_open_error(pending));
        }
    }
    Ok(replies)
}

fn still_open_error(pending: &PendingApproval) -> RequestError {
    let message =
        format!("the call of {} waits for an answer: {}", pending.call.name, pending.id());
    let hint = "reply to every action with ALLOW or DENY, or have it answered: belljar approvals";
    Error::new(ErrorCode::ApprovalRequired, message).hint(hint).into()
}

impl PendingApproval {
    /// As it is called in actions.
    pub(crate) fn id(&self) -> String {
        self.approval_id.to_string()
    }
}

/// The question as it is put to whoever has the agent run.
pub(crate) fn confirmation_action(pending: &PendingApproval) -> Value {
    let PendingApproval { call, kind, description, .. } = pending;
    let text = format!("The agent wants to run the tool {}.", call.name);
    json!({
        "type": "toolConfirmation",
        "actionId": pending.id(),
        "toolConfirmation": {
            "content": {"type": "text", "text": text},
            "toolName": call.name,
            "toolArguments": call.arguments,
            "toolDescription": description,
            "toolType": kind,
            "details": {"executionId": pending.execution_id},
        },
    })
}

impl Toolbox {
    /// Gives the replies, and waits for what was allowed, here or elsewhere. The questions stay in
    /// the conversation until all of them are settled: a run that is stopped before can be gone on
    /// from.
    pub(crate) async fn settle_pending(
        &mut self,
        walk: &mut AgentLoop<'_>,
        talk: &mut Conversation,
        replies: Vec<ApprovalReply>,
    ) {
        self.has_called = true;
        talk.settling = true;
        let mut refusals = Vec::new();
        for ApprovalReply { approval_id, decision } in replies {
            if let Err(refused) =
                walk.service.confirm_approval(&walk.caller, approval_id, decision).await
            {
                refusals.push((approval_id, refused));
            }
        }
        // Whatever of them runs is stopped with this run, also while another one is waited for.
        let (service, caller) = (walk.service, walk.caller.clone());
        let guard =
            |pending: &PendingApproval| ApprovalGuard::new(service, &caller, pending.execution_id);
        let mut guards: Vec<ApprovalGuard> = talk.pending.iter().map(guard).collect();
        let mut settled = Vec::with_capacity(talk.pending.len());
        let pending = talk.pending.iter().zip(&mut guards);
        for (PendingApproval { call, approval_id, execution_id, kind, .. }, guard) in pending {
            let since = Instant::now();
            let refused = refusals.iter().find(|(id, _)| id == approval_id);
            let came = match refused {
                // It is not what was asked about any more, so that nobody can allow it later.
                Some((_, refused)) => {
                    let _ = service.cancel_execution(&caller, *execution_id).await;
                    Err(refused.clone())
                }
                None => wait_for_end(service, &caller, *execution_id).await,
            };
            guard.open = false;
            settled.push(self.settled_result(walk, since, call, kind, came));
        }
        talk.settling = false;
        talk.pending.clear();
        talk.answered.extend(settled);
        talk.push_tool_results();
    }

    fn settled_result(
        &mut self,
        walk: &mut AgentLoop<'_>,
        since: Instant,
        call: &ToolCall,
        kind: &str,
        came: Result<Execution, RequestError>,
    ) -> ToolResult {
        match &mut self.interpreter {
            Some(interpreter) if kind == CODE_EXECUTION => {
                // That of a skill's script stands in no argument.
                let written = || call.arguments["code"].as_str().unwrap_or_default().to_owned();
                let code =
                    came.as_ref().map_or_else(|_| written(), |execution| execution.code.clone());
                let told = interpreter.record_round(walk, since, code, came);
                tool_result(call, told)
            }
            _ => record_ended(walk, since, call, kind, came),
        }
    }
}

/// The record of a call when it is over.
async fn wait_for_end(
    service: &Arc<Service>,
    caller: &Caller,
    id: ExecutionId,
) -> Result<Execution, RequestError> {
    let mut events = service.execution_events(caller, id, 0).await?.boxed();
    drain_events(&mut events).await;
    service.execution(caller, id).await
}

/// Returns when what somebody has allowed does not run any more. What nobody has answered stays.
pub(crate) async fn stop_execution(service: &Arc<Service>, caller: &Caller, id: ExecutionId) {
    let Ok(execution) = service.execution(caller, id).await else { return };
    let open = execution.approval_id.and_then(|id| service.approval(caller, id).ok());
    if open.is_some_and(|approval| approval.state == ApprovalState::Pending) {
        return;
    }
    // It may be over by itself.
    let _ = service.cancel_execution(caller, id).await;
    let _ = wait_for_end(service, caller, id).await;
}
