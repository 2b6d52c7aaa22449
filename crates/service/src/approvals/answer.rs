//! Answering: by somebody who may, and not by whoever asked.

use super::{asked_about, changed, over};
use crate::caller::Caller;
use crate::refused::{Refused, invalid, missing};
use crate::service::Service;
use chrono::{DateTime, Utc};
use policy::{Bound, Seal, Stage, seal_once, seal_remembered, seals_match};
use serde::Deserialize;
use std::sync::Arc;
use store::{Decision as Decided, Remembered, Tx};
use types::{
    Approval, ApprovalId, ApprovalScope, ApprovalState, Code, Execution, Fault, Privilege, Status,
};
use utoipa::ToSchema;
use uuid::Uuid;

const REASON_CHARS_MAX: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    pub decision: Decision,
    /// What an `allow` is good for: this one call, the session, or always.
    #[serde(default)]
    pub scope: ApprovalScope,
    pub reason: Option<String>,
}

impl Service {
    /// Answers a question. What was allowed begins at once, or as soon as there is room for it.
    pub async fn decide(
        self: &Arc<Self>,
        caller: &Caller,
        id: ApprovalId,
        request: DecisionRequest,
    ) -> Result<Approval, Refused> {
        let (approval, seal) = self.seen_approval(caller, id)?;
        if !self.may_answer(caller, &approval)? {
            return Err(missing(Privilege::Modify, asked_about(&approval)));
        }
        if approval.requester == caller.id() {
            return Err(Fault::new(Code::ApprovalDenied, "whoever asks cannot answer")
                .hint("give the agent a principal and a key of its own, and answer with yours")
                .into());
        }
        check_reason(request.reason.as_deref())?;
        still_open(&approval, Utc::now())?;
        let decided = match request.decision {
            Decision::Allow => self.allow(caller, approval, seal, request).await?,
            Decision::Deny => self.deny(caller, approval, seal, request.reason).await?,
        };
        self.tell_approval(caller.workspace, &decided);
        Ok(decided)
    }

    async fn allow(
        self: &Arc<Self>,
        caller: &Caller,
        approval: Approval,
        seal: Seal,
        request: DecisionRequest,
    ) -> Result<Approval, Refused> {
        let workspace = caller.workspace;
        let matter = self.matter(workspace, &approval)?;
        let bound = matter.bound(workspace, approval.requester);
        let once = matter.once(approval.execution_id, approval.expires_at);
        if !seals_match(&seal, &seal_once(&self.seal_key, Stage::Asked, &bound, &once)) {
            return Err(changed());
        }
        let now = Utc::now();
        let remembered = match request.scope {
            ApprovalScope::Once => None,
            scope => Some(self.remembered(&bound, scope, approval.id, now)?),
        };
        let decided = Decided {
            state: ApprovalState::Allowed,
            by: caller.id(),
            at: now,
            reason: request.reason.clone(),
            scope: request.scope,
            seal: seal_once(&self.seal_key, Stage::AllowedBy(caller.id()), &bound, &once),
        };
        let allowed = self.write_decision(caller, &approval, decided, remembered).await?;
        tokio::spawn(Arc::clone(self).carry_out(workspace, approval.id));
        Ok(allowed)
    }

    fn remembered(
        &self,
        bound: &Bound<'_>,
        scope: ApprovalScope,
        approval_id: ApprovalId,
        now: DateTime<Utc>,
    ) -> Result<Remembered, Refused> {
        let seal = seal_remembered(&self.seal_key, bound, scope)
            .ok_or_else(|| invalid("/scope", "there is no session that it could hold for"))?;
        Ok(Remembered {
            id: Uuid::now_v7(),
            requester: bound.requester,
            tool: bound.tool,
            agent: bound.agent,
            sandbox_id: bound.session.filter(|_| scope == ApprovalScope::Session),
            scope,
            seal,
            approval_id,
            created_at: now,
        })
    }

    async fn deny(
        &self,
        caller: &Caller,
        approval: Approval,
        seal: Seal,
        reason: Option<String>,
    ) -> Result<Approval, Refused> {
        let decided = Decided {
            state: ApprovalState::Denied,
            by: caller.id(),
            at: Utc::now(),
            reason: reason.clone(),
            scope: ApprovalScope::Once,
            seal,
        };
        let denied = self.write_decision(caller, &approval, decided, None).await?;
        let message = match &reason {
            Some(reason) => format!("Tool '{}' was denied: {reason}", approval.tool_name),
            None => format!("Tool '{}' was denied", approval.tool_name),
        };
        let fault = Fault::new(Code::ApprovalDenied, message).hint("go on without it");
        self.end_waiting(caller.workspace, approval.execution_id, Status::Denied, fault).await?;
        Ok(denied)
    }

    async fn write_decision(
        &self,
        caller: &Caller,
        approval: &Approval,
        decided: Decided,
        remembered: Option<Remembered>,
    ) -> Result<Approval, Refused> {
        let (workspace, id) = (caller.workspace, approval.id);
        let action = match decided.state {
            ApprovalState::Allowed => "approval.allow",
            _ => "approval.deny",
        };
        let entry = caller.did(action, id, &approval.tool_name);
        let written = move |tx: &Tx<'_>| {
            if !tx.decide_approval(workspace, id, decided)? {
                return Ok(None);
            }
            if let Some(remembered) = &remembered {
                tx.remember(workspace, remembered)?;
            }
            tx.audit(&entry)?;
            Ok(tx.approval(workspace, id)?.map(|(approval, _)| approval))
        };
        self.store.write(written).await?.ok_or_else(|| {
            let message = "the question was answered by somebody else, or its time is over";
            Fault::new(Code::ApprovalInvalid, message).into()
        })
    }

    /// Whoever asked does not want it any more.
    pub(crate) async fn withdraw(
        &self,
        caller: &Caller,
        execution: Execution,
    ) -> Result<bool, Refused> {
        let Some(id) = execution.approval_id else { return Ok(false) };
        let (approval, seal) = self.seen_approval(caller, id)?;
        let decided = Decided {
            state: ApprovalState::Denied,
            by: caller.id(),
            at: Utc::now(),
            reason: Some("withdrawn".to_owned()),
            scope: ApprovalScope::Once,
            seal,
        };
        let withdrawn = self.write_decision(caller, &approval, decided, None).await?;
        let fault = Fault::new(Code::Cancelled, "the call was withdrawn before it was answered");
        self.end_waiting(caller.workspace, execution.id, Status::Cancelled, fault).await?;
        self.tell_approval(caller.workspace, &withdrawn);
        Ok(true)
    }

    /// Closes the questions that nobody answered in time.
    pub(crate) async fn expire_approvals(&self, now: DateTime<Utc>) -> Result<(), Refused> {
        let over = self.store.write(move |tx| tx.expire_approvals(now)).await?;
        for (workspace, _, execution) in over {
            let fault = Fault::new(Code::ApprovalExpired, "nobody answered in time")
                .hint("call the tool again to ask again");
            self.end_waiting(workspace, execution, Status::Denied, fault).await?;
        }
        Ok(())
    }
}

fn still_open(approval: &Approval, now: DateTime<Utc>) -> Result<(), Refused> {
    if approval.state == ApprovalState::Pending && approval.expires_at > now {
        Ok(())
    } else {
        Err(over(approval))
    }
}

fn check_reason(reason: Option<&str>) -> Result<(), Refused> {
    match reason {
        Some(reason) if reason.chars().count() > REASON_CHARS_MAX => {
            Err(invalid("/reason", format!("has at most {REASON_CHARS_MAX} characters")))
        }
        _ => Ok(()),
    }
}
