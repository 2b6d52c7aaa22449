//! `code_execution`: a plan first, then code for one step at a time in an open session, until the
//! request is answered.

use crate::agent_loop::{AgentLoop, LoopOutcome, RunError};
use crate::budget::RunBudget;
use crate::conversation::Conversation;
use crate::model::{Message, ModelResponse, ToolCallMode, ToolDefinition};
use crate::prompts;
use crate::runs::RunOutcome;
use crate::toolbox::Toolbox;
use crate::trace::Purpose;
use serde_json::{Value, json};
use types::Event;

const PLAN: &str = "plan";
/// Maximum steps of a plan: more than a person would read.
const STEPS_MAX: usize = 12;
const STEP_CHARS_MAX: usize = 500;

/// A request to solve with code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeTask<'a> {
    pub(crate) request: &'a str,
    pub(crate) context: Option<&'a str>,
    /// Names of the uploaded files.
    pub(crate) files: &'a [String],
    /// Round limit, if the request sets one.
    pub(crate) rounds: Option<u32>,
}

/// Plans, writes and runs code, and answers.
pub(crate) async fn run_code_task(
    agent_loop: &mut AgentLoop<'_>,
    tools: &mut Toolbox,
    conversation: &mut Conversation,
    task: CodeTask<'_>,
) -> Result<RunOutcome, RunError> {
    conversation.push_user(task_prompt(task));
    let plan = make_plan(agent_loop, conversation, task.request).await?;
    agent_loop.run.publish(Event::Plan { steps: plan.clone() });
    agent_loop.budget.rounds =
        task.rounds.unwrap_or_else(|| RunBudget::rounds_for_steps(plan.len()));
    let numbered = (1..).zip(&plan).map(|(number, step)| format!("{number}. {step}"));
    let steps = numbered.collect::<Vec<_>>().join("\n");
    // The plan is the model's own text, so it does not ground numbers.
    let text = prompts::fill(prompts::PLANNED, "plan", &steps);
    conversation.messages.push(Message::Model { text, calls: Vec::new() });
    conversation.push_user(prompts::START.trim_end());
    tools.interpreter.iter_mut().for_each(|interpreter| interpreter.set_plan(plan.clone()));
    let answer = final_answer(agent_loop, tools, conversation).await?;
    Ok(match agent_loop.verify_answer(conversation, answer) {
        Ok(answer) => {
            let interpreter = tools.interpreter.as_ref();
            RunOutcome::answered(answer, interpreter.and_then(|it| it.last_error().cloned()))
        }
        Err(error) => RunOutcome::withheld(error),
    })
}

/// The final answer of the model. It is asked again if its numbers were not computed.
async fn final_answer(
    agent_loop: &mut AgentLoop<'_>,
    tools: &mut Toolbox,
    conversation: &mut Conversation,
) -> Result<String, RunError> {
    let rounds = |tools: &Toolbox| tools.interpreter.as_ref().map_or(0, |it| it.rounds.len());
    let before = rounds(tools);
    loop {
        agent_loop.unverified = rounds(tools) == before;
        let answer = match agent_loop.run(prompts::CODE.trim_end(), conversation, tools).await? {
            LoopOutcome::Answered(answer) => answer,
            // The interpreter has already waited for the approval itself.
            LoopOutcome::NeedsApproval => return Err(RunError::Cancelled),
        };
        if rounds(tools) > before || conversation.grounds_numbers_of(&answer) {
            agent_loop.unverified = false;
            return Ok(answer);
        }
        agent_loop.usage.record_failure("the model gave numbers that no code computed");
        conversation.push_user(prompts::COMPUTE.trim_end());
    }
}

fn task_prompt(task: CodeTask<'_>) -> String {
    let mut parts = vec![prompts::fill(prompts::REQUEST, "request", task.request)];
    if let Some(context) = task.context {
        parts.push(prompts::fill(prompts::CONTEXT, "context", context));
    }
    if !task.files.is_empty() {
        parts.push(prompts::fill(prompts::FILES, "files", &task.files.join(", ")));
    }
    parts.join("\n\n")
}

async fn make_plan(
    agent_loop: &mut AgentLoop<'_>,
    conversation: &Conversation,
    request: &str,
) -> Result<Vec<String>, RunError> {
    let choice = ToolCallMode::Tool(PLAN.to_owned());
    let system = prompts::PLAN.trim_end();
    let answer = agent_loop
        .ask_model(Purpose::Plan, system, conversation, vec![plan_tool()], choice)
        .await?;
    let steps = parse_steps(&answer);
    Ok(if steps.is_empty() { vec![request.to_owned()] } else { steps })
}

/// The steps of the requested tool call, or of a list in text, as models without tool calls write
/// it.
fn parse_steps(answer: &ModelResponse) -> Vec<String> {
    let called = answer.calls.iter().find(|call| call.name == PLAN);
    let listed = called.map(|call| string_items(&call.arguments["steps"])).unwrap_or_default();
    let array_in_text = || match answer.text.find('[').zip(answer.text.rfind(']')) {
        Some((first, last)) if first < last => serde_json::from_str(&answer.text[first..=last])
            .map_or(Vec::new(), |array_in_text| string_items(&array_in_text)),
        _ => Vec::new(),
    };
    let steps = if listed.is_empty() { array_in_text() } else { listed };
    steps.into_iter().take(STEPS_MAX).collect()
}

fn string_items(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    let cut = texts.map(|text| text.trim().chars().take(STEP_CHARS_MAX).collect::<String>());
    cut.filter(|text| !text.is_empty()).collect()
}

fn plan_tool() -> ToolDefinition {
    ToolDefinition {
        name: PLAN.to_owned(),
        description: "The steps that answer the request, in order.".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "steps": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            },
            "required": ["steps"],
            "additionalProperties": false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ModelStopReason, TokenUsage, ToolCall};

    fn answer(text: &str, calls: Vec<ToolCall>) -> ModelResponse {
        ModelResponse {
            text: text.to_owned(),
            calls,
            tokens: TokenUsage::default(),
            stop_reason: ModelStopReason::Done,
        }
    }

    #[test]
    fn a_plan_is_read_as_it_was_called_or_as_it_was_written() {
        let (id, name) = ("1".to_owned(), PLAN.to_owned());
        let call = ToolCall { id, name, arguments: json!({"steps": [" Load ", "", 7, "Plot"]}) };
        assert_eq!(parse_steps(&answer("", vec![call])), ["Load", "Plot"]);
        let text = "Here it is:\n```json\n[\"Load\", \"Plot\"]\n```";
        assert_eq!(parse_steps(&answer(text, Vec::new())), ["Load", "Plot"]);
        assert!(parse_steps(&answer("I would rather not.", Vec::new())).is_empty());
        assert!(parse_steps(&answer("] [", Vec::new())).is_empty());
    }
}
