//! A built environment: the record that makes a directory one, and its content.
//!
//! The record is beside the directory and not in it, because it contains paths of the host, which
//! sandboxes must not see.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::definition::{ModuleName, Name};
use crate::discovery::PythonInstallation;
use crate::requirement::PackageName;
use crate::sandbox_paths::{INSIDE_ENVIRONMENT, MountedPython};

/// A Python and its packages, ready to be mounted. Immutable: changing any input gives another
/// environment with another digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltEnvironment {
    pub name: Name,
    pub digest: String,
    pub python: PythonInstallation,
    /// All installed packages, with exact versions.
    pub packages: Vec<PackageVersion>,
    pub preload: Vec<ModuleName>,
    /// For every process inside: the variables of the definition and those that this Python needs.
    pub variables: BTreeMap<String, String>,
    /// Path inside of a prepared configuration directory of matplotlib. Matplotlib requires a
    /// writable one, so this has to be copied into the sandbox rather than pointed to.
    pub matplotlib_config: Option<PathBuf>,
    /// Size of its files; most of it is shared with other environments.
    pub bytes: u64,
    /// Seconds since 1970.
    pub built_at: u64,
    /// Not recorded: it is the directory of the record, so that a data directory can move.
    #[serde(skip)]
    pub directory: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PackageVersion {
    pub name: String,
    pub version: String,
}

/// A directory of the host that sandboxes see read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub host: PathBuf,
    pub inside: PathBuf,
}

impl BuiltEnvironment {
    /// The mounts that a sandbox needs. A Python of `/usr` needs none.
    pub fn mounts(&self) -> Vec<Mount> {
        let own = Mount { host: self.directory.clone(), inside: INSIDE_ENVIRONMENT.into() };
        MountedPython::new(&self.python).mount().into_iter().chain([own]).collect()
    }

    /// The directory of the packages on the host.
    pub fn site_packages(&self) -> PathBuf {
        self.directory.join(MountedPython::new(&self.python).site_packages())
    }

    /// The top-level modules of these packages, by their own metadata: `docx` of `python-docx`.
    pub fn modules_of(&self, packages: &[PackageName]) -> io::Result<BTreeSet<String>> {
        let mut modules = BTreeSet::new();
        for entry in fs::read_dir(self.site_packages())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let distribution = name.strip_suffix(".dist-info").and_then(|it| it.split('-').next());
            if distribution.and_then(PackageName::new).is_some_and(|it| packages.contains(&it)) {
                let record = fs::read_to_string(path.join("RECORD"))?;
                modules.extend(record.lines().filter_map(top_level).map(str::to_owned));
            }
        }
        Ok(modules)
    }

    /// Reads the record of a built environment. `None` if the directory is not one, or if another
    /// release of Belljar built it with a different record.
    pub(crate) fn load(directory: &Path) -> Option<Self> {
        let record = fs::read(record_path(directory)).ok()?;
        let environment: Self = serde_json::from_slice(&record).ok()?;
        directory.is_dir().then(|| Self { directory: directory.to_owned(), ..environment })
    }

    /// Makes the directory an environment, atomically for readers.
    pub(crate) fn write_record(&self) -> io::Result<()> {
        let record = record_path(&self.directory);
        let temporary = record.with_extension("new");
        fs::write(&temporary, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&temporary, record)
    }
}

/// The module in a line of a package's RECORD: `docx` of `docx/api.py,sha256=…,1042`.
fn top_level(line: &str) -> Option<&str> {
    let path = line.split(',').next()?.trim_start_matches('"');
    let name = match path.split_once('/') {
        Some((directory, _)) => directory,
        None => path.strip_suffix(".py").or_else(|| path.strip_suffix(".so"))?,
    };
    let name = name.split('.').next()?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    (!name.is_empty() && !path.contains(".dist-info/") && name.chars().all(is_name)).then_some(name)
}

/// `default-3f2a….json` for `default-3f2a…/`.
pub(crate) fn record_path(directory: &Path) -> PathBuf {
    directory.with_extension("json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_imported_by_the_names_that_its_record_has() {
        assert_eq!(top_level("docx/api.py,sha256=ab,10"), Some("docx"));
        assert_eq!(top_level("six.py,sha256=ab,10"), Some("six"));
        assert_eq!(top_level("_yaml.cpython-313-x86_64-linux-gnu.so,,"), Some("_yaml"));
        for line in
            ["../../bin/tool,,", "six-1.17.0.dist-info/METADATA,,", "a-b/c.py,,", "x.pth,,", ""]
        {
            assert_eq!(top_level(line), None, "{line}");
        }
    }
}
