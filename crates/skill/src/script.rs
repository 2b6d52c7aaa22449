//! What a Python script says of itself in a comment (PEP 723): which Python it wants, and which
//! packages.

use crate::requirement::{Requirement, RequirementError, normal_form};
use pep440_rs::{Version, VersionSpecifiers};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A list of packages takes a few lines.
const HEADER_BYTES_MAX: usize = 64 * 1024;
const OPENING: &str = "# /// script";
const CLOSING: &str = "# ///";

/// The block `# /// script` of a script.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    pub requires_python: VersionSpecifiers,
    pub dependencies: Vec<Requirement>,
}

#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    #[error("there is more than one block `{OPENING}`")]
    Twice,
    #[error("the block `{OPENING}` has {0} bytes, and at most {HEADER_BYTES_MAX} are read")]
    TooLong(usize),
    #[error("the block `{OPENING}` is not TOML: {}", .0.message())]
    Toml(Box<toml::de::Error>),
    #[error("requires-python `{0}` is not a range of versions")]
    Python(String),
    #[error("dependencies: {0}")]
    Requirement(#[from] RequirementError),
}

/// The keys that are known. Others, such as `tool`, are for others.
#[derive(Debug, Deserialize)]
struct Block {
    #[serde(rename = "requires-python")]
    requires_python: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

impl Header {
    /// Of a script; the empty one if it says nothing.
    pub fn of(source: &str) -> Result<Self, HeaderError> {
        let Some(block) = block(source)? else {
            return Ok(Self::default());
        };
        let block: Block =
            toml::from_str(&block).map_err(|error| HeaderError::Toml(Box::new(error)))?;
        let range = block.requires_python.unwrap_or_default();
        Ok(Self {
            requires_python: range.parse().map_err(|_| HeaderError::Python(range))?,
            dependencies: block
                .dependencies
                .iter()
                .map(|text| Requirement::from_str(text))
                .collect::<Result<_, _>>()?,
        })
    }

    /// What it asks for and an environment does not have.
    pub fn unmet(&self, installed: &Installed) -> Vec<Unmet> {
        let mut unmet = Vec::new();
        if !self.requires_python.contains(&installed.python) {
            let (wanted, found) = (self.requires_python.clone(), installed.python.clone());
            unmet.push(Unmet::Python { wanted, found });
        }
        for wanted in &self.dependencies {
            match installed.packages.get(&wanted.name) {
                Some(found) if wanted.versions.contains(found) => {}
                found => {
                    let (wanted, found) = (wanted.clone(), found.cloned());
                    unmet.push(Unmet::Package { wanted, found });
                }
            }
        }
        unmet
    }
}

/// What an environment has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    python: Version,
    packages: BTreeMap<String, Version>,
}

impl Installed {
    /// `None` if a version is none. The names of packages may be written in any form.
    pub fn new<'a>(
        python: &str,
        packages: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Option<Self> {
        let package = |(name, version): (&str, &str)| {
            Some((normal_form(name), Version::from_str(version).ok()?))
        };
        let packages = packages.map(package).collect::<Option<_>>()?;
        Some(Self { python: Version::from_str(python).ok()?, packages })
    }
}

/// Something that an environment does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmet {
    Python { wanted: VersionSpecifiers, found: Version },
    Package { wanted: Requirement, found: Option<Version> },
}

impl fmt::Display for Unmet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Python { wanted, found } => write!(formatter, "Python {wanted} (has {found})"),
            Self::Package { wanted, found: None } => write!(formatter, "{wanted}"),
            Self::Package { wanted, found: Some(found) } => {
                write!(formatter, "{wanted} (has {found})")
            }
        }
    }
}

/// The TOML of the block, without the comment signs. One that is never closed is a comment.
fn block(source: &str) -> Result<Option<String>, HeaderError> {
    let mut lines = source.lines().peekable();
    let mut found = None;
    while let Some(line) = lines.next() {
        if line != OPENING {
            continue;
        }
        let mut content = String::new();
        let mut closed = None;
        // The last closing line counts, as one may also be a line of the content.
        while let Some(line) = lines.next_if(|line| *line == "#" || line.starts_with("# ")) {
            if line == CLOSING {
                closed = Some(content.len());
            }
            content.push_str(line.get(2..).unwrap_or_default());
            content.push('\n');
        }
        let Some(length) = closed else {
            continue;
        };
        if found.is_some() {
            return Err(HeaderError::Twice);
        }
        if length > HEADER_BYTES_MAX {
            return Err(HeaderError::TooLong(length));
        }
        content.truncate(length);
        found = Some(content);
    }
    Ok(found)
}
