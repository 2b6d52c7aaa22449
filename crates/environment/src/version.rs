//! Versions of Python, and the range that a definition accepts.

use std::fmt;
use std::str::FromStr;

use pep440_rs::{Version, VersionSpecifiers};
use serde::{Deserialize, Serialize};

/// Oldest minor version of CPython 3 that the runner supports.
pub(crate) const OLDEST_MINOR: u16 = 11;

/// A bare upper bound such as `<4` is tested against that many minor versions, each at a release
/// later than any: one appears each year.
const MINOR_END: u16 = 60;
const MICRO_MAX: u64 = 99;

/// A release of CPython, such as 3.13.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PythonVersion {
    pub major: u16,
    pub minor: u16,
    pub micro: u16,
}

/// The Pythons that a definition accepts: `">=3.11"`, `">=3.11,<3.15"`, or `"3.12"` for that one.
///
/// Packages are built for a minor version, so the range has no finer granularity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VersionRange {
    from: Minor,
    below: Option<Minor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Minor(u16, u16);

impl Default for VersionRange {
    /// Every supported Python.
    fn default() -> Self {
        Self { from: Minor(3, OLDEST_MINOR), below: None }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a Python version; use {required}")]
pub struct VersionError {
    text: String,
    required: &'static str,
}

impl VersionRange {
    /// Exactly the minor version of a Python.
    pub fn only(version: PythonVersion) -> Self {
        let PythonVersion { major, minor, .. } = version;
        Self { from: Minor(major, minor), below: Some(Minor(major, minor.saturating_add(1))) }
    }

    /// The minor versions that a `requires-python` allows; `None` if there is none.
    pub(crate) fn from_specifiers(specifiers: &VersionSpecifiers) -> Option<Self> {
        // Whether a release within the minor version is too old shows when it is chosen.
        let accepted = |minor: &u16| {
            specifiers.contains(&Version::new([3, u64::from(*minor), MICRO_MAX]))
                || specifiers.contains(&Version::new([3, u64::from(*minor)]))
        };
        let from = (OLDEST_MINOR..MINOR_END).find(accepted)?;
        let below = (from..MINOR_END).find(|minor| !accepted(minor));
        Some(Self { from: Minor(3, from), below: below.map(|minor| Minor(3, minor)) })
    }

    pub fn contains(&self, version: PythonVersion) -> bool {
        let minor = Minor(version.major, version.minor);
        self.from <= minor && self.below.is_none_or(|below| minor < below)
    }

    /// Whether it contains no supported version.
    pub(crate) fn is_too_old(&self) -> bool {
        self.below.is_some_and(|below| below <= Minor(3, OLDEST_MINOR))
    }

    /// Whether everything in `other` is also in this one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.from <= other.from
            && self.below.is_none_or(|end| other.below.is_some_and(|other| other <= end))
    }
}

impl FromStr for VersionRange {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let parsed = match text.strip_prefix(">=") {
            None => parse_minor(text)
                .map(|only| Self { from: only, below: Some(Minor(only.0, only.1 + 1)) }),
            Some(bounds) => match bounds.split_once(',') {
                None => parse_minor(bounds).map(|from| Self { from, below: None }),
                Some((from, below)) => parse_minor(from)
                    .zip(below.trim().strip_prefix('<').and_then(parse_minor))
                    .map(|(from, below)| Self { from, below: Some(below) }),
            },
        };
        parsed.ok_or_else(|| VersionError {
            text: text.to_owned(),
            required: "\"3.12\", \">=3.11\" or \">=3.11,<3.15\"",
        })
    }
}

fn parse_minor(text: &str) -> Option<Minor> {
    let (major, minor) = text.trim().split_once('.')?;
    Some(Minor(major.parse().ok()?, minor.parse().ok().filter(|minor| *minor < u16::MAX)?))
}

impl FromStr for PythonVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let parse = || {
            let mut parts = text.split('.').map(|part| part.parse().ok());
            let version =
                Self { major: parts.next()??, minor: parts.next()??, micro: parts.next()?? };
            parts.next().is_none().then_some(version)
        };
        parse().ok_or_else(|| VersionError { text: text.to_owned(), required: "\"3.13.0\"" })
    }
}

impl fmt::Display for PythonVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.below {
            None => write!(formatter, ">={}", self.from),
            Some(below) if below == Minor(self.from.0, self.from.1 + 1) => self.from.fmt(formatter),
            Some(below) => write!(formatter, ">={},<{below}", self.from),
        }
    }
}

impl TryFrom<String> for PythonVersion {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

impl From<PythonVersion> for String {
    fn from(version: PythonVersion) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for VersionRange {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

impl From<VersionRange> for String {
    fn from(range: VersionRange) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(range: &str, version: &str) -> bool {
        let range: VersionRange = range.parse().unwrap();
        range.contains(version.parse().unwrap())
    }

    #[test]
    fn an_open_range_takes_everything_newer() {
        assert!(accepts(">=3.11", "3.11.0"));
        assert!(accepts(">=3.11", "3.20.1"));
        assert!(!accepts(">=3.11", "3.10.13"));
    }

    #[test]
    fn the_upper_end_is_outside() {
        assert!(accepts(">=3.11,<3.15", "3.14.9"));
        assert!(accepts(">=3.11, <3.15", "3.14.9"));
        assert!(!accepts(">=3.11,<3.15", "3.15.0"));
    }

    #[test]
    fn a_bare_version_is_that_minor_and_no_other() {
        assert!(accepts("3.12", "3.12.1"));
        assert!(!accepts("3.12", "3.13.0"));
        assert!(!accepts("3.12", "3.11.7"));
    }

    #[test]
    fn what_is_not_a_range_is_refused() {
        for text in ["", "3", "3.", "3.12.1", ">3.11", "<3.12", ">=3.11,", "3.65535", "newest"] {
            assert!(text.parse::<VersionRange>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_a_script_requires_becomes_a_range() {
        let of = |text: &str| {
            let range = VersionRange::from_specifiers(&text.parse().unwrap());
            range.map(|range| range.to_string())
        };
        assert_eq!(of("").as_deref(), Some(">=3.11"));
        assert_eq!(of(">=3.8").as_deref(), Some(">=3.11"));
        assert_eq!(of(">=3.12.4").as_deref(), Some(">=3.12"));
        assert_eq!(of("==3.12.*").as_deref(), Some("3.12"));
        assert_eq!(of(">=3.12,<3.14").as_deref(), Some(">=3.12,<3.14"));
        assert_eq!(of("<4").as_deref(), Some(">=3.11"));
        assert_eq!(of("<3.11"), None);
        assert_eq!(of(">=4"), None);
    }

    #[test]
    fn a_range_covers_what_is_within_it() {
        let covers = |range: &str, other: &str| {
            range.parse::<VersionRange>().unwrap().covers(&other.parse().unwrap())
        };
        assert!(covers(">=3.11", "3.12") && covers("3.12", "3.12"));
        assert!(covers(">=3.11,<3.14", ">=3.12,<3.14"));
        assert!(!covers("3.12", ">=3.12") && !covers(">=3.12", "3.11"));
    }

    #[test]
    fn a_range_is_written_as_it_was_read() {
        for text in ["3.12", ">=3.11", ">=3.11,<3.15"] {
            assert_eq!(text.parse::<VersionRange>().unwrap().to_string(), text);
        }
    }
}
