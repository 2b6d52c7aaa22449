//! Errors of a skill, in the words of the format's reference validator where it has any: people
//! search for them, and programs compare them. That is why they begin with a capital letter.

use crate::folder::FolderError;
use crate::frontmatter::YAML_BYTES_MAX;
use crate::rules::{
    COMPATIBILITY_CHARS_MAX, DESCRIPTION_CHARS_MAX, NAME_CHARS_MAX, allowed_fields,
};

#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    #[error("Missing required file: SKILL.md")]
    NoSkillFile,
    #[error("SKILL.md must start with YAML frontmatter (---)")]
    NoFrontmatter,
    #[error("SKILL.md frontmatter not properly closed with ---")]
    UnclosedFrontmatter,
    #[error("SKILL.md is not valid UTF-8 (byte {0})")]
    NotUtf8(usize),
    #[error("SKILL.md has {0} bytes of frontmatter; at most {YAML_BYTES_MAX} are allowed")]
    FrontmatterTooLarge(usize),
    #[error("Invalid YAML in frontmatter: {0}")]
    Yaml(Box<serde_saphyr::Error>),
    #[error("SKILL.md frontmatter must be a YAML mapping")]
    NotAMapping,
    #[error("{0}")]
    Folder(#[from] FolderError),

    #[error("Unexpected fields in frontmatter: {}. Only {} are allowed.", .0.join(", "), allowed_fields())]
    UnexpectedFields(Vec<String>),
    #[error("Missing required field in frontmatter: {0}")]
    MissingField(&'static str),
    #[error("Field '{0}' must be a non-empty string")]
    EmptyField(&'static str),
    #[error("Field '{0}' must be a string")]
    NotText(&'static str),
    #[error("Field 'metadata' must be a mapping of strings to strings")]
    NotStrings,

    #[error("Skill name '{name}' exceeds {NAME_CHARS_MAX} character limit ({chars} chars)")]
    NameTooLong { name: String, chars: usize },
    #[error("Skill name '{0}' must be lowercase")]
    NameNotLowercase(String),
    #[error("Skill name cannot start or end with a hyphen")]
    NameEdgeHyphen,
    #[error("Skill name cannot contain consecutive hyphens")]
    NameDoubleHyphen,
    #[error(
        "Skill name '{0}' contains invalid characters. Only letters, digits, and hyphens are allowed."
    )]
    NameCharacters(String),
    #[error("Directory name '{directory}' must match skill name '{name}'")]
    DirectoryNameMismatch { directory: String, name: String },
    #[error("Description exceeds {DESCRIPTION_CHARS_MAX} character limit ({0} chars)")]
    DescriptionTooLong(usize),
    #[error("Compatibility exceeds {COMPATIBILITY_CHARS_MAX} character limit ({0} chars)")]
    CompatibilityTooLong(usize),
}

impl SkillError {
    /// Whether a skill with this error is unusable: an agent has nothing to select it by.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(self, Self::MissingField("description") | Self::EmptyField("description"))
    }
}
