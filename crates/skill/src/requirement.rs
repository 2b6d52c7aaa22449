//! One dependency of a script, as far as it can be looked up in what is installed.

use pep440_rs::{VersionSpecifiers, VersionSpecifiersParseError};
use std::fmt;
use std::str::FromStr;

/// A distribution, and which versions of it will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Lower-case, with single dashes, as the package index compares names.
    pub name: String,
    pub versions: VersionSpecifiers,
    /// As it was written.
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("`{0}` does not begin with the name of a package")]
    Name(String),
    #[error("`{0}` has extras, a URL or a marker, and only a name and versions can be looked up")]
    Form(String),
    #[error("`{text}`: {source}")]
    Versions { text: String, source: VersionSpecifiersParseError },
}

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, RequirementError> {
        let text = text.trim();
        let of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let (name, rest) = text.split_at(text.find(|c| !of_name(c)).unwrap_or(text.len()));
        let alphanumeric = |c: char| c.is_ascii_alphanumeric();
        if !name.starts_with(alphanumeric) || !name.ends_with(alphanumeric) {
            return Err(RequirementError::Name(text.to_owned()));
        }
        let rest = rest.trim();
        if rest.contains(['[', '@', ';']) {
            return Err(RequirementError::Form(text.to_owned()));
        }
        let versions = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let versions = versions
            .unwrap_or(rest)
            .parse()
            .map_err(|source| RequirementError::Versions { text: text.to_owned(), source })?;
        Ok(Self { name: normal_form(name), versions, text: text.to_owned() })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// `Typing_Extensions`, `typing.extensions` and `typing--extensions` are one package.
pub(crate) fn normal_form(name: &str) -> String {
    let words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}
