//! A built environment: the record that makes a directory one, and what it tells its users.
//!
//! The record stands beside the directory and not in it, because it names places of the host, which
//! are nobody's business inside.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::definition::{ModuleName, Name};
use crate::discovery::Python;
use crate::view::{INSIDE_ENVIRONMENT, View};

/// A Python and its packages, ready to be mounted. Immutable: a change of anything that it was
/// made from makes another one, with another digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    pub name: Name,
    pub digest: String,
    pub python: Python,
    /// All that is installed, with the exact versions.
    pub packages: Vec<Package>,
    pub preload: Vec<ModuleName>,
    /// For every process inside; what the definition said and what this Python needs.
    pub variables: BTreeMap<String, String>,
    /// Inside: a ready configuration directory of matplotlib. Matplotlib insists on one that it
    /// can write to, so this is to be copied into the sandbox rather than pointed to.
    pub matplotlib_config: Option<PathBuf>,
    /// What its files hold; most of it is shared with other environments.
    pub bytes: u64,
    /// Seconds since 1970.
    pub built_at: u64,
    /// Not recorded: it is where the record is, so that a data directory can move.
    #[serde(skip)]
    pub directory: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
}

/// One directory of the host that has to be visible inside, read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub host: PathBuf,
    pub inside: PathBuf,
}

impl Environment {
    /// What a sandbox has to see. The Python of `/usr` needs no mount of its own.
    pub fn mounts(&self) -> Vec<Mount> {
        let own = Mount { host: self.directory.clone(), inside: INSIDE_ENVIRONMENT.into() };
        View::of(&self.python).mount().into_iter().chain([own]).collect()
    }

    /// Where the packages are on the host.
    pub fn site_packages(&self) -> PathBuf {
        self.directory.join(View::of(&self.python).site_packages())
    }

    /// Reads the record of a built environment. `None` when the directory is not one, or was built
    /// by a Belljar that recorded something else.
    pub(crate) fn load(directory: &Path) -> Option<Self> {
        let record = fs::read(record_of(directory)).ok()?;
        let environment: Self = serde_json::from_slice(&record).ok()?;
        directory.is_dir().then(|| Self { directory: directory.to_owned(), ..environment })
    }

    /// Makes the directory an environment, in one step for whoever looks at it.
    pub(crate) fn write_record(&self) -> io::Result<()> {
        let record = record_of(&self.directory);
        let aside = record.with_extension("new");
        fs::write(&aside, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&aside, record)
    }
}

/// `default-3f2a….json` for `default-3f2a…/`.
pub(crate) fn record_of(directory: &Path) -> PathBuf {
    directory.with_extension("json")
}
