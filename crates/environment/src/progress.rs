//! What is happening while an environment is made. Data only: showing it is the caller's.

use std::path::PathBuf;
use std::time::Duration;

use crate::discovery::Python;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Another process is making the same environment.
    Waiting,
    FoundPython {
        python: Python,
    },
    /// There is no uv on this machine; it comes from the package index, once.
    FetchingUv {
        version: &'static str,
    },
    /// The exact versions of packages are being chosen.
    Locking,
    Resolving,
    Installing {
        packages: usize,
    },
    /// Told of larger packages only; the size is written for people, as in `15.9MiB`.
    Downloading {
        package: String,
        size: String,
    },
    Compiling,
    CachingFonts,
    Ready {
        directory: PathBuf,
        took: Duration,
    },
}
