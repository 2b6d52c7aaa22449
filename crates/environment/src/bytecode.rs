//! The bytecode of packages, compiled once for all environments that have the same file.
//!
//! ```text
//! <data>/cache/bytecode/3.13.0/<digest>    of one source file at its path inside
//! ```
//!
//! The digest covers the content of a source file, never a package's claim about it: a package that
//! could choose the name of an entry could put its bytecode into other environments.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;

use jail::Confinement;
use sha2::{Digest, Sha256};

use crate::builder::BuildPlan;
use crate::error::BuildError;
use crate::sandbox_paths::{INSIDE_ENVIRONMENT, MountedPython};
use crate::subprocess;

/// Limit of one file; the longest files of packages have some megabytes.
const BYTECODE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

const COMPILE: &str = include_str!("python/compile.py");

/// A source file, the path of its bytecode, and the path of that in the cache.
struct SourceFile {
    path: PathBuf,
    bytecode: PathBuf,
    cached: PathBuf,
}

/// Adds the bytecode of every source file of the environment in `directory`.
pub(crate) fn compile(
    plan: &BuildPlan<'_>,
    view: &MountedPython<'_>,
    directory: &Path,
) -> Result<(), BuildError> {
    let cache = plan.bytecode.join(plan.python.version.to_string());
    let found = || {
        fs::create_dir_all(&cache)?;
        let mut paths = Vec::new();
        collect_sources(&directory.join(view.site_packages()), &mut paths)?;
        in_parallel(&paths, |path| {
            let source = source_file(path.clone(), directory, view, &cache)?;
            // A file that cannot be linked is compiled, whatever the reason.
            Ok(fs::hard_link(&source.cached, &source.bytecode).is_err().then_some(source))
        })
    };
    let missing = found().map_err(BuildError::files("looking for bytecode in", &cache))?;
    if missing.is_empty() {
        return Ok(());
    }
    compile_missing(plan, directory, &missing)?;
    // A file that failed to compile is missing, and a concurrently cached one is identical.
    missing.iter().for_each(|it| drop(fs::hard_link(&it.bytecode, &it.cached)));
    Ok(())
}

fn source_file(
    path: PathBuf,
    directory: &Path,
    view: &MountedPython<'_>,
    cache: &Path,
) -> io::Result<SourceFile> {
    let place = path.strip_prefix(directory).unwrap_or(&path);
    let mut hasher = Sha256::new();
    hasher.update(place.as_os_str().as_bytes());
    hasher.update([0]);
    hasher.update(fs::read(&path)?);
    let digest: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let folder = path.with_file_name("__pycache__");
    fs::create_dir_all(&folder)?;
    let bytecode = folder.join(format!("{stem}.{}.pyc", view.cache_tag()));
    Ok(SourceFile { bytecode, cached: cache.join(digest), path })
}

/// Collects all source files below, except those of tests: a third of all files, and never
/// imported.
fn collect_sources(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && entry.file_name() != "tests" {
            collect_sources(&path, found)?;
        } else if kind.is_file() && path.extension().is_some_and(|ending| ending == "py") {
            found.push(path);
        }
    }
    Ok(())
}

/// Runs `work` for each path, on all cores.
fn in_parallel<T: Send>(
    paths: &[PathBuf],
    work: impl Fn(&PathBuf) -> io::Result<Option<T>> + Sync,
) -> io::Result<Vec<T>> {
    let cores = thread::available_parallelism()?.get();
    let share = paths.len().div_ceil(cores).max(1);
    let one = |paths: &[PathBuf]| {
        paths.iter().filter_map(|path| work(path).transpose()).collect::<io::Result<Vec<T>>>()
    };
    thread::scope(|scope| {
        let shares: Vec<_> = paths.chunks(share).map(|it| scope.spawn(move || one(it))).collect();
        let mut done = Vec::new();
        for share in shares {
            done.extend(share.join().map_err(|_| io::Error::other("a compile thread panicked"))??);
        }
        Ok(done)
    })
}

fn compile_missing(
    plan: &BuildPlan<'_>,
    directory: &Path,
    missing: &[SourceFile],
) -> Result<(), BuildError> {
    let names = directory.join("sources");
    let list: Vec<&[u8]> = missing.iter().map(|it| it.path.as_os_str().as_bytes()).collect();
    fs::write(&names, list.join(&0)).map_err(BuildError::files("writing", &names))?;
    let mut command = subprocess::isolated_python(&plan.python.executable);
    command.args(["-c", COMPILE]).arg(&names).arg(directory).arg(INSIDE_ENVIRONMENT);
    let bounds = Confinement { writable: vec![directory.into()], file_bytes: BYTECODE_BYTES_MAX };
    let ended = bounds
        .apply_to(&mut command)
        .and_then(|()| subprocess::run_streaming(&mut command, |_| {}))
        .map_err(|source| BuildError::Run { program: plan.python.executable.clone(), source })?;
    fs::remove_file(&names).map_err(BuildError::files("removing", &names))?;
    if ended.status.success() {
        return Ok(());
    }
    Err(BuildError::Compile {
        name: plan.definition.name.clone(),
        status: ended.status,
        detail: ended.last_lines.last().cloned().unwrap_or_default(),
    })
}
