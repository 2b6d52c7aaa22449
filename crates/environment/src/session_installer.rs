//! Adds packages to a session. It resolves the versions first, so that they can be reviewed before
//! anything is downloaded, and then installs them into a separate directory.
//!
//! The packages of the environment do not change, because their modules may be imported already:
//! their exact versions constrain the resolution, and only missing packages are downloaded. Nothing
//! is built from source, since that would run its author's program outside of any sandbox.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::builder;
use crate::definition::PackageIndex;
use crate::disk_usage::{self, DiskUsage};
use crate::environment::{BuiltEnvironment, PackageVersion};
use crate::error::{BuildError, ResolutionFailure};
use crate::host_settings::{HostSettings, IndexUrl};
use crate::lock::{Lock, LockError};
use crate::lock_resolver::classify_failure;
use crate::requirement::{PackageName, Requirement};
use crate::subprocess::CancelFlag;
use crate::uv::{Installation, Resolution, Uv, UvError};

/// Limit of one session, unpacked: more than most need, and a few sessions cannot exhaust a disk or
/// its inodes.
const SESSION_MAX: DiskUsage = DiskUsage { bytes: 512 * 1024 * 1024, files: 50_000 };
/// uv's message about a conflict can be very long, and its beginning names the packages.
const DETAIL_CHARS_MAX: usize = 1_000;

/// The packages that a session requests, and the constraints of the resolution.
#[derive(Debug, Clone)]
pub struct PackageRequest {
    pub requirements: Vec<Requirement>,
    /// Packages that the session has installed before.
    pub present: Vec<PackageVersion>,
    /// Fixed versions of packages that are not installed yet.
    pub pins: Vec<PackageVersion>,
    pub index: PackageIndex,
}

/// The exact packages that are missing.
#[derive(Debug, Clone)]
pub struct ResolvedPackages {
    pub packages: Vec<PackageVersion>,
    index: PackageIndex,
    lock: String,
}

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("the environment has no package index")]
    NoIndex,
    #[error("{detail}")]
    Unavailable { failure: ResolutionFailure, detail: String },
    #[error("package index {index} is unreachable ({cause})")]
    IndexUnreachable { index: IndexUrl, cause: String },
    #[error(
        "packages of this session would exceed {} bytes or {} files",
        SESSION_MAX.bytes, SESSION_MAX.files
    )]
    TooLarge,
    #[error("the resolved packages are not a valid lock: {0}")]
    Lock(#[from] LockError),
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Installs packages for sessions of one environment.
#[derive(Debug)]
pub struct SessionInstaller<'a> {
    pub(crate) environment: &'a BuiltEnvironment,
    pub(crate) machine: HostSettings,
    pub(crate) tools: PathBuf,
    pub(crate) cache: PathBuf,
    /// Set when the caller goes away.
    pub(crate) cancel: CancelFlag,
}

impl SessionInstaller<'_> {
    pub fn resolve(&self, request: PackageRequest) -> Result<ResolvedPackages, InstallError> {
        let bound = self.constraints(&request);
        let directory = scratch_directory()?;
        let [requirements, constraints, lock] =
            ["packages.in", "constraints.in", "packages.lock"].map(|it| directory.path().join(it));
        write_lines(&requirements, request.requirements.iter().map(ToString::to_string))?;
        write_lines(
            &constraints,
            bound.iter().map(|(name, version)| format!("{name}=={version}")),
        )?;
        let resolution = Resolution {
            requirements: &requirements,
            constraints: Some(&constraints),
            python: &self.environment.python.executable,
            lock: &lock,
            directory: directory.path(),
            cache: &self.cache,
        };
        let machine = self.host_for_index(&request.index)?;
        let resolved = self.uv(&machine)?.resolve(&resolution, &machine)?;
        let warnings = resolved.map_err(|failure| install_error(failure, &machine))?;
        if let Some(yanked) = warnings.into_iter().find(|it| it.contains(" is yanked")) {
            return Err(unavailable_error(ResolutionFailure::Yanked, &yanked));
        }
        let text = fs::read_to_string(&lock).map_err(BuildError::files("reading", &lock))?;
        let missing = Lock::parse(&text)?.without(|name| self.is_present(&request, name))?;
        Ok(ResolvedPackages {
            packages: missing.packages(),
            index: request.index,
            lock: missing.text().into(),
        })
    }

    /// Installs the resolved packages into an empty directory. Returns the new total usage of a
    /// session that had `present` before. After a failure the directory may have remains.
    pub fn install(
        &self,
        choice: &ResolvedPackages,
        target: &Path,
        present: DiskUsage,
    ) -> Result<DiskUsage, InstallError> {
        let directory = scratch_directory()?;
        let lock = directory.path().join("packages.lock");
        fs::write(&lock, &choice.lock).map_err(BuildError::files("writing", &lock))?;
        let installation = Installation {
            lock: &lock,
            python: &self.environment.python.executable,
            prefix: target,
            cache: &self.cache,
        };
        let machine = self.host_for_index(&choice.index)?;
        let uv = self.uv(&machine)?;
        let install = || uv.install_to_target(&installation, &machine);
        let installed = disk_usage::run_bounded(&self.cache, SESSION_MAX, &self.cancel, install)
            .map_err(BuildError::files("clearing", &self.cache))?
            .ok_or(InstallError::TooLarge)?;
        installed?.map_err(|failure| install_error(failure, &machine))?;
        let added = builder::finish_target_directory(target)
            .map_err(BuildError::files("making readable", target))?;
        let amount = present + added;
        if amount.exceeds(SESSION_MAX) { Err(InstallError::TooLarge) } else { Ok(amount) }
    }

    /// Exact versions of the present packages, and of the pinned ones.
    fn constraints(&self, request: &PackageRequest) -> BTreeMap<PackageName, String> {
        let settled = request.pins.iter().chain(&request.present).chain(&self.environment.packages);
        let named =
            settled.filter_map(|it| Some((PackageName::new(&it.name)?, it.version.clone())));
        named.collect()
    }

    fn is_present(&self, request: &PackageRequest, name: &PackageName) -> bool {
        let mut here = request.present.iter().chain(&self.environment.packages);
        here.any(|package| PackageName::new(&package.name).as_ref() == Some(name))
    }

    fn host_for_index(&self, index: &PackageIndex) -> Result<HostSettings, InstallError> {
        let machine = self.machine.clone();
        match index {
            PackageIndex::None => Err(InstallError::NoIndex),
            PackageIndex::Pypi => Ok(machine),
            PackageIndex::Url(url) => Ok(HostSettings { index: IndexUrl::new(url), ..machine }),
        }
    }

    fn uv(&self, machine: &HostSettings) -> Result<Uv, BuildError> {
        let python = &self.environment.python.executable;
        Ok(Uv::obtain(machine, &self.tools, python, &mut |_| ())?.with_cancel(self.cancel.clone()))
    }
}

fn install_error(failure: UvError, machine: &HostSettings) -> InstallError {
    match failure {
        UvError::Failed { detail, .. } => unavailable_error(classify_failure(&detail), &detail),
        UvError::IndexUnreachable { cause } => {
            InstallError::IndexUnreachable { index: machine.index.clone(), cause }
        }
    }
}

fn unavailable_error(failure: ResolutionFailure, detail: &str) -> InstallError {
    let text = detail.split_whitespace().collect::<Vec<_>>().join(" ");
    InstallError::Unavailable { failure, detail: text.chars().take(DETAIL_CHARS_MAX).collect() }
}

fn scratch_directory() -> Result<tempfile::TempDir, BuildError> {
    tempfile::tempdir().map_err(BuildError::files("making a directory in", std::env::temp_dir()))
}

fn write_lines(path: &Path, lines: impl Iterator<Item = String>) -> Result<(), BuildError> {
    let text: String = lines.map(|line| line + "\n").collect();
    fs::write(path, text).map_err(BuildError::files("writing", path))
}
