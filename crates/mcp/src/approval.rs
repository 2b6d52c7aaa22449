//! Tools, and code, that a person is asked about first.
//!
//! A client that can ask does so; the answer is the person's whose key it is, and is bound to this
//! very call like any other. A client that cannot is told where the question can be answered.
//! Nothing runs before the answer.

use crate::answer::{Shown, refused};
use crate::asker::Asker;
use crate::python::Script;
use rmcp::model::{
    CallToolResponse, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequests, InputRequiredResult, InputResponses,
    JsonObject, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use service::{Decision, Refused, Service};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Approval, ApprovalScope, Code, Execution, ExecutionId, Fault};

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

/// What a client has called, to be known again when it comes back with an answer.
pub(crate) enum Called<'a> {
    Tool(&'a types::Tool, Option<&'a JsonObject>),
    Python(&'a Script),
}

impl Called<'_> {
    pub(crate) fn is_of(&self, approval: &Approval) -> bool {
        match self {
            Self::Tool(tool, given) => {
                let nothing = JsonObject::new();
                let given = given.unwrap_or(&nothing);
                approval.tool_id == tool.id && approval.arguments.as_object() == Some(given)
            }
            Self::Python(script) => {
                approval.tool_name == service::EXECUTE_PYTHON
                    && approval.code == script.request.code
                    && approval.sandbox_id == script.session
                    && approval.files.len() == script.request.files.len()
            }
        }
    }

    pub(crate) fn shown(&self) -> Shown {
        match self {
            Self::Tool(..) => Shown::Value,
            Self::Python(script) => Shown::Answer { visuals: script.visuals },
        }
    }
}

/// A question while somebody waits for what comes of it.
pub(crate) struct Question<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) asker: &'a Asker,
    pub(crate) shown: Shown,
    pub(crate) context: &'a RequestContext<RoleServer>,
}

impl Question<'_> {
    /// Whether this client can put it to its user, and this is one to answer it.
    pub(crate) fn is_asked(
        service: &Service,
        asker: &Asker,
        context: &RequestContext<RoleServer>,
        approval: &Approval,
    ) -> Result<bool, Refused> {
        let can_ask = context.client_capabilities().is_some_and(|can| can.elicitation.is_some());
        Ok(can_ask && service.may_answer_oneself(&asker.caller, approval)?)
    }

    pub(crate) async fn ask(
        &self,
        execution: &Execution,
        address: Option<&str>,
    ) -> Result<CallToolResponse, Refused> {
        let id = execution.approval_id.ok_or_else(|| Refused::from(left()))?;
        let approval = self.service.approval(&self.asker.caller, id)?;
        if !Self::is_asked(self.service, self.asker, self.context, &approval)? {
            let Some(address) = address else {
                // There is nobody else who could answer.
                self.leave(&approval).await?;
                return Ok(refused(&cannot_ask().into()).into());
            };
            let fault = elsewhere(&approval, approval.execution_id, address);
            return Ok(refused(&fault.into()).into());
        }
        let ticket = self.service.ticket(&approval);
        let answer = ask(self.context, &approval, ticket).await;
        self.go_on(approval, answer).await
    }

    /// Carries out an answer, and waits for what comes of it.
    pub(crate) async fn go_on(
        &self,
        approval: Approval,
        answer: Answered,
    ) -> Result<CallToolResponse, Refused> {
        let caller = &self.asker.caller;
        let decision = match answer {
            Answered::Later(required) => return Ok(required.into()),
            Answered::By(decision) => decision,
            // A question that its asker has left is not to be answered later by somebody else.
            Answered::Not => return self.leave(&approval).await,
        };
        self.service.answer_oneself(caller, approval.id, decision).await?;
        tokio::select! {
            () = self.context.ct.cancelled() => self.leave(&approval).await,
            settled = self.service.settled(caller, approval.execution_id) => {
                Ok(self.shown.show(&settled?).into())
            }
        }
    }

    async fn leave(&self, approval: &Approval) -> Result<CallToolResponse, Refused> {
        self.service.cancel(&self.asker.caller, approval.execution_id).await?;
        Ok(refused(&left().into()).into())
    }
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

pub(crate) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

fn question(approval: &Approval) -> ElicitRequestParams {
    let mut message = match approval.tool_name.as_str() {
        service::EXECUTE_PYTHON if approval.scope == ApprovalScope::Session => format!(
            "Run this Python code, and without asking again all later code of this session?\n\n{}",
            approval.code
        ),
        service::EXECUTE_PYTHON => format!("Run this Python code?\n\n{}", approval.code),
        name => {
            let arguments = serde_json::to_string_pretty(&approval.arguments).unwrap_or_default();
            format!("Run the tool {name:?} with these arguments?\n{arguments}")
        }
    };
    if !approval.files.is_empty() {
        let names: Vec<_> = approval.files.iter().map(|(name, _)| name.as_str()).collect();
        message.push_str(&format!("\n\nIt is given these files: {}", names.join(", ")));
    }
    for (what, names) in [
        ("It can reach hosts through", &approval.network),
        ("It can use the secrets", &approval.secrets),
    ] {
        if !names.is_empty() {
            message.push_str(&format!("\n\n{what}: {}", names.join(", ")));
        }
    }
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    }
}

/// A state is the client's to keep: a model could not put it right, so it is not told to.
pub(crate) fn foreign() -> ErrorData {
    ErrorData::invalid_params("the request state is of no open question about this call", None)
}

fn left() -> Fault {
    Fault::new(Code::ApprovalDenied, "nobody has answered, and nothing was run")
        .hint("go on without it, or ask the user whether to call it again")
}

/// For a client that cannot ask, where somebody else can be asked.
/// `execution` is what was called, and will have the result.
pub(crate) fn elsewhere(approval: &Approval, execution: ExecutionId, address: &str) -> Fault {
    let id = approval.id;
    let message = format!(
        "{:?} waits for a person who may allow it: {address}/v1/approvals/{id}",
        approval.tool_name
    );
    Fault::new(Code::ApprovalRequired, message).hint(format!(
        "do not call it again; tell the user that somebody with another key than yours has to answer \
         (`belljar approvals allow {id}`). It then runs once, and get_result with \
         {{\"execution\": \"{execution}\"}} gives what came of it"
    ))
}

/// For a client that cannot ask, and has Belljar to itself.
pub(crate) fn cannot_ask() -> Fault {
    let message = "nothing was run: the user has to be asked first, and this client cannot ask";
    Fault::new(Code::ApprovalDenied, message).hint(
        "tell the user that it takes a client with elicitation, or `belljar mcp` without --permission",
    )
}
