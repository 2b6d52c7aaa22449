//! One package that somebody asks for: a name, and which versions of it will do.
//!
//! What may stand here is what can be looked up in an index (PEP 508 without addresses). A URL or a
//! path is never taken, because what it leads to is nobody's promise and may be inside the network.

use pep440_rs::{VersionSpecifiers, VersionSpecifiersParseError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The name of a distribution at the package index, in the form in which the index compares names:
/// `Typing_Extensions`, `typing.extensions` and `typing--extensions` are one package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageName(String);

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Requirement {
    pub name: PackageName,
    pub versions: VersionSpecifiers,
    /// Whether a marker says where it is needed, so that it may be needed nowhere.
    pub conditional: bool,
    /// As it was written.
    text: String,
}

/// Where a package is needed: `python_version < '3.12'`. uv understands it; here it is made sure that
/// it is one thing on one line, and neither a comment nor an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("`{}` has characters other than those of plain English text", .0.escape_debug())]
    Characters(String),
    #[error("`{0}` does not begin with the name of a package")]
    Name(String),
    #[error(
        "`{0}` is an address, and only packages of the index are taken: write the name of the \
         package, and put a wheel that the index does not have into a directory (--wheels DIR)"
    )]
    Address(String),
    #[error("`{0}` has extras that are not names, such as `[http2]`")]
    Extras(String),
    #[error("`{0}` has a marker that cannot be read, such as an empty one")]
    Marker(String),
    #[error("`{text}`: {source}")]
    Versions { text: String, source: VersionSpecifiersParseError },
}

impl PackageName {
    /// `None` if it cannot be one.
    pub fn new(text: &str) -> Option<Self> {
        let alphanumeric = |c: char| c.is_ascii_alphanumeric();
        let whole = text.starts_with(alphanumeric) && text.ends_with(alphanumeric);
        let words = text.split(['-', '_', '.']).filter(|word| !word.is_empty());
        (whole && text.chars().all(is_of_name))
            .then(|| Self(words.collect::<Vec<_>>().join("-").to_ascii_lowercase()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Marker {
    /// `None` if it cannot be one.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = |c: char| (c.is_ascii_graphic() && !"#\\;$".contains(c)) || " \t".contains(c);
        (!text.is_empty() && text.chars().all(fits) && !text.contains("--"))
            .then(|| Self(text.to_owned()))
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, RequirementError> {
        let text = text.trim();
        let said = || text.to_owned();
        if !text.chars().all(|c| c.is_ascii_graphic() || " \t".contains(c)) {
            return Err(RequirementError::Characters(said()));
        }
        if is_address(text) {
            return Err(RequirementError::Address(said()));
        }
        let (wanted, marker) = match text.split_once(';') {
            Some((wanted, marker)) => (wanted, Some(marker)),
            None => (text, None),
        };
        if marker.is_some_and(|marker| Marker::new(marker).is_none()) {
            return Err(RequirementError::Marker(said()));
        }
        let (name, rest) = wanted.split_at(wanted.find(|c| !is_of_name(c)).unwrap_or(wanted.len()));
        let name = PackageName::new(name).ok_or_else(|| RequirementError::Name(said()))?;
        let rest = after_extras(rest.trim()).ok_or_else(|| RequirementError::Extras(said()))?;
        let versions = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let versions = versions
            .unwrap_or(rest)
            .parse()
            .map_err(|source| RequirementError::Versions { text: said(), source })?;
        Ok(Self { name, versions, conditional: marker.is_some(), text: said() })
    }
}

/// `a @ https://…`, `https://…/a.whl`, `./a.whl` and `../a`, but not a `/` within a marker.
fn is_address(text: &str) -> bool {
    let wanted = text.split(';').next().unwrap_or_default();
    wanted.contains(['@', '/', '\\']) || wanted.starts_with('.') || wanted.ends_with(".whl")
}

fn after_extras(rest: &str) -> Option<&str> {
    let Some(inner) = rest.strip_prefix('[') else { return Some(rest) };
    let (extras, rest) = inner.split_once(']')?;
    let named = extras.split(',').all(|extra| PackageName::new(extra.trim()).is_some());
    named.then(|| rest.trim())
}

impl TryFrom<String> for Requirement {
    type Error = RequirementError;

    fn try_from(text: String) -> Result<Self, RequirementError> {
        text.parse()
    }
}

impl From<Requirement> for String {
    fn from(requirement: Requirement) -> Self {
        requirement.text
    }
}

impl fmt::Display for PackageName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// As written, because digests of definitions are made of it.
impl fmt::Debug for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> RequirementError {
        text.parse::<Requirement>().unwrap_err()
    }

    #[test]
    fn names_versions_extras_and_markers_are_understood() {
        let parse = |text: &str| text.parse::<Requirement>().unwrap();
        assert_eq!(parse("Typing__Extensions").name.as_str(), "typing-extensions");
        assert_eq!(parse(" polars >=1, <2 ").versions.to_string(), ">=1, <2");
        assert_eq!(parse("httpx[http2, socks]>=0.27").name.as_str(), "httpx");
        assert_eq!(parse("requests (>=2)").versions.to_string(), ">=2");
        assert!(parse("tomli; python_version < '3.11'").conditional);
        assert!(!parse("tomli").conditional);
        assert_eq!(parse("a[b]>=1 ; x == '@'").to_string(), "a[b]>=1 ; x == '@'");
    }

    #[test]
    fn an_address_is_refused_in_every_form() {
        for text in [
            "a @ https://example.org/a.whl",
            "a@file:///etc/passwd",
            "https://example.org/a-1.0.tar.gz",
            "git+ssh://git@example.org/a",
            "./a",
            "../a-1.0-py3-none-any.whl",
            "a-1.0-py3-none-any.whl",
            "/opt/a",
        ] {
            assert_eq!(refusal(text), RequirementError::Address(text.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_half_written_is_refused() {
        assert_eq!(refusal("=1.0"), RequirementError::Name("=1.0".to_owned()));
        assert_eq!(refusal(""), RequirementError::Name(String::new()));
        assert_eq!(refusal("a[b"), RequirementError::Extras("a[b".to_owned()));
        assert_eq!(refusal("a[;]"), RequirementError::Extras("a[;]".to_owned()));
        for text in ["a;", "a; b\\", "a; b # c", "a; b --hash=sha256:00"] {
            assert_eq!(refusal(text), RequirementError::Marker(text.to_owned()));
        }
        for text in ["a>>2", "a --hash=sha256:00", "a==1 # why", "a b"] {
            assert!(matches!(refusal(text), RequirementError::Versions { .. }), "{text}");
        }
    }

    // Each is written down on a line of its own for uv.
    #[test]
    fn a_requirement_is_on_one_line_for_every_reader() {
        for text in ["a\r>=1", "a>=1,\n<2", "a[b,\x0cc]", "a\u{2028}>=1", "a; b\r-r c", "\u{e4}"] {
            assert_eq!(refusal(text), RequirementError::Characters(text.to_owned()), "{text:?}");
        }
    }
}
