//! The choice of the Python for an environment.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::definition::Name;
use crate::discovery::{self, PythonInstallation};
use crate::error::BuildError;
use crate::host_settings::HostSettings;
use crate::version::VersionRange;

/// A requested Python: `3.12` for the newest found of that version, or a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum PythonChoice {
    Version(VersionRange),
    At(PathBuf),
}

/// Chooses the Python for the environment `name`, which accepts those in `wanted`. Without a choice
/// it is the newest one found.
pub(crate) fn choose_python(
    machine: &HostSettings,
    name: &Name,
    required: VersionRange,
    choice: Option<&PythonChoice>,
) -> Result<PythonInstallation, BuildError> {
    let other = |path: PathBuf, python: &PythonInstallation| {
        let (name, version) = (name.clone(), python.version);
        BuildError::OtherPython { name, path, version, required }
    };
    let requested = match choice {
        None => required,
        Some(PythonChoice::Version(requested)) => *requested,
        Some(PythonChoice::At(path)) => {
            let python = discovery::probe_python(path, machine)
                .map_err(|reason| BuildError::UnusablePython { path: path.clone(), reason })?;
            let is_compatible = required.contains(python.version);
            return if is_compatible { Ok(python) } else { Err(other(path.clone(), &python)) };
        }
    };
    if requested.is_too_old() {
        return Err(BuildError::OldPython { requested });
    }
    let found = discovery::discover(machine);
    let mut matching = found.found.iter().filter(|python| requested.contains(python.version));
    if let Some(python) = matching.clone().find(|python| required.contains(python.version)) {
        return Ok(python.clone());
    }
    Err(matching.next().map_or_else(
        || {
            let skipped = found.skipped.len() + found.found.len();
            BuildError::NoPython { name: name.clone(), required: requested, skipped }
        },
        |python| other(python.executable.clone(), python),
    ))
}

impl FromStr for PythonChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Self::At(text.into()), Self::Version))
    }
}

impl From<String> for PythonChoice {
    fn from(text: String) -> Self {
        text.parse().map_or_else(|_| Self::At(text.into()), Self::Version)
    }
}

impl From<PythonChoice> for String {
    fn from(choice: PythonChoice) -> Self {
        choice.to_string()
    }
}

impl fmt::Display for PythonChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(range) => range.fmt(formatter),
            Self::At(path) => path.display().fmt(formatter),
        }
    }
}
