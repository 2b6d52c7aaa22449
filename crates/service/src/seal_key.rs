//! The key that approvals are sealed with: made at the first start, and readable by nobody else.
//!
//! Without the key that a seal was made with, an approval is worth nothing, so a lost key loses
//! questions that are open and never lets anything run.

use policy::SealKey;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const NAME: &str = "approval.key";

pub(crate) fn load(data: &Path) -> Result<SealKey, (PathBuf, io::Error)> {
    let path = data.join("store").join(NAME);
    read(&path)
        .or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => make(&path),
            _ => Err(error),
        })
        .map_err(|error| (path, error))
}

fn read(path: &Path) -> io::Result<SealKey> {
    let file = File::open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        let message = "others can read it; chmod 600 makes it yours alone";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let mut bytes = Vec::with_capacity(SealKey::BYTES + 1);
    file.take(SealKey::BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let found = bytes.len();
    bytes.try_into().map(SealKey::new).map_err(|_| {
        let message = format!("it has {found} bytes, and a key has {}", SealKey::BYTES);
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// Complete or not there: a key that was half written would be read as one.
fn make(path: &Path) -> io::Result<SealKey> {
    let mut bytes = [0; SealKey::BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let new = path.with_extension("new");
    // What a stop in the middle has left may be somebody else's to read.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(SealKey::new(bytes))
}
