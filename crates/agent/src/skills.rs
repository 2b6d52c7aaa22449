//! The skills of an agent, disclosed progressively: the prompt has their names, loading one returns
//! its instructions, its files are read on demand, and a script run copies all of its files.

use crate::model::ToolDefinition;
use crate::prompts;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use service::FileInput;
use skill::Skill;
use std::path::Path;
use types::{Error, ErrorCode};

pub(crate) const LOAD: &str = "load_skill";
pub(crate) const RUN_SCRIPT: &str = "run_skill_script";
/// The instructions have their own file, which is what loading returns.
const INSTRUCTIONS: &str = "SKILL.md";
/// Limit of one file, which a model reads as a whole: a long chapter.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Limit of the file names that a model sees.
const NAMED_MAX: usize = 100;
/// Directory for skill files in the working directory.
const FOLDER: &str = "skills";

#[derive(Debug, Default)]
pub(crate) struct Skills(Vec<Skill>);

impl Skills {
    /// Loads all skills. A skill with scripts requires an agent that may run code.
    pub(crate) fn load_all(
        names: &[String],
        folder: Option<&Path>,
        runs_code: bool,
    ) -> Result<Self, Error> {
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            let skill = find_skill(name, folder).ok_or_else(|| skill_not_found(name))?;
            if !runs_code && !scripts(&skill).is_empty() {
                let message = format!(
                    "the skill {name:?} has scripts, and to use it you must enable the code \
                     execution tool"
                );
                return Err(Error::new(ErrorCode::ToolUnavailable, message).hint(
                    "enable code_execution in both `tools` and `tool_resources` of the \
                           specification",
                ));
            }
            found.push(skill);
        }
        Ok(Self(found))
    }

    /// What the first skill is for.
    pub(crate) fn into_description(self) -> Option<String> {
        self.0.into_iter().next().map(|skill| skill.summary.description)
    }

    /// The part of the system prompt that lists the skills.
    pub(crate) fn prompt(&self) -> Option<String> {
        let line =
            |skill: &Skill| format!("- {}: {}", skill.summary.name, skill.summary.description);
        let lines: Vec<String> = self.0.iter().map(line).collect();
        (!lines.is_empty()).then(|| prompts::fill(prompts::SKILLS, "skills", &lines.join("\n")))
    }

    pub(crate) fn tool_definitions(&self) -> Vec<ToolDefinition> {
        let mut offers = Vec::new();
        if !self.0.is_empty() {
            offers.push(load_skill_tool(&self.0));
        }
        if self.0.iter().any(|skill| !scripts(skill).is_empty()) {
            offers.push(run_script_tool());
        }
        offers
    }

    fn get(&self, name: &str) -> Result<&Skill, String> {
        self.0.iter().find(|skill| skill.summary.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|skill| &*skill.summary.name).collect();
            format!("There is no skill {name:?}. The skills are: {}.", names.join(", "))
        })
    }

    /// Returns the instructions of a skill with its files and scripts, or one of its files.
    pub(crate) fn load_skill(&self, arguments: &Value) -> Result<String, String> {
        let name = arguments["name"].as_str().ok_or("`name` is the name of a skill.")?;
        let skill = self.get(name)?;
        if !arguments["path"].is_null() {
            let path = arguments["path"].as_str().ok_or("`path` is the path of a file.")?;
            return read_text(skill, path);
        }
        let mut body = skill.body().map_err(|problem| problem.to_string())?;
        let files = file_list(skill);
        if !files.is_empty() {
            body.push_str(&format!("\n\nFiles for `path` of {LOAD}: {files}\n"));
        }
        let scripts = scripts(skill);
        if !scripts.is_empty() {
            body.push_str(&format!("\n\nScripts for {RUN_SCRIPT}: {}\n", scripts.join(", ")));
        }
        Ok(body)
    }

    /// The code that runs a script in the session of the conversation, and the files that it needs
    /// there.
    pub(crate) fn script_code(
        &self,
        arguments: &Value,
    ) -> Result<(String, Vec<FileInput>), String> {
        let name = arguments["skill"].as_str().ok_or("`skill` is the name of a skill.")?;
        let skill = self.get(name)?;
        let script = arguments["script"].as_str().ok_or("`script` is the path of a script.")?;
        let known = scripts(skill);
        if !known.iter().any(|known| known == script) {
            return Err(format!("There is no such script. The scripts are: {}.", known.join(", ")));
        }
        let mut argv = vec![format!("{FOLDER}/{name}/{script}")];
        for argument in arguments["arguments"].as_array().into_iter().flatten() {
            argv.push(argument.as_str().map_or_else(|| argument.to_string(), str::to_owned));
        }
        Ok((run_path(&argv), files(skill).map_err(|error| error.to_string())?))
    }
}

/// Finds a built-in skill or one of the operator's.
fn find_skill(name: &str, folder: Option<&Path>) -> Option<Skill> {
    let is_name = !name.is_empty() && !name.contains(['/', '\\', '\0']) && !name.starts_with('.');
    Skill::built_in(name).or_else(|| {
        let folder = folder.filter(|_| is_name)?;
        Skill::open(&folder.join(name)).ok()
    })
}

/// Code that does what `python3 SCRIPT ARGS` does, in the running interpreter.
fn run_path(argv: &[String]) -> String {
    let argv = json!(argv);
    format!(
        "import os, runpy, sys\n\
         _argv, _path = sys.argv, list(sys.path)\n\
         try:\n    \
             sys.argv = {argv}\n    \
             sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))\n    \
             runpy.run_path(sys.argv[0], run_name=\"__main__\")\n\
         finally:\n    \
             sys.argv, sys.path[:] = _argv, _path\n"
    )
}

fn scripts(skill: &Skill) -> Vec<String> {
    let files = skill.files().map(|listing| listing.files).unwrap_or_default();
    let is_script = |path: &&String| path.starts_with("scripts/") && path.ends_with(".py");
    files.keys().filter(is_script).cloned().collect()
}

/// Lists the files of a skill other than its instructions, for a model.
fn file_list(skill: &Skill) -> String {
    let files = skill.files().map(|listing| listing.files).unwrap_or_default();
    let mut paths: Vec<String> = files.into_keys().filter(|path| path != INSTRUCTIONS).collect();
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

fn files(skill: &Skill) -> Result<Vec<FileInput>, skill::FolderError> {
    let name = &skill.summary.name;
    let paths = skill.files()?.files.into_keys();
    paths
        .map(|path| {
            let base64 = Some(STANDARD.encode(skill.read(&path)?));
            let name = Some(format!("{FOLDER}/{name}/{path}"));
            Ok(FileInput { name, base64, ..FileInput::default() })
        })
        .collect()
}

fn load_skill_tool(skills: &[Skill]) -> ToolDefinition {
    let names: Vec<&str> = skills.iter().map(|skill| &*skill.summary.name).collect();
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
        description: "Run a script of a skill, in the session of this conversation.".to_owned(),
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

fn skill_not_found(name: &str) -> Error {
    let known: Vec<&str> = Skill::built_in_names().collect();
    Error::new(ErrorCode::ObjectNotFound, format!("skill {name:?} not found"))
        .hint(format!("the skills are {}", known.join(", ")))
}
