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
        "environment `{name}` needs CPython {wanted}, and none was found (passed over: \
         {passed_over}; `belljar doctor` says why); install one, for example with \
         `uv python install \"{wanted}\"`, or name one with `--python PATH`"
    )]
    NoPython { name: Name, wanted: VersionRange, passed_over: usize },

    #[error(
        "CPython {asked} is older than 3.{OLDEST_MINOR}, the oldest that can be used; name another"
    )]
    OldPython { asked: VersionRange },

    #[error("the Python at {} cannot be used: {reason}; name another", .path.display())]
    UnusablePython { path: PathBuf, reason: SkipReason },

    #[error(
        "environment `{name}` needs CPython {wanted}, and the one at {} is {version}; name another",
        .path.display()
    )]
    OtherPython { name: Name, path: PathBuf, version: PythonVersion, wanted: VersionRange },

    #[error(
        "there is no uv on this machine to install packages with, and the package index {index} \
         could not give it ({detail}); install uv, or connect once, or {BARE}"
    )]
    UvUnavailable { index: IndexUrl, detail: String },

    #[error(
        "the uv that {index} gave is not the one that Belljar knows ({detail}), so it was thrown \
         away; install uv yourself, or {BARE}"
    )]
    UvDigestMismatch { index: IndexUrl, detail: String },

    #[error(
        "there is no uv on this machine, and none is known for {architecture}; install uv, or {BARE}"
    )]
    UvUnknown { architecture: &'static str },

    #[error(
        "the packages of environment `{name}` ({}) are not on this machine, and the package \
         index {index} cannot be reached ({cause}); connect once, name a directory that has them \
         with --wheels DIR, or {BARE}",
        list(.missing)
    )]
    IndexUnreachable { name: Name, missing: Vec<Requirement>, index: IndexUrl, cause: String },

    #[error(
        "uv could not install the packages of environment `{name}` ({status}): {detail}; make its \
         lock again, or {BARE}"
    )]
    Install { name: Name, status: ExitStatus, detail: String },

    #[error("environment `{name}` cannot be locked: {}{trouble}: {detail}", places(.lines))]
    Lock { name: Name, lines: Vec<SourceLine>, trouble: ResolutionFailure, detail: String },

    #[error("{0}")]
    Definition(#[from] DefinitionError),

    #[error("there is no environment `{name}`; there are: {}", .known.join(", "))]
    Unknown { name: String, known: Vec<String> },

    #[error("`{name}` ships with Belljar and stays as it is; choose another name")]
    Shipped { name: Name },

    #[error("the kept definition of environment `{name}` cannot be read: {source}; build it again")]
    StoredDefinition { name: Name, source: serde_json::Error },

    #[error("byte-compiling environment `{name}` failed ({status}): {detail}; try again")]
    Compile { name: Name, status: ExitStatus, detail: String },

    #[error(
        "{} was killed (signal {signal}) before it had ended, most often because memory ran out; \
         try again",
        .program.display()
    )]
    Killed { program: PathBuf, signal: i32 },

    #[error("{} could not be run: {source}", .program.display())]
    Run { program: PathBuf, source: io::Error },

    #[error("{action} {} failed: {source}; check the rights and the free space there", .path.display())]
    Files { action: &'static str, path: PathBuf, source: io::Error },
}

/// Why packages cannot be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolutionFailure {
    #[error("there is no such package; check its name, or put a wheel of it into --wheels DIR")]
    Unknown,
    #[error("there is no such version; ask for another")]
    NoVersion,
    #[error(
        "there is no wheel for this Python and machine, and nothing is built from source, because \
         that would run a program of its author outside of any sandbox; ask for another version, or \
         build a wheel yourself and put it into --wheels DIR"
    )]
    NoWheel,
    #[error("its authors have taken this version back; ask for another")]
    Yanked,
    #[error(
        "it is not on this machine, and the index is not asked; connect, or add it to --wheels DIR"
    )]
    Offline,
    #[error("these cannot be had together; loosen one of them")]
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
