//! Promises to authors of skills, to users of skills that others wrote, and against hostile skills.

#![allow(clippy::unwrap_used, reason = "a helper that cannot set up a test has to fail it")]

mod authors;
mod hostile;
mod users;

use belljar_skill::{Skill, SkillError, validate};
use std::path::Path;
use tempfile::TempDir;

/// A folder of that name with these files, below a directory of its own.
struct World {
    directory: TempDir,
    name: String,
}

impl World {
    fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
        let world = Self { directory: tempfile::tempdir().unwrap(), name: name.to_owned() };
        std::fs::create_dir(world.path()).unwrap();
        for (path, content) in files {
            let path = world.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        world
    }

    /// With a `SKILL.md` and nothing else.
    fn skill(name: &str, text: &str) -> Self {
        Self::new(name, &[("SKILL.md", text.as_bytes())])
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join(&self.name)
    }

    fn problems(&self) -> Vec<String> {
        texts(&validate(&self.path()))
    }

    fn open(&self) -> Result<Skill, SkillError> {
        Skill::open(&self.path())
    }
}

fn texts(problems: &[SkillError]) -> Vec<String> {
    problems.iter().map(SkillError::to_string).collect()
}

/// The folders of this repository.
fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../skills"))
}
