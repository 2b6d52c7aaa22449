//! Progress of a build. Callers receive it; this crate never prints.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::discovery::PythonInstallation;
use crate::version::{PythonVersion, VersionRange};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Another process is building the same environment.
    Waiting,
    FoundPython {
        python: PythonInstallation,
    },
    /// This host has no uv; it is downloaded once from the package index.
    FetchingUv {
        version: &'static str,
    },
    /// The environment is for a Python that this host does not have; uv downloads it once.
    FetchingPython {
        required: VersionRange,
    },
    /// The exact versions of packages are being resolved.
    Locking {
        python: PythonVersion,
    },
    /// A lock from a user is being compared with the needs of its packages.
    CheckingLock,
    Resolving,
    Installing {
        packages: usize,
    },
    /// Reported for larger packages only; the size is formatted for people, as in `15.9MiB`.
    Downloading {
        package: String,
        size: String,
    },
    Compiling,
    CachingFonts,
    Ready {
        directory: PathBuf,
        elapsed: Duration,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => formatter
                .write_str("waiting for another belljar process that builds this environment"),
            Self::FoundPython { python } => write!(
                formatter,
                "building the environment with Python {} ({}); this happens once",
                python.version,
                python.executable.display()
            ),
            Self::FetchingUv { version } => write!(formatter, "fetching uv {version}"),
            Self::FetchingPython { required } => write!(formatter, "fetching Python {required}"),
            Self::Locking { python } => {
                write!(formatter, "resolving package versions for Python {python}")
            }
            Self::CheckingLock => formatter.write_str("checking that the lock is complete"),
            Self::Resolving => formatter.write_str("checking the locked packages"),
            Self::Installing { packages } => write!(formatter, "installing {packages} packages"),
            Self::Downloading { package, size } => {
                write!(formatter, "downloading {package} ({size})")
            }
            Self::Compiling => formatter.write_str("compiling"),
            Self::CachingFonts => formatter.write_str("listing fonts"),
            Self::Ready { elapsed, .. } => {
                write!(formatter, "the environment is ready after {:.1} s", elapsed.as_secs_f64())
            }
        }
    }
}
