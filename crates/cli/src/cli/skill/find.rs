//! Finds skills by name or by the path of a directory.

use crate::cli::{CliError, terminal};
use skill::{Skill, SkillContents};
use std::path::{Path, PathBuf};

/// The directories in which the agents of a project look for skills.
pub(super) const INSTALL_DIRECTORY: &str = ".claude/skills";

/// A skill and its location.
#[derive(Debug)]
pub(super) struct FoundSkill {
    pub(super) skill: Skill,
    pub(super) location: String,
}

/// Finds a skill. Text with a slash is a directory. A name refers to a skill of the project, or
/// else to a built-in one, because a changed copy takes precedence.
pub(super) fn find_skill(name_or_path: &str) -> Result<FoundSkill, CliError> {
    if is_path(name_or_path) {
        return open_folder(Path::new(name_or_path));
    }
    let installed = Path::new(INSTALL_DIRECTORY).join(name_or_path);
    if installed.is_dir() { open_folder(&installed) } else { built_in(name_or_path) }
}

/// Finds a skill to install, which is never one that is already installed.
pub(super) fn find_original(name_or_path: &str) -> Result<FoundSkill, CliError> {
    if is_path(name_or_path) {
        open_folder(Path::new(name_or_path))
    } else {
        built_in(name_or_path)
    }
}

fn is_path(name_or_path: &str) -> bool {
    name_or_path.contains('/') || name_or_path == "." || name_or_path == ".."
}

pub(super) fn built_in(name: &str) -> Result<FoundSkill, CliError> {
    let unknown = || {
        let names = Skill::built_in_names().collect::<Vec<_>>().join(", ");
        CliError::usage(format!(
            "unknown skill {name:?}; built-in skills: {names}; for a directory, use a path with a slash, such as ./{name}"
        ))
    };
    let skill = Skill::built_in(name).ok_or_else(unknown)?;
    Ok(FoundSkill { skill, location: "built in".to_owned() })
}

fn open_folder(path: &Path) -> Result<FoundSkill, CliError> {
    let location = path.display().to_string();
    let skill = Skill::open(path)
        .map_err(|problem| CliError::rejected(format!("{location}: {problem}")))?;
    let found = FoundSkill { skill, location };
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
            let line = format!("belljar: skipped {path}: {reason}");
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

/// The directories of the project that may be skills, in order.
pub(super) fn installed_folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(INSTALL_DIRECTORY).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}
