//! What a run of a model has to ask a person while its client waits for it.
//!
//! A client of the older era is asked in the middle of the call, question by question. One of the
//! newer era would have to end the call to ask, so it is told where the question can be answered,
//! as one that cannot ask at all. No code runs before its answer, and no run waits for an answer
//! that nobody can give.

use crate::approval::{Answered, Question, ask, elsewhere};
use crate::asker::Asker;
use futures_util::{Stream, StreamExt};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use service::{Caller, Numbered, Refused, Service};
use std::pin::pin;
use std::sync::Arc;
use types::{Approval, ApprovalId, ApprovalState, Code, Event, ExecutionId, Fault};

/// Why nobody is asked through this client.
pub(crate) enum Stuck {
    /// The run goes on when somebody has answered through another door.
    Elsewhere(Fault),
    /// Nobody can answer: the run has to be ended.
    Over(Box<Refused>),
}

pub(crate) struct Questions<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) asker: &'a Asker,
    pub(crate) context: &'a RequestContext<RoleServer>,
    /// Where somebody else can answer, if there is such a place.
    pub(crate) address: Option<&'a str>,
    pub(crate) run: ExecutionId,
}

impl Questions<'_> {
    /// Puts each question of the run to the client, and returns if that cannot be done.
    pub(crate) async fn put(&self, events: impl Stream<Item = Numbered>) -> Stuck {
        let mut events = pin!(events);
        while let Some((_, event)) = events.next().await {
            let Event::Approval { approval_id } = *event else { continue };
            match self.ask(approval_id).await {
                Ok(None) => {}
                Ok(Some(stuck)) => return stuck,
                Err(refused) => return Stuck::Over(Box::new(refused)),
            }
        }
        std::future::pending().await
    }

    async fn ask(&self, id: ApprovalId) -> Result<Option<Stuck>, Refused> {
        let (service, caller, context) = (self.service, &self.asker.caller, self.context);
        let approval = service.approval(caller, id)?;
        let is_asked = Question::is_asked(service, self.asker, context, &approval)?;
        if !is_asked || crate::approval::is_modern(context) {
            return Ok(Some(self.not_here(&approval, is_asked)));
        }
        let Answered::By(decision) = ask(context, &approval, service.ticket(&approval)).await
        else {
            return Ok(Some(Stuck::Over(Box::new(unanswered().into()))));
        };
        let answered = service.answer_oneself(caller, id, decision).await;
        // Somebody else may have been faster, and the run goes on with their answer.
        let open = service.approval(caller, id)?.state == ApprovalState::Pending;
        if open { answered.map(|_| None) } else { Ok(None) }
    }

    fn not_here(&self, approval: &Approval, between_calls: bool) -> Stuck {
        match self.address {
            Some(address) => Stuck::Elsewhere(elsewhere(approval, self.run, address)),
            None if between_calls => Stuck::Over(Box::new(only_between_calls().into())),
            None => Stuck::Over(Box::new(crate::approval::cannot_ask().into())),
        }
    }
}

/// A task asks nobody: one that would have to is ended, where there is no other door.
pub(crate) async fn end_if_it_asks(
    service: Arc<Service>,
    caller: Arc<Caller>,
    run: ExecutionId,
    events: impl Stream<Item = Numbered>,
) {
    let mut events = pin!(events);
    while let Some((_, event)) = events.next().await {
        let Event::Approval { approval_id } = *event else { continue };
        let asked = service.approval(&caller, approval_id);
        if asked.is_ok_and(|asked| asked.state == ApprovalState::Pending) {
            // It has ended by itself if this is refused.
            let _ = service.cancel(&caller, run).await;
            return;
        }
    }
}

fn unanswered() -> Fault {
    Fault::new(Code::ApprovalDenied, "nobody has answered, so the run was ended before this code")
        .hint("go on without it, or ask the user whether to call it again")
}

/// For a client of the newer era that has Belljar to itself.
fn only_between_calls() -> Fault {
    let message = "the run was ended: the user has to be asked before its code runs, and this client \
                   cannot ask in the middle of a call";
    Fault::new(Code::ApprovalDenied, message).hint(
        "call execute_python with code of your own, about which the user is asked, or tell the user \
         that it takes `belljar mcp` without --permission",
    )
}
