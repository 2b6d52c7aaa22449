//! Finds skills by name or by the path of a directory.

use crate::cli::{CliError, terminal};
use skill::{Skill, SkillContents};
use std::path::{Path, PathBuf};

/// Where the agents of a project look for skills.
pub(super) const INSTALL_DIRECTORY: &str = ".claude/skills";

/// A skill and its location.
#[derive(Debug)]
pub(super) struct FoundSkill {
    pub(super) skill: Skill,
    pub(super) location: String,
}

/// Finds a skill. Text with a slash is a directory. A name refers to a skill of the project, or
/// else to a built-in one, because a changed copy takes precedence.
pub(super) fn find_skill(said: &str) -> Result<FoundSkill, CliError> {
    if is_path(said) {
        return open_folder(Path::new(said));
    }
    let installed = Path::new(INSTALL_DIRECTORY).join(said);
    if installed.is_dir() { open_folder(&installed) } else { built_in(said) }
}

/// A skill that is to be installed, so never one that is.
pub(super) fn find_original(said: &str) -> Result<FoundSkill, CliError> {
    if is_path(said) { open_folder(Path::new(said)) } else { built_in(said) }
}

fn is_path(said: &str) -> bool {
    said.contains('/') || said == "." || said == ".."
}

pub(super) fn built_in(name: &str) -> Result<FoundSkill, CliError> {
    let unknown = || {
        let names = Skill::built_in_names().collect::<Vec<_>>().join(", ");
        CliError::usage(format!(
            "there is no skill {name:?}; these ship with Belljar: {names}; a folder is said with a \
             slash, as in ./{name}"
        ))
    };
    let skill = Skill::built_in(name).ok_or_else(unknown)?;
    Ok(FoundSkill { skill, location: "built in".to_owned() })
}

fn open_folder(path: &Path) -> Result<FoundSkill, CliError> {
    let place = path.display().to_string();
    let skill =
        Skill::open(path).map_err(|problem| CliError::rejected(format!("{place}: {problem}")))?;
    let found = FoundSkill { skill, location: place };
    found.print_warnings();
    Ok(found)
}

impl FoundSkill {
    /// Returns all files, and a line for each entry that is not a file.
    pub(super) fn contents(&self) -> Result<SkillContents, CliError> {
        let contents = self.skill.contents();
        let contents =
            contents.map_err(|error| CliError::rejected(format!("{}: {error}", self.location)))?;
        for (path, reason) in &contents.skipped {
            let line = format!("belljar: left out {path}: {reason}");
            eprintln!("{}", terminal::for_stderr(&line));
        }
        Ok(contents)
    }

    pub(super) fn print_warnings(&self) {
        for problem in &self.skill.warnings {
            let line = format!("belljar: warning: {}: {problem}", self.location);
            eprintln!("{}", terminal::for_stderr(&line.replace('\n', " ")));
        }
    }
}

/// The folders of the project that may be skills, in order.
pub(super) fn installed_folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(INSTALL_DIRECTORY).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}
