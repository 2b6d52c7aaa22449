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
    let mut file = File::open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        let message = "others can read it; chmod 600 makes it yours alone";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let mut bytes = [0; SealKey::BYTES];
    file.read_exact(&mut bytes)?;
    Ok(SealKey::new(bytes))
}

/// Complete or not there: a key that was half written would be read as one.
fn make(path: &Path) -> io::Result<SealKey> {
    let mut bytes = [0; SealKey::BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let new = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(SealKey::new(bytes))
}
