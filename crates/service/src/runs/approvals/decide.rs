//! Decisions about approvals. The requester cannot decide, except a user whose own client asks that
//! user.

use super::subject::ApprovalSubject;
use super::unstarted::UnstartedOutcome;
use super::{not_pending_error, requester_revoked_error, subject_changed_error};
use crate::catalog::agents::read_specification;
use crate::catalog::mcp_servers::{mcp_tool_id, server_of};
use crate::error::{RequestError, invalid_field, missing_privilege};
use crate::identity::caller::Caller;
use crate::origins::Requester;
use crate::runs::call_target::CallTarget;
use crate::service::Service;
use crate::tasks::run_to_completion;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use db::{
    DatabaseError, DecisionRecord as Decided, OpenApproval, Origin, Reader, RememberedApproval, Tx,
};
use policy::{
    ApprovalStage, BoundCall, MacTag, mac_for_elicitation, mac_for_execution, mac_for_remembered,
    macs_equal,
};
use serde::Deserialize;
use std::sync::Arc;
use types::{
    AgentId, Approval, ApprovalAction, ApprovalId, ApprovalScope, ApprovalState, Error, ErrorCode,
    KeyId, Permission, PrincipalKind, Privilege, WorkspaceId,
};
use utoipa::ToSchema;
use uuid::Uuid;

const REASON_CHARS_MAX: usize = 1_000;
/// The MAC of a withdrawn approval. No subject has it, so that an earlier decision is no longer
/// valid.
const VOID_MAC: MacTag = [0; 32];
/// Maximum number of approvals that end in one transaction, because all other writers wait for it.
/// Each takes a few short rows, however long its code is.
const END_BATCH: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    pub decision: ApprovalDecision,
    /// What an `allow` is valid for: this call only, the session, or always. Defaults to the scope
    /// in the approval.
    pub scope: Option<ApprovalScope>,
    pub reason: Option<String>,
}

impl Service {
    /// Decides about an approval. An allowed call starts at once, or as soon as there is capacity.
    pub async fn decide_approval(
        self: &Arc<Self>,
        caller: &Caller,
        id: ApprovalId,
        request: DecisionRequest,
    ) -> Result<Approval, RequestError> {
        let (approval, seal) = self.visible_approval(caller, id)?;
        let needed = match request.decision {
            ApprovalDecision::Allow => self.missing_to_allow(caller, &approval)?,
            ApprovalDecision::Deny => self.missing_to_deny(caller, &approval)?,
        };
        if let Some(object) = needed {
            return Err(missing_privilege(Privilege::Modify, object));
        }
        if approval.requester == caller.id() {
            return Err(self_approval_error());
        }
        check_reason(request.reason.as_deref())?;
        self.apply_decision(caller, approval, seal, request).await
    }

    /// Whether the client of a user may ask that user for the decision. The key belongs to a user,
    /// so the client does too; a service has no user to ask.
    pub fn may_decide_as_requester(
        &self,
        caller: &Caller,
        approval: &Approval,
    ) -> Result<bool, RequestError> {
        let person = caller.principal.kind == PrincipalKind::User;
        if !person || approval.requester != caller.id() {
            return Ok(false);
        }
        // A user may decide about code with the user's own rights. For all other calls the user
        // needs the right to decide.
        let own_code =
            approval.tool_id == CallTarget::python_id() && approval.run_as == caller.id();
        let confirms = own_code || self.is_confirmation(caller.workspace, approval)?;
        Ok(confirms || self.may_decide(caller, approval)?)
    }

    /// The token that a client gets with an approval that it shows to its user, and sends back with
    /// the decision.
    pub fn elicitation_token(&self, approval: &Approval) -> String {
        let seal = mac_for_elicitation(&self.approval_key, approval.id, approval.requester);
        format!("{}.{}", approval.id, URL_SAFE_NO_PAD.encode(seal))
    }

    /// The approval of an elicitation token, if it belongs to this caller. An approval that was
    /// never sent to a client has no token; another principal decides about it.
    pub fn approval_from_elicitation(&self, caller: &Caller, ticket: &str) -> Option<Approval> {
        let (id, seal) = ticket.split_once('.')?;
        let seal: MacTag = URL_SAFE_NO_PAD.decode(seal).ok()?.try_into().ok()?;
        let approval = self.approval(caller, id.parse().ok()?).ok()?;
        let ours = mac_for_elicitation(&self.approval_key, approval.id, approval.requester);
        (macs_equal(&seal, &ours) && self.may_decide_as_requester(caller, &approval).ok()?)
            .then_some(approval)
    }

    /// Applies the decision of a user whose client asked that user. It has the scope in the
    /// approval.
    pub async fn decide_as_requester(
        self: &Arc<Self>,
        caller: &Caller,
        id: ApprovalId,
        decision: ApprovalDecision,
    ) -> Result<Approval, RequestError> {
        // The user may have taken a long time, and the key may have been revoked meanwhile.
        let caller = &self.refresh_caller(caller).ok_or_else(self_approval_error)?;
        let (approval, seal) = self.visible_approval(caller, id)?;
        if !self.may_decide_as_requester(caller, &approval)? {
            return Err(self_approval_error());
        }
        self.apply_own_decision(caller, approval, seal, decision, "asked by the client").await
    }

    /// Applies the decision of the caller of an agent about a call of its run. For tools in the
    /// specification of the agent, its callers are asked; for all other calls, the caller needs the
    /// right to decide.
    pub async fn confirm_approval(
        self: &Arc<Self>,
        caller: &Caller,
        id: ApprovalId,
        decision: ApprovalDecision,
    ) -> Result<Approval, RequestError> {
        let caller = &self.refresh_caller(caller).ok_or_else(self_approval_error)?;
        let (approval, seal) = self.visible_approval(caller, id)?;
        self.check_may_confirm(caller, &approval).await?;
        let reason = match decision {
            ApprovalDecision::Allow => "confirmed by the caller",
            ApprovalDecision::Deny => "denied by the caller",
        };
        self.apply_own_decision(caller, approval, seal, decision, reason).await
    }

    /// Applies a decision with the scope in the approval.
    async fn apply_own_decision(
        self: &Arc<Self>,
        caller: &Caller,
        approval: Approval,
        seal: MacTag,
        decision: ApprovalDecision,
        reason: &str,
    ) -> Result<Approval, RequestError> {
        let request = DecisionRequest { decision, scope: None, reason: Some(reason.to_owned()) };
        self.apply_decision(caller, approval, seal, request).await
    }

    /// Checks that the caller may confirm this call.
    pub async fn check_may_confirm(
        &self,
        caller: &Caller,
        approval: &Approval,
    ) -> Result<(), RequestError> {
        if approval.requester == caller.id() && self.may_confirm(caller, approval).await? {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::ApprovalDenied,
            "another principal has to decide about this approval",
        )
        .hint(
            "have it decided with `belljar approvals`, then continue the run without a \
                 confirmation",
        )
        .into())
    }

    async fn may_confirm(
        &self,
        caller: &Caller,
        approval: &Approval,
    ) -> Result<bool, RequestError> {
        if self.may_decide_as_requester(caller, approval)? {
            return Ok(true);
        }
        let Some(agent) = approval.agent_id else { return Ok(false) };
        if approval.tool_id == CallTarget::python_id() {
            return self.may_confirm_code(caller, agent).await;
        }
        if self.is_confirmation(caller.workspace, approval)? {
            return Ok(true);
        }
        let Some(agent) = self.db.read(|rows| rows.agent(caller.workspace, agent))? else {
            return Ok(false);
        };
        if mcp_tool_id(agent.id, &approval.tool_name) == approval.tool_id {
            let servers = read_specification(&agent.specification).await?.mcp_servers;
            return Ok(server_of(&servers, &approval.tool_name)
                .is_some_and(|server| server.approval_action == ApprovalAction::Confirm));
        }
        let embedded = self.embedded_tool(caller.workspace, &agent, approval.tool_id).await?;
        Ok(embedded.is_some_and(|(tool, _)| tool.approval_action == ApprovalAction::Confirm))
    }

    /// Whether callers of the agent confirm its code: the agent says so, and the workspace does not
    /// require an approval.
    async fn may_confirm_code(
        &self,
        caller: &Caller,
        agent: AgentId,
    ) -> Result<bool, RequestError> {
        let workspace = caller.workspace;
        let authorized = self.authorize_agent(workspace, &caller.principal, agent).await?;
        let permission = self.db.read(|rows| rows.code_permission(workspace))?;
        Ok(permission == Permission::Allow && authorized.code_action() == ApprovalAction::Confirm)
    }

    #[boxed::future]
    async fn apply_decision(
        self: &Arc<Self>,
        caller: &Caller,
        approval: Approval,
        seal: MacTag,
        request: DecisionRequest,
    ) -> Result<Approval, RequestError> {
        check_pending(&approval, self.now())?;
        let (service, caller) = (Arc::clone(self), caller.clone());
        run_to_completion(async move {
            let decided = match request.decision {
                ApprovalDecision::Allow => service.allow(&caller, approval, seal, request).await?,
                ApprovalDecision::Deny => {
                    service.deny(&caller, approval, seal, request.reason).await?
                }
            };
            service.publish_approval(caller.workspace, &decided);
            Ok(decided)
        })
        .await
    }

    async fn allow(
        self: &Arc<Self>,
        caller: &Caller,
        approval: Approval,
        seal: MacTag,
        request: DecisionRequest,
    ) -> Result<Approval, RequestError> {
        let workspace = caller.workspace;
        let subject = match self.unchanged_subject(workspace, &approval, seal).await {
            Ok(subject) => subject,
            Err(refused) => {
                if refused.error.code == ErrorCode::ApprovalInvalid {
                    self.void_approval(workspace, &approval, &refused).await?;
                }
                return Err(refused);
            }
        };
        let bound = subject.bound_call(workspace, approval.requester);
        let once = subject.bound_execution(approval.execution_id, approval.expires_at);
        let now = self.now();
        let scope = request.scope.unwrap_or(subject.run.default_scope);
        let remembered = match scope {
            ApprovalScope::Once => None,
            scope => Some(self.remembered_approval(&subject, &bound, scope, (approval.id, now))?),
        };
        let decided = Decided {
            state: ApprovalState::Allowed,
            by: caller.id(),
            at: now,
            reason: request.reason.clone(),
            scope,
            mac: mac_for_execution(
                &self.approval_key,
                ApprovalStage::AllowedBy(caller.id()),
                &bound,
                &once,
            ),
        };
        let allowed = self.write_allowed(caller, &approval, decided, remembered).await?;
        tokio::spawn(Arc::clone(self).run_approved(workspace, allowed.id, allowed.execution_id));
        Ok(allowed)
    }

    /// The subject of an approval, if it is still the one that was submitted.
    async fn unchanged_subject(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
        seal: MacTag,
    ) -> Result<ApprovalSubject, RequestError> {
        self.check_requester(workspace, approval)?;
        let (subject, _) = self.approval_subject(workspace, approval).await?;
        let bound = subject.bound_call(workspace, approval.requester);
        let once = subject.bound_execution(approval.execution_id, approval.expires_at);
        if !macs_equal(
            &seal,
            &mac_for_execution(&self.approval_key, ApprovalStage::Requested, &bound, &once),
        ) {
            return Err(subject_changed_error());
        }
        self.check_working_directory(&subject).await?;
        Ok(subject)
    }

    /// Voids an approval whose subject has changed, and ends its call.
    async fn void_approval(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
        why: &RequestError,
    ) -> Result<(), RequestError> {
        let (id, error, now) = (approval.id, (*why.error).clone(), self.now());
        let written = move |tx: &Tx<'_>| {
            let reason = error.message.clone();
            let Some(void) = tx.void_approval(workspace, id, now, reason)? else {
                return Ok(None);
            };
            let ended = UnstartedOutcome::failed(error);
            let ended = ended.write(tx, workspace, void.execution_id, now)?;
            Ok(Some((void, ended)))
        };
        if let Some((void, ended)) = self.db.write(written).await? {
            if let Some(ended) = ended {
                self.publish_end(ended).await;
            }
            self.publish_approval(workspace, &void);
        }
        Ok(())
    }

    async fn write_allowed(
        &self,
        caller: &Caller,
        approval: &Approval,
        decided: Decided,
        remembered: Option<RememberedApproval>,
    ) -> Result<Approval, RequestError> {
        let (workspace, id) = (caller.workspace, approval.id);
        let entry = caller.audit_entry("approval.allow", id, &approval.tool_name);
        let written = move |tx: &Tx<'_>| {
            let Some(allowed) = tx.decide_approval(workspace, id, decided)? else {
                return Ok(None);
            };
            remembered
                .iter()
                .try_for_each(|remembered| tx.insert_remembered_approval(workspace, remembered))?;
            tx.append_audit_entry(&entry)?;
            Ok(Some(allowed))
        };
        self.db.write(written).await?.ok_or_else(already_decided_error)
    }

    fn remembered_approval(
        &self,
        subject: &ApprovalSubject,
        bound: &BoundCall<'_>,
        scope: ApprovalScope,
        (approval_id, now): (ApprovalId, DateTime<Utc>),
    ) -> Result<RememberedApproval, RequestError> {
        let is_sent = subject.run.target.is_submitted_code();
        if is_sent && scope == ApprovalScope::Always && !subject.files.is_empty() {
            return Err(invalid_field("/scope", "`always` requires code without input files"));
        }
        let none = if scope == ApprovalScope::Always {
            "`always` requires code in a fresh sandbox: in a session, the effect of code depends \
             on files and variables"
        } else {
            "the call has no session"
        };
        let seal = mac_for_remembered(&self.approval_key, bound, subject.coverage(), scope)
            .ok_or_else(|| invalid_field("/scope", none))?;
        Ok(RememberedApproval {
            id: Uuid::now_v7(),
            requester: bound.requester,
            tool: bound.tool,
            agent: bound.agent,
            sandbox_id: bound.session.filter(|_| scope == ApprovalScope::Session),
            scope,
            mac: seal,
            approval_id,
            created_at: now,
        })
    }

    async fn deny(
        &self,
        caller: &Caller,
        approval: Approval,
        seal: MacTag,
        reason: Option<String>,
    ) -> Result<Approval, RequestError> {
        let now = self.now();
        let decided = Decided {
            state: ApprovalState::Denied,
            by: caller.id(),
            at: now,
            reason,
            scope: ApprovalScope::Once,
            mac: seal,
        };
        let (workspace, id) = (caller.workspace, approval.id);
        let entry = caller.audit_entry("approval.deny", id, &approval.tool_name);
        let written = move |tx: &Tx<'_>| {
            let Some(denied) = tx.decide_approval(workspace, id, decided)? else {
                return Ok(None);
            };
            let ended = UnstartedOutcome::from_approval(&denied);
            let ended = ended.write(tx, workspace, denied.execution_id, now)?;
            tx.append_audit_entry(&entry)?;
            Ok(Some((denied, ended)))
        };
        let (denied, ended) = self.db.write(written).await?.ok_or_else(already_decided_error)?;
        if let Some(ended) = ended {
            self.publish_end(ended).await;
        }
        Ok(denied)
    }

    /// Withdraws an approval for the requester, decided or not. Returns false if the call has
    /// started or ended.
    pub(crate) async fn withdraw_approval(
        self: &Arc<Self>,
        caller: &Caller,
        id: ApprovalId,
    ) -> Result<bool, RequestError> {
        let approval = self.approval(caller, id)?;
        let (service, caller) = (Arc::clone(self), caller.clone());
        run_to_completion(async move { service.write_withdrawal(&caller, approval).await }).await
    }

    async fn write_withdrawal(
        &self,
        caller: &Caller,
        approval: Approval,
    ) -> Result<bool, RequestError> {
        let now = self.now();
        let decided = Decided {
            state: ApprovalState::Denied,
            by: caller.id(),
            at: now,
            reason: Some("withdrawn".to_owned()),
            scope: ApprovalScope::Once,
            mac: VOID_MAC,
        };
        let (workspace, id) = (caller.workspace, approval.id);
        let entry = caller.audit_entry("approval.deny", id, &approval.tool_name);
        let written = move |tx: &Tx<'_>| {
            let Some(withdrawn) = tx.withdraw_approval(workspace, id, decided)? else {
                return Ok(None);
            };
            let ended = UnstartedOutcome::withdrawn();
            let ended = ended.write(tx, workspace, withdrawn.execution_id, now)?;
            tx.append_audit_entry(&entry)?;
            Ok(Some((withdrawn, ended)))
        };
        let Some((withdrawn, ended)) = self.db.write(written).await? else {
            return Ok(false);
        };
        if let Some(ended) = ended {
            self.publish_end(ended).await;
        }
        self.publish_approval(workspace, &withdrawn);
        Ok(true)
    }

    /// Expires the approvals that were not decided in time.
    pub(crate) async fn expire_approvals(&self, now: DateTime<Utc>) -> Result<(), RequestError> {
        let find = move |rows: &Reader<'_>| rows.overdue_approvals(now, END_BATCH);
        let end = |open: &Approval| {
            let expired = Approval { state: ApprovalState::Expired, ..open.clone() };
            let outcome = UnstartedOutcome::from_approval(&expired);
            (expired, outcome)
        };
        while !self.end_approval_batch(find, end).await?.is_empty() {}
        Ok(())
    }

    /// Voids the approvals that were requested from an origin that may no longer make requests,
    /// decided or not.
    pub(crate) async fn end_approvals_of(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
    ) -> Result<(), RequestError> {
        while self.end_first_approvals_of(workspace, origin).await? > 0 {}
        Ok(())
    }

    /// Voids the first of them in one transaction, and returns their number.
    pub(crate) async fn end_first_approvals_of(
        &self,
        workspace: WorkspaceId,
        origin: Origin,
    ) -> Result<usize, RequestError> {
        let find = move |rows: &Reader<'_>| rows.open_approvals_from(workspace, origin, END_BATCH);
        let now = self.now();
        let end = move |open: &Approval| {
            let revoked = requester_revoked_error();
            let (decided_at, reason) = (Some(now), Some(revoked.error.message.clone()));
            let void = Approval { state: ApprovalState::Void, decided_at, reason, ..open.clone() };
            (void, UnstartedOutcome::revoked(*revoked.error))
        };
        let ended = self.end_approval_batch(find, end).await?;
        ended.iter().for_each(|void| self.publish_approval(workspace, void));
        Ok(ended.len())
    }

    /// Ends the first of the approvals that `find` returns, in a small transaction, so that other
    /// requests do not wait for long. Texts are read and built outside of the transaction.
    async fn end_approval_batch(
        &self,
        find: impl FnOnce(&Reader<'_>) -> Result<Vec<OpenApproval>, DatabaseError> + Send + 'static,
        end: impl Fn(&Approval) -> (Approval, UnstartedOutcome) + Send + 'static,
    ) -> Result<Vec<Approval>, RequestError> {
        // One batch at a time in the whole server, so that each approval is read and ended in the
        // same batch.
        let _turn = self.approval_ends.lock().await;
        let now = self.now();
        let prepare = move |rows: &Reader<'_>| {
            let mut prepared = Vec::new();
            for open in find(rows)? {
                let (ended, outcome) = end(&open.approval);
                let outcome = outcome.prepare(rows, open.workspace, ended.execution_id, now)?;
                prepared.push((open, ended, outcome));
            }
            Ok(prepared)
        };
        let prepared = self.db.read_off_thread(prepare).await?;
        if prepared.is_empty() {
            return Ok(Vec::new());
        }
        let written = move |tx: &Tx<'_>| {
            let mut written = Vec::with_capacity(prepared.len());
            for (open, ended, outcome) in prepared {
                if tx.end_open_approval(open.workspace, &open, &ended)? {
                    let execution = outcome.map(|outcome| outcome.write(tx)).transpose()?;
                    written.push((ended, execution.flatten()));
                }
            }
            Ok(written)
        };
        let mut ended = Vec::new();
        for (approval, execution) in self.db.write(written).await? {
            if let Some(execution) = execution {
                self.publish_end(execution).await;
            }
            ended.push(approval);
        }
        Ok(ended)
    }

    /// Checks that the requester of an approval, and the key that it was requested with, are still
    /// valid. Returns the key.
    pub(super) fn check_requester(
        &self,
        workspace: WorkspaceId,
        approval: &Approval,
    ) -> Result<Option<KeyId>, RequestError> {
        let key = self.db.read(|rows| rows.requesting_key(workspace, approval.id))?;
        let requester = Requester { workspace, principal: approval.requester, key };
        if self.is_requester_revoked(requester) { Err(requester_revoked_error()) } else { Ok(key) }
    }
}

fn already_decided_error() -> RequestError {
    let message = "the approval was already decided or has expired";
    Error::new(ErrorCode::ApprovalInvalid, message).into()
}

fn check_pending(approval: &Approval, now: DateTime<Utc>) -> Result<(), RequestError> {
    if approval.state == ApprovalState::Pending && approval.expires_at > now {
        Ok(())
    } else {
        Err(not_pending_error(approval))
    }
}

fn self_approval_error() -> RequestError {
    Error::new(ErrorCode::ApprovalDenied, "the requester of an approval cannot decide about it")
        .hint("give the agent its own principal and key, and decide with yours")
        .into()
}

fn check_reason(reason: Option<&str>) -> Result<(), RequestError> {
    match reason {
        Some(reason) if reason.chars().count() > REASON_CHARS_MAX => Err(invalid_field(
            "/reason",
            format!("must have at most {REASON_CHARS_MAX} characters"),
        )),
        _ => Ok(()),
    }
}
