//! One requested package: a name and its accepted versions.
//!
//! A requirement must be something that an index can look up (PEP 508 without addresses). A URL or
//! a path is refused, because no hash vouches for its target, which may be inside the network.

use pep440_rs::{Version, VersionSpecifier, VersionSpecifiers, VersionSpecifiersParseError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The name of a distribution, in the normalized form of the package index: `Typing_Extensions`,
/// `typing.extensions` and `typing--extensions` are one package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageName(String);

#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Requirement {
    pub name: PackageName,
    extras: Vec<PackageName>,
    pub versions: VersionSpecifiers,
    /// Whether it has a marker, so that it may not be needed.
    pub conditional: bool,
    marker: Option<Marker>,
    /// The original text, for messages only.
    source: String,
}

/// The condition under which a package is needed: `python_version < '3.12'`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("`{}` has characters that are not printable ASCII", .0.escape_debug())]
    Characters(String),
    #[error("`{0}` does not start with a package name")]
    Name(String),
    #[error(
        "`{0}` is a URL or a path, and only packages of the index are allowed; use the package \
         name, and put a wheel that the index does not have into --wheels DIR"
    )]
    Address(String),
    #[error("`{0}` has invalid extras; use names, such as `[http2]`")]
    Extras(String),
    #[error("`{0}` has an invalid or empty marker")]
    Marker(String),
    #[error("`{text}`: {source}")]
    Versions { text: String, source: VersionSpecifiersParseError },
}

impl PackageName {
    /// `None` if the text is invalid.
    pub fn new(text: &str) -> Option<Self> {
        let alphanumeric = |c: char| c.is_ascii_alphanumeric();
        let whole = text.starts_with(alphanumeric) && text.ends_with(alphanumeric);
        let tokens = text.split(['-', '_', '.']).filter(|token| !token.is_empty());
        (whole && text.chars().all(is_of_name))
            .then(|| Self(tokens.collect::<Vec<_>>().join("-").to_ascii_lowercase()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The variables of markers (PEP 508).
const MARKER_NAMES: [&str; 12] = [
    "python_version",
    "python_full_version",
    "os_name",
    "sys_platform",
    "platform_release",
    "platform_system",
    "platform_version",
    "platform_machine",
    "platform_python_implementation",
    "implementation_name",
    "implementation_version",
    "extra",
];
const MARKER_OPERATORS: [&str; 8] = ["===", "==", "!=", "<=", ">=", "~=", "<", ">"];
/// Maximum nesting of parentheses; real markers have less.
const MARKER_DEPTH_MAX: usize = 16;

impl Marker {
    /// `None` if the text is invalid. The marker is rebuilt from the parsed words, since uv accepts
    /// options after a requirement.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let tokens = tokenize(text)?;
        let rest = parse_or(&tokens, 0)?;
        rest.is_empty().then(|| Self(tokens.join(" ")))
    }
}

fn tokenize(text: &str) -> Option<Vec<String>> {
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | ')' => 1,
            '\'' | '"' => rest[1..].find(first)? + 2,
            _ => match MARKER_OPERATORS.iter().find(|operator| rest.starts_with(**operator)) {
                Some(operator) => operator.len(),
                None => rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len()),
            },
        };
        let (token, left) = rest.split_at(length);
        if token.is_empty() {
            return None;
        }
        tokens.push(token.to_owned());
        rest = left.trim_start_matches([' ', '\t']);
    }
    Some(tokens)
}

/// Parses `a or b`, and returns the remaining words.
fn parse_or(tokens: &[String], depth: usize) -> Option<&[String]> {
    let mut rest = parse_and(tokens, depth)?;
    while let Some(("or", left)) = first(rest) {
        rest = parse_and(left, depth)?;
    }
    Some(rest)
}

fn parse_and(tokens: &[String], depth: usize) -> Option<&[String]> {
    let mut rest = parse_condition(tokens, depth)?;
    while let Some(("and", left)) = first(rest) {
        rest = parse_condition(left, depth)?;
    }
    Some(rest)
}

fn parse_condition(tokens: &[String], depth: usize) -> Option<&[String]> {
    if let ("(", rest) = first(tokens)? {
        let rest = (depth < MARKER_DEPTH_MAX).then(|| parse_or(rest, depth + 1))??;
        return first(rest).filter(|(token, _)| *token == ")").map(|(_, rest)| rest);
    }
    let rest = parse_value(tokens)?;
    let rest = match first(rest)? {
        ("not", rest) => first(rest).filter(|(token, _)| *token == "in")?.1,
        ("in", rest) => rest,
        (operator, rest) if MARKER_OPERATORS.contains(&operator) => rest,
        _ => return None,
    };
    parse_value(rest)
}

fn parse_value(tokens: &[String]) -> Option<&[String]> {
    let (token, rest) = first(tokens)?;
    let text = token.strip_prefix(['\'', '"']).map(|text| &text[..text.len() - 1]);
    let is_plain = |text: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || "._+*-,".contains(c))
            && !text.contains("--")
    };
    (text.is_some_and(is_plain) || MARKER_NAMES.contains(&token)).then_some(rest)
}

fn first(tokens: &[String]) -> Option<(&str, &[String])> {
    tokens.split_first().map(|(token, rest)| (token.as_str(), rest))
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, RequirementError> {
        let text = text.trim();
        let original = || text.to_owned();
        if !text.chars().all(|c| c.is_ascii_graphic() || " \t".contains(c)) {
            return Err(RequirementError::Characters(original()));
        }
        if is_address(text) {
            return Err(RequirementError::Address(original()));
        }
        let (required, marker) = match text.split_once(';') {
            Some((required, marker)) => (required, Some(marker)),
            None => (text, None),
        };
        let marker = match marker {
            Some(marker) => {
                Some(Marker::new(marker).ok_or_else(|| RequirementError::Marker(original()))?)
            }
            None => None,
        };
        let (name, rest) =
            required.split_at(required.find(|c| !is_of_name(c)).unwrap_or(required.len()));
        let name = PackageName::new(name).ok_or_else(|| RequirementError::Name(original()))?;
        let (extras, rest) =
            after_extras(rest.trim()).ok_or_else(|| RequirementError::Extras(original()))?;
        let versions = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let versions = versions
            .unwrap_or(rest)
            .parse()
            .map_err(|source| RequirementError::Versions { text: original(), source })?;
        Ok(Self {
            name,
            extras,
            versions,
            conditional: marker.is_some(),
            marker,
            source: original(),
        })
    }
}

/// `a @ https://…`, `https://…/a.whl`, `./a.whl` and `../a`, but not a `/` within a marker.
fn is_address(text: &str) -> bool {
    let required = text.split(';').next().unwrap_or_default();
    required.contains(['@', '/', '\\']) || required.starts_with('.') || required.ends_with(".whl")
}

fn after_extras(rest: &str) -> Option<(Vec<PackageName>, &str)> {
    let Some(inner) = rest.strip_prefix('[') else { return Some((Vec::new(), rest)) };
    let (extras, rest) = inner.split_once(']')?;
    let extras = extras.split(',').map(|extra| PackageName::new(extra.trim()));
    Some((extras.collect::<Option<_>>()?, rest.trim()))
}

impl TryFrom<String> for Requirement {
    type Error = RequirementError;

    fn try_from(text: String) -> Result<Self, RequirementError> {
        text.parse()
    }
}

impl From<Requirement> for String {
    fn from(requirement: Requirement) -> Self {
        requirement.to_string()
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
        write!(formatter, "{}", self.name)?;
        if !self.extras.is_empty() {
            let extras: Vec<&str> = self.extras.iter().map(PackageName::as_str).collect();
            write!(formatter, "[{}]", extras.join(","))?;
        }
        write!(formatter, "{}", self.versions)?;
        self.marker.iter().try_for_each(|marker| write!(formatter, " ; {marker}"))
    }
}

impl Requirement {
    /// The original text, for messages.
    pub fn original_text(&self) -> &str {
        &self.source
    }

    /// A requirement of the same package in this version only.
    pub(crate) fn pinned_to(&self, version: &Version) -> Self {
        let exactly = VersionSpecifier::equals_version(version.clone());
        let pinned = Self { versions: exactly.into(), ..self.clone() };
        Self { source: pinned.to_string(), ..pinned }
    }
}

/// Equal by content, not by original text.
impl PartialEq for Requirement {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Requirement {}

/// The parsed content, because digests of definitions include it.
impl fmt::Debug for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.to_string())
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
        assert_eq!(parse("a[b]>=1 ; os_name == 'x'").to_string(), "a[b]>=1 ; os_name == 'x'");
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
        for text in ["a;", "a; b\\", "a; b # c", "a; b --hash=sha256:00"] {
            assert_eq!(refusal(text), RequirementError::Marker(text.to_owned()));
        }
        for text in ["a>>2", "a --hash=sha256:00", "a==1 # why", "a b"] {
            assert!(matches!(refusal(text), RequirementError::Versions { .. }), "{text}");
        }
    }

    // Each is written to a separate line for uv.
    #[test]
    fn a_requirement_is_on_one_line_for_every_reader() {
        for text in ["a\r>=1", "a>=1,\n<2", "a[b,\x0cc]", "a\u{2028}>=1", "a; b\r-r c", "\u{e4}"] {
            assert_eq!(refusal(text), RequirementError::Characters(text.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn what_uv_is_given_is_put_together_from_what_was_understood() {
        let parsed = |text: &str| text.parse::<Requirement>().unwrap().to_string();
        assert_eq!(parsed("Six"), "six");
        assert_eq!(parsed("local.zip"), "local-zip", "no name of a file");
        assert_eq!(
            parsed(
                "httpx [http2,Socks] >=0.27 ;python_version<\"3.12\" and(os_name=='nt' or extra == 'x')"
            ),
            "httpx[http2,socks]>=0.27 ; python_version < \"3.12\" and ( os_name == 'nt' or extra == 'x' )"
        );
        assert_eq!(parsed("a; 'linux' not in sys_platform"), "a ; 'linux' not in sys_platform");
    }

    #[test]
    fn an_option_behind_a_marker_is_refused() {
        for text in [
            "good; python_version>'3' --hash=sha256:00 --no-binary dyny",
            "good; python_version>'3' -r /etc/passwd",
            "good; python_version>'3' -i http://x",
            "good; python_version > '3 --no-binary dyny'",
            "good; python_version > '3' '3'",
            "good; python_version",
            "good; (python_version > '3'",
            "good; import os",
            "good; os_name == 'a' or",
            "good; secret == 'a'",
        ] {
            assert!(matches!(refusal(text), RequirementError::Marker(_)), "{text}");
        }
    }
}
