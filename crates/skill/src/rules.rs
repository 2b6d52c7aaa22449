//! The rules for the fields of a skill, as its format has them. Each broken one is a problem; what
//! becomes of it is decided by whoever asked.

use crate::frontmatter::{Fields, Node};
use crate::problem::Problem;
use unicode_normalization::UnicodeNormalization;

pub(crate) const NAME_CHARS_MAX: usize = 64;
pub(crate) const DESCRIPTION_CHARS_MAX: usize = 1024;
pub(crate) const COMPATIBILITY_CHARS_MAX: usize = 500;
const FIELDS: [&str; 6] =
    ["allowed-tools", "compatibility", "description", "license", "metadata", "name"];

/// As the reference validator prints its list.
pub(crate) fn allowed_fields() -> String {
    format!("['{}']", FIELDS.join("', '"))
}

/// Everything that is wrong, in the order in which the reference validator finds it.
pub(crate) fn check(fields: &Fields, directory: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let unexpected: Vec<String> =
        fields.keys().filter(|field| !FIELDS.contains(&field.as_str())).cloned().collect();
    if !unexpected.is_empty() {
        problems.push(Problem::UnexpectedFields(unexpected));
    }
    match required(fields, "name") {
        Ok(name) => check_name(&normal(name.trim()), directory, &mut problems),
        Err(problem) => problems.push(problem),
    }
    match required(fields, "description").map(chars) {
        Ok(chars) if chars > DESCRIPTION_CHARS_MAX => {
            problems.push(Problem::DescriptionTooLong(chars));
        }
        Ok(_) => {}
        Err(problem) => problems.push(problem),
    }
    check_optional(fields, &mut problems);
    problems
}

/// The text of a field that must have one.
pub(crate) fn required<'a>(fields: &'a Fields, name: &'static str) -> Result<&'a str, Problem> {
    match fields.get(name) {
        None => Err(Problem::MissingField(name)),
        Some(Node::Text(text)) if !text.trim().is_empty() => Ok(text),
        Some(_) => Err(Problem::EmptyField(name)),
    }
}

fn check_name(name: &str, directory: &str, problems: &mut Vec<Problem>) {
    if chars(name) > NAME_CHARS_MAX {
        problems.push(Problem::NameTooLong { name: name.into(), chars: chars(name) });
    }
    if name != name.to_lowercase() {
        problems.push(Problem::NameNotLowercase(name.into()));
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push(Problem::NameEdgeHyphen);
    }
    if name.contains("--") {
        problems.push(Problem::NameDoubleHyphen);
    }
    if !name.chars().all(|c| c.is_alphanumeric() || c == '-') {
        problems.push(Problem::NameCharacters(name.into()));
    }
    if normal(directory) != name {
        let directory = directory.to_owned();
        problems.push(Problem::OtherDirectory { directory, name: name.into() });
    }
}

fn check_optional(fields: &Fields, problems: &mut Vec<Problem>) {
    if let Some(Node::Text(text)) = fields.get("compatibility")
        && chars(text) > COMPATIBILITY_CHARS_MAX
    {
        problems.push(Problem::CompatibilityTooLong(chars(text)));
    }
    for name in ["compatibility", "license", "allowed-tools"] {
        if matches!(fields.get(name), Some(Node::List | Node::Mapping(_))) {
            problems.push(Problem::NotText(name));
        }
    }
    let strings = |values: &Fields| values.values().all(|value| matches!(value, Node::Text(_)));
    match fields.get("metadata") {
        None => {}
        Some(Node::Mapping(values)) if strings(values) => {}
        Some(_) => problems.push(Problem::NotStrings),
    }
}

/// The form in which names are compared: `ﬁle` and `file` look the same, and are.
fn normal(name: &str) -> String {
    name.nfkc().collect()
}

fn chars(text: &str) -> usize {
    text.chars().count()
}
