//! Why there is no environment, by the step that failed.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::definition::{Name, PackageName};
use crate::discovery::SkipReason;
use crate::machine::IndexUrl;
use crate::version::{PythonVersion, VersionRange};

/// What always works, by the options of those who run code and of those who serve it.
const BARE: &str = "use environment `bare` (`--env bare`, or `serve --environment bare`)";

/// Each is one line that says what happened and what to do.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "environment `{name}` needs CPython {wanted}, and none was found (passed over: \
         {passed_over}; `belljar doctor` says why); install one, for example with \
         `uv python install \"{wanted}\"`, or name one with `--python PATH`"
    )]
    NoPython { name: Name, wanted: VersionRange, passed_over: usize },

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
    UvForged { index: IndexUrl, detail: String },

    #[error(
        "there is no uv on this machine, and none is known for {architecture}; install uv, or {BARE}"
    )]
    UvUnknown { architecture: &'static str },

    #[error(
        "the packages of environment `{name}` ({}) are not on this machine, and the package \
         index {index} cannot be reached ({cause}); connect once, or {BARE}",
        list(.missing)
    )]
    IndexUnreachable { name: Name, missing: Vec<PackageName>, index: IndexUrl, cause: String },

    #[error(
        "uv could not install the packages of environment `{name}` ({status}): {detail}; make its \
         lock again, or {BARE}"
    )]
    Install { name: Name, status: ExitStatus, detail: String },

    #[error("byte-compiling environment `{name}` failed ({status}): {detail}; try again")]
    Compile { name: Name, status: ExitStatus, detail: String },

    #[error("{} cannot be started: {source}", .program.display())]
    Start { program: PathBuf, source: io::Error },

    #[error("{action} {} failed: {source}; check the rights and the free space there", .path.display())]
    Files { action: &'static str, path: PathBuf, source: io::Error },
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

fn list(packages: &[PackageName]) -> String {
    let names: Vec<&str> = packages.iter().map(PackageName::as_str).collect();
    names.join(", ")
}
