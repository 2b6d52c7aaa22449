//! Confirmations: the approval of a tool call inside a conversation, and the replies to it.

use crate::agent_loop::AgentLoop;
use crate::conversation::{Conversation, PendingApproval};
use crate::interpreter::ApprovalGuard;
use crate::model::{ToolCall, ToolResult};
use crate::toolbox::{CODE_EXECUTION, Toolbox, record_ended, tool_result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use service::{ApprovalDecision, Caller, RequestError, Service};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use types::{ApprovalId, ApprovalState, Error, ErrorCode, Execution, ExecutionId};
use utoipa::ToSchema;

/// The reply to one pending action
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// `toolConfirmation`
    #[serde(rename = "type")]
    pub kind: ConfirmationKind,
    /// Id of the action
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

/// A reply and its index among the messages.
#[derive(Debug)]
pub(crate) struct IndexedConfirmation {
    pub(crate) index: usize,
    pub(crate) confirmation: Confirmation,
}

/// A reply that passed all checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApprovalReply {
    approval_id: ApprovalId,
    decision: ApprovalDecision,
}

/// Returns all replies if each belongs to an open approval that the caller may answer, and no
/// approval lacks a reply. Decides nothing, so that one invalid reply changes no approval.
pub(crate) async fn check_replies(
    service: &Service,
    caller: &Caller,
    conversation: &Conversation,
    confirmations: &[IndexedConfirmation],
) -> Result<Vec<ApprovalReply>, RequestError> {
    let (mut replies, mut seen) = (Vec::new(), BTreeSet::new());
    for IndexedConfirmation { index, confirmation } in confirmations {
        let path = format!("/messages/{index}/actionId");
        let pending =
            conversation.pending.iter().find(|pending| pending.id() == confirmation.action_id);
        let pending = pending.ok_or_else(|| {
            RequestError::invalid_field(
                &path,
                "does not match a pending action of this conversation",
            )
        })?;
        if !seen.insert(confirmation.action_id.clone()) {
            return Err(RequestError::invalid_field(&path, "has two replies; send one"));
        }
        let approval = service.approval(caller, pending.approval_id)?;
        if approval.state != ApprovalState::Pending {
            return Err(RequestError::invalid_field(
                &path,
                "was decided before; continue without a reply to it",
            ));
        }
        service.check_may_confirm(caller, &approval).await?;
        let decision = match confirmation.status {
            ConfirmationStatus::Allow => ApprovalDecision::Allow,
            ConfirmationStatus::Deny => ApprovalDecision::Deny,
        };
        replies.push(ApprovalReply { approval_id: pending.approval_id, decision });
    }
    for pending in conversation.pending.iter().filter(|pending| !seen.contains(&pending.id())) {
        if service.approval(caller, pending.approval_id)?.state == ApprovalState::Pending {
            return Err(still_open_error(pending));
        }
    }
    Ok(replies)
}

fn still_open_error(pending: &PendingApproval) -> RequestError {
    let message =
        format!("the call of {} is waiting for an approval: {}", pending.call.name, pending.id());
    let hint = "reply to every action with ALLOW or DENY, or decide it with `belljar approvals`";
    Error::new(ErrorCode::ApprovalRequired, message).hint(hint).into()
}

impl PendingApproval {
    /// The id of the approval in `actions`.
    pub(crate) fn id(&self) -> String {
        self.approval_id.to_string()
    }
}

/// The pending action as the API returns it.
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
    /// Applies the replies and waits for the allowed calls, here or elsewhere. The approvals stay
    /// in the conversation until all of them are settled, so that a run that stops earlier can be
    /// continued.
    pub(crate) async fn settle_pending(
        &mut self,
        agent_loop: &mut AgentLoop<'_>,
        conversation: &mut Conversation,
        replies: Vec<ApprovalReply>,
    ) {
        self.has_called = true;
        conversation.settling = true;
        self.refresh_conversation(agent_loop, conversation).await;
        let mut refusals = Vec::new();
        for ApprovalReply { approval_id, decision } in replies {
            if let Err(error) =
                agent_loop.service.confirm_approval(&agent_loop.caller, approval_id, decision).await
            {
                refusals.push((approval_id, error));
            }
        }
        // Calls that run are stopped with this run, even while another one is awaited.
        let (service, caller) = (agent_loop.service, agent_loop.caller.clone());
        let guard =
            |pending: &PendingApproval| ApprovalGuard::new(service, &caller, pending.execution_id);
        let mut guards: Vec<ApprovalGuard> = conversation.pending.iter().map(guard).collect();
        let mut settled = Vec::with_capacity(conversation.pending.len());
        let pending = conversation.pending.iter().zip(&mut guards);
        for (PendingApproval { call, approval_id, execution_id, kind, .. }, guard) in pending {
            let since = Instant::now();
            let error = refusals.iter().find(|(id, _)| id == approval_id);
            let result = match error {
                // The call has changed since, so withdraw the approval: it must not be allowed
                // later.
                Some((_, error)) => {
                    let _ = service.cancel_execution(&caller, *execution_id).await;
                    Err(error.clone())
                }
                None => {
                    let record = service.wait_for_execution(&caller, *execution_id).await;
                    record.map(|record| record.execution)
                }
            };
            guard.open = false;
            settled.push(self.settled_result(agent_loop, since, call, kind, result));
        }
        conversation.settling = false;
        conversation.pending.clear();
        conversation.answered.extend(settled);
        conversation.push_tool_results();
    }

    fn settled_result(
        &mut self,
        agent_loop: &mut AgentLoop<'_>,
        since: Instant,
        call: &ToolCall,
        kind: &str,
        result: Result<Execution, RequestError>,
    ) -> ToolResult {
        match &mut self.interpreter {
            Some(interpreter) if kind == CODE_EXECUTION => {
                // A call of a skill's script has no code in its arguments.
                let submitted_code =
                    || call.arguments["code"].as_str().unwrap_or_default().to_owned();
                let code = result
                    .as_ref()
                    .map_or_else(|_| submitted_code(), |execution| execution.code.clone());
                let outcome = interpreter.record_round(agent_loop, since, code, result);
                tool_result(call, outcome)
            }
            _ => record_ended(agent_loop, since, call, kind, result),
        }
    }
}

/// Stops an allowed call and returns when it no longer runs. Unanswered approvals stay open.
pub(crate) async fn stop_execution(service: &Arc<Service>, caller: &Caller, id: ExecutionId) {
    let Ok(record) = service.execution(caller, id).await else { return };
    let open = record.execution.approval_id.and_then(|id| service.approval(caller, id).ok());
    if open.is_some_and(|approval| approval.state == ApprovalState::Pending) {
        return;
    }
    // It may have ended on its own.
    let _ = service.cancel_execution(caller, id).await;
    let _ = service.wait_for_execution(caller, id).await;
}
