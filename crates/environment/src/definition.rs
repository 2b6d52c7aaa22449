//! The definition of an environment: TOML that users write, validated while it is parsed.
//!
//! After [`Definition::parse`] every string is validated: a name is fit for a directory, a module
//! fit for an import, and the lock has every package with its hash.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::lock::{Lock, LockError};
use crate::requirement::{Requirement, RequirementError};
use crate::version::VersionRange;

/// The environments that ship with Belljar, each with its lock.
const BUILT_IN: [(&str, &str, &str); 5] = [
    (
        "default",
        include_str!("../../../environments/default.toml"),
        include_str!("../../../environments/default.lock"),
    ),
    (
        "atlas",
        include_str!("../../../environments/atlas.toml"),
        include_str!("../../../environments/atlas.lock"),
    ),
    (
        "cortex",
        include_str!("../../../environments/cortex.toml"),
        include_str!("../../../environments/cortex.lock"),
    ),
    (
        "coderunner",
        include_str!("../../../environments/coderunner.toml"),
        include_str!("../../../environments/coderunner.lock"),
    ),
    ("bare", include_str!("../../../environments/bare.toml"), ""),
];

/// The length of a directory name that leaves space for a digest.
const NAME_BYTES_MAX: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub name: Name,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub python: VersionRange,
    /// The requested packages; the lock has these and all their dependencies.
    #[serde(default)]
    pub packages: Vec<Requirement>,
    /// Imported before the first sandbox is forked.
    #[serde(default)]
    pub preload: Vec<ModuleName>,
    #[serde(default)]
    pub imports: Imports,
    #[serde(default)]
    pub processes: ProcessesSetting,
    #[serde(default)]
    pub index: PackageIndex,
    /// Environment variables that the packages need, for every process inside.
    #[serde(default)]
    pub variables: BTreeMap<VariableName, String>,
    #[serde(skip)]
    pub(crate) lock: Lock,
}

/// The name of an environment: lower-case letters, digits and dashes, a letter first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// A dotted name that is valid after `import`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModuleName(String);

/// The name of an environment variable that affects neither what is loaded into a process nor how
/// Python itself behaves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VariableName(String);

/// The modules that code may import: `"any"`, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "ImportsText", into = "ImportsText")]
pub enum Imports {
    #[default]
    Any,
    Only(Vec<ModuleName>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessesSetting {
    #[default]
    Allow,
    Deny,
}

/// The index from which a session may install packages: `"none"`, `"pypi"`, or a URL.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PackageIndex {
    #[default]
    None,
    Pypi,
    Url(String),
}

#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    #[error("environment `{name}` not found; built-in environments: {}", built_in_list())]
    Unknown { name: String },
    #[error("invalid environment definition: {}", one_line(.source))]
    Toml {
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error("line {line}: {source}")]
    Package { line: usize, source: RequirementError },
    #[error("environment `{name}`: {source}")]
    Lock { name: Name, source: LockError },
}

impl Definition {
    /// Parses the TOML of an environment and the lock of its packages, which is empty for an
    /// environment without packages.
    pub fn parse(text: &str, lock: &str) -> Result<Self, DefinitionError> {
        Self::parse_unlocked(text)?.with_lock(lock)
    }

    /// One of the environments that ship with Belljar.
    pub fn built_in(name: &str) -> Result<Self, DefinitionError> {
        let (text, lock) = built_in_text(name)
            .ok_or_else(|| DefinitionError::Unknown { name: name.to_owned() })?;
        Self::parse(text, lock)
    }

    /// The shipped environments that contain this module.
    pub fn built_in_with_module(module: &str) -> Vec<&'static str> {
        let root = module.split('.').next().unwrap_or_default();
        let has = |definition: &Self| {
            let preloaded = definition.preload.iter().map(|it| it.as_str().split('.').next());
            let packages = definition.packages.iter().map(|package| Some(package.name.as_str()));
            preloaded.chain(packages).any(|name| name == Some(root))
        };
        built_in_names().filter(|name| Self::built_in(name).is_ok_and(|it| has(&it))).collect()
    }

    /// All packages of the lock, by their names in the index.
    pub fn locked_names(&self) -> impl Iterator<Item = &str> {
        self.lock.names().map(|name| name.as_str())
    }

    /// Parses a definition whose packages are not locked yet; it cannot be built.
    pub(crate) fn parse_unlocked(text: &str) -> Result<Self, DefinitionError> {
        check_packages(text)?;
        toml::from_str(text).map_err(|source| DefinitionError::Toml { source: Box::new(source) })
    }

    pub(crate) fn with_lock(self, text: &str) -> Result<Self, DefinitionError> {
        let lock = Lock::parse(text).and_then(|lock| {
            let outside =
                lock.python_range().filter(|python_range| !self.python.covers(python_range));
            if let Some(python_range) = outside {
                return Err(LockError::PythonMismatch { python_range, required: self.python });
            }
            self.packages.iter().try_for_each(|package| lock.require(package))?;
            Ok(lock)
        });
        match lock {
            Ok(lock) => Ok(Self { lock, ..self }),
            Err(source) => Err(DefinitionError::Lock { name: self.name, source }),
        }
    }

    /// The Pythons that it can be built with, given the locked packages.
    pub(crate) fn accepted_pythons(&self) -> VersionRange {
        self.lock.python_range().unwrap_or(self.python)
    }

    /// Feeds the whole definition into `hasher`.
    pub(crate) fn hash_into(&self, hasher: &mut Sha256) {
        // Hashes the parsed value and not the text: a changed comment in the TOML rebuilds nothing.
        hasher.update(format!("{self:?}"));
        hasher.update(self.lock.digest());
    }
}

/// Checks packages first, because toml reports the position of the list and not of the invalid
/// entry. The regular parser reports everything that is not a list of strings.
fn check_packages(text: &str) -> Result<(), DefinitionError> {
    #[derive(Deserialize)]
    struct PackagesField {
        packages: Vec<toml::Spanned<String>>,
    }
    let Ok(PackagesField { packages }) = toml::from_str(text) else { return Ok(()) };
    packages.iter().try_for_each(|package| {
        let line = text[..package.span().start].matches('\n').count() + 1;
        let checked = package.get_ref().parse::<Requirement>();
        checked.map(drop).map_err(|source| DefinitionError::Package { line, source })
    })
}

/// The TOML and the lock of a shipped environment, as text.
pub(crate) fn built_in_text(name: &str) -> Option<(&'static str, &'static str)> {
    let found = BUILT_IN.iter().find(|(known, _, _)| *known == name);
    found.map(|(_, text, lock)| (*text, *lock))
}

pub(crate) fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _, _)| *name)
}

fn built_in_list() -> String {
    built_in_names().collect::<Vec<_>>().join(", ")
}

/// toml prints the position below the message; this puts both into one line.
fn one_line(error: &toml::de::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// From text that this crate composed, and that is valid.
    pub(crate) fn trusted(text: String) -> Self {
        Self(text)
    }
}

impl ModuleName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_valid = text.len() <= NAME_BYTES_MAX
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if is_valid {
            Ok(Self(text))
        } else {
            Err("a name has at most 40 characters of a-z, 0-9 and -, and starts with a letter")
        }
    }
}

impl TryFrom<String> for ModuleName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_identifier = |part: &str| {
            part.starts_with(|c: char| c.is_alphabetic() || c == '_')
                && part.chars().all(|c| c.is_alphanumeric() || c == '_')
        };
        if text.split('.').all(is_identifier) {
            Ok(Self(text))
        } else {
            Err(
                "a module name must be written as after `import`, for example \"matplotlib.pyplot\"",
            )
        }
    }
}

impl TryFrom<String> for VariableName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_valid = text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        if !is_valid {
            return Err("a variable name has only A-Z, 0-9 and _, and starts with a letter");
        }
        if ["LD_", "PYTHON", "PATH", "HOME"].iter().any(|taken| text.starts_with(taken)) {
            return Err(
                "PATH, HOME and the variables of the linker (LD_*) and of Python (PYTHON*) \
                        cannot be set",
            );
        }
        Ok(Self(text))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "`imports` must be \"any\" or a list of modules")]
enum ImportsText {
    Word(String),
    List(Vec<ModuleName>),
}

impl TryFrom<ImportsText> for Imports {
    type Error = &'static str;

    fn try_from(text: ImportsText) -> Result<Self, Self::Error> {
        match text {
            ImportsText::Word(word) if word == "any" => Ok(Self::Any),
            ImportsText::Word(_) => Err("`imports` must be \"any\" or a list of modules"),
            ImportsText::List(modules) => Ok(Self::Only(modules)),
        }
    }
}

impl From<Imports> for ImportsText {
    fn from(imports: Imports) -> Self {
        match imports {
            Imports::Any => Self::Word("any".to_owned()),
            Imports::Only(modules) => Self::List(modules),
        }
    }
}

impl TryFrom<String> for PackageIndex {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.as_str() {
            "none" => Ok(Self::None),
            "pypi" => Ok(Self::Pypi),
            url if url.starts_with("https://") || url.starts_with("http://") => Ok(Self::Url(text)),
            _ => Err("`index` must be \"none\", \"pypi\" or the URL of a package index"),
        }
    }
}

impl From<PackageIndex> for String {
    fn from(index: PackageIndex) -> Self {
        match index {
            PackageIndex::None => "none".to_owned(),
            PackageIndex::Pypi => "pypi".to_owned(),
            PackageIndex::Url(url) => url,
        }
    }
}

macro_rules! as_written {
    ($($name:ty),*) => {$(
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    )*};
}

as_written!(Name, ModuleName, VariableName);

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        name = "small"
        python = "3.12"
        packages = ["Et_XMLfile"]
    "#;
    const SMALL_LOCK: &str = "et-xmlfile==2.0.0 --hash=sha256:aa";

    fn error_message(text: &str, lock: &str) -> String {
        Definition::parse(text, lock).unwrap_err().to_string()
    }

    fn digest(definition: &Definition) -> [u8; 32] {
        let mut hasher = Sha256::new();
        definition.hash_into(&mut hasher);
        hasher.finalize().into()
    }

    #[test]
    fn what_ships_can_be_read() {
        for (name, _, _) in BUILT_IN {
            assert_eq!(Definition::built_in(name).unwrap().name.as_str(), name);
        }
    }

    #[test]
    fn no_lock_names_an_index_or_a_place_of_the_machine_it_was_made_on() {
        for (name, _, _) in BUILT_IN {
            let definition = Definition::built_in(name).unwrap();
            for forbidden in ["://", "/home/", "/root/", "/tmp/", "--index", "--find-links"] {
                assert!(
                    !definition.lock.text().contains(forbidden),
                    "{forbidden} in the lock of {name}"
                );
            }
        }
    }

    #[test]
    fn atlas_is_one_python_without_processes() {
        let atlas = Definition::built_in("atlas").unwrap();
        assert_eq!(atlas.python.to_string(), "3.11");
        assert_eq!(atlas.processes, ProcessesSetting::Deny);
        assert_eq!(atlas.index, PackageIndex::None);
    }

    #[test]
    fn an_unknown_name_says_what_there_is() {
        assert_eq!(
            Definition::built_in("atlantis").unwrap_err().to_string(),
            "environment `atlantis` not found; built-in environments: default, atlas, cortex, \
             coderunner, bare"
        );
    }

    #[test]
    fn what_is_left_out_is_the_common_case() {
        let definition = Definition::parse(SMALL, SMALL_LOCK).unwrap();
        assert_eq!(definition.packages[0].name.as_str(), "et-xmlfile");
        assert_eq!(definition.imports, Imports::Any);
        assert_eq!(definition.processes, ProcessesSetting::Allow);
        assert_eq!(definition.index, PackageIndex::None);
    }

    #[test]
    fn a_list_of_imports_and_a_url_are_read() {
        let text = format!(
            "{SMALL}\nimports = [\"numpy\", \"os.path\"]\nprocesses = \"deny\"\nindex = \"https://example.org/simple\""
        );
        let definition = Definition::parse(&text, SMALL_LOCK).unwrap();
        let modules = ["numpy", "os.path"].map(|name| ModuleName(name.to_owned()));
        assert_eq!(definition.imports, Imports::Only(modules.into()));
        assert_eq!(definition.processes, ProcessesSetting::Deny);
        assert_eq!(definition.index, PackageIndex::Url("https://example.org/simple".to_owned()));
    }

    #[test]
    fn an_unknown_field_is_an_error_with_its_place() {
        let error = error_message(&format!("{SMALL}\npackage = []"), SMALL_LOCK);
        assert!(error.contains("unknown field `package`"), "{error}");
        assert!(error.contains("line 6"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn a_name_that_could_leave_its_directory_is_refused() {
        for name in ["", "..", "a/b", "Default", "1st", "a.b", &"a".repeat(41)] {
            assert!(Name::try_from(name.to_owned()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_variable_that_would_load_other_code_is_refused() {
        for name in ["LD_PRELOAD", "PYTHONPATH", "PATH", "A=B", "a", ""] {
            assert!(VariableName::try_from(name.to_owned()).is_err(), "{name:?}");
        }
        assert!(VariableName::try_from("OPENBLAS_NUM_THREADS".to_owned()).is_ok());
    }

    #[test]
    fn a_preload_that_is_not_a_module_is_refused() {
        for name in ["", "os;import sys", "a..b", "a b", "1a"] {
            assert!(ModuleName::try_from(name.to_owned()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_package_outside_the_lock_is_refused() {
        assert_eq!(
            error_message(SMALL, "numpy==2.4.6 --hash=sha256:aa"),
            "environment `small`: `et-xmlfile` is not in the lock; create the lock again"
        );
    }

    #[test]
    fn the_digest_follows_the_meaning_and_the_lock() {
        let one = Definition::parse(SMALL, SMALL_LOCK).unwrap();
        let commented = Definition::parse(&format!("# a note\n{SMALL}"), SMALL_LOCK).unwrap();
        let preloaded =
            Definition::parse(&format!("{SMALL}\npreload = [\"et_xmlfile\"]"), SMALL_LOCK);
        let relocked = Definition::parse(SMALL, "et-xmlfile==2.0.0 --hash=sha256:bb").unwrap();
        assert_eq!(digest(&one), digest(&commented));
        assert_ne!(digest(&one), digest(&preloaded.unwrap()));
        assert_ne!(digest(&one), digest(&relocked));
    }

    #[test]
    fn an_environment_is_found_by_what_can_be_imported_in_it() {
        assert_eq!(
            Definition::built_in_with_module("numpy.linalg"),
            ["default", "atlas", "cortex", "coderunner"]
        );
        assert_eq!(Definition::built_in_with_module("cognite"), ["atlas"]);
        assert_eq!(Definition::built_in_with_module("nothing"), Vec::<&str>::new());
    }
}
