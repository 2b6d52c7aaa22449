//! Tools that a person is asked about first.
//!
//! A client that can ask does so; the answer is the person's whose key it is, and is bound to this
//! very call like any other. A client that cannot is told where the question can be answered.
//! Nothing runs before the answer.

use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    InputRequest, InputRequests, InputRequiredResult, InputResponses, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use service::Decision;
use std::collections::BTreeMap;
use types::{Approval, Code, Fault};

/// Under which the answer comes back.
const KEY: &str = "approval";

/// What becomes of a question.
pub(crate) enum Answered {
    By(Decision),
    /// The person left it open.
    Not,
    /// A client of the newer era asks, and calls again.
    Later(InputRequiredResult),
}

pub(crate) fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    context.client_capabilities().is_some_and(|can| can.elicitation.is_some())
}

pub(crate) async fn ask(
    context: &RequestContext<RoleServer>,
    approval: &Approval,
    ticket: String,
) -> Answered {
    let question = question(approval);
    if is_modern(context) {
        let request = InputRequest::Elicitation(ElicitRequest::new(question));
        let requests = InputRequests::from([(KEY.to_owned(), request)]);
        return Answered::Later(InputRequiredResult::new(Some(requests), Some(ticket)));
    }
    tokio::select! {
        () = context.ct.cancelled() => Answered::Not,
        answer = context.peer.create_elicitation(question) => {
            answer.map_or(Answered::Not, |answer| decided(&answer))
        }
    }
}

/// The answer that a client of the newer era brings along, and to which question.
pub(crate) fn brought<'a>(
    state: Option<&'a str>,
    responses: Option<&InputResponses>,
) -> Result<Option<(&'a str, Answered)>, ErrorData> {
    let (Some(ticket), Some(responses)) = (state, responses) else { return Ok(None) };
    let Some(response) = responses.get(KEY) else { return Ok(None) };
    let answer: ElicitResult = serde_json::from_value(response.clone()).map_err(|_| {
        ErrorData::invalid_params("the answer to the question cannot be read", None)
    })?;
    Ok(Some((ticket, decided(&answer))))
}

fn decided(answer: &ElicitResult) -> Answered {
    match answer.action {
        ElicitationAction::Accept => Answered::By(Decision::Allow),
        ElicitationAction::Decline => Answered::By(Decision::Deny),
        _ => Answered::Not,
    }
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

fn question(approval: &Approval) -> ElicitRequestParams {
    let arguments = serde_json::to_string_pretty(&approval.arguments).unwrap_or_default();
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: format!(
            "Run the tool {:?} with these arguments?\n{arguments}",
            approval.tool_name
        ),
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    }
}

/// A state is the client's to keep: a model could not put it right, so it is not told to.
pub(crate) fn foreign() -> ErrorData {
    ErrorData::invalid_params("the request state is of no open question about this call", None)
}

pub(crate) fn left() -> Fault {
    Fault::new(Code::ApprovalDenied, "nobody has answered, and nothing was run")
        .hint("go on without it, or ask the user whether to call it again")
}

/// For a client that cannot ask.
pub(crate) fn elsewhere(approval: &Approval, address: Option<&str>) -> Fault {
    let place = match address {
        Some(address) => format!("{address}/v1/approvals/{}", approval.id),
        None => format!("belljar approvals show {}", approval.id),
    };
    let message = format!("the tool {:?} waits for a person: {place}", approval.tool_name);
    Fault::new(Code::ApprovalRequired, message).hint(format!(
        "tell the user to answer it (`belljar approvals allow {}`); it then runs once, without another call",
        approval.id
    ))
}
