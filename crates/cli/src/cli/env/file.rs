//! Reads the definition of an environment and the lock beside it.

use crate::cli::CliError;
use crate::cli::request_args::read_bounded;
use engine::{Name, SOURCE_BYTES_MAX, SourceKind, UnlockedDefinition, source_kind};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A definition that was read and checked.
pub(super) struct EnvironmentFile {
    pub(super) kind: SourceKind,
    pub(super) text: String,
    pub(super) draft: UnlockedDefinition,
    /// The lock beside it, if there is one.
    pub(super) lock: Option<String>,
}

/// The path of the lock of a definition.
pub(super) fn lock_path(file: &Path) -> PathBuf {
    file.with_extension("lock")
}

pub(super) fn read_with_lock(file: &Path, name: Option<&str>) -> Result<EnvironmentFile, CliError> {
    let source = read_unlocked(file, name)?;
    let beside = lock_path(file);
    let lock = read_optional(&beside)?;
    if let Some(lock) = &lock {
        let checked = source.draft.with_lock(lock);
        checked.map_err(|error| CliError::usage(format!("{}: {error}", beside.display())))?;
    }
    Ok(EnvironmentFile { lock, ..source })
}

/// Reads the definition without its lock, which is about to be created.
pub(super) fn read_unlocked(file: &Path, name: Option<&str>) -> Result<EnvironmentFile, CliError> {
    let usage_error = |error: String| CliError::usage(format!("{}: {error}", file.display()));
    let kind = source_kind(file);
    let text = read_optional(file)?.ok_or_else(|| usage_error("no such file".to_owned()))?;
    let name = match (name, kind) {
        (Some(name), _) => Some(name.to_owned()),
        (None, SourceKind::Toml) => None,
        (None, SourceKind::Requirements | SourceKind::Script) => Some(environment_name(file)),
    };
    let name = name.map(Name::try_from).transpose();
    let name = name.map_err(|error| CliError::usage(format!("{error} (--name NAME)")))?;
    let draft = UnlockedDefinition::parse(kind, &text, name.as_ref());
    let draft = draft.map_err(|error| usage_error(error.to_string()))?;
    Ok(EnvironmentFile { kind, text, draft, lock: None })
}

/// `None` if there is no such file.
fn read_optional(path: &Path) -> Result<Option<String>, CliError> {
    let usage_error = |error: String| CliError::usage(format!("{}: {error}", path.display()));
    match File::open(path).and_then(|file| read_bounded(file, SOURCE_BYTES_MAX as u64)) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(usage_error("not UTF-8 text".to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(usage_error(error.to_string())),
    }
}

/// The name of a file, converted to a valid name of an environment.
fn environment_name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    stem.to_lowercase().replace(['_', '.', ' '], "-")
}
