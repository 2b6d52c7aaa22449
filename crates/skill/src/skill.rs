//! One skill: what an agent is told of it, and the way to the rest.

use crate::built_in::{BUILT_IN, Files};
use crate::folder::{Folder, FolderError, Listing, TOTAL_BYTES_MAX};
use crate::frontmatter::{Fields, Parts};
use crate::problem::Problem;
use crate::rules;
use std::collections::BTreeMap;
use std::path::Path;

/// Twenty times the length that the format advises. An agent reads all of it.
pub const SKILL_BYTES_MAX: u64 = 1024 * 1024;
/// The second is taken as well, since file systems and people differ about capitals.
const SKILL_FILES: [&str; 2] = ["SKILL.md", "skill.md"];

/// What an agent is told of every skill, so that it can choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub description: String,
}

/// The files of a skill by their paths, and what is none of them with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    pub files: BTreeMap<String, Vec<u8>>,
    pub skipped: BTreeMap<String, &'static str>,
}

/// A skill that can be used.
#[derive(Debug)]
pub struct Skill {
    pub entry: Entry,
    /// What its author should mend, and what does not keep anybody from using it.
    pub warnings: Vec<Problem>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Folder(Folder),
    BuiltIn { name: &'static str, files: Files },
}

/// Everything that is wrong with the skill in a folder, as strictly as its format has it.
pub fn validate(path: &Path) -> Vec<Problem> {
    let read = Folder::open(path).map_err(Problem::from).and_then(|folder| {
        let source = Source::Folder(folder);
        Ok((source.fields()?, source))
    });
    match read {
        Ok((fields, source)) => rules::check(&fields, source.name()),
        Err(problem) => vec![problem],
    }
}

impl Skill {
    /// The skill of a folder, although it may break rules: without a description, or with a
    /// frontmatter that cannot be read, there is none.
    pub fn open(path: &Path) -> Result<Self, Problem> {
        Self::load(Source::Folder(Folder::open(path)?))
    }

    /// A skill that is in the program.
    pub fn built_in(name: &str) -> Option<Self> {
        let (name, files) = BUILT_IN.into_iter().find(|(known, _)| *known == name)?;
        Self::load(Source::BuiltIn { name, files }).ok()
    }

    /// The names of the skills that are in the program.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    fn load(source: Source) -> Result<Self, Problem> {
        let fields = source.fields()?;
        let problems = rules::check(&fields, source.name());
        let (fatal, warnings): (Vec<_>, Vec<_>) =
            problems.into_iter().partition(Problem::leaves_no_description);
        if let Some(problem) = fatal.into_iter().next() {
            return Err(problem);
        }
        let name = rules::required(&fields, "name").unwrap_or(source.name());
        let description = rules::required(&fields, "description")?;
        let entry = Entry { name: name.trim().into(), description: description.trim().into() };
        Ok(Self { entry, warnings, source })
    }

    /// The instructions, for an agent that uses the skill.
    pub fn body(&self) -> Result<String, Problem> {
        Ok(Parts::of(&self.source.text()?)?.body.to_owned())
    }

    /// The paths and sizes of everything that belongs to it.
    pub fn files(&self) -> Result<Listing, FolderError> {
        self.source.list()
    }

    /// All of them, for somebody who takes the skill elsewhere, and what is left behind.
    pub fn contents(&self) -> Result<Contents, FolderError> {
        let Listing { files, skipped } = self.files()?;
        let mut left = TOTAL_BYTES_MAX;
        let mut read = BTreeMap::new();
        for path in files.into_keys() {
            let content = self.source.read(&path, left).map_err(|error| match error {
                // It has grown since it was listed.
                FolderError::TooLarge { .. } => FolderError::TooMuch,
                error => error,
            })?;
            left -= content.len() as u64;
            read.insert(path, content);
        }
        Ok(Contents { files: read, skipped })
    }

    /// A file by its path from the root of the skill.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, FolderError> {
        self.source.read(path, TOTAL_BYTES_MAX)
    }
}

impl Source {
    fn name(&self) -> &str {
        match self {
            Self::Folder(folder) => &folder.name,
            Self::BuiltIn { name, .. } => name,
        }
    }

    fn fields(&self) -> Result<Fields, Problem> {
        Parts::of(&self.text()?)?.fields()
    }

    /// Of the file that makes a folder a skill.
    fn text(&self) -> Result<String, Problem> {
        let mut read = Err(Problem::NoSkillFile);
        for name in SKILL_FILES {
            match self.read(name, SKILL_BYTES_MAX) {
                Err(FolderError::NotFound(_)) => {}
                found => {
                    read = found.map_err(Problem::from);
                    break;
                }
            }
        }
        String::from_utf8(read?).map_err(|error| Problem::NotUtf8(error.utf8_error().valid_up_to()))
    }

    fn read(&self, path: &str, most: u64) -> Result<Vec<u8>, FolderError> {
        match self {
            Self::Folder(folder) => folder.read(path, most),
            Self::BuiltIn { files, .. } => {
                let found = files.iter().find(|(known, _)| *known == path);
                let (_, content) = found.ok_or_else(|| FolderError::NotFound(path.to_owned()))?;
                Ok(content.to_vec())
            }
        }
    }

    fn list(&self) -> Result<Listing, FolderError> {
        match self {
            Self::Folder(folder) => folder.list(),
            Self::BuiltIn { files, .. } => {
                let files =
                    files.iter().map(|(path, content)| ((*path).to_owned(), content.len() as u64));
                Ok(Listing { files: files.collect(), ..Listing::default() })
            }
        }
    }
}
