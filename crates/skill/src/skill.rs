//! One skill: what an agent is told of it, and the way to the rest.

use crate::built_in::{BUILT_IN, BuiltInFiles};
use crate::error::SkillError;
use crate::folder::{FolderError, SkillFolder, SkillListing, TOTAL_BYTES_MAX};
use crate::frontmatter::{FrontmatterFields, SkillDocument};
use crate::rules;
use std::collections::BTreeMap;
use std::path::Path;

/// Twenty times the length that the format advises. An agent reads all of it.
pub const SKILL_BYTES_MAX: u64 = 1024 * 1024;
/// The second is taken as well, since file systems and people differ about capitals.
const SKILL_FILES: [&str; 2] = ["SKILL.md", "skill.md"];

/// What an agent is told of every skill, so that it can choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillSummary {
    pub name: String,
    pub description: String,
}

/// The files of a skill by their paths, and what is none of them with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillContents {
    pub files: BTreeMap<String, Vec<u8>>,
    pub skipped: BTreeMap<String, &'static str>,
}

/// A skill that can be used.
#[derive(Debug)]
pub struct Skill {
    pub summary: SkillSummary,
    /// What its author should mend, and what does not keep anybody from using it.
    pub warnings: Vec<SkillError>,
    source: SkillSource,
}

#[derive(Debug)]
enum SkillSource {
    Folder(SkillFolder),
    BuiltIn { name: &'static str, files: BuiltInFiles },
}

/// Everything that is wrong with the skill in a folder, as strictly as its format has it.
pub fn validate(path: &Path) -> Vec<SkillError> {
    let read = SkillFolder::open(path).map_err(SkillError::from).and_then(|folder| {
        let source = SkillSource::Folder(folder);
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
    pub fn open(path: &Path) -> Result<Self, SkillError> {
        Self::load(SkillSource::Folder(SkillFolder::open(path)?))
    }

    /// A skill that is in the program.
    pub fn built_in(name: &str) -> Option<Self> {
        let (name, files) = BUILT_IN.into_iter().find(|(known, _)| *known == name)?;
        Self::load(SkillSource::BuiltIn { name, files }).ok()
    }

    /// The names of the skills that are in the program.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    fn load(source: SkillSource) -> Result<Self, SkillError> {
        let fields = source.fields()?;
        let problems = rules::check(&fields, source.name());
        let (fatal, warnings): (Vec<_>, Vec<_>) =
            problems.into_iter().partition(SkillError::is_fatal);
        if let Some(problem) = fatal.into_iter().next() {
            return Err(problem);
        }
        let name = rules::required_text(&fields, "name").unwrap_or(source.name());
        let description = rules::required_text(&fields, "description")?;
        let entry =
            SkillSummary { name: name.trim().into(), description: description.trim().into() };
        Ok(Self { summary: entry, warnings, source })
    }

    /// The instructions, for an agent that uses the skill.
    pub fn body(&self) -> Result<String, SkillError> {
        Ok(SkillDocument::split(&self.source.skill_file_text()?)?.body.to_owned())
    }

    /// The paths and sizes of everything that belongs to it.
    pub fn files(&self) -> Result<SkillListing, FolderError> {
        self.source.list()
    }

    /// All of them, for somebody who takes the skill elsewhere, and what is left behind.
    pub fn contents(&self) -> Result<SkillContents, FolderError> {
        let SkillListing { files, skipped } = self.files()?;
        let mut left = TOTAL_BYTES_MAX;
        let mut read = BTreeMap::new();
        for path in files.into_keys() {
            let content = self.source.read(&path, left).map_err(|error| match error {
                // It has grown since it was listed.
                FolderError::TooLarge { .. } => FolderError::TotalTooLarge,
                error => error,
            })?;
            left -= content.len() as u64;
            read.insert(path, content);
        }
        Ok(SkillContents { files: read, skipped })
    }

    /// A file by its path from the root of the skill.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, FolderError> {
        self.source.read(path, TOTAL_BYTES_MAX)
    }
}

impl SkillSource {
    fn name(&self) -> &str {
        match self {
            Self::Folder(folder) => &folder.name,
            Self::BuiltIn { name, .. } => name,
        }
    }

    fn fields(&self) -> Result<FrontmatterFields, SkillError> {
        SkillDocument::split(&self.skill_file_text()?)?.fields()
    }

    /// Of the file that makes a folder a skill.
    fn skill_file_text(&self) -> Result<String, SkillError> {
        let mut read = Err(SkillError::NoSkillFile);
        for name in SKILL_FILES {
            match self.read(name, SKILL_BYTES_MAX) {
                Err(FolderError::NotFound(_)) => {}
                found => {
                    read = found.map_err(SkillError::from);
                    break;
                }
            }
        }
        String::from_utf8(read?)
            .map_err(|error| SkillError::NotUtf8(error.utf8_error().valid_up_to()))
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

    fn list(&self) -> Result<SkillListing, FolderError> {
        match self {
            Self::Folder(folder) => folder.list(),
            Self::BuiltIn { files, .. } => {
                let files =
                    files.iter().map(|(path, content)| ((*path).to_owned(), content.len() as u64));
                Ok(SkillListing { files: files.collect(), ..SkillListing::default() })
            }
        }
    }
}
