//! Reading and writing files in the working directory of a sandbox, whose code may be hostile.
//!
//! Every path is resolved beneath the descriptor of the directory, never through a link. Every file is
//! opened without blocking and checked before it is read. Names, sizes, counts and depth are bounded.
//! All access uses the user id of the sandbox.

use jail::as_owner;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat2, statat,
    unlinkat,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};
use std::time::{Duration, Instant};

/// Maximum entries of a listing; the listing reports if there are more.
const FILES_MAX: usize = 2_000;
const DEPTH_MAX: usize = 16;
/// Maximum bytes of contents that are hashed for one snapshot: some 20 ms of reading. On a busy machine,
/// [`HASHING_MAX`] ends it. Files beyond the limits are compared by their times alone.
const HASHED_BYTES_MAX: u64 = 16 * 1024 * 1024;
const HASHING_MAX: Duration = Duration::from_millis(200);
const BUFFER_BYTES: usize = 64 * 1024;
const NAME_BYTES_MAX: usize = 255;
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{0:?} is not a valid file name in a sandbox")]
    Name(String),
    #[error("{name}: file not found")]
    NotFound { name: String },
    #[error("{name} is not a regular file")]
    NotRegular { name: String },
    #[error("disk quota exceeded while writing {name}")]
    Full { name: String },
    #[error("{name}: {source}")]
    Io { name: String, source: io::Error },
}

impl FileError {
    /// Whether the mode of the file does not allow it.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    fn io(name: &str, error: Errno) -> Self {
        let name = name.to_owned();
        match error {
            Errno::NOENT => Self::NotFound { name },
            Errno::NOSPC | Errno::DQUOT => Self::Full { name },
            _ => Self::Io { name, source: error.into() },
        }
    }
}

/// One regular file at the time when the directory was read.
#[derive(Debug, Clone)]
pub struct FileEntry {
    pub size: u64,
    changed: (i64, u64),
    inode: u64,
    /// A hash of its content, in a [`SandboxDirectory::snapshot`].
    content: Option<u64>,
}

impl FileEntry {
    /// Whether a file is the same in two listings. A tmpfs updates no time for writes through a mapping
    /// whose page was touched before, so the contents are compared where both hashes are known.
    pub fn is_unchanged_from(&self, other: &Self) -> bool {
        let stamp = |entry: &Self| (entry.size, entry.changed, entry.inode);
        let contents = self.content.zip(other.content);
        stamp(self) == stamp(other) && contents.is_none_or(|(one, other)| one == other)
    }
}

/// A working directory at one moment.
#[derive(Debug, Clone, Default)]
pub struct DirectoryListing {
    pub files: BTreeMap<String, FileEntry>,
    /// The entries that are not collected, with the reason.
    pub skipped: BTreeMap<String, String>,
    /// Number of entries that were examined, with directories.
    entries: usize,
}

impl FileEntry {
    /// The time of its last change, in seconds and nanoseconds, and its inode. It differs after every
    /// write that is not through a mapping.
    pub fn stamp(&self) -> [u64; 3] {
        [self.changed.0.cast_unsigned(), self.changed.1, self.inode]
    }
}

impl DirectoryListing {
    /// Whether the listing has all entries.
    pub fn is_complete(&self) -> bool {
        self.entries <= FILES_MAX
    }

    /// The names of files that are new or different since `before`.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a String> {
        let differs = |(name, entry): &(&String, &FileEntry)| {
            before.files.get(*name).is_none_or(|before| !before.is_unchanged_from(entry))
        };
        self.files.iter().filter(differs).map(|(name, _)| name)
    }

    /// Records an entry that is not collected. Its name is escaped, because it is only displayed and must
    /// not contain a line break.
    fn skip(&mut self, name: &str, reason: &str) {
        self.skipped.insert(name.escape_debug().to_string(), reason.to_owned());
    }
}

/// Whether the name is valid, without a directory.
pub fn check_name(name: &str) -> Result<(), FileError> {
    checked_path(name).map(drop)
}

/// The path of a name, if it cannot leave the directory.
fn checked_path(name: &str) -> Result<&Path, FileError> {
    let path = Path::new(name);
    let is_normal = path.components().all(|part| matches!(part, Component::Normal(_)));
    // `components` passes over a `.` in the middle.
    let fits =
        name.split('/').all(|part| !part.is_empty() && part != "." && part.len() <= NAME_BYTES_MAX);
    let printable = !name.chars().any(|c| c.is_control());
    let shallow = path.components().count() <= DEPTH_MAX;
    if is_normal && fits && printable && shallow && !name.is_empty() {
        Ok(path)
    } else {
        Err(FileError::Name(name.to_owned()))
    }
}

fn create(workspace: &OwnedFd, name: &str) -> Result<OwnedFd, FileError> {
    let path = checked_path(name)?;
    let failed = |error: Errno| FileError::io(name, error);
    for parent in path.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
        if parent.as_os_str().is_empty() {
            continue;
        }
        // Resolved again: the directory that mkdirat made may have been replaced with a link.
        match mkdirat_beneath(workspace, parent) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::TRUNC
        | OFlags::NONBLOCK
        | OFlags::NOFOLLOW
        | OFlags::CLOEXEC;
    let file =
        openat2(workspace, path, flags, Mode::from_raw_mode(0o644), BENEATH).map_err(failed)?;
    stat_regular_file(name, &file)?;
    Ok(file)
}

/// Looks at what was opened, before a byte of it is read or written.
fn stat_regular_file(name: &str, file: &OwnedFd) -> Result<Stat, FileError> {
    let stat = fstat(file).map_err(|error| FileError::io(name, error))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        _ => Err(FileError::NotRegular { name: name.to_owned() }),
    }
}

fn mkdirat_beneath(workspace: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let mode = Mode::from_raw_mode(0o755);
    if parent.as_os_str().is_empty() {
        return mkdirat(workspace, name, mode);
    }
    mkdirat(directory_beneath(workspace, parent)?, name, mode)
}

fn directory_beneath(workspace: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    openat2(workspace, path, flags, Mode::empty(), BENEATH)
}

/// A working directory that is used from outside its sandbox.
#[derive(Debug)]
pub struct SandboxDirectory {
    workspace: OwnedFd,
    owner: u32,
}

impl SandboxDirectory {
    pub(crate) fn new(workspace: OwnedFd, owner: u32) -> Self {
        Self { workspace, owner }
    }

    /// A second handle to the same directory.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::new(self.workspace.try_clone()?, self.owner))
    }

    /// A regular file to be read, and its size now. It may still grow: a caller with a bound reads no
    /// further than that.
    pub fn open(&self, name: &str) -> Result<(File, u64), FileError> {
        let path = checked_path(name)?;
        as_owner(self.owner, || {
            // Without blocking: a FIFO in the place of a file must not delay the supervisor.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat2(&self.workspace, path, flags, Mode::empty(), BENEATH)
                .map_err(|error| FileError::io(name, error))?;
            let size = stat_regular_file(name, &file)?.st_size;
            Ok((File::from(file), u64::try_from(size).unwrap_or(u64::MAX)))
        })
    }

    /// Writes a file, or replaces it, and returns its size.
    pub fn write(&self, name: &str, content: &mut dyn Read) -> Result<u64, FileError> {
        let mut file = File::from(as_owner(self.owner, || create(&self.workspace, name))?);
        io::copy(content, &mut file).map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => FileError::io(name, errno),
            None => FileError::Io { name: name.to_owned(), source: error },
        })
    }

    /// Removes a file or a link; never the target of a link.
    pub fn remove(&self, name: &str) -> Result<(), FileError> {
        let path = checked_path(name)?;
        let (parent, last) = (path.parent(), path.file_name().unwrap_or_default());
        let removed = as_owner(self.owner, || match parent {
            Some(parent) if !parent.as_os_str().is_empty() => {
                let parent = directory_beneath(&self.workspace, parent)?;
                unlinkat(parent, last, AtFlags::empty())
            }
            _ => unlinkat(&self.workspace, last, AtFlags::empty()),
        });
        removed.map_err(|error| match error {
            Errno::ISDIR => FileError::NotRegular { name: name.to_owned() },
            error => FileError::io(name, error),
        })
    }

    pub fn list(&self) -> DirectoryListing {
        list(&self.workspace, self.owner)
    }

    /// A listing with hashes of contents, smaller files first, up to [`HASHED_BYTES_MAX`]. Reads files,
    /// so it must not run on a thread that serves requests.
    pub fn snapshot(&self) -> DirectoryListing {
        let mut listing = self.list();
        let mut files: Vec<_> = listing.files.iter_mut().collect();
        files.sort_by_key(|(_, entry)| entry.size);
        let (mut bytes_left, deadline) = (HASHED_BYTES_MAX, Instant::now() + HASHING_MAX);
        for (name, entry) in files {
            if entry.size > bytes_left || Instant::now() > deadline {
                break;
            }
            bytes_left -= entry.size;
            entry.content = self.hash(name, entry.size).ok();
        }
        listing
    }

    /// A hash that is compared only within this process. The author of a file gains nothing by a
    /// collision.
    fn hash(&self, name: &str, size: u64) -> Result<u64, FileError> {
        let (file, _) = self.open(name)?;
        let mut file = file.take(size);
        let (mut hasher, mut buffer) = (DefaultHasher::new(), [0; BUFFER_BYTES]);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(count) => hasher.write(&buffer[..count]),
                Err(source) => return Err(FileError::Io { name: name.to_owned(), source }),
            }
        }
    }
}

/// Lists all regular files, and other entries with the reason why they are not collected.
fn list(workspace: &OwnedFd, owner: u32) -> DirectoryListing {
    as_owner(owner, || {
        let mut listing = DirectoryListing::default();
        list_directory(workspace.as_fd(), Path::new(""), 0, &mut listing);
        listing
    })
}

fn list_directory(parent: impl AsFd, path: &Path, depth: usize, listing: &mut DirectoryListing) {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let display_path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let last = Path::new(display_path.file_name().unwrap_or(display_path.as_os_str()));
    let unreadable = |listing: &mut DirectoryListing| {
        listing.skip(&display_path.display().to_string(), "directory cannot be read");
    };
    let Ok(directory) = openat2(&parent, last, flags, Mode::empty(), BENEATH) else {
        unreadable(listing);
        return;
    };
    let Ok(entries) = Dir::read_from(&directory) else {
        unreadable(listing);
        return;
    };
    for entry in entries {
        let Ok(entry) = entry else {
            unreadable(listing);
            return;
        };
        if entry.file_name() == c"." || entry.file_name() == c".." {
            continue;
        }
        // Counted first: entries that are left out cost as much to examine.
        listing.entries += 1;
        if listing.entries > FILES_MAX {
            listing.skipped.insert("…".into(), format!("more than {FILES_MAX} entries"));
            return;
        }
        let Ok(name) = entry.file_name().to_str() else {
            let name = path.join(entry.file_name().to_string_lossy().as_ref());
            listing.skip(&name.display().to_string(), "name is not valid UTF-8");
            continue;
        };
        let full = path.join(name);
        let full_name = full.display().to_string();
        match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if depth + 1 < DEPTH_MAX => {
                    list_directory(&directory, &full, depth + 1, listing);
                }
                file_type => record_entry(file_type, &stat, full_name, listing),
            },
            // It was removed meanwhile.
            Err(Errno::NOENT) => {}
            Err(_) => listing.skip(&full_name, "its metadata cannot be read"),
        }
    }
}

fn record_entry(file_type: FileType, stat: &Stat, name: String, listing: &mut DirectoryListing) {
    let reason = match file_type {
        FileType::RegularFile if checked_path(&name).is_ok() => {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let changed = (stat.st_ctime, stat.st_ctime_nsec);
            listing
                .files
                .insert(name, FileEntry { size, changed, inode: stat.st_ino, content: None });
            return;
        }
        FileType::RegularFile => "its name is not portable",
        FileType::Directory => "nested too deeply",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => "a device",
    };
    listing.skip(&name, reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_refused_and_ordinary_ones_are_not() {
        for name in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a//b",
            "a/",
            "./a",
            ".",
            "a\0b",
            "a\nb",
            "a/./b",
        ] {
            assert!(checked_path(name).is_err(), "{name:?}");
        }
        assert!(checked_path(&"x".repeat(256)).is_err());
        assert!(checked_path(&"d/".repeat(16).trim_end_matches('/').replace('d', "dd")).is_ok());
        for name in ["sales.csv", "data/2024/q1.csv", "Ünïcode ☃.txt", ".hidden", "a b", "..."]
        {
            assert!(checked_path(name).is_ok(), "{name:?}");
        }
    }
}
