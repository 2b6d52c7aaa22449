//! Tools, and code, that a person is asked about first.
//!
//! A client that can ask does so; the answer is the person's whose key it is, and is bound to this
//! very call like any other. A client that cannot is told where the question can be answered.
//! Nothing runs before the answer.

use crate::caller::McpCaller;
use crate::execute_python::ExecutePythonCall;
use crate::run_result::{ResultFormat, error_result};
use rmcp::model::{
    CallToolResponse, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequests, InputRequiredResult, InputResponses,
    JsonObject, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use service::{ApprovalDecision, RequestError, Service};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Approval, ApprovalScope, Error, ErrorCode, Execution, ExecutionId};

/// Under which the answer comes back.
const INPUT_KEY: &str = "approval";

/// What becomes of a question.
pub(crate) enum ElicitationOutcome {
    Decided(ApprovalDecision),
    /// The person left it open.
    Unanswered,
    /// A client of the newer era asks, and calls again.
    InputRequired(InputRequiredResult),
}

/// What a client has called, to be known again when it comes back with an answer.
pub(crate) enum CalledTool<'a> {
    Tool(&'a types::Tool, Option<&'a JsonObject>),
    Python(&'a ExecutePythonCall),
}

impl CalledTool<'_> {
    pub(crate) fn matches(&self, approval: &Approval) -> bool {
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

    pub(crate) fn result_format(&self) -> ResultFormat {
        match self {
            Self::Tool(..) => ResultFormat::ToolValue,
            Self::Python(script) => ResultFormat::Python { visuals: script.visuals },
        }
    }
}

/// A question while somebody waits for what comes of it.
pub(crate) struct ApprovalElicitation<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) caller: &'a McpCaller,
    pub(crate) format: ResultFormat,
    pub(crate) context: &'a RequestContext<RoleServer>,
}

impl ApprovalElicitation<'_> {
    /// Whether this client can put it to its user, and this is one to answer it.
    pub(crate) fn can_elicit(
        service: &Service,
        asker: &McpCaller,
        context: &RequestContext<RoleServer>,
        approval: &Approval,
    ) -> Result<bool, RequestError> {
        let can_ask = context.client_capabilities().is_some_and(|can| can.elicitation.is_some());
        Ok(can_ask && service.may_decide_as_requester(&asker.caller, approval)?)
    }

    pub(crate) async fn elicit(
        &self,
        execution: &Execution,
        address: Option<&str>,
    ) -> Result<CallToolResponse, RequestError> {
        let id = execution.approval_id.ok_or_else(|| RequestError::from(unanswered_error()))?;
        let approval = self.service.approval(&self.caller.caller, id)?;
        if !Self::can_elicit(self.service, self.caller, self.context, &approval)? {
            let Some(address) = address else {
                // There is nobody else who could answer.
                self.cancel_unanswered(&approval).await?;
                return Ok(error_result(&cannot_elicit_error().into()).into());
            };
            let fault = approve_elsewhere_error(&approval, approval.execution_id, address);
            return Ok(error_result(&fault.into()).into());
        }
        let ticket = self.service.elicitation_token(&approval);
        let answer = elicit_approval(self.context, &approval, ticket).await;
        self.apply_outcome(approval, answer).await
    }

    /// Carries out an answer, and waits for what comes of it.
    pub(crate) async fn apply_outcome(
        &self,
        approval: Approval,
        answer: ElicitationOutcome,
    ) -> Result<CallToolResponse, RequestError> {
        let caller = &self.caller.caller;
        let decision = match answer {
            ElicitationOutcome::InputRequired(required) => return Ok(required.into()),
            ElicitationOutcome::Decided(decision) => decision,
            // A question that its asker has left is not to be answered later by somebody else.
            ElicitationOutcome::Unanswered => return self.cancel_unanswered(&approval).await,
        };
        self.service.decide_as_requester(caller, approval.id, decision).await?;
        tokio::select! {
            () = self.context.ct.cancelled() => self.cancel_unanswered(&approval).await,
            settled = self.service.wait_for_execution(caller, approval.execution_id) => {
                Ok(self.format.render(&settled?).into())
            }
        }
    }

    async fn cancel_unanswered(
        &self,
        approval: &Approval,
    ) -> Result<CallToolResponse, RequestError> {
        self.service.cancel_execution(&self.caller.caller, approval.execution_id).await?;
        Ok(error_result(&unanswered_error().into()).into())
    }
}

pub(crate) async fn elicit_approval(
    context: &RequestContext<RoleServer>,
    approval: &Approval,
    ticket: String,
) -> ElicitationOutcome {
    let question = elicitation_params(approval);
    if is_current_revision(context) {
        let request = InputRequest::Elicitation(ElicitRequest::new(question));
        let requests = InputRequests::from([(INPUT_KEY.to_owned(), request)]);
        return ElicitationOutcome::InputRequired(InputRequiredResult::new(
            Some(requests),
            Some(ticket),
        ));
    }
    tokio::select! {
        () = context.ct.cancelled() => ElicitationOutcome::Unanswered,
        answer = context.peer.create_elicitation(question) => {
            answer.map_or(ElicitationOutcome::Unanswered, |answer| outcome_of(&answer))
        }
    }
}

/// The answer that a client of the newer era brings along, and to which question.
pub(crate) fn resumed_answer<'a>(
    state: Option<&'a str>,
    responses: Option<&InputResponses>,
) -> Result<Option<(&'a str, ElicitationOutcome)>, ErrorData> {
    let (Some(ticket), Some(responses)) = (state, responses) else { return Ok(None) };
    let Some(response) = responses.get(INPUT_KEY) else { return Ok(None) };
    let answer: ElicitResult = serde_json::from_value(response.clone()).map_err(|_| {
        ErrorData::invalid_params("the answer to the question cannot be read", None)
    })?;
    Ok(Some((ticket, outcome_of(&answer))))
}

fn outcome_of(answer: &ElicitResult) -> ElicitationOutcome {
    match answer.action {
        ElicitationAction::Accept => ElicitationOutcome::Decided(ApprovalDecision::Allow),
        ElicitationAction::Decline => ElicitationOutcome::Decided(ApprovalDecision::Deny),
        _ => ElicitationOutcome::Unanswered,
    }
}

pub(crate) fn is_current_revision(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

fn elicitation_params(approval: &Approval) -> ElicitRequestParams {
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
pub(crate) fn invalid_state_error() -> ErrorData {
    ErrorData::invalid_params("the request state is of no open question about this call", None)
}

fn unanswered_error() -> Error {
    Error::new(ErrorCode::ApprovalDenied, "nobody has answered, and nothing was run")
        .hint("go on without it, or ask the user whether to call it again")
}

/// For a client that cannot ask, where somebody else can be asked.
/// `execution` is what was called, and will have the result.
pub(crate) fn approve_elsewhere_error(
    approval: &Approval,
    execution: ExecutionId,
    address: &str,
) -> Error {
    let id = approval.id;
    let message = format!(
        "{:?} waits for a person who may allow it: {address}/v1/approvals/{id}",
        approval.tool_name
    );
    Error::new(ErrorCode::ApprovalRequired, message).hint(format!(
        "do not call it again; tell the user that somebody with another key than yours has to answer \
         (`belljar approvals allow {id}`). It then runs once, and get_result with \
         {{\"execution\": \"{execution}\"}} gives what came of it"
    ))
}

/// For a client that cannot ask, and has Belljar to itself.
pub(crate) fn cannot_elicit_error() -> Error {
    let message = "nothing was run: the user has to be asked first, and this client cannot ask";
    Error::new(ErrorCode::ApprovalDenied, message).hint(
        "tell the user that it takes a client with elicitation, or `belljar mcp` without --permission",
    )
}
