//! The embedded files of sandboxes: the sources of the runner and the native library of the zygote. They
//! are written into the data directory once per version.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io, process};

static LIBRARY: &[u8] = include_bytes!(env!("BELLJAR_JAIL_LIBRARY"));
static CALLS: AtomicU64 = AtomicU64::new(0);
const LIBRARY_NAME: &str = "libbelljar_jail.so";
/// Increases when the same files are written to other paths.
const LAYOUT: u32 = 1;

/// Every source file below `runner/`, by its path there.
static RUNNER_FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/runner.rs"));

/// The source of the runner's files.
#[derive(Debug, Clone)]
pub enum RunnerSource {
    Embedded,
    /// A directory with the same layout, for tests with a modified runner.
    Directory(PathBuf),
}

/// The written files, which sandboxes see at `/opt/belljar`.
#[derive(Debug, Clone)]
pub struct RunnerFiles {
    path: PathBuf,
}

impl RunnerFiles {
    /// Writes the files below `data`, unless this version is there already.
    pub fn install(data: &Path, runner: &RunnerSource) -> io::Result<Self> {
        let sources = match runner {
            RunnerSource::Embedded => {
                RUNNER_FILES.iter().map(|(p, s)| (PathBuf::from(p), (*s).into())).collect()
            }
            RunnerSource::Directory(directory) => read_tree(directory)?,
        };
        let path = data.join("runtime").join(digest(&sources));
        if !path.is_dir() {
            write_tree(&path, &sources)?;
        }
        Ok(Self { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the package `belljar_runner`.
    pub fn runner_directory(&self) -> PathBuf {
        runner_directory(&self.path)
    }
}

/// The directory of the runner's sources below the directory of all files.
fn runner_directory(path: &Path) -> PathBuf {
    path.join("runner")
}

type RunnerFileList = Vec<(PathBuf, Vec<u8>)>;

fn digest(sources: &RunnerFileList) -> String {
    let mut hash = Sha256::new();
    hash.update(LAYOUT.to_le_bytes());
    hash.update(LIBRARY);
    for (path, content) in sources {
        hash.update(path.as_os_str().as_encoded_bytes());
        hash.update([0]);
        hash.update(Sha256::digest(content));
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn read_tree(directory: &Path) -> io::Result<RunnerFileList> {
    let mut sources = Vec::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(current) = left.pop() {
        for entry in fs::read_dir(current)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "py") {
                let name = path.strip_prefix(directory).unwrap_or(&path).to_path_buf();
                sources.push((name, fs::read(&path)?));
            }
        }
    }
    sources.sort();
    Ok(sources)
}

/// Whole or not at all: a half-written runtime must never be mounted.
fn write_tree(path: &Path, sources: &RunnerFileList) -> io::Result<()> {
    // Of this call alone: two engines of one process may be at it at the same time.
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let staged = path.with_extension(format!("new-{}-{call}", process::id()));
    for (name, content) in sources {
        let target = match name.strip_prefix("site") {
            Ok(rest) => staged.join("site").join(rest),
            Err(_) => runner_directory(&staged).join(name),
        };
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(target, content)?;
    }
    fs::create_dir_all(staged.join("lib"))?;
    fs::write(staged.join("lib").join(LIBRARY_NAME), LIBRARY)?;
    readable_by_all(&staged)?;
    match fs::rename(&staged, path) {
        // Another process was quicker with the same files.
        Err(_) if path.is_dir() => fs::remove_dir_all(&staged),
        renamed => renamed,
    }
}

/// The sandbox runs under another user than the one who wrote these, whatever his umask was.
fn readable_by_all(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let is_dir = path.is_dir();
    fs::set_permissions(path, fs::Permissions::from_mode(if is_dir { 0o755 } else { 0o644 }))?;
    if is_dir {
        for entry in fs::read_dir(path)? {
            readable_by_all(&entry?.path())?;
        }
    }
    Ok(())
}
