//! The skills of an agent, disclosed progressively: the instructions of the agent have the text of the
//! skills that are always loaded and the names of the others, loading one returns its text, its files
//! are read on demand, and its scripts run in its own directory, which code cannot change.

use crate::model::ToolDefinition;
use crate::prompts;
use serde_json::{Value, json};
use service::{AgentSkill, CodeToolName, SKILLS_ROOT};
use skill::Skill;
use types::{Error, ErrorCode, PrincipalId};

pub(crate) const LOAD: &str = "load_skill";
pub(crate) const RUN_SCRIPT: &str = "run_skill_script";
/// The instructions have their own file, which is what loading returns.
const INSTRUCTIONS: &str = "SKILL.md";
/// Limit of one file, which a model reads as a whole: a long chapter.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Limit of the text of all skills that are always loaded: a model reads it with each request.
const ALWAYS_LOADED_BYTES_MAX: usize = 64 * 1024;
/// Limit of the file names that a model sees.
const NAMED_MAX: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Skills {
    skills: Vec<AgentSkill>,
    /// The text of the skills that are always loaded.
    loaded: Vec<String>,
}

/// A script of a skill, and how it is run.
#[derive(Debug)]
pub(crate) struct SkillScript {
    pub(crate) skill: String,
    /// The principal who uploaded it; absent for a skill of the server.
    pub(crate) author: Option<PrincipalId>,
    /// Its source, which declares what it needs.
    pub(crate) source: String,
    /// Its path in the skill, and its arguments.
    argv: Vec<String>,
}

impl Skills {
    /// Checks the skills of an agent. A skill with scripts requires an agent that may run code.
    pub(crate) fn new(skills: Vec<AgentSkill>, runs_code: bool) -> Result<Self, Error> {
        let mut loaded = Vec::new();
        for AgentSkill { skill, always_loaded, .. } in &skills {
            let name = &skill.summary.name;
            if !runs_code && !scripts(skill).is_empty() {
                let message = format!(
                    "the skill {name:?} has scripts, and to use it you must enable the code \
                     execution tool"
                );
                return Err(Error::new(ErrorCode::ToolUnavailable, message).hint(
                    "enable code_execution in both `tools` and `tool_resources` of the \
                           specification",
                ));
            }
            if *always_loaded {
                let text = text_of(skill).map_err(|reason| {
                    let message = format!("the skill {name:?} cannot be read: {reason}");
                    Error::new(ErrorCode::ToolUnavailable, message)
                })?;
                loaded.push(text);
            }
        }
        let bytes = loaded.iter().map(String::len).sum::<usize>();
        if bytes > ALWAYS_LOADED_BYTES_MAX {
            let message = format!(
                "the skills that are always loaded have {bytes} bytes of instructions; at most \
                 {ALWAYS_LOADED_BYTES_MAX} are allowed"
            );
            return Err(Error::new(ErrorCode::ToolUnavailable, message)
                .hint("set `load: on_demand` for some skills of the specification"));
        }
        Ok(Self { skills, loaded })
    }

    /// The parts of the system prompt about the skills: the text of those that are always loaded, and
    /// a list of the others.
    pub(crate) fn prompts(&self) -> Vec<String> {
        let loaded = self.loaded.iter();
        let mut parts: Vec<String> =
            loaded.map(|text| prompts::fill(prompts::SKILL, "skill", text)).collect();
        let line =
            |skill: &Skill| format!("- {}: {}", skill.summary.name, skill.summary.description);
        let lines: Vec<String> = self.on_demand().map(line).collect();
        if !lines.is_empty() {
            parts.push(prompts::fill(prompts::SKILLS, "skills", &lines.join("\n")));
        }
        parts
    }

    fn on_demand(&self) -> impl Iterator<Item = &Skill> {
        self.skills.iter().filter(|skill| !skill.always_loaded).map(|skill| &*skill.skill)
    }

    /// The tools that run code and that the skills need.
    pub(crate) fn code_tools(&self) -> impl Iterator<Item = CodeToolName> {
        let names = self.skills.iter().flat_map(|skill| &skill.skill.tools);
        names.filter_map(|name| CodeToolName::from_name(name))
    }

    pub(crate) fn tool_definitions(&self) -> Vec<ToolDefinition> {
        let mut offers = Vec::new();
        let has_files = |skill: &AgentSkill| !file_names(&skill.skill).is_empty();
        if self.on_demand().next().is_some() || self.skills.iter().any(has_files) {
            offers.push(load_skill_tool(&self.skills));
        }
        if self.skills.iter().any(|skill| !scripts(&skill.skill).is_empty()) {
            offers.push(run_script_tool());
        }
        offers
    }

    fn get(&self, name: &str) -> Result<&AgentSkill, String> {
        self.skills.iter().find(|skill| skill.skill.summary.name == name).ok_or_else(|| {
            let names = self.skills.iter().map(|skill| &*skill.skill.summary.name);
            let names: Vec<&str> = names.collect();
            format!("There is no skill {name:?}. The skills are: {}.", names.join(", "))
        })
    }

    /// Returns the instructions of a skill with its files and scripts, or one of its files.
    pub(crate) fn load_skill(&self, arguments: &Value) -> Result<String, String> {
        let name = arguments["name"].as_str().ok_or("`name` is the name of a skill.")?;
        let skill = &self.get(name)?.skill;
        if arguments["path"].is_null() {
            return text_of(skill);
        }
        let path = arguments["path"].as_str().ok_or("`path` is the path of a file.")?;
        read_text(skill, path)
    }

    /// The script that a call names.
    pub(crate) fn script(&self, arguments: &Value) -> Result<SkillScript, String> {
        let name = arguments["skill"].as_str().ok_or("`skill` is the name of a skill.")?;
        let AgentSkill { skill, author, .. } = self.get(name)?;
        let script = arguments["script"].as_str().ok_or("`script` is the path of a script.")?;
        let known = scripts(skill);
        if !known.iter().any(|known| known == script) {
            return Err(format!("There is no such script. The scripts are: {}.", known.join(", ")));
        }
        let source = skill.read(script).map_err(|error| error.to_string())?;
        let source = String::from_utf8(source).map_err(|_| format!("{script} is not UTF-8."))?;
        let mut argv = vec![script.to_owned()];
        for argument in arguments["arguments"].as_array().into_iter().flatten() {
            argv.push(argument.as_str().map_or_else(|| argument.to_string(), str::to_owned));
        }
        Ok(SkillScript { skill: name.to_owned(), author: *author, source, argv })
    }
}

impl SkillScript {
    /// Code that does what `python3 SCRIPT ARGS` does in the directory of the skill, after it has
    /// installed these requirements. It runs in the interpreter of the session, which keeps its
    /// variables, its directory and its arguments.
    pub(crate) fn code(&self, requirements: &[String]) -> String {
        let Self { skill, argv, .. } = self;
        let root = format!("{SKILLS_ROOT}/{skill}");
        let script = argv.first().map_or("", String::as_str);
        let parent = script.rsplit_once('/').map_or("", |(parent, _)| parent);
        let install = match requirements {
            [] => String::new(),
            needed => format!("import belljar\nbelljar.install(*{})\n", json!(needed)),
        };
        let (argv, root, beside) =
            (json!(argv), json!(root), json!(format!("{SKILLS_ROOT}/{skill}/{parent}")));
        format!(
            "{install}import os, runpy, sys\n\
             _argv, _path, _directory = sys.argv, list(sys.path), os.getcwd()\n\
             try:\n    \
                 os.chdir({root})\n    \
                 sys.argv = {argv}\n    \
                 sys.path.insert(0, {beside})\n    \
                 runpy.run_path(sys.argv[0], run_name=\"__main__\")\n\
             finally:\n    \
                 sys.argv, sys.path[:] = _argv, _path\n    \
                 os.chdir(_directory)\n"
        )
    }
}

/// The instructions of a skill, with its files and scripts.
fn text_of(skill: &Skill) -> Result<String, String> {
    let mut body = skill.body().map_err(|problem| problem.to_string())?;
    let name = &skill.summary.name;
    let files = file_list(skill);
    if !files.is_empty() {
        body.push_str(&format!(
            "\n\nFiles for `path` of {LOAD} with `name` {name}, which code finds in \
             {SKILLS_ROOT}/{name}: {files}\n"
        ));
    }
    let scripts = scripts(skill);
    if !scripts.is_empty() {
        body.push_str(&format!("\n\nScripts for {RUN_SCRIPT}: {}\n", scripts.join(", ")));
    }
    Ok(body)
}

fn scripts(skill: &Skill) -> Vec<String> {
    let files = skill.files().map(|listing| listing.files).unwrap_or_default();
    let is_script = |path: &&String| path.starts_with("scripts/") && path.ends_with(".py");
    files.keys().filter(is_script).cloned().collect()
}

/// The files of a skill other than its instructions.
fn file_names(skill: &Skill) -> Vec<String> {
    let files = skill.files().map(|listing| listing.files).unwrap_or_default();
    files.into_keys().filter(|path| path != INSTRUCTIONS).collect()
}

/// Lists the files of a skill other than its instructions, for a model.
fn file_list(skill: &Skill) -> String {
    let mut paths = file_names(skill);
    let more = paths.len().saturating_sub(NAMED_MAX);
    paths.truncate(NAMED_MAX);
    paths.extend((more > 0).then(|| format!("and {more} more")));
    paths.join(", ")
}

/// Reads a file as text, or returns why that is not possible.
fn read_text(skill: &Skill, path: &str) -> Result<String, String> {
    let listing = skill.files().map_err(|error| error.to_string())?;
    let Some(size) = listing.files.get(path) else {
        return Err(format!(
            "There is no file {path:?} in it. Its files are: {}.",
            file_list(skill)
        ));
    };
    if *size > FILE_BYTES_MAX {
        return Err(format!(
            "{path} has {size} bytes, and at most {FILE_BYTES_MAX} can be read: use it in a script."
        ));
    }
    let bytes = skill.read(path).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| format!("{path} is not text: use it in a script."))
}

fn load_skill_tool(skills: &[AgentSkill]) -> ToolDefinition {
    let names: Vec<&str> = skills.iter().map(|skill| &*skill.skill.summary.name).collect();
    ToolDefinition {
        name: LOAD.to_owned(),
        description: "Load a skill: its instructions, and which files and scripts it has. With \
                      `path`, load one of its files instead."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "enum": names},
                "path": {"type": "string", "description": "A file of the skill, such as references/terms.md."},
            },
            "required": ["name"],
            "additionalProperties": false,
        }),
    }
}

fn run_script_tool() -> ToolDefinition {
    ToolDefinition {
        name: RUN_SCRIPT.to_owned(),
        description: "Run a script of a skill in the session of this conversation. It starts in the \
                      directory of the skill, which is read-only: name files with their whole paths, \
                      such as /workspace/totals.json.".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "skill": {"type": "string"},
                "script": {"type": "string", "description": "Its path in the skill, such as scripts/make.py."},
                "arguments": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["skill", "script"],
            "additionalProperties": false,
        }),
    }
}
