//! Answering: by somebody who may, and not by whoever asked, unless it is a person whose client asks
//! them.

use super::ending::Ending;
use super::matter::Matter;
use super::{changed, over, requester_over};
use crate::apart::to_the_end;
use crate::callee::Callee;
use crate::caller::Caller;
use crate::origins::Asker;
use crate::refused::{Refused, invalid, missing};
use crate::service::Service;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use policy::{Bound, Seal, Stage, seal_asked_back, seal_once, seal_remembered, seals_match};
use serde::Deserialize;
use std::sync::Arc;
use store::{Decision as Decided, Origin, Remembered, Tx};
use types::{
    Approval, ApprovalId, ApprovalScope, ApprovalState, Code, Execution, Fault, KeyId,
    PrincipalKind, Privilege, WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;

const REASON_CHARS_MAX: usize = 1_000;
/// Of what was taken back: no answer has it, so nothing that was agreed to before holds.
const VOID: Seal = [0; 32];
/// Questions that are ended in one transaction: each has a record with up to 4 MiB of code, which is in
/// memory until its end was told.
const ENDED_AT_ONCE: usize = 8;

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
    /// What an `allow` is good for: this one call, the session, or always. If absent, for what the
    /// question says.
    pub scope: Option<ApprovalScope>,
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
        if let Some(object) = self.answer_needs(caller, &approval)? {
            return Err(missing(Privilege::Modify, object));
        }
        if approval.requester == caller.id() {
            return Err(not_oneself());
        }
        check_reason(request.reason.as_deref())?;
        self.carry_decision(caller, approval, seal, request).await
    }

    /// Whether the client of a person may put the question to that person. It is a person's key, so
    /// the client is theirs; a service has nobody to ask.
    pub fn may_answer_oneself(
        &self,
        caller: &Caller,
        approval: &Approval,
    ) -> Result<bool, Refused> {
        let person = caller.principal.kind == PrincipalKind::User;
        if !person || approval.requester != caller.id() {
            return Ok(false);
        }
        // Of code that has their own rights anybody may be asked; of anything else, who may change it.
        let own_code = approval.tool_id == Callee::python_id() && approval.run_as == caller.id();
        Ok(own_code || self.may_answer(caller, approval)?)
    }

    /// What a client gets along with a question that it puts to its user, and comes back with.
    pub fn ticket(&self, approval: &Approval) -> String {
        let seal = seal_asked_back(&self.seal_key, approval.id, approval.requester);
        format!("{}.{}", approval.id, URL_SAFE_NO_PAD.encode(seal))
    }

    /// The question of a ticket of ours, if it is this caller's. A question that was never put
    /// through a client has no ticket, and is answered by somebody else.
    pub fn asked_back(&self, caller: &Caller, ticket: &str) -> Option<Approval> {
        let (id, seal) = ticket.split_once('.')?;
        let seal: Seal = URL_SAFE_NO_PAD.decode(seal).ok()?.try_into().ok()?;
        let approval = self.approval(caller, id.parse().ok()?).ok()?;
        let ours = seal_asked_back(&self.seal_key, approval.id, approval.requester);
        (seals_match(&seal, &ours) && self.may_answer_oneself(caller, &approval).ok()?)
            .then_some(approval)
    }

    /// The answer of a person whose client has asked them. It is good for what the question says.
    pub async fn answer_oneself(
        self: &Arc<Self>,
        caller: &Caller,
        id: ApprovalId,
        decision: Decision,
    ) -> Result<Approval, Refused> {
        // They may have taken their time, and lost their key meanwhile.
        let caller = &self.still(caller).ok_or_else(not_oneself)?;
        let (approval, seal) = self.seen_approval(caller, id)?;
        if !self.may_answer_oneself(caller, &approval)? {
            return Err(not_oneself());
        }
        self.carry_own(caller, approval, seal, decision, "asked by the client").await
    }

    /// The answer of whoever has an agent run, to what its run has asked them. Its specification
    /// says of the tools that stand in it that its callers are asked; of anything else, only those
    /// are who could have answered anyway.
    pub async fn confirm(
        self: &Arc<Self>,
        caller: &Caller,
        id: ApprovalId,
        decision: Decision,
    ) -> Result<Approval, Refused> {
        let caller = &self.still(caller).ok_or_else(not_oneself)?;
        let (approval, seal) = self.seen_approval(caller, id)?;
        self.check_confirms(caller, &approval).await?;
        let reason = match decision {
            Decision::Allow => "confirmed by the caller",
            Decision::Deny => "the caller does not want it",
        };
        self.carry_own(caller, approval, seal, decision, reason).await
    }

    /// Good for what the question says, and for nothing else.
    async fn carry_own(
        self: &Arc<Self>,
        caller: &Caller,
        approval: Approval,
        seal: Seal,
        decision: Decision,
        reason: &str,
    ) -> Result<Approval, Refused> {
        let request = DecisionRequest { decision, scope: None, reason: Some(reason.to_owned()) };
        self.carry_decision(caller, approval, seal, request).await
    }

    /// Whether the caller may say so.
    pub async fn check_confirms(
        &self,
        caller: &Caller,
        approval: &Approval,
    ) -> Result<(), Refused> {
        if approval.requester == caller.id() && self.may_confirm(caller, approval).await? {
            return Ok(());
        }
        Err(Fault::new(Code::ApprovalDenied, "somebody else has to answer this")
            .hint("have it answered with `belljar approvals`, then go on without a reply to it")
            .into())
    }

    async fn may_confirm(&self, caller: &Caller, approval: &Approval) -> Result<bool, Refused> {
        if self.may_answer_oneself(caller, approval)? {
            return Ok(true);
        }
        let Some(agent) = approval.agent_id else { return Ok(false) };
        let Some(agent) = self.store.read(|rows| rows.agent(caller.workspace, agent))? else {
            return Ok(false);
        };
        Ok(self.embedded_tool(caller.workspace, &agent, approval.tool_id).await?.is_some())
    }

    async fn carry_decision(
        self: &Arc<Self>,
        caller: &Caller,
        approval: Approval,
        seal: Seal,
        request: DecisionRequest,
    ) -> Result<Approval, Refused> {
        still_open(&approval, Utc::now())?;
        let (service, caller) = (Arc::clone(self), caller.clone());
        to_the_end(async move {
            let decided = match request.decision {
                Decision::Allow => service.allow(&caller, approval, seal, request).await?,
                Decision::Deny => service.deny(&caller, approval, seal, request.reason).await?,
            };
            service.tell_approval(caller.workspace, &decided);
            Ok(decided)
        })
        .await
    }

    async fn allow(
        self: &Arc<Self>,
        caller: &Caller,
        approval: Approval,
        seal: Seal,
        request: DecisionRequest,
    ) -> Result<Approval, Refused> {
        let workspace = caller.workspace;
        let matter = match self.asked_about_now(workspace, &approval, seal).await {
            Ok(matter) => matter,
            Err(refused) => {
                if refused.fault.code == Code::ApprovalInvalid {
                    self.make_void(workspace, &approval, &refused).await?;
                }
                return Err(refused);
            }
        };
        let bound = matter.bound(workspace, approval.requester);
        let once = matter.once(approval.execution_id, approval.expires_at);
        let now = Utc::now();
        let scope = request.scope.unwrap_or(matter.route.good_for);
        let remembered = match scope {
            ApprovalScope::Once => None,
            scope => Some(self.remembered(&matter, &bound, scope, (approval.id, now))?),
        };
        let decided = Decided {
            state: ApprovalState::Allowed,
            by: caller.id(),
            at: now,
            reason: request.reason.clone(),
            scope,
            seal: seal_once(&self.seal_key, Stage::AllowedBy(caller.id()), &bound, &once),
        };
        let allowed = self.write_allowed(caller, &approval, decided, remembered).await?;
        tokio::spawn(Arc::clone(self).carry_out(workspace, allowed.id, allowed.execution_id));
        Ok(allowed)
    }

    /// What a question is about, if it is still what it was when it was asked.
    async fn asked_about_now(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
        seal: Seal,
    ) -> Result<Matter, Refused> {
        self.check_requester(workspace, approval)?;
        let matter = self.matter(workspace, approval).await?;
        let bound = matter.bound(workspace, approval.requester);
        let once = matter.once(approval.execution_id, approval.expires_at);
        if !seals_match(&seal, &seal_once(&self.seal_key, Stage::Asked, &bound, &once)) {
            return Err(changed());
        }
        self.check_directory(&matter.plan).await?;
        Ok(matter)
    }

    /// Nobody can agree any more to what has changed, and its call is over.
    async fn make_void(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
        why: &Refused,
    ) -> Result<(), Refused> {
        let (id, fault) = (approval.id, (*why.fault).clone());
        let written = move |tx: &Tx<'_>| {
            let reason = fault.message.clone();
            let Some(void) = tx.void_approval(workspace, id, Utc::now(), reason)? else {
                return Ok(None);
            };
            let ended = Ending::failed(fault).write(tx, workspace, void.execution_id)?;
            Ok(Some((void, ended)))
        };
        if let Some((void, ended)) = self.store.write(written).await? {
            ended.into_iter().for_each(|ended| self.tell_end(ended));
            self.tell_approval(workspace, &void);
        }
        Ok(())
    }

    async fn write_allowed(
        &self,
        caller: &Caller,
        approval: &Approval,
        decided: Decided,
        remembered: Option<Remembered>,
    ) -> Result<Approval, Refused> {
        let (workspace, id) = (caller.workspace, approval.id);
        let entry = caller.did("approval.allow", id, &approval.tool_name);
        let written = move |tx: &Tx<'_>| {
            let Some(allowed) = tx.decide_approval(workspace, id, decided)? else {
                return Ok(None);
            };
            remembered.iter().try_for_each(|remembered| tx.remember(workspace, remembered))?;
            tx.audit(&entry)?;
            Ok(Some(allowed))
        };
        self.store.write(written).await?.ok_or_else(answered_before)
    }

    fn remembered(
        &self,
        matter: &Matter,
        bound: &Bound<'_>,
        scope: ApprovalScope,
        (approval_id, now): (ApprovalId, DateTime<Utc>),
    ) -> Result<Remembered, Refused> {
        let is_sent = matter.route.callee.is_sent();
        if is_sent && scope == ApprovalScope::Always && !matter.files.is_empty() {
            return Err(invalid("/scope", "`always` is for code without input files"));
        }
        let none = if scope == ApprovalScope::Always {
            "`always` is for code in a sandbox of its own: what code does in a session depends on \
             the files and variables there"
        } else {
            "there is no session that it could hold for"
        };
        let seal = seal_remembered(&self.seal_key, bound, matter.covers(), scope)
            .ok_or_else(|| invalid("/scope", none))?;
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
            reason,
            scope: ApprovalScope::Once,
            seal,
        };
        let (workspace, id) = (caller.workspace, approval.id);
        let entry = caller.did("approval.deny", id, &approval.tool_name);
        let written = move |tx: &Tx<'_>| {
            let Some(denied) = tx.decide_approval(workspace, id, decided)? else {
                return Ok(None);
            };
            let ended = Ending::of(&denied).write(tx, workspace, denied.execution_id)?;
            tx.audit(&entry)?;
            Ok(Some((denied, ended)))
        };
        let (denied, ended) = self.store.write(written).await?.ok_or_else(answered_before)?;
        ended.into_iter().for_each(|ended| self.tell_end(ended));
        Ok(denied)
    }

    /// Whoever asked does not want it any more, answered or not. False if it has begun, or is over.
    pub(crate) async fn withdraw(
        self: &Arc<Self>,
        caller: &Caller,
        execution: &Execution,
    ) -> Result<bool, Refused> {
        let Some(id) = execution.approval_id else { return Ok(false) };
        let approval = self.approval(caller, id)?;
        let (service, caller) = (Arc::clone(self), caller.clone());
        to_the_end(async move { service.take_back(&caller, approval).await }).await
    }

    async fn take_back(&self, caller: &Caller, approval: Approval) -> Result<bool, Refused> {
        let decided = Decided {
            state: ApprovalState::Denied,
            by: caller.id(),
            at: Utc::now(),
            reason: Some("withdrawn".to_owned()),
            scope: ApprovalScope::Once,
            seal: VOID,
        };
        let (workspace, id) = (caller.workspace, approval.id);
        let entry = caller.did("approval.deny", id, &approval.tool_name);
        let written = move |tx: &Tx<'_>| {
            let Some(withdrawn) = tx.withdraw_approval(workspace, id, decided)? else {
                return Ok(None);
            };
            let ended = Ending::withdrawn().write(tx, workspace, withdrawn.execution_id)?;
            tx.audit(&entry)?;
            Ok(Some((withdrawn, ended)))
        };
        let Some((withdrawn, ended)) = self.store.write(written).await? else {
            return Ok(false);
        };
        ended.into_iter().for_each(|ended| self.tell_end(ended));
        self.tell_approval(workspace, &withdrawn);
        Ok(true)
    }

    /// Closes the questions that nobody answered in time.
    pub(crate) async fn expire_approvals(&self, now: DateTime<Utc>) -> Result<(), Refused> {
        loop {
            let written = move |tx: &Tx<'_>| {
                let over = tx.expire_approvals(now, ENDED_AT_ONCE)?;
                let end = |(workspace, approval): &(_, Approval)| {
                    Ending::of(approval).write(tx, *workspace, approval.execution_id)
                };
                over.iter().map(end).collect::<Result<Vec<_>, _>>()
            };
            let ended = self.store.write(written).await?;
            let more = ended.len() >= ENDED_AT_ONCE;
            ended.into_iter().flatten().for_each(|ended| self.tell_end(ended));
            if !more {
                return Ok(());
            }
        }
    }

    /// Closes what was asked by an origin that may no longer ask, answered or not.
    pub(crate) async fn end_questions_from(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
    ) -> Result<(), Refused> {
        loop {
            let written = move |tx: &Tx<'_>| {
                let mut ended = Vec::new();
                for id in tx.open_questions_from(workspace, origin, ENDED_AT_ONCE)? {
                    let refused = requester_over();
                    let reason = refused.fault.message.clone();
                    if let Some(void) = tx.void_approval(workspace, id, Utc::now(), reason)? {
                        let end = Ending::revoked(*refused.fault);
                        let end = end.write(tx, workspace, void.execution_id)?;
                        ended.push((void, end));
                    }
                }
                Ok(ended)
            };
            let ended = self.store.write(written).await?;
            if ended.is_empty() {
                return Ok(());
            }
            for (void, ended) in ended {
                ended.into_iter().for_each(|ended| self.tell_end(ended));
                self.tell_approval(workspace, &void);
            }
        }
    }

    /// What somebody may be asked about, or has agreed to, goes with whoever asked, and with the
    /// key that it was asked with, which this gives.
    pub(super) fn check_requester(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
    ) -> Result<Option<KeyId>, Refused> {
        let key = self.store.read(|rows| rows.asking_key(workspace, approval.id))?;
        let asker = Asker { workspace, principal: approval.requester, key };
        if self.is_over(asker) { Err(requester_over()) } else { Ok(key) }
    }
}

fn answered_before() -> Refused {
    let message = "the question was answered by somebody else, or its time is over";
    Fault::new(Code::ApprovalInvalid, message).into()
}

fn still_open(approval: &Approval, now: DateTime<Utc>) -> Result<(), Refused> {
    if approval.state == ApprovalState::Pending && approval.expires_at > now {
        Ok(())
    } else {
        Err(over(approval))
    }
}

fn not_oneself() -> Refused {
    Fault::new(Code::ApprovalDenied, "whoever asks cannot answer")
        .hint("give the agent a principal and a key of its own, and answer with yours")
        .into()
}

fn check_reason(reason: Option<&str>) -> Result<(), Refused> {
    match reason {
        Some(reason) if reason.chars().count() > REASON_CHARS_MAX => {
            Err(invalid("/reason", format!("has at most {REASON_CHARS_MAX} characters")))
        }
        _ => Ok(()),
    }
}
