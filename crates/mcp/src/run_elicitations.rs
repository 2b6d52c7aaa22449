//! Approvals that the run of a model needs while its client waits.
//!
//! A client of the legacy revision is asked during the call, one approval at a time. A client of
//! the current revision would have to end the call to ask, so it gets the URL of the approval, like
//! a client without elicitation. No code runs before its approval, and no run waits for an approval
//! that no principal can give.

use crate::approval::{
    ApprovalElicitation, ElicitationOutcome, approve_elsewhere_error, elicit_approval,
};
use futures_util::{Stream, StreamExt};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use service::{Caller, NumberedEvent, RequestCaller, RequestError, Service};
use std::pin::pin;
use std::sync::Arc;
use types::{Approval, ApprovalId, ApprovalState, Error, ErrorCode, Event, ExecutionId};

/// Why this client was not asked.
pub(crate) enum ElicitationFailure {
    /// The run continues when the approval is answered elsewhere.
    Elsewhere(Error),
    /// No principal can answer: the run must be cancelled.
    Unanswerable(Box<RequestError>),
}

pub(crate) struct RunElicitations<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) caller: &'a RequestCaller,
    pub(crate) context: &'a RequestContext<RoleServer>,
    /// URL where another principal can answer, if there is one.
    pub(crate) base_url: Option<&'a str>,
    pub(crate) run: ExecutionId,
}

impl RunElicitations<'_> {
    /// Elicits each approval of the run; returns if that is not possible.
    pub(crate) async fn elicit_all(
        &self,
        events: impl Stream<Item = NumberedEvent>,
    ) -> ElicitationFailure {
        let mut events = pin!(events);
        while let Some((_, event)) = events.next().await {
            let Event::Approval { approval_id } = *event else { continue };
            match self.elicit_one(approval_id).await {
                Ok(None) => {}
                Ok(Some(stuck)) => return stuck,
                Err(error) => return ElicitationFailure::Unanswerable(Box::new(error)),
            }
        }
        std::future::pending().await
    }

    async fn elicit_one(&self, id: ApprovalId) -> Result<Option<ElicitationFailure>, RequestError> {
        let (service, caller, context) = (self.service, self.caller, self.context);
        let approval = service.approval(caller, id)?;
        let can_elicit = ApprovalElicitation::can_elicit(service, self.caller, context, &approval)?;
        if !can_elicit || crate::approval::is_current_revision(context) {
            return Ok(Some(self.failure_for(&approval, can_elicit)));
        }
        let ElicitationOutcome::Decided(decision) =
            elicit_approval(context, &approval, service.elicitation_token(&approval)).await
        else {
            return Ok(Some(ElicitationFailure::Unanswerable(Box::new(unanswered_error().into()))));
        };
        let decided = service.decide_as_requester(caller, id, decision).await;
        // Another principal may have answered first; the run continues with that answer.
        let open = service.approval(caller, id)?.state == ApprovalState::Pending;
        if open { decided.map(|_| None) } else { Ok(None) }
    }

    fn failure_for(&self, approval: &Approval, between_calls: bool) -> ElicitationFailure {
        match self.base_url {
            Some(address) => {
                ElicitationFailure::Elsewhere(approve_elsewhere_error(approval, self.run, address))
            }
            None if between_calls => {
                ElicitationFailure::Unanswerable(Box::new(cannot_elicit_during_call_error().into()))
            }
            None => ElicitationFailure::Unanswerable(Box::new(
                crate::approval::cannot_elicit_error().into(),
            )),
        }
    }
}

/// A task elicits nothing: cancels a task that needs an approval if there is no other place to
/// answer it.
pub(crate) async fn cancel_if_approval_needed(
    service: Arc<Service>,
    caller: Arc<Caller>,
    run: ExecutionId,
    events: impl Stream<Item = NumberedEvent>,
) {
    let mut events = pin!(events);
    while let Some((_, event)) = events.next().await {
        let Event::Approval { approval_id } = *event else { continue };
        let approval = service.approval(&caller, approval_id);
        if approval.is_ok_and(|approval| approval.state == ApprovalState::Pending) {
            // This fails if the run has already ended.
            let _ = service.cancel_execution(&caller, run).await;
            return;
        }
    }
}

fn unanswered_error() -> Error {
    Error::new(
        ErrorCode::ApprovalDenied,
        "the approval request expired without an answer; the run was ended before this code",
    )
    .hint("continue without it, or ask the user whether to call it again")
}

/// Error for a client of the current revision that is the only client of this Belljar.
fn cannot_elicit_during_call_error() -> Error {
    let message = "the run was ended: its code requires an approval of the user, and this client \
                   does not support elicitation during a call";
    Error::new(ErrorCode::ApprovalDenied, message).hint(
        "call execute_python with your own code, which the user can approve, or tell the user to \
         use `belljar mcp` without --permission",
    )
}
