//! Files of keys: only their owner can read them, and they are complete or absent.
//!
//! All keys of a server use this crate, so that the same rules apply to each. A file that another
//! user could have read or created is never used, and an existing key is never replaced.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The errno of `O_NOFOLLOW` for a symbolic link.
const LOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();
/// The permission bits of all users but the owner.
const OTHERS: u32 = 0o077;

/// Why a key file is unusable.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("key file {} is readable by other users; run `chmod 600` on it", .0.display())]
    Exposed(PathBuf),
    #[error(
        "key file {} is owned by user {owner}; run `chown` on it, or create it again as the user \
         that runs Belljar",
        .path.display()
    )]
    Owner { path: PathBuf, owner: u32 },
    #[error(
        "key file {} is not a regular file; replace a symbolic link with the file itself",
        .0.display()
    )]
    NotAFile(PathBuf),
    #[error("key file {} has {found} bytes, and a key has {expected}; restore it from a backup", .path.display())]
    Length { path: PathBuf, found: usize, expected: usize },
    #[error("key file {} has more than {bytes_max} bytes; check that it is the right file", .path.display())]
    TooLong { path: PathBuf, bytes_max: usize },
    #[error("{} cannot be used: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
}

impl Error {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |cause| Self::Io { path: path.to_owned(), cause }
    }

    /// Whether another process created the file first.
    pub fn is_already_there(&self) -> bool {
        matches!(self, Self::Io { cause, .. } if cause.kind() == io::ErrorKind::AlreadyExists)
    }
}

/// Reads a key of a known length; absent if there is no file.
pub fn read_key(path: &Path, expected: usize) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let Some(bytes) = read_bounded(path, expected.saturating_add(1))? else { return Ok(None) };
    if bytes.len() == expected {
        return Ok(Some(bytes));
    }
    Err(Error::Length { path: path.to_owned(), found: bytes.len(), expected })
}

/// Reads a file up to a limit; absent if there is none.
pub fn read(path: &Path, bytes_max: usize) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let Some(bytes) = read_bounded(path, bytes_max.saturating_add(1))? else { return Ok(None) };
    if bytes.len() <= bytes_max {
        return Ok(Some(bytes));
    }
    Err(Error::TooLong { path: path.to_owned(), bytes_max })
}

fn read_bounded(path: &Path, bytes: usize) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let Some(file) = open(path)? else { return Ok(None) };
    // Allocated at once: a vector that grows leaves copies behind that are not wiped.
    let mut found = Zeroizing::new(Vec::with_capacity(bytes));
    file.take(bytes as u64).read_to_end(&mut found).map_err(Error::io(path))?;
    Ok(Some(found))
}

fn open(path: &Path) -> Result<Option<File>, Error> {
    // Non-blocking, so that a FIFO at this path does not block a start.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(LOOP) => {
            return Err(Error::NotAFile(path.to_owned()));
        }
        Err(error) => return Err(Error::io(path)(error)),
    };
    // Metadata of the opened file, because another one may be at the path by now.
    let metadata = file.metadata().map_err(Error::io(path))?;
    if !metadata.is_file() {
        return Err(Error::NotAFile(path.to_owned()));
    }
    if metadata.mode() & OTHERS != 0 {
        return Err(Error::Exposed(path.to_owned()));
    }
    let owner = metadata.uid();
    if owner != rustix::process::geteuid().as_raw() && owner != 0 {
        return Err(Error::Owner { path: path.to_owned(), owner });
    }
    Ok(Some(file))
}

/// Creates a file that only its owner can read: complete and synced when this returns, or absent.
/// It never replaces an existing file.
pub fn create(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    create_owned(path, bytes, None)
}

/// The same with the user and group of another file, so that root makes no key that the server's own
/// user cannot read.
pub fn create_beside(path: &Path, bytes: &[u8], other: &Path) -> Result<(), Error> {
    let metadata = other.metadata().map_err(Error::io(other))?;
    create_owned(path, bytes, Some((metadata.uid(), metadata.gid())))
}

fn create_owned(path: &Path, bytes: &[u8], owner: Option<(u32, u32)>) -> Result<(), Error> {
    let make = || {
        // A new file with a random name that no other user can read.
        let directory = directory_of(path);
        let mut temporary = tempfile::Builder::new().prefix(".key").tempfile_in(directory)?;
        temporary.write_all(bytes)?;
        if let Some((user, group)) = owner {
            let file = temporary.as_file().metadata()?;
            if (file.uid(), file.gid()) != (user, group) {
                fchown(temporary.as_file(), Some(user), Some(group))?;
            }
        }
        temporary.as_file().sync_all()?;
        temporary.persist_noclobber(path).map_err(|error| error.error)?;
        sync_directory_of(path)
    };
    make().map_err(Error::io(path))
}

/// Syncs the directory: without it a power failure can lose a new name.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// Of a bare name, the working directory.
fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn a_key_is_made_once_whole_and_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        assert!(read_key(&path, 4).unwrap().is_none());
        create(&path, b"abcd").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(**read_key(&path, 4).unwrap().unwrap(), *b"abcd");
        assert!(create(&path, b"efgh").unwrap_err().is_already_there());
        assert_eq!(**read(&path, 8).unwrap().unwrap(), *b"abcd");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(create(&directory.path().join("none/a.key"), b"").is_err());
    }

    #[test]
    fn t158_a_key_that_somebody_else_could_have_read_or_put_there_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        create(&path, b"abcd").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(matches!(read_key(&path, 4), Err(Error::Exposed(_))), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert!(read_key(&path, 4).unwrap().is_some(), "the twin: it is its owner's alone");
        let link = directory.path().join("link.key");
        symlink(&path, &link).unwrap();
        assert!(matches!(read_key(&link, 4), Err(Error::NotAFile(_))));
        assert!(matches!(read_key(directory.path(), 4), Err(Error::NotAFile(_))));
        let fifo = directory.path().join("fifo.key");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(matches!(read_key(&fifo, 4), Err(Error::NotAFile(_))), "and it does not wait");
        // Only root can change the owner of a file; the suite runs as root and as an ordinary user.
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(12_345), None).unwrap();
            assert!(matches!(read_key(&path, 4), Err(Error::Owner { owner: 12_345, .. })));
        }
    }

    #[test]
    fn t171_a_key_with_a_bare_name_is_made_in_the_working_directory() {
        let directory = tempfile::tempdir().unwrap();
        // Nothing else in this process has a relative path.
        std::env::set_current_dir(directory.path()).unwrap();
        create(Path::new("bare.key"), b"abcd").unwrap();
        assert!(read_key(Path::new("bare.key"), 4).unwrap().is_some());
        assert!(directory.path().join("bare.key").is_file());
    }

    #[test]
    fn a_key_has_the_owner_of_what_it_is_for() {
        let directory = tempfile::tempdir().unwrap();
        let (other, path) = (directory.path().join("other"), directory.path().join("a.key"));
        fs::write(&other, "").unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&other, Some(12_345), Some(54_321)).unwrap();
        }
        create_beside(&path, b"abcd", &other).unwrap();
        let (is, wanted) = (fs::metadata(&path).unwrap(), fs::metadata(&other).unwrap());
        assert_eq!((is.uid(), is.gid()), (wanted.uid(), wanted.gid()));
        assert_eq!(is.mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_key_of_another_length_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        create(&path, b"abcd").unwrap();
        for (expected, length) in [(3, 4), (5, 4)] {
            let error = read_key(&path, expected).unwrap_err();
            assert!(matches!(error, Error::Length { found, .. } if found == length), "{error}");
        }
        assert!(matches!(read(&path, 3), Err(Error::TooLong { .. })));
        assert_eq!(read(&path, 4).unwrap().unwrap().len(), 4);
    }
}
