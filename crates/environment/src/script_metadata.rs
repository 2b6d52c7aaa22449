//! The metadata comment of a Python script (PEP 723): required Python and packages.

use crate::environment::PackageVersion;
use crate::requirement::{PackageName, Requirement, RequirementError};
use crate::version::PythonVersion;
use pep440_rs::{Version, VersionSpecifiers};
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;
use toml::Spanned;

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
    #[error("more than one block `{OPENING}`; keep one")]
    Twice,
    #[error("block `{OPENING}` has {0} bytes; at most {HEADER_BYTES_MAX} are allowed")]
    TooLong(usize),
    #[error("line {line}: block `{OPENING}` is not valid TOML: {}", .source.message())]
    Toml { line: usize, source: Box<toml::de::Error> },
    #[error("line {line}: requires-python `{text}` is not a valid version range")]
    Python { line: usize, text: String },
    #[error("line {line}: {source}")]
    Requirement { line: usize, source: RequirementError },
}

/// The known keys. Other keys, such as `tool`, are for other programs.
#[derive(Debug, Deserialize)]
struct ScriptMetadataToml {
    #[serde(rename = "requires-python")]
    requires_python: Option<Spanned<String>>,
    #[serde(default)]
    dependencies: Vec<Spanned<String>>,
}

impl Header {
    /// Parses the header of a script; empty if it has none.
    pub fn of(source: &str) -> Result<Self, HeaderError> {
        let Some(MetadataBlock { toml, first_line }) = find_block(source)? else {
            return Ok(Self::default());
        };
        let line = |at: usize| first_line + toml[..at].matches('\n').count();
        let block: ScriptMetadataToml = toml::from_str(&toml).map_err(|source| {
            let at = source.span().map_or(0, |span| span.start.min(toml.len()));
            HeaderError::Toml { line: line(at), source: Box::new(source) }
        })?;
        let dependency = |text: &Spanned<String>| {
            Requirement::from_str(text.get_ref()).map_err(|source| HeaderError::Requirement {
                line: line(text.span().start),
                source,
            })
        };
        Ok(Self {
            requires_python: match block.requires_python {
                None => VersionSpecifiers::default(),
                Some(range) => range.get_ref().parse().map_err(|_| HeaderError::Python {
                    line: line(range.span().start),
                    text: range.get_ref().clone(),
                })?,
            },
            dependencies: block.dependencies.iter().map(dependency).collect::<Result<_, _>>()?,
        })
    }

    /// The requirements that an environment with this Python and these packages does not meet.
    pub fn unmet(
        &self,
        python: PythonVersion,
        packages: &[PackageVersion],
    ) -> Vec<UnmetRequirement> {
        let PythonVersion { major, minor, micro } = python;
        let found = Version::new([major, minor, micro].map(u64::from));
        let mut unmet = Vec::new();
        if !self.requires_python.contains(&found) {
            unmet.push(UnmetRequirement::Python { required: self.requires_python.clone(), found });
        }
        // Whether a package with a marker is needed is unknown here.
        for required in self.dependencies.iter().filter(|it| !it.conditional) {
            match version_of(&required.name, packages) {
                Some(found) if required.versions.contains(&found) => {}
                found => {
                    unmet.push(UnmetRequirement::Package { required: required.clone(), found })
                }
            }
        }
        unmet
    }
}

fn version_of(name: &PackageName, packages: &[PackageVersion]) -> Option<Version> {
    let package = packages.iter().find(|it| PackageName::new(&it.name).as_ref() == Some(name))?;
    package.version.parse().ok()
}

/// A requirement that an environment does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnmetRequirement {
    Python { required: VersionSpecifiers, found: Version },
    Package { required: Requirement, found: Option<Version> },
}

impl fmt::Display for UnmetRequirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Python { required, found } => {
                write!(formatter, "Python {required} (has {found})")
            }
            Self::Package { required, found: None } => {
                formatter.write_str(required.original_text())
            }
            Self::Package { required, found: Some(found) } => {
                write!(formatter, "{} (has {found})", required.original_text())
            }
        }
    }
}

/// A block without its comment signs.
struct MetadataBlock {
    toml: String,
    /// Line number in the script, from 1.
    first_line: usize,
}

/// A block that is never closed is a comment.
fn find_block(source: &str) -> Result<Option<MetadataBlock>, HeaderError> {
    let mut lines = source.lines().peekable();
    let mut number = 0;
    let mut found = None;
    while let Some(line) = lines.next() {
        number += 1;
        if line != OPENING {
            continue;
        }
        let first_line = number + 1;
        let mut content = String::new();
        let mut closed = None;
        // The last closing line counts, because a line of the content may look like one.
        while let Some(line) = lines.next_if(|line| *line == "#" || line.starts_with("# ")) {
            number += 1;
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
        found = Some(MetadataBlock { toml: content, first_line });
    }
    Ok(found)
}
