//! Files of working directories: those that a command brings, and those of a session between its
//! executions. All of it happens on threads that may wait, and with the sandbox's own rights.

use crate::command::{Content, FileIn};
use crate::digest;
use crate::engine::Engine;
use crate::redact::Redactor;
use crate::session::{Home, Turn};
use sandbox::{FileError, Files, Listing, Sandbox, Stopper};
use std::fs::File;
use std::io::{self, Read};
use std::mem::take;
use tokio::task::spawn_blocking;
use types::{Code, Fault, SandboxId};

impl Engine {
    pub async fn list_files(&self, id: SandboxId) -> Result<Listing, Fault> {
        self.with_files(id, |files, home| Ok(clean(files.list(), &home.redactor))).await
    }

    /// A regular file to be read, and its size now. It may grow while it is read.
    pub async fn open_file(&self, id: SandboxId, name: String) -> Result<(File, u64), Fault> {
        self.with_files(id, move |files, _| files.open(&name)).await
    }

    /// Writes a file, in the place of one that is there, and tells its size.
    pub async fn write_file(
        &self,
        id: SandboxId,
        name: String,
        mut content: impl Read + Send + 'static,
    ) -> Result<u64, Fault> {
        self.with_files(id, move |files, home| {
            let written = files.write(&name, &mut content);
            // A part of it may be there when it failed, and was not made by code either.
            home.sandbox.overlook(files.snapshot(), [name.as_str()].into_iter());
            written
        })
        .await
    }

    pub async fn delete_file(&self, id: SandboxId, name: String) -> Result<(), Fault> {
        self.with_files(id, move |files, _| files.remove(&name)).await
    }

    /// Of the names and contents in the working directory of a session.
    pub async fn directory_digest(&self, id: SandboxId) -> Result<String, Fault> {
        self.with_files(id, |files, _| Ok(digest::of(files))).await?
    }

    /// The work is done to its end, also when the caller goes away.
    async fn with_files<T: Send + 'static>(
        &self,
        id: SandboxId,
        work: impl FnOnce(&Files, &mut Home) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Fault> {
        let mut turn: Turn = self.session(id)?.turn(Stopper::default())?;
        let mut home = turn.borrow(self).await?;
        let done = spawn_blocking(move || {
            let result = match home.sandbox.files() {
                Ok(files) => work(&files, &mut home).map_err(|error| fault(&error)),
                Err(error) => Err(no_directory(&error)),
            };
            turn.give_back(home);
            result
        });
        done.await.unwrap_or_else(|error| Err(no_directory(&error.into())))
    }
}

/// Whether a file of a working directory can have this name.
pub fn check_file_name(name: &str) -> Result<(), Fault> {
    sandbox::check_name(name).map_err(|error| fault(&error))
}

/// Puts files into a working directory. They are not what the code made.
pub(crate) async fn place(sandbox: &mut Sandbox, inputs: Vec<FileIn>) -> Result<(), Fault> {
    if inputs.is_empty() {
        return Ok(());
    }
    let files = sandbox.files().map_err(|error| no_directory(&error))?;
    let placed = spawn_blocking(move || {
        let write = |input: &FileIn| match &input.content {
            Content::Bytes(bytes) => files.write(&input.name, &mut bytes.as_slice()),
            Content::File(file) => files.write(&input.name, &mut &**file),
        };
        let written = inputs.iter().try_for_each(|input| write(input).map(drop));
        (inputs, written, files.snapshot())
    });
    let (inputs, written, now) = placed.await.map_err(|error| no_directory(&error.into()))?;
    sandbox.overlook(now, inputs.iter().map(|input| input.name.as_str()));
    written.map_err(|error| fault(&error))
}

pub(crate) fn fault(error: &FileError) -> Fault {
    let code = match error {
        FileError::NotFound { .. } => Code::FileNotFound,
        FileError::Full { .. } => Code::DiskExceeded,
        FileError::Name(_) | FileError::NotRegular { .. } | FileError::Io { .. } => {
            Code::FileUnsupported
        }
    };
    Fault::new(code, error.to_string())
}

pub(crate) fn no_directory(error: &io::Error) -> Fault {
    let message = format!("the working directory cannot be reached: {error}");
    Fault::new(Code::SandboxUnreachable, message)
}

/// Values that code was given are not names of files outside.
fn clean(mut listing: Listing, redactor: &Redactor) -> Listing {
    let name = |name: String| redactor.text(&name).into_owned();
    listing.files =
        take(&mut listing.files).into_iter().map(|(it, entry)| (name(it), entry)).collect();
    listing.skipped =
        take(&mut listing.skipped).into_iter().map(|(it, why)| (name(it), name(why))).collect();
    listing
}
