//! Resolves requested packages to exact versions.
//!
//! uv resolves them; its errors are mapped to the lines that users wrote. A yanked version is
//! refused although uv would install it: a lock is meant to last for years.

use std::fs;
use std::path::{Path, PathBuf};

use crate::definition::DefinitionError;
use crate::discovery::PythonInstallation;
use crate::error::{BuildError, ResolutionFailure};
use crate::host_settings::HostSettings;
use crate::lock::{self, Lock, LockError};
use crate::progress::Progress;
use crate::unlocked_definition::UnlockedDefinition;
use crate::uv::{Resolution, Uv, UvError};
use crate::version::VersionRange;

/// All inputs that decide the content of a lock.
#[derive(Debug)]
pub(crate) struct LockResolver<'a> {
    pub(crate) draft: &'a UnlockedDefinition,
    pub(crate) python: &'a PythonInstallation,
    pub(crate) machine: &'a HostSettings,
    pub(crate) tools: PathBuf,
    pub(crate) cache: PathBuf,
}

impl LockResolver<'_> {
    /// Resolves the text of the lock in `directory`, which exists and is empty.
    pub(crate) fn resolve_lock(
        &self,
        directory: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<String, BuildError> {
        let heading = lock::heading(VersionRange::only(self.python.version));
        if self.draft.definition.packages.is_empty() {
            return Ok(heading);
        }
        progress(Progress::Locking { python: self.python.version });
        let pins = self.resolve(directory, None, progress)?.map_err(|detail| {
            self.refused_error(classify_failure(&detail), strip_boilerplate(&detail))
        })?;
        Ok(heading + &pins)
    }

    /// Verifies that a lock from a user has exactly the packages that a resolution among its
    /// versions would choose.
    pub(crate) fn verify(
        &self,
        lock: &Lock,
        directory: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), BuildError> {
        let invalid = |source: LockError| {
            BuildError::from(DefinitionError::Lock { name: self.draft.name().clone(), source })
        };
        if self.draft.definition.packages.is_empty() {
            return lock.check_matches(&Lock::default()).map_err(invalid);
        }
        progress(Progress::CheckingLock);
        let pins = directory.join("pins");
        fs::write(&pins, lock.to_constraints()).map_err(BuildError::files("writing", &pins))?;
        let chosen = self.resolve(directory, Some(&pins), progress)?;
        let chosen =
            chosen.map_err(|detail| invalid(lock.conflict_error(&strip_boilerplate(&detail))))?;
        Lock::parse(&chosen).and_then(|chosen| lock.check_matches(&chosen)).map_err(invalid)
    }

    /// Runs uv, and returns its choice or its error message.
    fn resolve(
        &self,
        directory: &Path,
        constraints: Option<&Path>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Result<String, String>, BuildError> {
        let uv = Uv::obtain(self.machine, &self.tools, &self.python.executable, progress)?;
        let requirements = directory.join("packages.in");
        let packages = self.draft.definition.packages.iter();
        let list: String = packages.map(|package| format!("{package}\n")).collect();
        fs::write(&requirements, list).map_err(BuildError::files("writing", &requirements))?;
        let lock = directory.join("packages.lock");
        let resolution = Resolution {
            requirements: &requirements,
            constraints,
            python: &self.python.executable,
            lock: &lock,
            directory,
            cache: &self.cache,
        };
        let warnings = match uv.resolve(&resolution, self.machine)? {
            Ok(warnings) => warnings,
            Err(UvError::Failed { detail, .. }) => return Ok(Err(detail)),
            Err(UvError::IndexUnreachable { cause }) => return Err(self.unreachable_error(cause)),
        };
        if let Some(yanked) = warnings.into_iter().find(|it| it.contains(" is yanked")) {
            return Err(self.refused_error(ResolutionFailure::Yanked, yanked));
        }
        fs::read_to_string(&lock).map(Ok).map_err(BuildError::files("reading", &lock))
    }

    fn unreachable_error(&self, cause: String) -> BuildError {
        BuildError::IndexUnreachable {
            name: self.draft.name().clone(),
            missing: self.draft.definition.packages.clone(),
            index: self.machine.index.clone(),
            cause,
        }
    }

    fn refused_error(&self, failure: ResolutionFailure, detail: String) -> BuildError {
        let lines = self.draft.lines_about(&detail);
        BuildError::Lock { name: self.draft.name().clone(), lines, failure, detail }
    }
}

/// uv's message without the boilerplate of every failure, and without hints about its own options.
fn strip_boilerplate(detail: &str) -> String {
    let detail = detail.trim_start_matches("No solution found when resolving dependencies: ");
    let detail = detail.split(": hint: ").next().unwrap_or_default();
    detail.replace(".: And ", ". And ").replace("::", ":")
}

/// uv has one exit status for every failure, so its message has to tell which it was.
pub(crate) fn classify_failure(detail: &str) -> ResolutionFailure {
    let mentions = |phrases: &[&str]| phrases.iter().any(|phrase| detail.contains(phrase));
    if mentions(&["not found in the cache", "network was disabled"]) {
        ResolutionFailure::Offline
    } else if mentions(&["was not found in"]) {
        ResolutionFailure::Unknown
    } else if mentions(&[
        "no usable wheels",
        "no wheels with",
        "no matching",
        "Wheels are required",
    ]) {
        ResolutionFailure::NoWheel
    } else if mentions(&["yanked"]) {
        ResolutionFailure::Yanked
    } else if mentions(&[
        "there is no version of",
        "only the following versions",
        "is available and you require",
    ]) {
        ResolutionFailure::NoVersion
    } else {
        ResolutionFailure::Conflict
    }
}
