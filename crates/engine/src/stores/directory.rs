//! A store on the disk: a directory of plain files that only this program writes to.
//!
//! Sandboxes may be reading it at any moment, so a file is never changed: another one takes its
//! place, whole, and on the disk before anybody is told.

use sandbox::{FileError, check_name};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// As many as can be brought out of a working directory.
pub const STORE_FILES_MAX: usize = 2_000;
/// Sandboxes run as other users, and must be able to read.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
/// The names of all stores are nobody's business.
const BASE_MODE: u32 = 0o711;
/// Files on their way; wiped at the start.
const STAGING: &str = ".staging";

/// All stores of a data directory.
#[derive(Debug, Clone)]
pub struct StoreBase(PathBuf);

/// One of them.
#[derive(Debug, Clone)]
pub struct StoreDirectory {
    path: PathBuf,
    staging: PathBuf,
}

/// By which a file is known to be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub size: u64,
    modified: (i64, i64),
    inode: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreFileError {
    #[error("{0}")]
    Name(#[from] FileError),
    #[error("{name}: there is no such file in the store")]
    NotFound { name: String },
    #[error("{name}: a file and a directory cannot have the same name")]
    Clash { name: String },
    #[error(
        "the store would have {bytes} bytes in {files} files; it may have {quota} in {}",
        STORE_FILES_MAX
    )]
    Full { bytes: u64, files: usize, quota: u64 },
    #[error("the store cannot be used: {0}")]
    Io(#[from] io::Error),
}

impl StoreBase {
    /// Makes the place for them, and removes what a server that was killed has left half-written.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let staging = path.join(STAGING);
        make(&path, BASE_MODE)?;
        match fs::remove_dir_all(&staging) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => make(&staging, 0o700)?,
        }
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes every store that is not known.
    pub fn sweep(&self, is_known: impl Fn(&str) -> bool) -> io::Result<()> {
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            if let Some(name) = name.to_str().filter(|name| *name != STAGING && !is_known(name)) {
                self.store(name).delete()?;
            }
        }
        Ok(())
    }

    pub fn store(&self, name: &str) -> StoreDirectory {
        StoreDirectory { path: self.0.join(name), staging: self.0.join(STAGING) }
    }
}

fn make(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

impl StoreDirectory {
    pub fn create(&self) -> io::Result<()> {
        make(&self.path, DIRECTORY_MODE)?;
        sync(self.path.parent())
    }

    /// All at once for whoever looks.
    pub fn delete(&self) -> io::Result<()> {
        let aside = self.staging.join(Uuid::now_v7().to_string());
        match fs::rename(&self.path, &aside) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            renamed => renamed?,
        }
        fs::remove_dir_all(aside)
    }

    /// Every file, by its name.
    pub fn list(&self) -> io::Result<BTreeMap<String, Stamp>> {
        let mut files = BTreeMap::new();
        walk(&self.path, "", &mut files)?;
        Ok(files)
    }

    pub fn open(&self, name: &str) -> Result<(File, u64), StoreFileError> {
        check_name(name)?;
        let missing = || StoreFileError::NotFound { name: name.to_owned() };
        let file = File::open(self.path.join(name)).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => missing(),
            _ => error.into(),
        })?;
        let about = file.metadata()?;
        if about.is_file() { Ok((file, about.len())) } else { Err(missing()) }
    }

    /// Puts a file there, in the place of one of the same name, if all of them fit the quota.
    pub fn write(
        &self,
        name: &str,
        content: &mut dyn Read,
        quota: u64,
    ) -> Result<Stamp, StoreFileError> {
        check_name(name)?;
        let others = self.list()?.into_iter().filter(|(other, _)| other != name);
        let others: Vec<u64> = others.map(|(_, stamp)| stamp.size).collect();
        let full = |bytes: u64| StoreFileError::Full { bytes, files: others.len() + 1, quota };
        let used: u64 = others.iter().sum();
        let room = quota.checked_sub(used).ok_or_else(|| full(used))?;
        if others.len() >= STORE_FILES_MAX {
            return Err(full(used));
        }
        let (staged, written) = self.stage(&mut content.take(room.saturating_add(1)))?;
        if written > room {
            return Err(full(used.saturating_add(written)));
        }
        self.settle(name, staged)
    }

    fn stage(&self, content: &mut dyn Read) -> io::Result<(Staged, u64)> {
        let staged = Staged(self.staging.join(Uuid::now_v7().to_string()));
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&staged.0)?;
        let written = io::copy(content, &mut file)?;
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(FILE_MODE))?;
        file.sync_all()?;
        Ok((staged, written))
    }

    fn settle(&self, name: &str, staged: Staged) -> Result<Stamp, StoreFileError> {
        let path = self.path.join(name);
        let clash = |error: io::Error| match error.kind() {
            ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::DirectoryNotEmpty => StoreFileError::Clash { name: name.to_owned() },
            _ => error.into(),
        };
        let parents: Vec<&Path> = Path::new(name).ancestors().skip(1).collect();
        for parent in parents.into_iter().rev().filter(|parent| !parent.as_os_str().is_empty()) {
            let parent = self.path.join(parent);
            if !parent.is_dir() {
                make(&parent, DIRECTORY_MODE).map_err(clash)?;
                sync(parent.parent())?;
            }
        }
        fs::rename(&staged.0, &path).map_err(clash)?;
        sync(path.parent())?;
        Ok(Stamp::of(&fs::metadata(&path)?))
    }

    /// And the directories that are empty then.
    pub fn remove(&self, name: &str) -> Result<(), StoreFileError> {
        check_name(name)?;
        let path = self.path.join(name);
        fs::remove_file(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
                StoreFileError::NotFound { name: name.to_owned() }
            }
            _ => error.into(),
        })?;
        let mut parent = path.parent();
        while let Some(directory) = parent.filter(|parent| *parent != self.path) {
            if fs::remove_dir(directory).is_err() {
                break;
            }
            parent = directory.parent();
        }
        Ok(sync(parent)?)
    }
}

impl Stamp {
    fn of(about: &fs::Metadata) -> Self {
        let modified = (about.mtime(), about.mtime_nsec());
        Self { size: about.len(), modified, inode: about.ino() }
    }
}

/// A file that nobody sees yet.
struct Staged(PathBuf);

impl Drop for Staged {
    fn drop(&mut self) {
        // It has moved to its place if all went well.
        let _ = fs::remove_file(&self.0);
    }
}

/// What is in a directory is on the disk.
fn sync(directory: Option<&Path>) -> io::Result<()> {
    directory.map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

fn walk(path: &Path, prefix: &str, files: &mut BTreeMap<String, Stamp>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let about = match entry.metadata() {
            // It went while we looked.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            about => about?,
        };
        if about.is_dir() {
            walk(&entry.path(), &format!("{prefix}{name}/"), files)?;
        } else if about.is_file() {
            files.insert(format!("{prefix}{name}"), Stamp::of(&about));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, StoreDirectory) {
        let home = tempfile::tempdir().unwrap();
        let store = StoreBase::open(home.path().join("stores")).unwrap().store("one");
        store.create().unwrap();
        (home, store)
    }

    fn put(store: &StoreDirectory, name: &str, text: &str) -> Result<Stamp, StoreFileError> {
        store.write(name, &mut text.as_bytes(), 10)
    }

    fn text(store: &StoreDirectory, name: &str) -> String {
        io::read_to_string(store.open(name).unwrap().0).unwrap()
    }

    #[test]
    fn a_file_is_found_again_and_replaced_whole() {
        let (_home, store) = store();
        put(&store, "a/b/c.txt", "one").unwrap();
        let before = store.list().unwrap();
        put(&store, "a/b/c.txt", "two").unwrap();
        assert_eq!(text(&store, "a/b/c.txt"), "two");
        assert_ne!(before, store.list().unwrap());
        store.remove("a/b/c.txt").unwrap();
        assert!(store.list().unwrap().is_empty());
        assert!(!store.path.join("a").exists());
    }

    #[test]
    fn more_than_the_quota_is_refused_and_changes_nothing() {
        let (_home, store) = store();
        put(&store, "a", "12345").unwrap();
        assert!(matches!(put(&store, "b", "123456"), Err(StoreFileError::Full { bytes: 11, .. })));
        assert!(matches!(put(&store, "a", "12345678901"), Err(StoreFileError::Full { .. })));
        assert_eq!(text(&store, "a"), "12345");
        put(&store, "b", "12345").unwrap();
        put(&store, "a", "54321").unwrap();
        assert!(fs::read_dir(&store.staging).unwrap().next().is_none());
    }

    #[test]
    fn names_stay_inside_and_do_not_clash() {
        let (_home, store) = store();
        for name in ["../x", "/etc/passwd", "a/../../x", ""] {
            assert!(matches!(put(&store, name, "x"), Err(StoreFileError::Name(_))), "{name}");
        }
        put(&store, "a", "x").unwrap();
        assert!(matches!(put(&store, "a/b", "x"), Err(StoreFileError::Clash { .. })));
        put(&store, "d/e", "x").unwrap();
        assert!(matches!(put(&store, "d", "x"), Err(StoreFileError::Clash { .. })));
        assert!(matches!(store.open("d"), Err(StoreFileError::NotFound { .. })));
        assert!(matches!(store.remove("nothing"), Err(StoreFileError::NotFound { .. })));
    }

    #[test]
    fn what_a_killed_server_has_left_is_removed() {
        let (home, store) = store();
        fs::write(store.staging.join("half"), "x").unwrap();
        StoreBase::open(home.path().join("stores")).unwrap();
        assert!(!store.staging.join("half").exists());
    }
}
