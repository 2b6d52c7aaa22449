//! One skill: its summary, its instructions and its files.

use crate::built_in::{BUILT_IN, BuiltInFiles};
use crate::error::SkillError;
use crate::folder::{FolderError, SkillFolder, SkillListing, TOTAL_BYTES_MAX};
use crate::frontmatter::{FrontmatterFields, SkillDocument};
use crate::rules;
use crate::upload::SkillFiles;
use std::collections::BTreeMap;
use std::path::Path;

/// Twenty times the length that the format recommends. An agent reads all of it.
pub const SKILL_BYTES_MAX: u64 = 1024 * 1024;
/// The second is accepted too, since some file systems and authors ignore case.
const SKILL_FILES: [&str; 2] = ["SKILL.md", "skill.md"];

/// The summary that an agent sees of every skill, to select one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillSummary {
    pub name: String,
    pub description: String,
}

/// The files of a skill by path, and skipped entries with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillContents {
    pub files: BTreeMap<String, Vec<u8>>,
    pub skipped: BTreeMap<String, &'static str>,
}

/// A usable skill.
#[derive(Debug)]
pub struct Skill {
    pub summary: SkillSummary,
    /// Errors that its author should fix, but that do not prevent its use.
    pub warnings: Vec<SkillError>,
    /// The tools that its instructions need (`allowed-tools`).
    pub tools: Vec<String>,
    /// Whether its instructions belong into those of an agent from the start (`metadata.load:
    /// always`).
    pub always_loaded: bool,
    source: SkillSource,
}

#[derive(Debug)]
pub(crate) enum SkillSource {
    Folder(SkillFolder),
    BuiltIn { name: &'static str, files: BuiltInFiles },
    Uploaded { files: SkillFiles },
}

/// All errors of the skill in a directory, by the strict rules of the format.
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
    /// Opens the skill of a directory even if it breaks rules. Fails without a description or with
    /// an unparsable frontmatter.
    pub fn open(path: &Path) -> Result<Self, SkillError> {
        Self::load(SkillSource::Folder(SkillFolder::open(path)?))
    }

    /// A built-in skill.
    pub fn built_in(name: &str) -> Option<Self> {
        let (name, files) = BUILT_IN.into_iter().find(|(known, _)| *known == name)?;
        Self::load(SkillSource::BuiltIn { name, files }).ok()
    }

    /// The names of the built-in skills.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    pub(crate) fn load(source: SkillSource) -> Result<Self, SkillError> {
        let fields = source.fields()?;
        let problems = match &source {
            SkillSource::Uploaded { .. } => Vec::new(),
            source => rules::check(&fields, source.name()),
        };
        let (fatal, warnings): (Vec<_>, Vec<_>) =
            problems.into_iter().partition(SkillError::is_fatal);
        if let Some(problem) = fatal.into_iter().next() {
            return Err(problem);
        }
        let name = rules::required_text(&fields, "name").unwrap_or(source.name());
        let description = rules::required_text(&fields, "description")?;
        let entry =
            SkillSummary { name: name.trim().into(), description: description.trim().into() };
        let (tools, always_loaded) = (rules::tools(&fields), rules::is_always_loaded(&fields));
        Ok(Self { summary: entry, warnings, tools, always_loaded, source })
    }

    /// The instructions, for an agent that uses the skill.
    pub fn body(&self) -> Result<String, SkillError> {
        Ok(SkillDocument::split(&self.source.skill_file_text()?)?.body.to_owned())
    }

    /// Paths and sizes of its files, and the skipped entries.
    pub fn files(&self) -> Result<SkillListing, FolderError> {
        self.source.list()
    }

    /// The contents of all files, to copy the skill, and the skipped entries.
    pub fn contents(&self) -> Result<SkillContents, FolderError> {
        let SkillListing { files, skipped } = self.files()?;
        let mut left = TOTAL_BYTES_MAX;
        let mut read = BTreeMap::new();
        for path in files.into_keys() {
            let content = self.source.read(&path, left).map_err(|error| match error {
                // A file has grown since it was listed.
                FolderError::TooLarge { .. } => FolderError::TotalTooLarge,
                error => error,
            })?;
            left -= content.len() as u64;
            read.insert(path, content);
        }
        Ok(SkillContents { files: read, skipped })
    }

    /// Reads a file by its path from the root of the skill.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, FolderError> {
        self.source.read(path, TOTAL_BYTES_MAX)
    }
}

impl SkillSource {
    fn name(&self) -> &str {
        match self {
            Self::Folder(folder) => &folder.name,
            Self::BuiltIn { name, .. } => name,
            // It was checked when it was uploaded, and has no directory.
            Self::Uploaded { .. } => "",
        }
    }

    pub(crate) fn fields(&self) -> Result<FrontmatterFields, SkillError> {
        SkillDocument::split(&self.skill_file_text()?)?.fields()
    }

    /// The text of `SKILL.md`.
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
            Self::Uploaded { files } => {
                let content = files.files().get(path);
                content.cloned().ok_or_else(|| FolderError::NotFound(path.to_owned()))
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
            Self::Uploaded { files } => {
                let files = files.files().iter();
                let files = files.map(|(path, content)| (path.clone(), content.len() as u64));
                Ok(SkillListing { files: files.collect(), ..SkillListing::default() })
            }
        }
    }
}
