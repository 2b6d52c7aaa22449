//! Files in and out of a working directory, which belongs to hostile code.
//!
//! Every path is resolved beneath the directory's own descriptor, never through a link; every
//! file is opened without waiting and looked at before it is read; names, sizes, counts and
//! depth are bounded. All of it happens with the sandbox's own rights.

use jail::as_owner;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat2, statat,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

/// More files than anybody looks at; what comes after is counted as left out.
const FILES_MAX: usize = 2_000;
const DEPTH_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 255;
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{0:?} is not a file name that can be used here")]
    Name(String),
    #[error("{name}: there is no such file")]
    NotFound { name: String },
    #[error("{name} is not a regular file")]
    NotRegular { name: String },
    #[error("{name} has {size} bytes, more than the {most} that are brought out")]
    TooLarge { name: String, size: u64, most: u64 },
    #[error("the working directory is full ({name})")]
    Full { name: String },
    #[error("{name}: {source}")]
    Io { name: String, source: io::Error },
}

impl FileError {
    fn io(name: &str, error: Errno) -> Self {
        let name = name.to_owned();
        match error {
            Errno::NOENT => Self::NotFound { name },
            Errno::NOSPC | Errno::DQUOT => Self::Full { name },
            _ => Self::Io { name, source: error.into() },
        }
    }
}

/// One regular file, as it looked when the directory was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub size: u64,
    changed: (i64, u64),
    inode: u64,
}

/// A working directory at one moment.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    pub files: BTreeMap<String, Entry>,
    /// What is not brought out, and why.
    pub skipped: BTreeMap<String, String>,
    /// Everything that was looked at, directories too.
    entries: usize,
}

impl Listing {
    /// The names of files that are new or different since `before`.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a String> {
        let differs = |(name, entry): &(&String, &Entry)| before.files.get(*name) != Some(*entry);
        self.files.iter().filter(differs).map(|(name, _)| name)
    }
}

/// A name that stays beneath the directory however it is spelt.
fn checked(name: &str) -> Result<&Path, FileError> {
    let path = Path::new(name);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    // `components` passes over a `.` in the middle.
    let fits =
        name.split('/').all(|part| !part.is_empty() && part != "." && part.len() <= NAME_BYTES_MAX);
    let printable = !name.chars().any(|c| c.is_control());
    let shallow = path.components().count() <= DEPTH_MAX;
    if plain && fits && printable && shallow && !name.is_empty() {
        Ok(path)
    } else {
        Err(FileError::Name(name.to_owned()))
    }
}

pub(crate) fn write(
    workspace: &OwnedFd,
    owner: u32,
    name: &str,
    content: &mut dyn Read,
) -> Result<u64, FileError> {
    let path = checked(name)?;
    let failed = |error: Errno| FileError::io(name, error);
    as_owner(owner, || {
        for parent in path.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            if parent.as_os_str().is_empty() {
                continue;
            }
            // Resolved anew: what mkdirat was told to make may be a link by now.
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
        if FileType::from_raw_mode(fstat(&file).map_err(failed)?.st_mode) != FileType::RegularFile {
            return Err(FileError::NotRegular { name: name.to_owned() });
        }
        let mut file = File::from(file);
        io::copy(content, &mut file).and_then(|count| file.flush().map(|()| count)).map_err(
            |error| match Errno::from_io_error(&error) {
                Some(errno) => failed(errno),
                None => FileError::Io { name: name.to_owned(), source: error },
            },
        )
    })
}

fn mkdirat_beneath(workspace: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let mode = Mode::from_raw_mode(0o755);
    if parent.as_os_str().is_empty() {
        return mkdirat(workspace, name, mode);
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let parent = openat2(workspace, parent, flags, Mode::empty(), BENEATH)?;
    mkdirat(parent, name, mode)
}

/// A working directory that is read from outside its sandbox.
#[derive(Debug)]
pub struct Files {
    workspace: OwnedFd,
    owner: u32,
}

impl Files {
    pub(crate) fn new(workspace: OwnedFd, owner: u32) -> Self {
        Self { workspace, owner }
    }

    /// A file to be read piece by piece, and no further than `most` bytes.
    pub fn open(&self, name: &str, most: u64) -> Result<impl Read + use<>, FileError> {
        Ok(open(&self.workspace, self.owner, name, most)?.take(most))
    }
}

/// Opens a regular file of at most `most` bytes. It may still grow: more than that many bytes are
/// not to be read from it.
pub(crate) fn open(
    workspace: &OwnedFd,
    owner: u32,
    name: &str,
    most: u64,
) -> Result<File, FileError> {
    let path = checked(name)?;
    let failed = |error: Errno| FileError::io(name, error);
    as_owner(owner, || {
        // Without waiting: a FIFO in the place of a file must not hold us up.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat2(workspace, path, flags, Mode::empty(), BENEATH).map_err(failed)?;
        let stat = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FileError::NotRegular { name: name.to_owned() });
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > most {
            return Err(FileError::TooLarge { name: name.to_owned(), size, most });
        }
        Ok(File::from(file))
    })
}

pub(crate) fn read(
    workspace: &OwnedFd,
    owner: u32,
    name: &str,
    most: u64,
) -> Result<Vec<u8>, FileError> {
    let mut content = Vec::new();
    open(workspace, owner, name, most)?
        .take(most)
        .read_to_end(&mut content)
        .map_err(|source| FileError::Io { name: name.to_owned(), source })?;
    Ok(content)
}

/// Every regular file, and what else is there with the reason why it is left alone.
pub(crate) fn list(workspace: &OwnedFd, owner: u32) -> Listing {
    as_owner(owner, || {
        let mut listing = Listing::default();
        walk(workspace.as_fd(), Path::new(""), 0, &mut listing);
        listing
    })
}

fn walk(parent: impl AsFd, path: &Path, depth: usize, listing: &mut Listing) {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let here = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let last = Path::new(here.file_name().unwrap_or(here.as_os_str()));
    let Ok(directory) = openat2(&parent, last, flags, Mode::empty(), BENEATH) else {
        listing.skipped.insert(here.display().to_string(), "directory cannot be read".into());
        return;
    };
    let Ok(entries) = Dir::read_from(&directory) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name() == c"." || entry.file_name() == c".." {
            continue;
        }
        // Counted before anything else: names that are left out cost as much to look at.
        listing.entries += 1;
        if listing.entries > FILES_MAX {
            listing.skipped.insert("…".into(), format!("more than {FILES_MAX} entries"));
            return;
        }
        let Ok(name) = entry.file_name().to_str() else {
            let name = path.join(entry.file_name().to_string_lossy().as_ref());
            listing.skipped.insert(name.display().to_string(), "name is not UTF-8".into());
            continue;
        };
        let full = path.join(name);
        let shown = full.display().to_string();
        if let Ok(stat) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if depth + 1 < DEPTH_MAX => {
                    walk(&directory, &full, depth + 1, listing);
                }
                file_type => note(file_type, &stat, shown, listing),
            }
        }
    }
}

fn note(file_type: FileType, stat: &Stat, shown: String, listing: &mut Listing) {
    let reason = match file_type {
        FileType::RegularFile if checked(&shown).is_ok() => {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let changed = (stat.st_ctime, stat.st_ctime_nsec);
            listing.files.insert(shown, Entry { size, changed, inode: stat.st_ino });
            return;
        }
        FileType::RegularFile => "its name cannot be used elsewhere",
        FileType::Directory => "too deep",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => "a device",
    };
    listing.skipped.insert(shown.escape_debug().to_string(), reason.into());
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
            assert!(checked(name).is_err(), "{name:?}");
        }
        assert!(checked(&"x".repeat(256)).is_err());
        assert!(checked(&"d/".repeat(16).trim_end_matches('/').replace('d', "dd")).is_ok());
        for name in ["sales.csv", "data/2024/q1.csv", "Ünïcode ☃.txt", ".hidden", "a b", "..."]
        {
            assert!(checked(name).is_ok(), "{name:?}");
        }
    }
}
