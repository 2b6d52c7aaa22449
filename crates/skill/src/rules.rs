//! The rules of the format for the fields of a skill. Each violation is an error; the caller
//! decides what follows from it.

use crate::error::SkillError;
use crate::frontmatter::{FrontmatterFields, YamlNode};
use unicode_normalization::UnicodeNormalization;

pub(crate) const NAME_CHARS_MAX: usize = 64;
pub(crate) const DESCRIPTION_CHARS_MAX: usize = 1024;
pub(crate) const COMPATIBILITY_CHARS_MAX: usize = 500;
const FIELDS: [&str; 6] =
    ["allowed-tools", "compatibility", "description", "license", "metadata", "name"];

/// The list as the reference validator prints it.
pub(crate) fn allowed_fields() -> String {
    format!("['{}']", FIELDS.join("', '"))
}

/// All violations, in the order in which the reference validator reports them.
pub(crate) fn check(fields: &FrontmatterFields, directory: &str) -> Vec<SkillError> {
    let mut problems = Vec::new();
    let unexpected: Vec<String> =
        fields.keys().filter(|field| !FIELDS.contains(&field.as_str())).cloned().collect();
    if !unexpected.is_empty() {
        problems.push(SkillError::UnexpectedFields(unexpected));
    }
    match required_text(fields, "name") {
        Ok(name) => check_name(&normalize_name(name.trim()), directory, &mut problems),
        Err(problem) => problems.push(problem),
    }
    match required_text(fields, "description").map(char_count) {
        Ok(chars) if chars > DESCRIPTION_CHARS_MAX => {
            problems.push(SkillError::DescriptionTooLong(chars));
        }
        Ok(_) => {}
        Err(problem) => problems.push(problem),
    }
    check_optional(fields, &mut problems);
    problems
}

/// The text of a required field.
pub(crate) fn required_text<'a>(
    fields: &'a FrontmatterFields,
    name: &'static str,
) -> Result<&'a str, SkillError> {
    match fields.get(name) {
        None => Err(SkillError::MissingField(name)),
        Some(YamlNode::Text(text)) if !text.trim().is_empty() => Ok(text),
        Some(_) => Err(SkillError::EmptyField(name)),
    }
}

/// The names in `allowed-tools`, which are separated by spaces.
pub(crate) fn tools(fields: &FrontmatterFields) -> Vec<String> {
    match fields.get("allowed-tools") {
        Some(YamlNode::Text(text)) => text.split_whitespace().map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Whether `metadata` has `load: always`.
pub(crate) fn is_always_loaded(fields: &FrontmatterFields) -> bool {
    match fields.get("metadata") {
        Some(YamlNode::Mapping(metadata)) => {
            metadata.get("load") == Some(&YamlNode::Text("always".to_owned()))
        }
        _ => false,
    }
}

fn check_name(name: &str, directory: &str, problems: &mut Vec<SkillError>) {
    if char_count(name) > NAME_CHARS_MAX {
        problems.push(SkillError::NameTooLong { name: name.into(), chars: char_count(name) });
    }
    if name != name.to_lowercase() {
        problems.push(SkillError::NameNotLowercase(name.into()));
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push(SkillError::NameEdgeHyphen);
    }
    if name.contains("--") {
        problems.push(SkillError::NameDoubleHyphen);
    }
    if !name.chars().all(|c| c.is_alphanumeric() || c == '-') {
        problems.push(SkillError::NameCharacters(name.into()));
    }
    if normalize_name(directory) != name {
        let directory = directory.to_owned();
        problems.push(SkillError::DirectoryNameMismatch { directory, name: name.into() });
    }
}

fn check_optional(fields: &FrontmatterFields, problems: &mut Vec<SkillError>) {
    if let Some(YamlNode::Text(text)) = fields.get("compatibility")
        && char_count(text) > COMPATIBILITY_CHARS_MAX
    {
        problems.push(SkillError::CompatibilityTooLong(char_count(text)));
    }
    for name in ["compatibility", "license", "allowed-tools"] {
        if matches!(fields.get(name), Some(YamlNode::List | YamlNode::Mapping(_))) {
            problems.push(SkillError::NotText(name));
        }
    }
    let strings = |values: &FrontmatterFields| {
        values.values().all(|value| matches!(value, YamlNode::Text(_)))
    };
    match fields.get("metadata") {
        None => {}
        Some(YamlNode::Mapping(values)) if strings(values) => {}
        Some(_) => problems.push(SkillError::NotStrings),
    }
}

/// Unicode normalization for comparing names: `ﬁle` and `file` look the same and are equal.
fn normalize_name(name: &str) -> String {
    name.nfkc().collect()
}

fn char_count(text: &str) -> usize {
    text.chars().count()
}
