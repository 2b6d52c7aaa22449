//! Reads an untrusted directory.
//!
//! Every path is resolved beneath the directory's own descriptor and never through a link. Every
//! file is opened without blocking and its type is checked before it is read. Number, size and
//! depth of files are limited.

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2, statat,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Ten times as many as the largest published skills have.
pub const FILES_MAX: usize = 1_000;
/// Maximum size of a skill: enough for fonts, schemas and images; a data set does not belong in a skill.
pub const TOTAL_BYTES_MAX: u64 = 32 * 1024 * 1024;
pub(crate) const DEPTH_MAX: usize = 8;
const RESOLVE_FLAGS: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("Path does not exist: {}", .0.display())]
    DirectoryNotFound(PathBuf),
    #[error("Not a directory: {}", .0.display())]
    NotADirectory(PathBuf),
    #[error("{0}: file not found in the skill")]
    NotFound(String),
    #[error("{0} is not a regular file")]
    NotRegular(String),
    #[error("{name} has more than {most} bytes")]
    TooLarge { name: String, most: u64 },
    #[error("skill has more than {FILES_MAX} files; remove some")]
    TooManyFiles,
    #[error("files of the skill exceed {TOTAL_BYTES_MAX} bytes in total")]
    TotalTooLarge,
    #[error("{name}: {source}")]
    Io { name: String, source: io::Error },
}

impl FolderError {
    fn io_error(name: &str, error: impl Into<io::Error>) -> Self {
        let (name, source) = (name.to_owned(), error.into());
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::NOTDIR) => Self::NotFound(name),
            Some(Errno::LOOP | Errno::XDEV | Errno::ISDIR) => Self::NotRegular(name),
            _ => Self::Io { name, source },
        }
    }
}

/// The contents of a skill, by paths from its root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillListing {
    /// The regular files and their sizes.
    pub files: BTreeMap<String, u64>,
    /// Skipped entries, and why.
    pub skipped: BTreeMap<String, &'static str>,
}

#[derive(Debug)]
pub(crate) struct SkillFolder {
    root: OwnedFd,
    /// The directory's name, which must be the name of its skill.
    pub(crate) name: String,
}

impl SkillFolder {
    pub(crate) fn open(path: &Path) -> Result<Self, FolderError> {
        let failed = |error: io::Error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => FolderError::DirectoryNotFound(path.to_owned()),
            Some(Errno::NOTDIR) => FolderError::NotADirectory(path.to_owned()),
            _ => FolderError::Io { name: path.display().to_string(), source: error },
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        // The name of `.` is that of the current directory.
        let real = fs::canonicalize(path).map_err(failed)?;
        let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { root, name })
    }

    /// The content of a regular file, of at most `most` bytes.
    pub(crate) fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, FolderError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat2(&self.root, name, flags, Mode::empty(), RESOLVE_FLAGS)
            .map_err(|error| FolderError::io_error(name, error))?;
        let stat = fstat(&file).map_err(|error| FolderError::io_error(name, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FolderError::NotRegular(name.to_owned()));
        }
        let mut content = Vec::new();
        let read = File::from(file).take(most + 1).read_to_end(&mut content);
        read.map_err(|error| FolderError::io_error(name, error))?;
        if content.len() as u64 > most {
            return Err(FolderError::TooLarge { name: name.to_owned(), most });
        }
        Ok(content)
    }

    pub(crate) fn list(&self) -> Result<SkillListing, FolderError> {
        let mut scanner = FolderScanner::default();
        scanner.scan_directory(self.root.as_fd(), ".", "", 0)?;
        Ok(scanner.listing)
    }
}

#[derive(Debug, Default)]
struct FolderScanner {
    listing: SkillListing,
    entries: usize,
    bytes: u64,
}

impl FolderScanner {
    /// Scans the directory `name` of `parent`, whose path from the root is `path`.
    fn scan_directory(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &str,
        path: &str,
        depth: usize,
    ) -> Result<(), FolderError> {
        let failed = |error: Errno| FolderError::io_error(path, error);
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory =
            openat2(parent, name, flags, Mode::empty(), RESOLVE_FLAGS).map_err(failed)?;
        for entry in Dir::read_from(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name() == c"." || entry.file_name() == c".." {
                continue;
            }
            self.entries += 1;
            if self.entries > FILES_MAX {
                return Err(FolderError::TooManyFiles);
            }
            let display_name = entry.file_name().to_string_lossy();
            let full = if path.is_empty() {
                display_name.to_string()
            } else {
                format!("{path}/{display_name}")
            };
            match entry.file_name().to_str() {
                Ok(name) if !name.contains(char::is_control) => {
                    self.visit_entry(directory.as_fd(), name, full, depth)?;
                }
                _ => self.record_skipped(full, "its name is not portable"),
            }
        }
        Ok(())
    }

    fn visit_entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &str,
        path: String,
        depth: usize,
    ) -> Result<(), FolderError> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| FolderError::io_error(&path, error))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth + 1 < DEPTH_MAX => {
                self.scan_directory(directory, name, &path, depth + 1)?;
            }
            FileType::Directory => self.record_skipped(path, "nested too deeply"),
            FileType::RegularFile => {
                let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                self.bytes = self.bytes.saturating_add(size);
                if self.bytes > TOTAL_BYTES_MAX {
                    return Err(FolderError::TotalTooLarge);
                }
                self.listing.files.insert(path, size);
            }
            FileType::Symlink => self.record_skipped(path, "a symbolic link"),
            _ => self.record_skipped(path, "not a regular file"),
        }
        Ok(())
    }

    fn record_skipped(&mut self, path: String, reason: &'static str) {
        self.listing.skipped.insert(path.escape_debug().to_string(), reason);
    }
}
