//! The environments that can be requested by name: those that ship, and those that users added.
//!
//! ```text
//! <data>/definitions/NAME.json     a definition, its lock, and the requested Python
//! ```
//!
//! One file has all of it, so that a reader sees either the new definition with its lock or the
//! previous one with its own, and never a mixture. A name that ships cannot be taken.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::definition::{Definition, Name, built_in_names, built_in_text};
use crate::error::BuildError;
use crate::python_choice::PythonChoice;
use crate::requirement::Requirement;
use crate::script_metadata::Header;

#[derive(Debug)]
pub(crate) struct Definitions {
    directory: PathBuf,
}

/// Everything that an environment is built from.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub definition: Definition,
    pub python: Option<PythonChoice>,
    pub origin: Origin,
    /// The text of the definition.
    pub toml: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Ships with Belljar.
    Shipped,
    /// Added by a user.
    Custom,
    /// Derived from the needs of a script or an operator, and rebuilt whenever it is needed again.
    Derived,
}

/// Name prefix of environments derived from a script.
const SCRIPT_PREFIX: &str = "script-";
/// Name prefix of environments that extend another one with packages.
const EXTENDED_PREFIX: &str = "wider-";
/// Digits of a digest in a name: enough that different requirements do not collide.
const DERIVED_DIGEST_BYTES: usize = 12;

impl Origin {
    pub(crate) fn of(name: &Name) -> Self {
        let is_reserved = |prefix: &&str| name.as_str().starts_with(prefix);
        if [SCRIPT_PREFIX, EXTENDED_PREFIX].iter().any(is_reserved) {
            Self::Derived
        } else {
            Self::Custom
        }
    }
}

impl Name {
    /// The environment that a script with this header needs.
    pub fn for_script(header: &Header) -> Self {
        Self::derived(SCRIPT_PREFIX, &format!("{header:?}"))
    }

    /// The environment that extends `base` with these packages.
    pub fn for_extended(base: &Recipe, packages: &[Requirement]) -> Self {
        let Recipe { python, toml, .. } = base;
        Self::derived(EXTENDED_PREFIX, &format!("{python:?} {toml} {} {packages:?}", base.lock()))
    }

    fn derived(prefix: &str, need: &str) -> Self {
        let digest = Sha256::digest(need);
        let digest: String =
            digest[..DERIVED_DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        Self::trusted(format!("{prefix}{digest}"))
    }
}

/// Changes when a definition is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefinitionStamp {
    modified: i64,
    nanoseconds: i64,
    inode: u64,
}

impl DefinitionStamp {
    fn of(found: &fs::Metadata) -> Self {
        Self { modified: found.mtime(), nanoseconds: found.mtime_nsec(), inode: found.ino() }
    }
}

/// The content of a definition file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredDefinition {
    definition: String,
    lock: String,
    python: Option<PythonChoice>,
}

impl Recipe {
    /// The text of the lock.
    pub fn lock(&self) -> &str {
        self.definition.lock.text()
    }
}

impl Definitions {
    pub(crate) fn new(data: &Path) -> Self {
        Self { directory: data.join("definitions") }
    }

    pub(crate) fn find(&self, name: &str) -> Result<Recipe, BuildError> {
        if let Some((toml, lock)) = built_in_text(name) {
            let definition = Definition::parse(toml, lock)?;
            let (origin, toml) = (Origin::Shipped, toml.to_owned());
            return Ok(Recipe { definition, python: None, origin, toml });
        }
        let name = self.known_name(name)?;
        let path = self.path(&name);
        let text = fs::read(&path).map_err(|error| self.read_error(&name, "reading", error))?;
        let stored: StoredDefinition = serde_json::from_slice(&text)
            .map_err(|source| BuildError::StoredDefinition { name: name.clone(), source })?;
        let definition = Definition::parse(&stored.definition, &stored.lock)?;
        let origin = Origin::of(&definition.name);
        Ok(Recipe { definition, python: stored.python, origin, toml: stored.definition })
    }

    /// The name of a shipped or added environment, whether or not its definition is readable.
    pub(crate) fn known_name(&self, text: &str) -> Result<Name, BuildError> {
        let name = Name::try_from(text.to_owned()).ok();
        let known = |name: &Name| self.is_built_in(name) || self.path(name).exists();
        name.filter(known).ok_or_else(|| self.unknown_error(text))
    }

    fn unknown_error(&self, name: &str) -> BuildError {
        BuildError::Unknown { name: name.to_owned(), known: self.names() }
    }

    /// The error for a file that existed a moment ago.
    fn read_error(&self, name: &Name, action: &'static str, error: io::Error) -> BuildError {
        match error.kind() {
            io::ErrorKind::NotFound => self.unknown_error(name.as_str()),
            _ => BuildError::files(action, self.path(name))(error),
        }
    }

    pub(crate) fn is_built_in(&self, name: &Name) -> bool {
        built_in_text(name.as_str()).is_some()
    }

    /// The shipped environments first, then the others by name.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut own: Vec<String> = fs::read_dir(&self.directory)
            .map(|entries| entries.flatten().filter_map(|entry| own_name(&entry.path())).collect())
            .unwrap_or_default();
        own.sort();
        built_in_names().map(str::to_owned).chain(own).collect()
    }

    /// `None` for a shipped environment, which never changes, and for a missing one.
    pub(crate) fn stamp(&self, name: &str) -> Option<DefinitionStamp> {
        let name = Name::try_from(name.to_owned()).ok()?;
        fs::metadata(self.path(&name)).ok().as_ref().map(DefinitionStamp::of)
    }

    pub(crate) fn save(&self, recipe: &Recipe) -> Result<DefinitionStamp, BuildError> {
        let path = self.path(&recipe.definition.name);
        let stored = StoredDefinition {
            definition: recipe.toml.clone(),
            lock: recipe.lock().to_owned(),
            python: recipe.python.clone(),
        };
        let write = || {
            fs::create_dir_all(&self.directory)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            serde_json::to_writer(&mut file, &stored)?;
            file.as_file().sync_all()?;
            // The stamp of this very file: another one may replace it a moment later.
            let stamp = DefinitionStamp::of(&file.as_file().metadata()?);
            file.persist(&path)?;
            Ok(stamp)
        };
        write().map_err(BuildError::files("writing", &path))
    }

    pub(crate) fn remove(&self, name: &Name) -> Result<(), BuildError> {
        self.delete_file(name).map_err(|error| self.read_error(name, "removing", error))
    }

    pub(crate) fn delete_file(&self, name: &Name) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }
}

fn own_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
    Name::try_from(name).ok().map(String::from)
}
