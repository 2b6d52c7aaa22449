//! `code_execution`: a plan first, then code for one step at a time in a live session, until the
//! request is answered.

use crate::budget::Budget;
use crate::model::{Answer, Choice, Message, Offer};
use crate::prompts;
use crate::talk::Talk;
use crate::toolbox::Toolbox;
use crate::trace::Purpose;
use crate::walk::{Left, Stopped, Walk};
use serde_json::{Value, json};
use types::{Event, Fault};

const PLAN: &str = "plan";
/// More than a person would read.
const STEPS_MAX: usize = 12;
const STEP_CHARS_MAX: usize = 500;

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) request: &'a str,
    pub(crate) context: Option<&'a str>,
    /// Names of files that were brought for it.
    pub(crate) files: &'a [String],
    /// Rounds that it may take, if somebody has said so.
    pub(crate) rounds: Option<u32>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) answer: String,
    /// What the last code ended with, if it failed, or why the answer is not the model's.
    pub(crate) fault: Option<Fault>,
}

/// Plans, writes code and runs it, and answers.
pub(crate) async fn carry_out(
    walk: &mut Walk<'_>,
    tools: &mut Toolbox,
    talk: &mut Talk,
    task: Task<'_>,
) -> Result<Carried, Stopped> {
    talk.say(asked(task));
    let plan = plan(walk, talk, task.request).await?;
    walk.run.tell(Event::Plan { steps: plan.clone() });
    walk.budget.rounds = task.rounds.unwrap_or_else(|| Budget::for_steps(plan.len()));
    let numbered = (1..).zip(&plan).map(|(number, step)| format!("{number}. {step}"));
    let steps = numbered.collect::<Vec<_>>().join("\n");
    // The model has said it, so that it is no ground for a number.
    let text = prompts::fill(prompts::PLANNED, "plan", &steps);
    talk.messages.push(Message::Model { text, calls: Vec::new() });
    talk.say(prompts::START.trim_end());
    tools.interpreter.iter_mut().for_each(|interpreter| interpreter.follow(plan.clone()));
    let said = said(walk, tools, talk).await?;
    Ok(match walk.judge(talk, said) {
        Ok(answer) => {
            let interpreter = tools.interpreter.as_ref();
            Carried { answer, fault: interpreter.and_then(|it| it.last_fault().cloned()) }
        }
        Err(fault) => Carried { answer: no_result(&fault), fault: Some(fault) },
    })
}

/// What is said instead of an answer that is not passed on.
pub(crate) fn no_result(fault: &Fault) -> String {
    prompts::fill(prompts::NO_RESULT, "error", &fault.message)
}

/// What the model says at the end. Numbers that it has not had computed are given back to it.
async fn said(
    walk: &mut Walk<'_>,
    tools: &mut Toolbox,
    talk: &mut Talk,
) -> Result<String, Stopped> {
    let rounds = |tools: &Toolbox| tools.interpreter.as_ref().map_or(0, |it| it.rounds.len());
    let before = rounds(tools);
    loop {
        walk.unproven = rounds(tools) == before;
        let said = match walk.converse(prompts::CODE.trim_end(), talk, tools).await? {
            Left::Said(said) => said,
            // The interpreter is patient: it has waited for the answer itself.
            Left::Asking => return Err(Stopped::Cancelled),
        };
        if rounds(tools) > before || talk.is_ground_for(&said) {
            walk.unproven = false;
            return Ok(said);
        }
        walk.used.failed("the model gave numbers that no code has computed");
        talk.say(prompts::COMPUTE.trim_end());
    }
}

fn asked(task: Task<'_>) -> String {
    let mut parts = vec![prompts::fill(prompts::REQUEST, "request", task.request)];
    if let Some(context) = task.context {
        parts.push(prompts::fill(prompts::CONTEXT, "context", context));
    }
    if !task.files.is_empty() {
        parts.push(prompts::fill(prompts::FILES, "files", &task.files.join(", ")));
    }
    parts.join("\n\n")
}

async fn plan(walk: &mut Walk<'_>, talk: &Talk, request: &str) -> Result<Vec<String>, Stopped> {
    let choice = Choice::Tool(PLAN.to_owned());
    let system = prompts::PLAN.trim_end();
    let answer = walk.ask(Purpose::Plan, system, talk, vec![offer()], choice).await?;
    let steps = steps(&answer);
    Ok(if steps.is_empty() { vec![request.to_owned()] } else { steps })
}

/// As it was asked for, or as models write a list that cannot call a tool.
fn steps(answer: &Answer) -> Vec<String> {
    let called = answer.calls.iter().find(|call| call.name == PLAN);
    let listed = called.map(|call| texts(&call.arguments["steps"])).unwrap_or_default();
    let written = || match answer.text.find('[').zip(answer.text.rfind(']')) {
        Some((first, last)) if first < last => {
            serde_json::from_str(&answer.text[first..=last]).map_or(Vec::new(), |list| texts(&list))
        }
        _ => Vec::new(),
    };
    let steps = if listed.is_empty() { written() } else { listed };
    steps.into_iter().take(STEPS_MAX).collect()
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    let cut = texts.map(|text| text.trim().chars().take(STEP_CHARS_MAX).collect::<String>());
    cut.filter(|text| !text.is_empty()).collect()
}

fn offer() -> Offer {
    Offer {
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
    use crate::model::{Stop, Tokens, ToolCall};

    fn answer(text: &str, calls: Vec<ToolCall>) -> Answer {
        Answer { text: text.to_owned(), calls, tokens: Tokens::default(), stop: Stop::Done }
    }

    #[test]
    fn a_plan_is_read_as_it_was_called_or_as_it_was_written() {
        let (id, name) = ("1".to_owned(), PLAN.to_owned());
        let call = ToolCall { id, name, arguments: json!({"steps": [" Load ", "", 7, "Plot"]}) };
        assert_eq!(steps(&answer("", vec![call])), ["Load", "Plot"]);
        let written = "Here it is:\n```json\n[\"Load\", \"Plot\"]\n```";
        assert_eq!(steps(&answer(written, Vec::new())), ["Load", "Plot"]);
        assert!(steps(&answer("I would rather not.", Vec::new())).is_empty());
        assert!(steps(&answer("] [", Vec::new())).is_empty());
    }
}
