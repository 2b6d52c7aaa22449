//! Why there is no environment, by the failed step.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::definition::{DefinitionError, Name};
use crate::discovery::SkipReason;
use crate::host_settings::IndexUrl;
use crate::requirement::Requirement;
use crate::unlocked_definition::SourceLine;
use crate::version::{OLDEST_MINOR, PythonVersion, VersionRange};

/// The environment that always works, with the options of `run` and of `serve`.
const BARE: &str = "use environment `bare` (`--env bare`, or `serve --environment bare`)";

/// Each message is one line that says what happened and what to do.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "environment `{name}` requires CPython {required}, and none was found (skipped: \
         {skipped}; see `belljar doctor`); install one, for example with `uv python install \
         \"{required}\"`, or select one with `--python PATH`"
    )]
    NoPython { name: Name, required: VersionRange, skipped: usize },

    #[error(
        "environment `{name}` requires CPython {required}, which is not on this machine, and uv could \
         not download it ({cause}); connect to the network once, or install it, for example with \
         `uv python install \"{required}\"`"
    )]
    PythonNotFetched { name: Name, required: VersionRange, cause: String },

    #[error("CPython {requested} is not supported; use 3.{OLDEST_MINOR} or newer")]
    OldPython { requested: VersionRange },

    #[error("Python at {} cannot be used: {reason}; select another with `--python PATH`", .path.display())]
    UnusablePython { path: PathBuf, reason: SkipReason },

    #[error(
        "environment `{name}` requires CPython {required}, and the one at {} is {version}; select \
         another with `--python PATH`",
        .path.display()
    )]
    OtherPython { name: Name, path: PathBuf, version: PythonVersion, required: VersionRange },

    #[error(
        "uv is not installed, and downloading it from the package index {index} failed ({detail}); \
         install uv, connect to the network once, or {BARE}"
    )]
    UvUnavailable { index: IndexUrl, detail: String },

    #[error(
        "the uv downloaded from {index} does not have the expected hash ({detail}) and was \
         deleted; install uv yourself, or {BARE}"
    )]
    UvDigestMismatch { index: IndexUrl, detail: String },

    #[error(
        "uv is not installed, and Belljar cannot download it for {architecture}; install uv, or \
         {BARE}"
    )]
    UvUnknown { architecture: &'static str },

    #[error(
        "packages of environment `{name}` ({}) are not on this machine, and the package index \
         {index} is unreachable ({cause}); connect to the network once, pass a directory that \
         contains them with --wheels DIR, or {BARE}",
        list(.missing)
    )]
    IndexUnreachable { name: Name, missing: Vec<Requirement>, index: IndexUrl, cause: String },

    #[error(
        "uv failed to install the packages of environment `{name}` ({status}): {detail}; create \
         its lock again, or {BARE}"
    )]
    Install { name: Name, status: ExitStatus, detail: String },

    #[error("environment `{name}` cannot be locked: {}{failure}: {detail}", places(.lines))]
    Lock { name: Name, lines: Vec<SourceLine>, failure: ResolutionFailure, detail: String },

    #[error("{0}")]
    Definition(#[from] DefinitionError),

    #[error("environment `{name}` not found; available: {}", .known.join(", "))]
    Unknown { name: String, known: Vec<String> },

    #[error("environment `{name}` is built in and cannot be changed; choose another name")]
    Shipped { name: Name },

    #[error("the stored definition of environment `{name}` is invalid: {source}; build it again")]
    StoredDefinition { name: Name, source: serde_json::Error },

    #[error("byte-compiling environment `{name}` failed ({status}): {detail}; try again")]
    Compile { name: Name, status: ExitStatus, detail: String },

    #[error(
        "{} was killed by signal {signal}, most often because memory ran out; free memory and try \
         again",
        .program.display()
    )]
    Killed { program: PathBuf, signal: i32 },

    #[error("{} could not be started: {source}", .program.display())]
    Run { program: PathBuf, source: io::Error },

    #[error("{action} {} failed: {source}; check its permissions and the free disk space", .path.display())]
    Files { action: &'static str, path: PathBuf, source: io::Error },
}

/// Why packages cannot be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolutionFailure {
    #[error("package not found; check its name, or put its wheel into --wheels DIR")]
    Unknown,
    #[error("version not found; request another")]
    NoVersion,
    #[error(
        "no wheel for this Python and machine, and Belljar does not build from source, because \
         that runs code of the package outside the sandbox; request another version, or build a \
         wheel yourself and put it into --wheels DIR"
    )]
    NoWheel,
    #[error("this version was yanked by its authors; request another")]
    Yanked,
    #[error(
        "package is not on this machine, and the index is not used; connect to the network, or put \
         its wheel into --wheels DIR"
    )]
    Offline,
    #[error("requirements conflict; loosen one of them")]
    Conflict,
}

impl BuildError {
    /// For `map_err` on an operation with one path.
    pub(crate) fn files(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Files { action, path, source }
    }
}

fn list(packages: &[Requirement]) -> String {
    let names: Vec<String> = packages.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn places(lines: &[SourceLine]) -> String {
    let places: Vec<String> = lines.iter().map(ToString::to_string).collect();
    if places.is_empty() { String::new() } else { format!("{}: ", places.join(", ")) }
}
