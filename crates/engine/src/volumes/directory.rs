//! A volume on the disk: a directory of plain files that only this program writes to.
//!
//! Sandboxes may read it at any moment, so a file is never changed in place: a complete new file
//! replaces it, and it is synced to the disk before the change is reported.

use sandbox::{FileError, check_name};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Limit of files and directories: as many as can be collected from a working directory.
pub const VOLUME_FILES_MAX: usize = 2_000;
/// The granularity of memory allocation.
const PAGE_BYTES: u64 = 4096;
/// Sandboxes run as other users, and must be able to read.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
/// The mode of the parent directory: host users other than the server's cannot enter it. Sandboxes
/// see the volumes below through a mount.
const OUTER_MODE: u32 = 0o700;
/// Mode of the directory that sandboxes see volumes from: they can enter it but not list it.
const BASE_MODE: u32 = 0o711;
/// Files being written; wiped at the start.
const STAGING: &str = ".staging";
/// Directories that are shown to sandboxes for as long as these live; wiped at the start.
const SHARED: &str = ".shared";
/// Volumes without a record, in directories that are named by the time.
const ASIDE: &str = ".aside";

/// All volumes of a data directory.
#[derive(Debug, Clone)]
pub struct VolumeBase(PathBuf);

/// One volume.
#[derive(Debug, Clone)]
pub struct VolumeDirectory {
    path: PathBuf,
    staging: PathBuf,
}

/// Identifies an unchanged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    pub size: u64,
    modified: (i64, i64),
    inode: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeFileError {
    #[error("{0}")]
    Name(#[from] FileError),
    #[error("{name}: no such file in the volume")]
    NotFound { name: String },
    #[error("{name}: a file and a directory cannot have the same name")]
    NameConflict { name: String },
    #[error(
        "the volume would exceed its maximum of {quota} bytes and {VOLUME_FILES_MAX} files and \
         directories: it would have {bytes} bytes (in pages of 4 KiB) and {entries} entries"
    )]
    Full { bytes: u64, entries: usize, quota: u64 },
    #[error("the time limit for saving files was reached")]
    Timeout,
    #[error("cannot access the volume: {0}")]
    Io(#[from] io::Error),
}

impl VolumeBase {
    pub(crate) const SHARED: &str = SHARED;

    /// Creates the directories, and removes the half-written files of a server that was killed.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        if let Some(outer) = path.parent() {
            create_directory(outer, OUTER_MODE)?;
        }
        let staging = path.join(STAGING);
        create_directory(&path, BASE_MODE)?;
        match fs::remove_dir_all(&staging) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => create_directory(&staging, 0o700)?,
        }
        let shared = path.join(SHARED);
        match fs::remove_dir_all(&shared) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => create_directory(&shared, BASE_MODE)?,
        }
        Ok(Self(path))
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.0.join(STAGING)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Moves every unknown volume into a directory of this name, and returns their number. An entry
    /// whose name begins with a dot is no volume.
    pub fn set_aside(&self, is_known: impl Fn(&str) -> bool, into: &str) -> io::Result<usize> {
        let directory = self.0.join(ASIDE).join(into);
        let mut moved = 0;
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_str().is_none_or(|name| name.starts_with('.') || is_known(name)) {
                continue;
            }
            if moved == 0 {
                create_directory(&self.0.join(ASIDE), 0o700)?;
                create_directory(&directory, 0o700)?;
            }
            fs::rename(entry.path(), directory.join(&name))?;
            moved += 1;
        }
        Ok(moved)
    }

    /// Removes directories of volumes that were set aside, by their names.
    pub fn remove_set_aside(&self, is_over: impl Fn(&str) -> bool) -> io::Result<()> {
        let entries = match fs::read_dir(self.0.join(ASIDE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(&is_over) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    pub fn volume(&self, name: &str) -> VolumeDirectory {
        VolumeDirectory { path: self.0.join(name), staging: self.0.join(STAGING) }
    }
}

fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

impl VolumeDirectory {
    pub fn create(&self) -> io::Result<()> {
        create_directory(&self.path, DIRECTORY_MODE)?;
        sync_directory(self.path.parent())
    }

    /// Deletes the volume atomically for readers.
    pub fn delete(&self) -> io::Result<()> {
        let aside = self.staging.join(Uuid::now_v7().to_string());
        match fs::rename(&self.path, &aside) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            renamed => renamed?,
        }
        fs::remove_dir_all(aside)
    }

    /// Every file, by its name.
    pub fn list(&self) -> io::Result<BTreeMap<String, FileStamp>> {
        let mut files = BTreeMap::new();
        list_files(&self.path, "", &mut files)?;
        Ok(files)
    }

    pub fn open(&self, name: &str) -> Result<(File, u64), VolumeFileError> {
        check_name(name)?;
        let missing = || VolumeFileError::NotFound { name: name.to_owned() };
        let file = File::open(self.path.join(name)).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => missing(),
            _ => error.into(),
        })?;
        let metadata = file.metadata()?;
        if metadata.is_file() { Ok((file, metadata.len())) } else { Err(missing()) }
    }

    /// Writes or replaces a file, if all files together fit the quota.
    pub fn write(
        &self,
        name: &str,
        content: &mut dyn Read,
        quota: u64,
    ) -> Result<FileStamp, VolumeFileError> {
        let mut change = VolumeTransaction::begin(self, quota)?;
        let stamp = change.write(name, content)?;
        change.commit()?;
        Ok(stamp)
    }

    fn stage(&self, content: &mut dyn Read) -> io::Result<(VolumeTempFile, File, u64)> {
        let staged = VolumeTempFile(self.staging.join(Uuid::now_v7().to_string()));
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&staged.0)?;
        let written = io::copy(content, &mut file)?;
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(FILE_MODE))?;
        Ok((staged, file, written))
    }

    /// Removes a file, and the directories that are empty afterwards.
    pub fn remove(&self, name: &str) -> Result<(), VolumeFileError> {
        let mut change = VolumeTransaction::begin(self, u64::MAX)?;
        change.remove(name)?;
        Ok(change.commit()?)
    }
}

/// A batch of changes to a volume. It counts the existing files once, and syncs the changed
/// directories when it is finished.
#[derive(Debug)]
pub(crate) struct VolumeTransaction<'a> {
    volume: &'a VolumeDirectory,
    quota: u64,
    files: BTreeMap<String, FileStamp>,
    /// Directories whose entries have changed.
    touched_directories: BTreeSet<PathBuf>,
}

impl<'a> VolumeTransaction<'a> {
    pub(crate) fn begin(volume: &'a VolumeDirectory, quota: u64) -> io::Result<Self> {
        Ok(Self { volume, quota, files: volume.list()?, touched_directories: BTreeSet::new() })
    }

    pub(crate) fn files(&self) -> &BTreeMap<String, FileStamp> {
        &self.files
    }

    pub(crate) fn write(
        &mut self,
        name: &str,
        content: &mut dyn Read,
    ) -> Result<FileStamp, VolumeFileError> {
        check_name(name)?;
        let others: BTreeMap<&str, u64> = self
            .files
            .iter()
            .filter(|(other, _)| *other != name)
            .map(|(other, stamp)| (other.as_str(), stamp.size))
            .collect();
        let used: u64 = others.values().map(|size| charged_bytes(*size)).sum();
        let entries = entries(others.keys().copied().chain([name]));
        let full = |bytes: u64| VolumeFileError::Full { bytes, entries, quota: self.quota };
        let free_bytes = self.quota.checked_sub(used).ok_or_else(|| full(used))?;
        if entries > VOLUME_FILES_MAX {
            return Err(full(used));
        }
        let (staged, file, written) =
            self.volume.stage(&mut content.take(free_bytes.saturating_add(1)))?;
        if charged_bytes(written) > free_bytes {
            return Err(full(used.saturating_add(charged_bytes(written))));
        }
        file.sync_data()?;
        self.rename_into_place(name, staged)
    }

    fn rename_into_place(
        &mut self,
        name: &str,
        staged: VolumeTempFile,
    ) -> Result<FileStamp, VolumeFileError> {
        let path = self.volume.path.join(name);
        let name_error = |error: io::Error| match error.kind() {
            ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::DirectoryNotEmpty => {
                VolumeFileError::NameConflict { name: name.to_owned() }
            }
            _ => error.into(),
        };
        let parents: Vec<&Path> = Path::new(name).ancestors().skip(1).collect();
        for parent in parents.into_iter().rev().filter(|parent| !parent.as_os_str().is_empty()) {
            let parent = self.volume.path.join(parent);
            if !parent.is_dir() {
                create_directory(&parent, DIRECTORY_MODE).map_err(name_error)?;
                self.touched_directories.extend(parent.parent().map(Path::to_owned));
            }
        }
        fs::rename(&staged.0, &path).map_err(name_error)?;
        self.touched_directories.extend(path.parent().map(Path::to_owned));
        let stamp = FileStamp::of(&fs::metadata(&path)?);
        self.files.insert(name.to_owned(), stamp);
        Ok(stamp)
    }

    pub(crate) fn remove(&mut self, name: &str) -> Result<(), VolumeFileError> {
        check_name(name)?;
        let path = self.volume.path.join(name);
        fs::remove_file(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
                VolumeFileError::NotFound { name: name.to_owned() }
            }
            _ => error.into(),
        })?;
        self.files.remove(name);
        let mut parent = path.parent();
        while let Some(directory) = parent.filter(|parent| *parent != self.volume.path) {
            if fs::remove_dir(directory).is_err() {
                break;
            }
            parent = directory.parent();
        }
        self.touched_directories.extend(parent.map(Path::to_owned));
        Ok(())
    }

    pub(crate) fn commit(self) -> io::Result<()> {
        // A directory that was removed since has its parent in the set as well.
        let there = self.touched_directories.iter().filter(|directory| directory.is_dir());
        there.into_iter().try_for_each(|directory| sync_directory(Some(directory)))
    }
}

/// The memory that a file takes in a copy of the volume.
fn charged_bytes(size: u64) -> u64 {
    size.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES)
}

/// The number of files and of the directories that contain them.
fn entries<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    let mut all = BTreeSet::new();
    for name in names {
        let parents = Path::new(name).ancestors();
        all.extend(parents.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned));
    }
    all.len()
}

impl FileStamp {
    fn of(metadata: &fs::Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { size: metadata.len(), modified, inode: metadata.ino() }
    }
}

/// A file that readers do not see yet.
struct VolumeTempFile(PathBuf);

impl Drop for VolumeTempFile {
    fn drop(&mut self) {
        // After a success it has already been renamed.
        let _ = fs::remove_file(&self.0);
    }
}

/// Syncs the entries of a directory to the disk.
fn sync_directory(directory: Option<&Path>) -> io::Result<()> {
    directory.map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

fn list_files(
    path: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, FileStamp>,
) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let metadata = match entry.metadata() {
            // It was removed during the listing.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_dir() {
            list_files(&entry.path(), &format!("{prefix}{name}/"), files)?;
        } else if metadata.is_file() {
            files.insert(format!("{prefix}{name}"), FileStamp::of(&metadata));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> (tempfile::TempDir, VolumeDirectory) {
        let home = tempfile::tempdir().unwrap();
        let volume = VolumeBase::open(home.path().join("volumes")).unwrap().volume("one");
        volume.create().unwrap();
        (home, volume)
    }

    fn put(volume: &VolumeDirectory, name: &str, text: &str) -> Result<FileStamp, VolumeFileError> {
        volume.write(name, &mut text.as_bytes(), 2 * PAGE_BYTES)
    }

    fn text(volume: &VolumeDirectory, name: &str) -> String {
        io::read_to_string(volume.open(name).unwrap().0).unwrap()
    }

    #[test]
    fn a_file_is_found_again_and_replaced_whole() {
        let (_home, volume) = volume();
        put(&volume, "a/b/c.txt", "one").unwrap();
        let before = volume.list().unwrap();
        put(&volume, "a/b/c.txt", "two").unwrap();
        assert_eq!(text(&volume, "a/b/c.txt"), "two");
        assert_ne!(before, volume.list().unwrap());
        volume.remove("a/b/c.txt").unwrap();
        assert!(volume.list().unwrap().is_empty());
        assert!(!volume.path.join("a").exists());
    }

    #[test]
    fn more_than_the_quota_is_refused_and_changes_nothing() {
        let (_home, volume) = volume();
        let page = "x".repeat(PAGE_BYTES as usize);
        put(&volume, "a", &page).unwrap();
        assert!(matches!(
            put(&volume, "b", &format!("{page}x")),
            Err(VolumeFileError::Full { .. })
        ));
        assert!(matches!(put(&volume, "a", &page.repeat(3)), Err(VolumeFileError::Full { .. })));
        assert_eq!(text(&volume, "a"), page);
        put(&volume, "b", "x").unwrap();
        // The file is small, but takes a page in a copy of the volume.
        assert!(matches!(put(&volume, "c", "x"), Err(VolumeFileError::Full { bytes: 12_288, .. })));
        put(&volume, "a", "x").unwrap();
        assert!(fs::read_dir(&volume.staging).unwrap().next().is_none());
    }

    #[test]
    fn directories_count_as_files_do() {
        assert_eq!(entries(["a/b/c", "a/b/d", "e"].into_iter()), 5);
    }

    #[test]
    fn names_stay_inside_and_do_not_clash() {
        let (_home, volume) = volume();
        for name in ["../x", "/etc/passwd", "a/../../x", ""] {
            assert!(matches!(put(&volume, name, "x"), Err(VolumeFileError::Name(_))), "{name}");
        }
        put(&volume, "a", "").unwrap();
        assert!(matches!(put(&volume, "a/b", "x"), Err(VolumeFileError::NameConflict { .. })));
        put(&volume, "d/e", "x").unwrap();
        assert!(matches!(put(&volume, "d", "x"), Err(VolumeFileError::NameConflict { .. })));
        assert!(matches!(volume.open("d"), Err(VolumeFileError::NotFound { .. })));
        assert!(matches!(volume.remove("nothing"), Err(VolumeFileError::NotFound { .. })));
    }

    #[test]
    fn what_a_killed_server_has_left_is_removed() {
        let (home, volume) = volume();
        fs::write(volume.staging.join("half"), "x").unwrap();
        VolumeBase::open(home.path().join("volumes")).unwrap();
        assert!(!volume.staging.join("half").exists());
    }
}
