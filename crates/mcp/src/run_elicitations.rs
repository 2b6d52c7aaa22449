//! What a run of a model has to ask a person while its client waits for it.
//!
//! A client of the older era is asked in the middle of the call, question by question. One of the
//! newer era would have to end the call to ask, so it is told where the question can be answered,
//! as one that cannot ask at all. No code runs before its answer, and no run waits for an answer
//! that nobody can give.

use crate::approval::{
    ApprovalElicitation, ElicitationOutcome, approve_elsewhere_error, elicit_approval,
};
use crate::caller::McpCaller;
use futures_util::{Stream, StreamExt};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use service::{Caller, NumberedEvent, RequestError, Service};
use std::pin::pin;
use std::sync::Arc;
use types::{Approval, ApprovalId, ApprovalState, Error, ErrorCode, Event, ExecutionId};

/// Why nobody is asked through this client.
pub(crate) enum ElicitationFailure {
    /// The run goes on when somebody has answered through another door.
    Elsewhere(Error),
    /// Nobody can answer: the run has to be ended.
    Unanswerable(Box<RequestError>),
}

pub(crate) struct RunElicitations<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) caller: &'a McpCaller,
    pub(crate) context: &'a RequestContext<RoleServer>,
    /// Where somebody else can answer, if there is such a place.
    pub(crate) base_url: Option<&'a str>,
    pub(crate) run: ExecutionId,
}

impl RunElicitations<'_> {
    /// Puts each question of the run to the client, and returns if that cannot be done.
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
                Err(refused) => return ElicitationFailure::Unanswerable(Box::new(refused)),
            }
        }
        std::future::pending().await
    }

    async fn elicit_one(&self, id: ApprovalId) -> Result<Option<ElicitationFailure>, RequestError> {
        let (service, caller, context) = (self.service, &self.caller.caller, self.context);
        let approval = service.approval(caller, id)?;
        let is_asked = ApprovalElicitation::can_elicit(service, self.caller, context, &approval)?;
        if !is_asked || crate::approval::is_current_revision(context) {
            return Ok(Some(self.failure_for(&approval, is_asked)));
        }
        let ElicitationOutcome::Decided(decision) =
            elicit_approval(context, &approval, service.elicitation_token(&approval)).await
        else {
            return Ok(Some(ElicitationFailure::Unanswerable(Box::new(unanswered_error().into()))));
        };
        let answered = service.decide_as_requester(caller, id, decision).await;
        // Somebody else may have been faster, and the run goes on with their answer.
        let open = service.approval(caller, id)?.state == ApprovalState::Pending;
        if open { answered.map(|_| None) } else { Ok(None) }
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

/// A task asks nobody: one that would have to is ended, where there is no other door.
pub(crate) async fn cancel_if_approval_needed(
    service: Arc<Service>,
    caller: Arc<Caller>,
    run: ExecutionId,
    events: impl Stream<Item = NumberedEvent>,
) {
    let mut events = pin!(events);
    while let Some((_, event)) = events.next().await {
        let Event::Approval { approval_id } = *event else { continue };
        let asked = service.approval(&caller, approval_id);
        if asked.is_ok_and(|asked| asked.state == ApprovalState::Pending) {
            // It has ended by itself if this is refused.
            let _ = service.cancel_execution(&caller, run).await;
            return;
        }
    }
}

fn unanswered_error() -> Error {
    Error::new(
        ErrorCode::ApprovalDenied,
        "nobody has answered, so the run was ended before this code",
    )
    .hint("go on without it, or ask the user whether to call it again")
}

/// For a client of the newer era that has Belljar to itself.
fn cannot_elicit_during_call_error() -> Error {
    let message = "the run was ended: the user has to be asked before its code runs, and this client \
                   cannot ask in the middle of a call";
    Error::new(ErrorCode::ApprovalDenied, message).hint(
        "call execute_python with code of your own, about which the user is asked, or tell the user \
         that it takes `belljar mcp` without --permission",
    )
}
