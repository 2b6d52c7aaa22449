//! Finds the Pythons of a host.
//!
//! A candidate is accepted only after it ran and reported what it is. The result is the real
//! interpreter, never a shim, a wrapper or a virtual environment, because only a real one can be
//! mounted at another path. Skipped candidates are reported with the reason.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host_settings::HostSettings;
use crate::subprocess;
use crate::version::{OLDEST_MINOR, PythonVersion, VersionRange};

const PROBE: &str = include_str!("python/probe.py");

/// A cold start from a slow disk takes a second or two.
const PROBE_TIME: Duration = Duration::from_secs(10);

/// The part of the file system that every jail has: a Python below it needs no mount.
pub(crate) const SYSTEM_PREFIX: &str = "/usr";

/// A CPython that can be mounted into a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonInstallation {
    pub version: PythonVersion,
    /// The real program, below `prefix`.
    pub executable: PathBuf,
    /// The directory of the program and its standard library, which sandboxes must see.
    pub prefix: PathBuf,
    /// Whether the program needs `libpython` from the `lib` directory of its prefix.
    pub shared_library: bool,
}

/// The result of a search.
#[derive(Debug, Clone, Default)]
pub struct DiscoveredPythons {
    /// Newest first.
    pub found: Vec<PythonInstallation>,
    pub skipped: Vec<SkippedPython>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedPython {
    pub path: PathBuf,
    pub reason: SkipReason,
}

/// Why a Python was skipped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    #[error("it cannot be started ({})", io::Error::from(*.kind))]
    CannotStart { kind: io::ErrorKind },
    #[error("it did not report its version{}", in_parentheses(.message))]
    NoAnswer { message: Option<String> },
    #[error("it did not respond within {} s", PROBE_TIME.as_secs())]
    TooSlow,
    #[error("it is {implementation}, not CPython")]
    NotCPython { implementation: String },
    #[error("{version} is older than 3.{OLDEST_MINOR}")]
    TooOld { version: PythonVersion },
    #[error("{version} is a {level} release")]
    NotFinal { version: PythonVersion, level: String },
    #[error("it is a free-threaded build")]
    FreeThreaded,
    #[error("it is a {bits}-bit build")]
    WrongWidth { bits: u16 },
    #[error("{} is outside its prefix {}", .part.display(), .prefix.display())]
    OutsidePrefix { part: PathBuf, prefix: PathBuf },
    #[error("its prefix {} contains a home directory, which every sandbox would see", .prefix.display())]
    ExposesHome { prefix: PathBuf },
}

fn in_parentheses(message: &Option<String>) -> String {
    message.as_ref().map(|line| format!(" ({line})")).unwrap_or_default()
}

/// The output of `probe.py`.
#[derive(Debug, Clone, Deserialize)]
struct ProbeReport {
    implementation: String,
    version: [u16; 3],
    release_level: String,
    free_threaded: bool,
    pointer_bits: u16,
    executable: PathBuf,
    prefix: PathBuf,
    stdlib: PathBuf,
    shared_library: bool,
}

impl DiscoveredPythons {
    /// The newest Python that a definition accepts.
    pub fn newest(&self, range: &VersionRange) -> Option<&PythonInstallation> {
        self.found.iter().find(|python| range.contains(python.version))
    }
}

/// Searches `PATH`, the versions of pyenv, and those that uv installed, for its user or for Belljar.
pub fn discover(machine: &HostSettings) -> DiscoveredPythons {
    let mut discovery = DiscoveredPythons::default();
    let mut seen = BTreeSet::new();
    for candidate in candidates(machine) {
        if !seen.insert(real_program(&candidate)) {
            continue;
        }
        match probe_python(&candidate, machine) {
            Ok(python) if discovery.found.contains(&python) => {}
            Ok(python) => discovery.found.push(python),
            Err(reason) => discovery.skipped.push(SkippedPython { path: candidate, reason }),
        }
    }
    // Stable: of two with the same version, the one that comes first on `PATH` wins.
    discovery.found.sort_by_key(|python| std::cmp::Reverse(python.version));
    discovery
}

/// Runs one Python and checks its report.
pub(crate) fn probe_python(
    path: &Path,
    machine: &HostSettings,
) -> Result<PythonInstallation, SkipReason> {
    validate(run_probe(path)?, machine.home.as_deref())
}

fn candidates(machine: &HostSettings) -> Vec<PathBuf> {
    // The Pythons behind pyenv's shims are found among its versions, without a shell for each.
    let shims = machine.pyenv_root.as_ref().map(|root| root.join("shims"));
    let on_path = machine
        .search_path
        .iter()
        .filter(|directory| Some(*directory) != shims.as_ref())
        .flat_map(|directory| pythons_in(directory));
    let pyenv = machine.pyenv_root.iter().flat_map(|root| installations(&root.join("versions")));
    let uv = machine.uv_pythons.iter().flat_map(|root| installations(root));
    let managed = machine.managed_pythons.iter().flat_map(|root| installations(root));
    on_path.chain(pyenv).chain(uv).chain(managed).collect()
}

/// `python3` and `python3.X` in one directory, sorted by name.
fn pythons_in(directory: &Path) -> Vec<PathBuf> {
    let mut pythons: Vec<PathBuf> = entries(directory)
        .into_iter()
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(names_python))
        .collect();
    pythons.sort();
    pythons
}

fn names_python(name: &str) -> bool {
    name.strip_prefix("python3").is_some_and(|rest| {
        rest.is_empty()
            || rest
                .strip_prefix('.')
                .is_some_and(|minor| !minor.is_empty() && minor.chars().all(|c| c.is_ascii_digit()))
    })
}

/// `bin/python3` of every directory below `root`.
fn installations(root: &Path) -> Vec<PathBuf> {
    let mut pythons: Vec<PathBuf> = entries(root)
        .into_iter()
        .map(|directory| directory.join("bin/python3"))
        .filter(|python| python.is_file())
        .collect();
    pythons.sort();
    pythons
}

/// The entries of a directory; none if it is missing, as most searched directories are.
fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default()
}

/// The target of the links, if it is an interpreter. Some shims are links to a program that
/// inspects the name it was called by, so those stay unresolved.
fn real_program(path: &Path) -> PathBuf {
    fs::canonicalize(path)
        .ok()
        .filter(|real| {
            real.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"python"))
        })
        .unwrap_or_else(|| path.to_owned())
}

fn run_probe(path: &Path) -> Result<ProbeReport, SkipReason> {
    let ended = subprocess::run_with_timeout(
        subprocess::isolated_python(path).args(["-c", PROBE]),
        PROBE_TIME,
    )
    .map_err(|error| SkipReason::CannotStart { kind: error.kind() })?
    .ok_or(SkipReason::TooSlow)?;
    serde_json::from_str(&ended.stdout)
        .map_err(|_| SkipReason::NoAnswer { message: ended.last_lines.first().cloned() })
}

fn validate(answer: ProbeReport, home: Option<&Path>) -> Result<PythonInstallation, SkipReason> {
    let [major, minor, micro] = answer.version;
    let version = PythonVersion { major, minor, micro };
    let prefix = answer.prefix;
    if answer.implementation != "CPython" {
        return Err(SkipReason::NotCPython { implementation: answer.implementation });
    }
    if (major, minor) < (3, OLDEST_MINOR) {
        return Err(SkipReason::TooOld { version });
    }
    if answer.release_level != "final" {
        return Err(SkipReason::NotFinal { version, level: answer.release_level });
    }
    if answer.free_threaded {
        return Err(SkipReason::FreeThreaded);
    }
    if answer.pointer_bits != 64 {
        return Err(SkipReason::WrongWidth { bits: answer.pointer_bits });
    }
    if holds_a_home(&prefix, home) {
        return Err(SkipReason::ExposesHome { prefix });
    }
    for part in [&answer.executable, &answer.stdlib] {
        if !part.starts_with(&prefix) {
            return Err(SkipReason::OutsidePrefix { part: part.clone(), prefix });
        }
    }
    Ok(PythonInstallation {
        version,
        executable: answer.executable,
        prefix,
        shared_library: answer.shared_library,
    })
}

/// Whether mounting `prefix` would expose a home directory: `/`, `/home`, `/root`, or the home of
/// the current user.
fn holds_a_home(prefix: &Path, home: Option<&Path>) -> bool {
    let homes = [Some(Path::new("/root")), Some(Path::new("/home")), home];
    prefix != Path::new(SYSTEM_PREFIX)
        && homes.into_iter().flatten().any(|home| home.starts_with(prefix))
}

impl fmt::Display for PythonInstallation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CPython {} at {}", self.version, self.executable.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> ProbeReport {
        ProbeReport {
            implementation: "CPython".to_owned(),
            version: [3, 13, 0],
            release_level: "final".to_owned(),
            free_threaded: false,
            pointer_bits: 64,
            executable: "/opt/py/bin/python3.13".into(),
            prefix: "/opt/py".into(),
            stdlib: "/opt/py/lib/python3.13".into(),
            shared_library: false,
        }
    }

    fn validated(answer: ProbeReport) -> Result<PathBuf, SkipReason> {
        validate(answer, Some(Path::new("/home/ada"))).map(|python| python.executable)
    }

    #[test]
    fn a_usual_cpython_is_taken() {
        assert_eq!(validated(answer()), Ok("/opt/py/bin/python3.13".into()));
    }

    #[test]
    fn other_kinds_of_python_are_refused_by_their_kind() {
        let pypy = ProbeReport { implementation: "PyPy".to_owned(), ..answer() };
        assert_eq!(
            validated(pypy),
            Err(SkipReason::NotCPython { implementation: "PyPy".to_owned() })
        );
        let free_threaded = ProbeReport { free_threaded: true, ..answer() };
        assert_eq!(validated(free_threaded), Err(SkipReason::FreeThreaded));
        let narrow = ProbeReport { pointer_bits: 32, ..answer() };
        assert_eq!(validated(narrow), Err(SkipReason::WrongWidth { bits: 32 }));
    }

    #[test]
    fn old_and_unfinished_versions_are_refused() {
        let old = ProbeReport { version: [3, 10, 13], ..answer() };
        assert_eq!(validated(old).unwrap_err().to_string(), "3.10.13 is older than 3.11");
        let candidate = ProbeReport { release_level: "candidate".to_owned(), ..answer() };
        assert_eq!(validated(candidate).unwrap_err().to_string(), "3.13.0 is a candidate release");
    }

    fn validated_at(prefix: &str) -> Result<PathBuf, SkipReason> {
        validated(ProbeReport {
            executable: Path::new(prefix).join("bin/python3"),
            stdlib: Path::new(prefix).join("lib/python3.13"),
            prefix: prefix.into(),
            ..answer()
        })
    }

    #[test]
    fn a_prefix_that_holds_a_home_is_refused() {
        for prefix in ["/", "/home", "/home/ada", "/root"] {
            let reason = SkipReason::ExposesHome { prefix: prefix.into() };
            assert_eq!(validated_at(prefix), Err(reason), "{prefix}");
        }
    }

    #[test]
    fn a_prefix_below_a_home_is_taken() {
        for prefix in ["/usr", "/usr/local", "/root/.pyenv/versions/3.13.0", "/home/ada/python"] {
            assert!(validated_at(prefix).is_ok(), "{prefix}");
        }
    }

    #[test]
    fn a_program_outside_its_prefix_is_refused() {
        let scattered = ProbeReport { executable: "/usr/bin/python3".into(), ..answer() };
        assert_eq!(
            validated(scattered).unwrap_err().to_string(),
            "/usr/bin/python3 is outside its prefix /opt/py"
        );
    }

    #[test]
    fn only_interpreters_are_candidates() {
        for name in ["python3", "python3.11", "python3.14"] {
            assert!(names_python(name), "{name}");
        }
        for name in [
            "python",
            "python2.7",
            "python3-config",
            "python3.11-config",
            "python3.14t",
            "python3.",
        ] {
            assert!(!names_python(name), "{name}");
        }
    }
}
