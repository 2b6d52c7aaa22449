//! Approvals of tool calls and of code through MCP elicitation.
//!
//! If the client supports elicitation, it asks its user. The answer counts as the answer of the
//! key's principal and is bound to exactly this call. Any other client gets the URL where the
//! approval can be answered. Nothing runs before the answer.

use crate::execute_python::ExecutePythonCall;
use crate::run_result::{ResultFormat, error_result};
use rmcp::model::{
    CallToolResponse, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequests, InputRequiredResult, InputResponses,
    JsonObject, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use service::{ApprovalDecision, ExecutionHandle, RequestCaller, RequestError, Service};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Approval, ApprovalScope, Error, ErrorCode, Execution, ExecutionId};

/// Key of the answer in the input responses.
const INPUT_KEY: &str = "approval";

/// Result of an elicitation.
pub(crate) enum ElicitationOutcome {
    Decided(ApprovalDecision),
    /// The user dismissed it.
    Unanswered,
    /// A client of the current revision asks its user, then repeats the call.
    InputRequired(InputRequiredResult),
}

/// The call of a client, to match it with the repeated call that has the answer.
pub(crate) enum CalledTool<'a> {
    Tool(&'a types::Tool, Option<&'a JsonObject>),
    Python(&'a ExecutePythonCall),
}

impl CalledTool<'_> {
    pub(crate) fn matches(&self, approval: &Approval) -> bool {
        match self {
            Self::Tool(tool, arguments) => {
                let nothing = JsonObject::new();
                let arguments = arguments.unwrap_or(&nothing);
                approval.tool_id == tool.id && approval.arguments.as_object() == Some(arguments)
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

/// An approval that is elicited while the caller waits for the result.
pub(crate) struct ApprovalElicitation<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) caller: &'a RequestCaller,
    pub(crate) format: ResultFormat,
    pub(crate) context: &'a RequestContext<RoleServer>,
}

impl ApprovalElicitation<'_> {
    /// Whether this client supports elicitation, and its principal may answer the approval.
    pub(crate) fn can_elicit(
        service: &Service,
        caller: &RequestCaller,
        context: &RequestContext<RoleServer>,
        approval: &Approval,
    ) -> Result<bool, RequestError> {
        let can_ask = context.client_capabilities().is_some_and(|can| can.elicitation.is_some());
        Ok(can_ask && service.may_decide_as_requester(caller, approval)?)
    }

    pub(crate) async fn elicit(
        &self,
        execution: ExecutionHandle,
        address: Option<&str>,
    ) -> Result<CallToolResponse, RequestError> {
        let id =
            execution.record().approval_id.ok_or_else(|| RequestError::from(unanswered_error()))?;
        let approval = self.service.approval(self.caller, id)?;
        if !Self::can_elicit(self.service, self.caller, self.context, &approval)? {
            let Some(address) = address else {
                // No other principal could answer it.
                self.cancel_unanswered(&approval).await?;
                return Ok(error_result(&cannot_elicit_error().into()).into());
            };
            let error = approve_elsewhere_error(&approval, approval.execution_id, address);
            return Ok(error_result(&error.into()).into());
        }
        let token = self.service.elicitation_token(&approval);
        let answer = elicit_approval(self.context, &approval, token).await;
        self.apply_outcome(&approval, answer, execution.wait()).await
    }

    /// Applies an answer and waits for the end of its execution.
    pub(crate) async fn apply_outcome(
        &self,
        approval: &Approval,
        answer: ElicitationOutcome,
        execution: impl Future<Output = Result<Execution, RequestError>>,
    ) -> Result<CallToolResponse, RequestError> {
        let caller = self.caller;
        let decision = match answer {
            ElicitationOutcome::InputRequired(required) => return Ok(required.into()),
            ElicitationOutcome::Decided(decision) => decision,
            // The requester dismissed it, so no other principal may answer it later.
            ElicitationOutcome::Unanswered => return self.cancel_unanswered(approval).await,
        };
        self.service.decide_as_requester(caller, approval.id, decision).await?;
        tokio::select! {
            () = self.context.ct.cancelled() => self.cancel_unanswered(approval).await,
            ended = execution => {
                Ok(self.format.render(&ended?, &self.service.file_urls(caller)).into())
            }
        }
    }

    async fn cancel_unanswered(
        &self,
        approval: &Approval,
    ) -> Result<CallToolResponse, RequestError> {
        self.service.cancel_execution(self.caller, approval.execution_id).await?;
        Ok(error_result(&unanswered_error().into()).into())
    }
}

pub(crate) async fn elicit_approval(
    context: &RequestContext<RoleServer>,
    approval: &Approval,
    token: String,
) -> ElicitationOutcome {
    let question = elicitation_params(approval);
    if is_current_revision(context) {
        let request = InputRequest::Elicitation(ElicitRequest::new(question));
        let requests = InputRequests::from([(INPUT_KEY.to_owned(), request)]);
        return ElicitationOutcome::InputRequired(InputRequiredResult::new(
            Some(requests),
            Some(token),
        ));
    }
    tokio::select! {
        () = context.ct.cancelled() => ElicitationOutcome::Unanswered,
        answer = context.peer.create_elicitation(question) => {
            answer.map_or(ElicitationOutcome::Unanswered, |answer| outcome_of(&answer))
        }
    }
}

/// The answer in a repeated call of a client of the current revision, and its approval.
pub(crate) fn resumed_answer<'a>(
    state: Option<&'a str>,
    responses: Option<&InputResponses>,
) -> Result<Option<(&'a str, ElicitationOutcome)>, ErrorData> {
    let (Some(token), Some(responses)) = (state, responses) else { return Ok(None) };
    let Some(response) = responses.get(INPUT_KEY) else { return Ok(None) };
    let answer: ElicitResult = serde_json::from_value(response.clone()).map_err(|_| {
        ErrorData::invalid_params("the response to the elicitation is invalid", None)
    })?;
    Ok(Some((token, outcome_of(&answer))))
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
            "Run this Python code? All later code of this session then runs without asking.\n\n{}",
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
        message.push_str(&format!("\n\nInput files: {}", names.join(", ")));
    }
    for (what, names) in
        [("Network access through integrations", &approval.network), ("Secrets", &approval.secrets)]
    {
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

/// The client owns the state and a model cannot repair it, so this is a protocol error and not a
/// tool error.
pub(crate) fn invalid_state_error() -> ErrorData {
    ErrorData::invalid_params(
        "the request state does not match a pending approval of this call",
        None,
    )
}

fn unanswered_error() -> Error {
    Error::new(
        ErrorCode::ApprovalDenied,
        "the approval request expired without an answer; nothing was run",
    )
    .hint("continue without it, or ask the user whether to call it again")
}

/// Error for a client without elicitation, if the approval can be answered elsewhere. `execution`
/// is the call and will have the result.
pub(crate) fn approve_elsewhere_error(
    approval: &Approval,
    execution: ExecutionId,
    address: &str,
) -> Error {
    let id = approval.id;
    let message =
        format!("{:?} is waiting for an approval: {address}/v1/approvals/{id}", approval.tool_name);
    Error::new(ErrorCode::ApprovalRequired, message).hint(format!(
        "do not call it again; ask the user to have it approved with another key (`belljar \
         approvals allow {id}`). After that, get_result with {{\"execution\": \"{execution}\"}} \
         returns the result"
    ))
}

/// Error for a client without elicitation that is the only client of this Belljar.
pub(crate) fn cannot_elicit_error() -> Error {
    let message = "nothing was run: an approval of the user is required, and this client does not \
                   support elicitation";
    Error::new(ErrorCode::ApprovalDenied, message).hint(
        "tell the user to use a client with elicitation, or `belljar mcp` without --permission",
    )
}
