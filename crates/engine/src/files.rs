//! Files of working directories: the input files of a command, and those of a session between its
//! executions. All access runs on threads that may block, with the sandbox's own rights.

use crate::command::{FileContent, InputFile};
use crate::directory_digest;
use crate::engine::Engine;
use crate::session::{SandboxHandle, SessionLease};
use redact::OutputRedactor;
use sandbox::{DirectoryListing, FileError, Sandbox, SandboxDirectory, StopHandle};
use std::fs::File;
use std::io::{self, Read};
use std::mem::take;
use tokio::task::spawn_blocking;
use types::{Error, ErrorCode, SandboxId};

impl Engine {
    pub async fn list_files(&self, id: SandboxId) -> Result<DirectoryListing, Error> {
        self.with_files(id, |files, handle| Ok(redact_names(files.list(), &handle.redactor))).await
    }

    /// Opens a regular file, and returns its current size. It may grow while it is read.
    pub async fn open_file(&self, id: SandboxId, name: String) -> Result<(File, u64), Error> {
        self.with_files(id, move |files, _| files.open(&name)).await
    }

    /// Writes or replaces a file, and returns its size.
    pub async fn write_file(
        &self,
        id: SandboxId,
        name: String,
        mut content: impl Read + Send + 'static,
    ) -> Result<u64, Error> {
        self.with_files(id, move |files, handle| {
            let written = files.write(&name, &mut content);
            // After a failure a part of the file may exist, which the code did not create either.
            handle.sandbox.ignore_changes(files.snapshot(), [name.as_str()].into_iter());
            written
        })
        .await
    }

    pub async fn delete_file(&self, id: SandboxId, name: String) -> Result<(), Error> {
        self.with_files(id, move |files, _| files.remove(&name)).await
    }

    /// The digest of the names and contents in a session's working directory.
    pub async fn directory_digest(&self, id: SandboxId) -> Result<String, Error> {
        self.with_files(id, |files, _| Ok(directory_digest::digest_directory(files))).await?
    }

    /// Runs `work` to its end, also when the caller's future is dropped.
    async fn with_files<T: Send + 'static>(
        &self,
        id: SandboxId,
        work: impl FnOnce(&SandboxDirectory, &mut SandboxHandle) -> Result<T, FileError>
        + Send
        + 'static,
    ) -> Result<T, Error> {
        let mut lease: SessionLease = self.session(id)?.lease_session(StopHandle::default())?;
        let mut handle = lease.take_sandbox(self).await?;
        let done = spawn_blocking(move || {
            let result = match handle.sandbox.directory() {
                Ok(files) => work(&files, &mut handle).map_err(|error| file_error(&error)),
                Err(error) => Err(directory_error(&error)),
            };
            lease.return_sandbox(handle);
            result
        });
        done.await.unwrap_or_else(|error| Err(directory_error(&error.into())))
    }
}

/// Checks that a file of a working directory can have this name.
pub fn check_file_name(name: &str) -> Result<(), Error> {
    sandbox::check_name(name).map_err(|error| file_error(&error))
}

/// Writes files into a working directory. They do not count as files that the code created.
pub(crate) async fn write_input_files(
    sandbox: &mut Sandbox,
    inputs: Vec<InputFile>,
) -> Result<(), Error> {
    if inputs.is_empty() {
        return Ok(());
    }
    let files = sandbox.directory().map_err(|error| directory_error(&error))?;
    let task = spawn_blocking(move || {
        let write = |input: &InputFile| match &input.content {
            FileContent::Bytes(bytes) => files.write(&input.name, &mut bytes.as_slice()),
            FileContent::File(file) => files.write(&input.name, &mut &**file),
        };
        let written = inputs.iter().try_for_each(|input| write(input).map(drop));
        (inputs, written, files.snapshot())
    });
    let (inputs, written, now) = task.await.map_err(|error| directory_error(&error.into()))?;
    sandbox.ignore_changes(now, inputs.iter().map(|input| input.name.as_str()));
    written.map_err(|error| file_error(&error))
}

pub(crate) fn file_error(error: &FileError) -> Error {
    let code = match error {
        FileError::NotFound { .. } => ErrorCode::FileNotFound,
        FileError::Full { .. } => ErrorCode::DiskExceeded,
        FileError::Name(_) | FileError::NotRegular { .. } | FileError::Io { .. } => {
            ErrorCode::FileUnsupported
        }
    };
    Error::new(code, error.to_string())
}

pub(crate) fn directory_error(error: &io::Error) -> Error {
    let message = format!("cannot access the working directory: {error}");
    Error::new(ErrorCode::SandboxUnreachable, message)
}

/// Secret values must not leave the sandbox in file names.
fn redact_names(mut listing: DirectoryListing, redactor: &OutputRedactor) -> DirectoryListing {
    let name = |name: String| redactor.redact_text(&name).into_owned();
    listing.files =
        take(&mut listing.files).into_iter().map(|(it, entry)| (name(it), entry)).collect();
    listing.skipped =
        take(&mut listing.skipped).into_iter().map(|(it, why)| (name(it), name(why))).collect();
    listing
}
