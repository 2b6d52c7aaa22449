//! Directories that the server fills and that sandboxes see read-only: the files of skills, and the
//! conversation of an agent. No code can change them, and they are deleted with the last sandbox that
//! sees them.
//!
//! A sandbox may read a file at any moment, so a file is never changed in place: a complete new file
//! replaces it.

use crate::engine::Engine;
use crate::volumes::VolumeBase;
use sandbox::{VolumeMount, check_name};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use types::{Error, ErrorCode};
use uuid::Uuid;

/// Sandboxes run as other users, and must be able to read.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// A directory for sandboxes. Dropping it deletes it.
pub struct SharedDirectory {
    path: PathBuf,
    staging: PathBuf,
    /// Its name for the mount.
    name: String,
}

/// A directory that code of a sandbox sees read-only.
#[derive(Debug, Clone)]
pub struct GrantedDirectory {
    /// Its path inside the sandbox.
    pub path: PathBuf,
    /// Identifies its content, if that never changes.
    pub version: Option<String>,
    pub directory: Arc<SharedDirectory>,
}

impl GrantedDirectory {
    pub(crate) fn mount(&self) -> VolumeMount {
        let content = sandbox::read_only_volume(&self.directory.name);
        VolumeMount { path: self.path.clone(), content }
    }
}

impl fmt::Debug for SharedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedDirectory").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SharedDirectory {
    fn create(base: &VolumeBase) -> io::Result<Self> {
        let name = format!("{}/{}", VolumeBase::SHARED, Uuid::now_v7());
        let path = base.path().join(&name);
        fs::create_dir(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(DIRECTORY_MODE))?;
        Ok(Self { path, staging: base.staging(), name })
    }

    /// Makes these the files of the directory.
    fn replace_files(&self, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
        for (name, content) in files {
            check_name(name).map_err(io::Error::other)?;
            self.write_file(name, content)?;
        }
        let kept: BTreeSet<&str> = files.keys().filter_map(|name| name.split('/').next()).collect();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name().to_str().is_none_or(|name| !kept.contains(name)) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    fn write_file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let staged = self.staging.join(Uuid::now_v7().to_string());
        let written = write_new(&staged, content).and_then(|()| {
            create_parents(&self.path, name)?;
            fs::rename(&staged, self.path.join(name))
        });
        if written.is_err() {
            // The next start removes it, if this fails.
            let _ = fs::remove_file(&staged);
        }
        written
    }
}

impl Drop for SharedDirectory {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        // The next start removes what is left.
        let delete = move || drop(fs::remove_dir_all(path));
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(delete)),
            Err(_) => delete(),
        }
    }
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))
}

/// Creates the directories of a file, readable with any umask.
fn create_parents(root: &Path, name: &str) -> io::Result<()> {
    let mut path = root.to_owned();
    let Some((parents, _)) = name.rsplit_once('/') else { return Ok(()) };
    for part in parents.split('/') {
        path.push(part);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => {
                created?;
                fs::set_permissions(&path, Permissions::from_mode(DIRECTORY_MODE))?;
            }
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

impl Engine {
    /// A new directory with these files.
    pub async fn create_shared_directory(
        &self,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<Arc<SharedDirectory>, Error> {
        let base = self.volume_base()?.clone();
        let task = spawn_blocking(move || {
            let directory = SharedDirectory::create(&base)?;
            directory.replace_files(&files)?;
            Ok(Arc::new(directory))
        });
        task.await.unwrap_or_else(|error| Err(error.into())).map_err(|error| unwritten(&error))
    }

    /// Makes these the files of a directory that sandboxes may be reading.
    pub async fn replace_shared_files(
        &self,
        directory: Arc<SharedDirectory>,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<(), Error> {
        let task = spawn_blocking(move || directory.replace_files(&files));
        task.await.unwrap_or_else(|error| Err(error.into())).map_err(|error| unwritten(&error))
    }
}

fn unwritten(error: &io::Error) -> Error {
    let message = format!("cannot write a directory for the sandbox: {error}");
    Error::new(ErrorCode::DatabaseUnavailable, message)
        .hint("ask the operator to check the disk of the server")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn t249_a_shared_directory_has_the_files_of_its_last_change_and_ends_with_its_owner() {
        let root = tempfile::tempdir().unwrap();
        let base = VolumeBase::open(root.path().join("volumes/all")).unwrap();
        let directory = SharedDirectory::create(&base).unwrap();
        let path = directory.path.clone();
        directory.replace_files(&files(&[("a.json", "1"), ("d/b", "2")])).unwrap();
        assert_eq!(fs::read_to_string(path.join("d/b")).unwrap(), "2");
        let open = fs::File::open(path.join("a.json")).unwrap();
        directory.replace_files(&files(&[("a.json", "3")])).unwrap();
        assert_eq!(fs::read_to_string(path.join("a.json")).unwrap(), "3");
        assert!(!path.join("d").exists());
        assert_eq!(io::read_to_string(open).unwrap(), "1", "a reader keeps the file it has opened");
        assert!(directory.replace_files(&files(&[("../a", "")])).is_err());
        drop(directory);
        assert!(!path.exists());
        // What a killed server left is gone after the next start.
        let left = SharedDirectory::create(&base).unwrap();
        let left_path = left.path.clone();
        std::mem::forget(left);
        VolumeBase::open(root.path().join("volumes/all")).unwrap();
        assert!(!left_path.exists());
    }
}
