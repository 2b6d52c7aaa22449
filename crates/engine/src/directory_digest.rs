//! The digest of a working directory. It shows whether the directory has changed since it was shown
//! to an approver.
//!
//! The digest covers names, sizes and contents of regular files, as the collector reads them, and
//! the names of other entries. It is bounded by bytes and not by time, so that the same files have
//! the same digest on a busy machine.

use crate::files::{directory_error, file_error};
use sandbox::{DirectoryListing, SandboxDirectory};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{ErrorKind, Read};
use types::{Error, ErrorCode};

/// Bytes whose content counts, in the order of names: a fraction of a second. A file beyond that
/// counts with its size, its inode and its ctime, which code cannot set back.
const CONTENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
const PIECE_BYTES: usize = 64 * 1024;

/// Takes up to a fraction of a second: do not call it on a thread that serves requests.
pub(crate) fn digest_directory(files: &SandboxDirectory) -> Result<String, Error> {
    let listing = files.list();
    if !listing.is_complete() {
        return Err(too_many());
    }
    let mut digest = Sha256::new();
    hash_contents(files, &listing, &mut digest)?;
    for (name, reason) in &listing.skipped {
        hash_field(&mut digest, b"other");
        hash_field(&mut digest, name.as_bytes());
        hash_field(&mut digest, reason.as_bytes());
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn hash_contents(
    files: &SandboxDirectory,
    listing: &DirectoryListing,
    digest: &mut Sha256,
) -> Result<(), Error> {
    let (mut bytes_left, mut buffer) = (CONTENT_BYTES_MAX, vec![0; PIECE_BYTES]);
    for (name, entry) in &listing.files {
        hash_field(digest, b"file");
        hash_field(digest, name.as_bytes());
        digest.update(entry.size.to_be_bytes());
        if entry.size > bytes_left {
            hash_field(digest, b"stamp");
            entry.stamp().iter().for_each(|part| digest.update(part.to_be_bytes()));
            continue;
        }
        bytes_left -= entry.size;
        let (file, _) = files.open(name).map_err(|error| file_error(&error))?;
        hash_field(digest, &content(file, entry.size, &mut buffer)?);
    }
    Ok(())
}

/// Reads at most the size that the file had when the directory was listed.
fn content(file: File, size: u64, buffer: &mut [u8]) -> Result<[u8; 32], Error> {
    let (mut file, mut hash) = (file.take(size), Sha256::new());
    loop {
        match file.read(buffer) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(count) => hash.update(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(directory_error(&error)),
        }
    }
}

/// Hashes the length too, so that bytes cannot move from one field to the next.
fn hash_field(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

fn too_many() -> Error {
    let message = "the working directory has too many files to bind an approval to them";
    Error::new(ErrorCode::DiskExceeded, message)
        .hint("remove unneeded files, or run the code in another session")
}
