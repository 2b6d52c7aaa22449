//! Directories of the packages that sessions install. Code finds one only if it knows its name.
//!
//! ```text
//! <data>/packages/.lock          held while a root is created, or an old one removed
//! <data>/packages/<root>.lock    held by the process that uses the root
//! <data>/packages/<root>/        every sandbox of that process sees it, and none can list it
//! <data>/packages/<root>/<session>/
//! ```
//!
//! A package directory must never outlive its session: its guard removes it, and the next process
//! that opens a root removes the remains of a killed one.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes of a name: too many to guess one.
const NAME_BYTES: usize = 16;

/// Allows entering and adding, but not listing, even where code runs as the owner. It is mounted
/// read-only inside, so that code cannot change the mode.
const PACKAGE_ROOT_MODE: u32 = 0o311;
/// Removal requires listing.
const REMOVAL_MODE: u32 = 0o700;

/// The package directories of one process.
#[derive(Debug)]
pub struct PackageRoot {
    directory: PathBuf,
    _lock: File,
}

/// The package directory of a session. Dropping it removes the directory.
#[derive(Debug)]
pub struct SessionPackages {
    root: Arc<PackageRoot>,
    name: String,
}

impl PackageRoot {
    /// Creates a root below the data directory, and removes those of processes that have ended.
    pub fn open(data: &Path) -> io::Result<Arc<Self>> {
        let packages = data.join("packages");
        fs::create_dir_all(&packages)?;
        let packages = fs::canonicalize(packages)?;
        let _alone = lock_file(&packages.join(".lock")).and_then(|file| {
            file.lock()?;
            Ok(file)
        })?;
        remove_abandoned(&packages)?;
        let directory = packages.join(random_name()?);
        let held = lock_file(&directory.with_extension("lock"))?;
        held.lock()?;
        // Created with its final mode, whatever the umask is.
        fs::create_dir(&directory)?;
        fs::set_permissions(&directory, Permissions::from_mode(PACKAGE_ROOT_MODE))?;
        Ok(Arc::new(Self { directory, _lock: held }))
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Removes the root with all package directories, when no session needs one any more.
    pub fn close(&self) {
        // The next process that opens a root removes the rest.
        let _ = remove_root(&self.directory);
    }

    pub fn create_session_packages(self: &Arc<Self>) -> io::Result<SessionPackages> {
        let session_packages = SessionPackages { root: Arc::clone(self), name: random_name()? };
        DirBuilder::new().mode(0o755).create(session_packages.directory())?;
        Ok(session_packages)
    }
}

impl Drop for PackageRoot {
    fn drop(&mut self) {
        self.close();
    }
}

impl SessionPackages {
    pub fn directory(&self) -> PathBuf {
        self.root.directory.join(&self.name)
    }

    /// The name of the directory in the root, which is all that its session needs to know.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for SessionPackages {
    fn drop(&mut self) {
        // If this fails, closing the root removes it.
        let _ = fs::remove_dir_all(self.directory());
    }
}

/// The caller holds the lock of all roots, so none is half created.
fn remove_abandoned(packages: &Path) -> io::Result<()> {
    for entry in fs::read_dir(packages)? {
        let path = entry?.path();
        let directory = match path.file_stem() {
            _ if path.is_dir() => path,
            // The lock file of a missing root: its process was killed while it removed the two.
            Some(root) if path.extension().is_some_and(|it| it == "lock") => {
                path.with_file_name(root)
            }
            _ => continue,
        };
        let lock = directory.with_extension("lock");
        match lock_file(&lock)?.try_lock() {
            Ok(()) if directory.is_dir() => remove_root(&directory)?,
            Ok(()) => fs::remove_file(&lock)?,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(())
}

fn remove_root(root: &Path) -> io::Result<()> {
    fs::set_permissions(root, Permissions::from_mode(REMOVAL_MODE))?;
    fs::remove_dir_all(root)?;
    fs::remove_file(root.with_extension("lock"))
}

fn lock_file(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

fn random_name() -> io::Result<String> {
    let mut bytes = [0; NAME_BYTES];
    // getrandom returns up to 256 bytes at once, never fewer than requested.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(data: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(data.join("packages")).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    }

    #[test]
    fn packages_of_a_session_and_a_package_root_are_removed_with_their_guards() {
        let data = tempfile::tempdir().unwrap();
        let root = PackageRoot::open(data.path()).unwrap();
        let session_packages = root.create_session_packages().unwrap();
        let directory = session_packages.directory();
        fs::write(directory.join("six.py"), "").unwrap();
        assert_eq!(session_packages.name().len(), 32);
        drop(session_packages);
        assert!(!directory.exists());
        drop(root);
        assert_eq!(entries(data.path()), Vec::<PathBuf>::new());
    }

    #[test]
    fn package_roots_of_killed_processes_are_removed_and_those_in_use_stay() {
        let data = tempfile::tempdir().unwrap();
        let used = PackageRoot::open(data.path()).unwrap();
        let session_packages = used.create_session_packages().unwrap();
        let left = data.path().join("packages/left");
        fs::create_dir_all(left.join("session")).unwrap();
        fs::set_permissions(&left, Permissions::from_mode(PACKAGE_ROOT_MODE)).unwrap();
        let other = PackageRoot::open(data.path()).unwrap();
        assert!(!left.exists());
        assert!(session_packages.directory().is_dir());
        assert_ne!(used.directory(), other.directory());
    }

    #[test]
    fn t118_a_lock_without_a_directory_is_removed_and_one_that_is_held_stays() {
        let data = tempfile::tempdir().unwrap();
        let used = PackageRoot::open(data.path()).unwrap();
        let packages = data.path().join("packages");
        let [stale, held] =
            ["stale", "held"].map(|name| packages.join(name).with_extension("lock"));
        lock_file(&stale).unwrap();
        let holder = lock_file(&held).unwrap();
        holder.lock().unwrap();
        fs::write(packages.join("notes.txt"), "").unwrap();
        let other = PackageRoot::open(data.path()).unwrap();
        assert!(!stale.exists());
        assert!(held.exists() && packages.join("notes.txt").exists());
        assert!(packages.join(".lock").exists(), "the lock of them all");
        for root in [used, other] {
            assert!(root.directory().with_extension("lock").exists());
        }
    }

    #[test]
    fn a_package_root_can_be_traversed_and_not_listed() {
        let data = tempfile::tempdir().unwrap();
        let root = PackageRoot::open(data.path()).unwrap();
        let mode = fs::metadata(root.directory()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o311);
    }
}
