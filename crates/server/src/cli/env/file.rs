//! The file that an environment is made of, and the lock beside it.

use crate::cli::Failure;
use crate::cli::request::read_bounded;
use engine::{Draft, Name, SOURCE_BYTES_MAX, SourceKind, kind_of};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A file that was read and checked.
pub(super) struct Written {
    pub(super) kind: SourceKind,
    pub(super) text: String,
    pub(super) draft: Draft,
    /// The lock beside it, if there is one.
    pub(super) lock: Option<String>,
}

/// Where the lock of a file is.
pub(super) fn lock_of(file: &Path) -> PathBuf {
    file.with_extension("lock")
}

pub(super) fn read(file: &Path, name: Option<&str>) -> Result<Written, Failure> {
    let written = read_unlocked(file, name)?;
    let beside = lock_of(file);
    let lock = text_of(&beside)?;
    if let Some(lock) = &lock {
        let fits = written.draft.locked(lock);
        fits.map_err(|error| Failure::usage(format!("{}: {error}", beside.display())))?;
    }
    Ok(Written { lock, ..written })
}

/// Without a look at the lock, which is about to be made.
pub(super) fn read_unlocked(file: &Path, name: Option<&str>) -> Result<Written, Failure> {
    let wrong = |error: String| Failure::usage(format!("{}: {error}", file.display()));
    let kind = kind_of(file);
    let text = text_of(file)?.ok_or_else(|| wrong("there is no such file".to_owned()))?;
    let name = match (name, kind) {
        (Some(name), _) => Some(name.to_owned()),
        (None, SourceKind::Toml) => None,
        (None, SourceKind::Requirements | SourceKind::Script) => Some(stem(file)),
    };
    let name = name.map(Name::try_from).transpose();
    let name = name.map_err(|error| Failure::usage(format!("{error} (--name NAME)")))?;
    let draft = Draft::read(kind, &text, name.as_ref());
    let draft = draft.map_err(|error| wrong(error.to_string()))?;
    Ok(Written { kind, text, draft, lock: None })
}

/// `None` if there is no such file.
fn text_of(path: &Path) -> Result<Option<String>, Failure> {
    let wrong = |error: String| Failure::usage(format!("{}: {error}", path.display()));
    match File::open(path).and_then(|file| read_bounded(file, SOURCE_BYTES_MAX as u64)) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(wrong("it is not text".to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// The name of a file, as far as an environment can be called so.
fn stem(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    stem.to_lowercase().replace(['_', '.', ' '], "-")
}
