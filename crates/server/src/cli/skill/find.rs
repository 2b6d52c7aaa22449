//! Skills as people say them: by a name, or by the path of a folder.

use crate::cli::{Failure, terminal};
use skill::{Contents, Skill};
use std::path::{Path, PathBuf};

/// Where the agents of a project look for skills.
pub(super) const INSTALLED: &str = ".claude/skills";

/// A skill, and how to say where it is.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) skill: Skill,
    pub(super) place: String,
}

/// What has a slash is a folder. A name is that of a skill of the project, or else of one that
/// ships: whoever has changed a copy means the copy.
pub(super) fn find(said: &str) -> Result<Found, Failure> {
    if is_path(said) {
        return folder(Path::new(said));
    }
    let installed = Path::new(INSTALLED).join(said);
    if installed.is_dir() { folder(&installed) } else { built_in(said) }
}

/// A skill that is to be installed, so never one that is.
pub(super) fn find_original(said: &str) -> Result<Found, Failure> {
    if is_path(said) { folder(Path::new(said)) } else { built_in(said) }
}

fn is_path(said: &str) -> bool {
    said.contains('/') || said == "." || said == ".."
}

pub(super) fn built_in(name: &str) -> Result<Found, Failure> {
    let unknown = || {
        let names = Skill::built_in_names().collect::<Vec<_>>().join(", ");
        Failure::usage(format!(
            "there is no skill {name:?}; these ship with Belljar: {names}; a folder is said with a \
             slash, as in ./{name}"
        ))
    };
    let skill = Skill::built_in(name).ok_or_else(unknown)?;
    Ok(Found { skill, place: "built in".to_owned() })
}

fn folder(path: &Path) -> Result<Found, Failure> {
    let place = path.display().to_string();
    let skill =
        Skill::open(path).map_err(|problem| Failure::refused(format!("{place}: {problem}")))?;
    let found = Found { skill, place };
    found.warn();
    Ok(found)
}

impl Found {
    /// All files, and a line for each thing that is none.
    pub(super) fn contents(&self) -> Result<Contents, Failure> {
        let contents = self.skill.contents();
        let contents =
            contents.map_err(|error| Failure::refused(format!("{}: {error}", self.place)))?;
        for (path, reason) in &contents.skipped {
            let line = format!("belljar: left out {path}: {reason}");
            eprintln!("{}", terminal::for_stderr(&line));
        }
        Ok(contents)
    }

    pub(super) fn warn(&self) {
        for problem in &self.skill.warnings {
            let line = format!("belljar: warning: {}: {problem}", self.place);
            eprintln!("{}", terminal::for_stderr(&line.replace('\n', " ")));
        }
    }
}

/// The folders of the project that may be skills, in order.
pub(super) fn installed() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(INSTALLED).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}
