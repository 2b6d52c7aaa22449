//! Input requests of the current revision: the server responds with the missing input, and the
//! client repeats the request with it.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
    GetPromptRequestParams, InputRequest, InputRequests, InputRequiredResult, InputResponses,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

/// Kind of input that a client is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum InputKind {
    /// A form with one text field.
    Form(&'static str, &'static str),
    /// A completion from its model.
    Sampling(&'static str),
    Roots,
}

use InputKind::{Form, Roots, Sampling};

/// Inputs of one round, by the keys of the answers.
type InputRequestRound = &'static [(&'static str, InputKind)];

const NAME: (&str, InputKind) = ("user_name", Form("What is your name?", "name"));
const GREETING: (&str, InputKind) = ("greeting", Sampling("Generate a greeting"));
const ROOTS: (&str, InputKind) = ("client_roots", Roots);

pub(super) const NAME_FIRST: &[InputRequestRound] = &[&[NAME]];
pub(super) const CONTEXT_FIRST: &[InputRequestRound] =
    &[&[("user_context", Form("What context should the prompt use?", "context"))]];

const TOOLS: &[(&str, &[InputRequestRound])] = &[
    ("test_input_required_result_elicitation", NAME_FIRST),
    (
        "test_input_required_result_sampling",
        &[&[("capital_question", Sampling("What is the capital of France?"))]],
    ),
    ("test_input_required_result_list_roots", &[&[ROOTS]]),
    ("test_input_required_result_multiple_inputs", &[&[NAME, GREETING, ROOTS]]),
    (
        "test_input_required_result_multi_round",
        &[
            &[("step1", Form("What is your name?", "name"))],
            &[("step2", Form("What is your favourite colour?", "color"))],
        ],
    ),
    ("test_input_required_result_capabilities", &[&[NAME, GREETING]]),
    ("test_streaming_elicitation", NAME_FIRST),
    ("test_missing_capability", &[&[GREETING]]),
];

pub(super) fn tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _)| *name)
}

pub(super) fn rounds(name: &str) -> Option<&'static [InputRequestRound]> {
    TOOLS.iter().find(|(tool, _)| *tool == name).map(|(_, rounds)| *rounds)
}

/// The input in a repeated request.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryInput<'a> {
    state: Option<&'a str>,
    responses: Option<&'a InputResponses>,
}

impl<'a> RetryInput<'a> {
    pub(super) fn from_tool_call(request: &'a CallToolRequestParams) -> Self {
        let responses = request.input_responses.as_ref();
        Self { state: request.request_state.as_deref(), responses }
    }

    pub(super) fn from_prompt(request: &'a GetPromptRequestParams) -> Self {
        let responses = request.input_responses.as_ref();
        Self { state: request.request_state.as_deref(), responses }
    }

    fn has_answers_for(&self, round: InputRequestRound) -> bool {
        let answered =
            |key| self.responses.and_then(|all| all.get(key)).is_some_and(Value::is_object);
        round.iter().all(|(key, _)| answered(*key))
    }
}

pub(super) enum InputRound {
    InputRequired(InputRequiredResult),
    Complete(InputResponses),
}

impl From<InputRound> for CallToolResponse {
    fn from(turn: InputRound) -> Self {
        match turn {
            InputRound::InputRequired(required) => required.into(),
            InputRound::Complete(answers) => {
                let response = json!(answers).to_string();
                CallToolResult::success(vec![ContentBlock::text(response)]).into()
            }
        }
    }
}

/// The state is the number of the round. A client that changes it gets another round, and gains
/// nothing.
pub(super) fn next_round(
    rounds: &[InputRequestRound],
    given: RetryInput<'_>,
    context: &RequestContext<RoleServer>,
) -> Result<InputRound, ErrorData> {
    let unknown = |_| ErrorData::invalid_params("the request state is invalid", None);
    let asked: usize = given.state.map_or(Ok(0), str::parse).map_err(unknown)?;
    let answered = rounds.get(asked).is_some_and(|round| given.has_answers_for(round));
    let next = if answered { asked + 1 } else { asked };
    match rounds.get(next) {
        Some(round) => Ok(InputRound::InputRequired(InputRequiredResult::new(
            Some(input_requests(round, context)?),
            Some(next.to_string()),
        ))),
        None => Ok(InputRound::Complete(given.responses.cloned().unwrap_or_default())),
    }
}

/// Only the inputs that the client declares it supports.
fn input_requests(
    round: InputRequestRound,
    context: &RequestContext<RoleServer>,
) -> Result<InputRequests, ErrorData> {
    let can = context.client_capabilities().unwrap_or_default();
    let answerable = round.iter().filter(|(_, question)| question.is_supported_by(&can));
    let requests: InputRequests = answerable
        .map(|(key, question)| Ok(((*key).to_owned(), question.request()?)))
        .collect::<Result<_, ErrorData>>()?;
    match (requests.is_empty(), round.first()) {
        (true, Some((_, question))) => {
            Err(ErrorData::missing_required_client_capability(question.required_capabilities()))
        }
        _ => Ok(requests),
    }
}

impl InputKind {
    pub(super) fn request(self) -> Result<InputRequest, ErrorData> {
        let request = match self {
            Form(message, field) => json!({"method": "elicitation/create", "params": {
                "message": message,
                "requestedSchema": {
                    "type": "object",
                    "properties": {field: {"type": "string"}},
                    "required": [field],
                },
            }}),
            Sampling(prompt) => json!({"method": "sampling/createMessage", "params": {
                "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}],
                "maxTokens": 100,
            }}),
            Roots => json!({"method": "roots/list", "params": {}}),
        };
        serde_json::from_value(request)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    fn is_supported_by(self, can: &ClientCapabilities) -> bool {
        match self {
            Form(..) => can.elicitation.is_some(),
            Sampling(_) => can.sampling.is_some(),
            Roots => can.roots.is_some(),
        }
    }

    fn required_capabilities(self) -> ClientCapabilities {
        match self {
            Form(..) => ClientCapabilities::builder().enable_elicitation().build(),
            Sampling(_) => ClientCapabilities::builder().enable_sampling().build(),
            Roots => ClientCapabilities::builder().enable_roots().build(),
        }
    }
}
