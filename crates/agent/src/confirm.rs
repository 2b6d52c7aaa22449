//! Confirmations: what somebody is asked before a tool runs, and what their reply is good for.

use crate::interpreter::Ran;
use crate::model::{ToolCall, ToolResult};
use crate::talk::{Pending, Talk};
use crate::toolbox::{CODE_EXECUTION, Came, Toolbox, ended};
use crate::walk::Walk;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use service::{Caller, Decision, Refused, Service};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use types::{ApprovalId, ApprovalState, Code, Event, Execution, ExecutionId, Fault};
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

/// A reply that may be given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply {
    approval_id: ApprovalId,
    decision: Decision,
}

/// All replies, if each is to a question that is open and that the caller may answer, and none is
/// left open. Nothing is decided here, so that one that is wrong leaves all as they were.
pub(crate) async fn decide(
    service: &Service,
    caller: &Caller,
    talk: &Talk,
    confirmations: &[Confirmation],
) -> Result<Vec<Reply>, Refused> {
    let (mut replies, mut seen) = (Vec::new(), BTreeSet::new());
    for (index, given) in confirmations.iter().enumerate() {
        let path = format!("/messages/{index}/actionId");
        let asked = talk.pending.iter().find(|pending| pending.id() == given.action_id);
        let asked = asked.ok_or_else(|| {
            Refused::invalid(&path, "is of no action that waits for a reply here")
        })?;
        if !seen.insert(given.action_id.clone()) {
            return Err(Refused::invalid(&path, "is replied to twice"));
        }
        let approval = service.approval(caller, asked.approval_id)?;
        if approval.state != ApprovalState::Pending {
            return Err(Refused::invalid(
                &path,
                "was answered before; go on without a reply to it",
            ));
        }
        service.check_confirms(caller, &approval).await?;
        let decision = match given.status {
            ConfirmationStatus::Allow => Decision::Allow,
            ConfirmationStatus::Deny => Decision::Deny,
        };
        replies.push(Reply { approval_id: asked.approval_id, decision });
    }
    for pending in talk.pending.iter().filter(|pending| !seen.contains(&pending.id())) {
        if service.approval(caller, pending.approval_id)?.state == ApprovalState::Pending {
            return Err(still_open(pending));
        }
    }
    Ok(replies)
}

fn still_open(pending: &Pending) -> Refused {
    let message =
        format!("the call of {} waits for an answer: {}", pending.call.name, pending.id());
    let hint = "reply to every action with ALLOW or DENY, or have it answered: belljar approvals";
    Fault::new(Code::ApprovalRequired, message).hint(hint).into()
}

impl Pending {
    /// As it is called in actions.
    pub(crate) fn id(&self) -> String {
        self.approval_id.to_string()
    }
}

/// The question as it is put to whoever has the agent run.
pub(crate) fn action(pending: &Pending) -> Value {
    let Pending { call, kind, description, .. } = pending;
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
    /// Gives the replies, and waits for what was allowed, here or elsewhere.
    pub(crate) async fn settle(
        &mut self,
        walk: &mut Walk<'_>,
        pending: Vec<Pending>,
        replies: Vec<Reply>,
    ) -> Vec<ToolResult> {
        let mut refusals = Vec::new();
        for Reply { approval_id, decision } in replies {
            if let Err(refused) =
                walk.service.confirm(walk.run.caller(), approval_id, decision).await
            {
                refusals.push((approval_id, refused));
            }
        }
        let mut results = Vec::with_capacity(pending.len());
        for Pending { call, approval_id, execution_id, kind, .. } in pending {
            let since = Instant::now();
            let refused = refusals.iter().find(|(id, _)| *id == approval_id);
            let came = match refused {
                Some((_, refused)) => Err(refused.clone()),
                None => over(walk.service, walk.run.caller(), execution_id).await,
            };
            results.push(self.settled(walk, since, &call, &kind, came));
        }
        results
    }

    fn settled(
        &mut self,
        walk: &mut Walk<'_>,
        since: Instant,
        call: &ToolCall,
        kind: &str,
        came: Result<Execution, Refused>,
    ) -> ToolResult {
        if kind == CODE_EXECUTION
            && let Some(interpreter) = &mut self.interpreter
        {
            let code = call.arguments["code"].as_str().unwrap_or_default().to_owned();
            if let Ran::Round { told, failed } = interpreter.note(walk, since, code, came) {
                let (call_id, name) = (call.id.clone(), call.name.clone());
                return ToolResult { call_id, name, text: told, failed };
            }
            let (call_id, name) = (call.id.clone(), call.name.clone());
            return ToolResult { call_id, name, text: String::new(), failed: true };
        }
        match ended(walk, since, call, kind, came) {
            Came::Back(result) => result,
            Came::Waits(pending) => {
                let (call_id, name) = (pending.call.id, pending.call.name);
                ToolResult { call_id, name, text: String::new(), failed: true }
            }
        }
    }
}

/// The record of a call when it is over.
async fn over(
    service: &Arc<Service>,
    caller: &Caller,
    id: ExecutionId,
) -> Result<Execution, Refused> {
    let mut events = std::pin::pin!(service.events(caller, id, 0).await?);
    while let Some((_, event)) = events.next().await {
        if matches!(event, Event::End { .. }) {
            break;
        }
    }
    service.execution(caller, id).await
}
