//! Settings of an agent's model: its name, its instructions, its skills and its budget.

use super::specification_pointer;
use crate::error::{RequestError, invalid_field};
use crate::runs::tool_result::ResultForm;
use serde_json::{Map, Value};

const SKILLS_MAX: usize = 50;
/// Upper limit of the rounds of a run, whatever its budget says. Each round may call several tools.
pub const ROUNDS_MAX: u32 = 100;
/// Upper limit of the time of a run: callers do not wait longer for an answer.
pub const SECONDS_MAX: u64 = 60 * 60;
/// The keys of a budget and their maximum.
const BUDGET: [(&str, Option<u64>); 3] =
    [("rounds", Some(ROUNDS_MAX as u64)), ("tokens", None), ("seconds", Some(SECONDS_MAX))];

/// Whether the model must call a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    Required,
    /// The model must call one of these tools.
    Tools(Vec<String>),
}

/// A skill that the specification names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillReference {
    pub name: String,
    /// When its instructions are loaded; the skill decides if absent.
    pub load: Option<SkillLoad>,
}

/// When the instructions of a skill are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillLoad {
    /// They are part of the instructions of the agent.
    Always,
    /// The model loads them when it needs them.
    OnDemand,
}

/// Settings of the model; absent fields have the defaults of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orchestration {
    /// `provider/model`.
    pub model: Option<String>,
    pub instructions: String,
    pub skills: Vec<SkillReference>,
    pub tool_choice: ToolChoice,
    /// What the model reads of a call of a `code_runner` tool.
    pub tool_results: ResultForm,
    pub rounds: Option<u32>,
    pub tokens: Option<u64>,
    pub seconds: Option<u64>,
}

impl Orchestration {
    /// Reads the settings. Unsupported parts become warnings.
    pub(super) fn read(
        root: &Map<String, Value>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, RequestError> {
        let budget = budget(root)?;
        let number = |key: &str| budget.as_ref().map_or(Ok(None), |budget| budget.number(key));
        warnings.extend(budget.iter().flat_map(BudgetSection::warnings));
        Ok(Self {
            model: model(root)?,
            instructions: instructions(root)?,
            skills: skills(root)?,
            tool_choice: tool_choice(root)?,
            tool_results: tool_results(root)?,
            rounds: number("rounds")?.map(|rounds| u32::try_from(rounds).unwrap_or(u32::MAX)),
            tokens: number("tokens")?,
            seconds: number("seconds")?,
        })
    }
}

/// The section `budget`, and its path.
struct BudgetSection<'a> {
    path: &'static str,
    values: &'a Map<String, Value>,
}

impl BudgetSection<'_> {
    fn number(&self, key: &str) -> Result<Option<u64>, RequestError> {
        match self.values.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) if number > 0 => Ok(Some(number)),
                _ => {
                    let path = specification_pointer(&format!("{}/{key}", self.path));
                    Err(invalid_field(&path, "must be a positive number"))
                }
            },
        }
    }

    fn warnings(&self) -> Vec<String> {
        let warning =
            |(key, value): (&String, &Value)| match BUDGET.iter().find(|known| known.0 == key) {
                None => Some(format!("unknown key budget.{key}; use rounds, tokens and seconds")),
                Some((_, Some(limit))) if value.as_u64().is_some_and(|number| number > *limit) => {
                    Some(format!("budget.{key} is {value}; the limit of a run is {limit}"))
                }
                Some(_) => None,
            };
        self.values.iter().filter_map(warning).collect()
    }
}

/// Finds the budget below `orchestration` or at the top level.
fn budget(root: &Map<String, Value>) -> Result<Option<BudgetSection<'_>>, RequestError> {
    let below = root.get("orchestration").and_then(|value| value.get("budget"));
    let found = below.map(|value| ("/orchestration/budget", value));
    match found.or_else(|| root.get("budget").map(|value| ("/budget", value))) {
        None | Some((_, Value::Null)) => Ok(None),
        Some((path, Value::Object(values))) => Ok(Some(BudgetSection { path, values })),
        Some((path, _)) => Err(invalid_field(
            &specification_pointer(path),
            "must be a mapping with rounds, tokens, seconds",
        )),
    }
}

fn model(root: &Map<String, Value>) -> Result<Option<String>, RequestError> {
    let named = root.get("models").and_then(|models| models.get("orchestration"));
    match root.get("model").or(named) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) => Ok(Some(name.clone())),
        Some(_) => Err(invalid_field(
            &specification_pointer("/model"),
            "must be a name, such as anthropic/claude-sonnet-4-5",
        )),
    }
}

/// The instructions: a string, or several strings by topic.
fn instructions(root: &Map<String, Value>) -> Result<String, RequestError> {
    match root.get("instructions") {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Object(parts)) => {
            let part = |(key, value): (&String, &Value)| match value {
                Value::String(text) => Ok(text.clone()),
                Value::Null => Ok(String::new()),
                // Lists are for users, such as sample questions.
                Value::Array(_) => Ok(String::new()),
                _ => Err(invalid_field(
                    &specification_pointer(&format!("/instructions/{key}")),
                    "must be a string",
                )),
            };
            let parts = parts.iter().map(part).collect::<Result<Vec<_>, _>>()?;
            let texts = parts.into_iter().filter(|part| !part.is_empty());
            Ok(texts.collect::<Vec<_>>().join("\n\n"))
        }
        Some(_) => Err(invalid_field(
            &specification_pointer("/instructions"),
            "must be a string, or a mapping of strings",
        )),
    }
}

/// The path of a skill in the specification.
pub(super) fn skill_path(index: usize) -> String {
    specification_pointer(&format!("/skills/{index}"))
}

fn skills(root: &Map<String, Value>) -> Result<Vec<SkillReference>, RequestError> {
    let invalid = |message: String| Err(invalid_field(&specification_pointer("/skills"), message));
    let list = match root.get("skills") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= SKILLS_MAX => list,
        Some(Value::Array(_)) => return invalid(format!("can have at most {SKILLS_MAX} skills")),
        Some(_) => return invalid("must be a list of names".to_owned()),
    };
    let mut skills: Vec<SkillReference> = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let skill = skill(&skill_path(index), value)?;
        if skills.iter().any(|other| other.name == skill.name) {
            let message = format!("skill {:?} is listed twice", skill.name);
            return Err(invalid_field(&skill_path(index), message));
        }
        skills.push(skill);
    }
    Ok(skills)
}

/// A skill: its name, or a mapping with `name` and optionally `load`.
fn skill(path: &str, value: &Value) -> Result<SkillReference, RequestError> {
    let name = value.as_str().or_else(|| value.get("name").and_then(Value::as_str));
    let name = name.ok_or_else(|| invalid_field(path, "must be the name of a skill"))?;
    let load = match value.get("load").map(Value::as_str) {
        None => None,
        Some(Some("always")) => Some(SkillLoad::Always),
        Some(Some("on_demand")) => Some(SkillLoad::OnDemand),
        Some(_) => {
            return Err(invalid_field(&format!("{path}/load"), "must be always or on_demand"));
        }
    };
    Ok(SkillReference { name: name.to_owned(), load })
}

fn tool_results(root: &Map<String, Value>) -> Result<ResultForm, RequestError> {
    match root.get("tool_results").map(|value| serde_json::from_value(value.clone())) {
        None => Ok(ResultForm::default()),
        Some(Ok(form)) => Ok(form),
        Some(Err(_)) => Err(invalid_field(
            &specification_pointer("/tool_results"),
            "must be `record` or `code_runner`",
        )),
    }
}

fn tool_choice(root: &Map<String, Value>) -> Result<ToolChoice, RequestError> {
    let invalid = || {
        invalid_field(
            &specification_pointer("/tool_choice"),
            "must be auto, required, or {type: tool, name: [NAME]}",
        )
    };
    let Some(choice) = root.get("tool_choice").filter(|choice| !choice.is_null()) else {
        return Ok(ToolChoice::Auto);
    };
    let kind = choice.as_str().or_else(|| choice.get("type").and_then(Value::as_str));
    match kind {
        Some("auto") => Ok(ToolChoice::Auto),
        Some("required") => Ok(ToolChoice::Required),
        Some("tool") => {
            let names = choice.get("name").ok_or_else(invalid)?;
            let names = match names {
                Value::String(name) => vec![name.clone()],
                Value::Array(names) => {
                    let names = names.iter().map(|name| name.as_str().map(str::to_owned));
                    names.collect::<Option<Vec<_>>>().ok_or_else(invalid)?
                }
                _ => return Err(invalid()),
            };
            if names.is_empty() {
                return Err(invalid());
            }
            Ok(ToolChoice::Tools(names))
        }
        _ => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_specification;
    use super::*;

    fn orchestration(text: &str) -> Orchestration {
        parse_specification(text).unwrap().orchestration
    }

    #[test]
    fn what_the_model_is_told_and_may_use_is_read_as_people_write_it() {
        let read = orchestration(
            "model: openai/gpt-5-mini\ninstructions: {response: Be kind., orchestration: Compute.}\n\
             skills: [dataviz, {name: tea, load: always}]\ntool_choice: {type: tool, name: [convert]}\n\
             budget: {rounds: 3, tokens: 1000, seconds: 60}",
        );
        assert_eq!(read.model.as_deref(), Some("openai/gpt-5-mini"));
        assert_eq!(read.instructions, "Be kind.\n\nCompute.");
        let skill = |name: &str, load| SkillReference { name: name.to_owned(), load };
        let skills = [skill("dataviz", None), skill("tea", Some(SkillLoad::Always))];
        assert_eq!(read.skills, skills);
        assert_eq!(read.tool_choice, ToolChoice::Tools(vec!["convert".to_owned()]));
        assert_eq!((read.rounds, read.tokens, read.seconds), (Some(3), Some(1000), Some(60)));
        let other = orchestration(
            "models: {orchestration: anthropic/claude}\norchestration: {budget: {seconds: 30}}",
        );
        assert_eq!(other.model.as_deref(), Some("anthropic/claude"));
        assert_eq!((other.rounds, other.seconds), (None, Some(30)));
        assert_eq!(orchestration("tools: []"), Orchestration::default());
    }

    #[test]
    fn a_budget_that_says_what_no_run_has_is_warned_of() {
        let warnings = |budget: &str| {
            parse_specification(&format!("budget: {{{budget}}}")).unwrap().warnings(&[]).join("; ")
        };
        assert_eq!(warnings("rounds: 100, tokens: 1000000000, seconds: 3600"), "");
        let expected = "unknown key budget.round; use rounds, tokens and seconds";
        assert_eq!(warnings("round: 3"), expected);
        let expected = "budget.rounds is 101; the limit of a run is 100; budget.seconds is 3601; \
                        the limit of a run is 3600";
        assert_eq!(warnings("rounds: 101, seconds: 3601"), expected);
    }

    #[test]
    fn what_cannot_be_held_is_refused_at_its_place() {
        for (text, path) in [
            ("model: 7", "/specification/model"),
            ("instructions: [a]", "/specification/instructions"),
            ("instructions: {system: 1}", "/specification/instructions/system"),
            ("skills: dataviz", "/specification/skills"),
            ("skills: [1]", "/specification/skills/0"),
            ("skills: [tea, tea]", "/specification/skills/1"),
            ("skills: [{name: tea, load: never}]", "/specification/skills/0/load"),
            ("tool_choice: never", "/specification/tool_choice"),
            ("tool_choice: {type: tool}", "/specification/tool_choice"),
            ("budget: 5", "/specification/budget"),
            ("budget: {rounds: 0}", "/specification/budget/rounds"),
            (
                "orchestration: {budget: {tokens: many}}",
                "/specification/orchestration/budget/tokens",
            ),
        ] {
            let error = parse_specification(text).unwrap_err();
            assert_eq!(error.details[0].path.as_deref(), Some(path), "{text}");
        }
    }
}
