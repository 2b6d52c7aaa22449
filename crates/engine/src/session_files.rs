//! The files of a session in another sandbox: a tool that must not share an interpreter with the code
//! of the session works on a copy of the working directory, and what it changes is copied back.
//!
//! The session is leased meanwhile, so that no other execution changes the files. Only regular files
//! are copied, with the same bounds as every listing. Values of secrets that only the tool has never
//! reach the session: changed files are redacted on their way.

use crate::engine::Engine;
use crate::files::{directory_error, file_error};
use crate::session::{SandboxHandle, SessionLease};
use crate::volumes::UnsavedFiles;
use redact::{OutputRedactor, RedactingStream};
use sandbox::{DirectoryListing, FileError, Sandbox, SandboxDirectory};
use std::fs::File;
use std::io::{self, Read};
use std::mem::take;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use types::{Error, ErrorCode};

/// Limit for each direction. Both sides are in memory, so that this is enough for the largest working
/// directory of usual size.
const COPYING_MAX: Duration = Duration::from_secs(10);
const PIECE_BYTES: usize = 64 * 1024;

/// A leased session, whose working directory another sandbox works on.
#[derive(Debug)]
pub(crate) struct SessionFiles {
    /// Absent while the files are copied back, and if that was interrupted.
    lease: Option<SessionLease>,
    generation: u64,
    /// The copy as it was before the code ran.
    before: DirectoryListing,
    /// For the secrets of the command, which code of the session must not see.
    redactor: OutputRedactor,
}

impl SessionFiles {
    pub(crate) fn new(lease: SessionLease) -> Self {
        Self {
            generation: lease.generation(),
            lease: Some(lease),
            before: DirectoryListing::default(),
            redactor: OutputRedactor::default(),
        }
    }

    /// Whether a loss of the session's state is still unreported. The caller must report it.
    pub(crate) fn take_unreported_loss(&mut self) -> bool {
        self.lease.as_mut().is_some_and(SessionLease::take_unreported_loss)
    }

    pub(crate) fn session_lease(&mut self) -> Option<&mut SessionLease> {
        self.lease.as_mut()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Copies all files of the session for a command with these secrets. They do not count as files
    /// that the code created. They can contain what the code of the session knows, which is removed
    /// from the record of this code too.
    pub(crate) async fn copy_into(
        &mut self,
        engine: &Engine,
        target: &mut SandboxHandle,
        of_command: &OutputRedactor,
    ) -> Result<(), Error> {
        let lease = self.lease.as_mut().ok_or_else(interrupted_error)?;
        let session = lease.take_sandbox(engine).await?;
        let (source, known) = (session.sandbox.directory(), session.redactor.clone());
        lease.return_sandbox(session);
        lease.count_execution();
        self.redactor = of_command.clone();
        target.redactor = target.redactor.merge(&known).await?;
        let source = source.map_err(|error| directory_error(&error))?;
        let sandbox = &mut target.sandbox;
        let copy = sandbox.directory().map_err(|error| directory_error(&error))?;
        let copying = spawn_blocking(move || copy_all(&source, &copy));
        self.before = copying.await.map_err(|error| directory_error(&error.into()))??;
        let names = self.before.files.keys().map(String::as_str);
        sandbox.ignore_changes(self.before.clone(), names);
        Ok(())
    }

    /// Copies changed files back, and removes deleted ones. Runs to its end, also when the caller's
    /// future is dropped.
    pub(crate) async fn copy_back(&mut self, engine: &Engine, sandbox: &Sandbox) -> UnsavedFiles {
        match self.try_copy_back(engine, sandbox).await {
            Ok(unsaved) => unsaved,
            Err(error) => UnsavedFiles { failed: Some(error), skipped: Vec::new() },
        }
    }

    async fn try_copy_back(
        &mut self,
        engine: &Engine,
        sandbox: &Sandbox,
    ) -> Result<UnsavedFiles, Error> {
        let (before, redactor) = (take(&mut self.before), self.redactor.clone());
        let mut lease = self.lease.take().ok_or_else(interrupted_error)?;
        let source = sandbox.directory().map_err(|error| directory_error(&error))?;
        let mut handle = lease.take_sandbox(engine).await?;
        let copying = spawn_blocking(move || {
            let copied = handle.sandbox.directory().map_err(|error| directory_error(&error));
            let copied = copied.map(|target| {
                let changes = DirectoryChanges { source, target, before, redactor };
                let (written, unsaved) = changes.apply();
                let now = changes.target.snapshot();
                handle.sandbox.ignore_changes(now, written.iter().map(String::as_str));
                unsaved
            });
            lease.return_sandbox(handle);
            (lease, copied)
        });
        let (lease, copied) = copying.await.map_err(|error| directory_error(&error.into()))?;
        self.lease = Some(lease);
        copied
    }
}

/// Returns the listing of the copy.
fn copy_all(
    source: &SandboxDirectory,
    target: &SandboxDirectory,
) -> Result<DirectoryListing, Error> {
    let listing = source.list();
    if !listing.is_complete() {
        let message = "the working directory of the session has too many files to copy them";
        let hint = "remove unneeded files, or call the tool without a session";
        return Err(Error::new(ErrorCode::DiskExceeded, message).hint(hint));
    }
    let until = Instant::now() + COPYING_MAX;
    let redactor = OutputRedactor::default();
    for name in listing.files.keys() {
        match copy_file((source, name), (target, name), &redactor, until) {
            // The code of the session can still have processes that remove files.
            Ok(()) | Err(FileError::NotFound { .. }) => {}
            // The tool could not read it in the session either.
            Err(error) if error.is_permission_denied() => {}
            Err(error) => return Err(file_error(&error)),
        }
    }
    Ok(target.snapshot())
}

/// The changes of the code that worked on a copy.
struct DirectoryChanges {
    source: SandboxDirectory,
    target: SandboxDirectory,
    before: DirectoryListing,
    redactor: OutputRedactor,
}

impl DirectoryChanges {
    /// Returns the names of the written files, and what could not be copied.
    fn apply(&self) -> (Vec<String>, UnsavedFiles) {
        let now = self.source.snapshot();
        let mut unsaved = UnsavedFiles::default();
        if !now.is_complete() {
            let message = "the tool has left too many files to copy them into the session";
            unsaved.failed = Some(Error::new(ErrorCode::DiskExceeded, message));
            return (Vec::new(), unsaved);
        }
        self.remove_deleted(&now, &mut unsaved);
        let until = Instant::now() + COPYING_MAX;
        let mut written = Vec::new();
        for name in now.changed_since(&self.before) {
            // A name can contain a value as well.
            let public_name = self.redactor.redact_text(name).into_owned();
            let to = (&self.target, public_name.as_str());
            let copied = copy_file((&self.source, name), to, &self.redactor, until);
            unsaved.failed =
                unsaved.failed.take().or(copied.err().map(|error| unsaved_error(&error)));
            written.push(public_name);
        }
        (written, unsaved)
    }

    fn remove_deleted(&self, now: &DirectoryListing, unsaved: &mut UnsavedFiles) {
        // Files below an unreadable directory are invisible, not deleted.
        let is_hidden = |name: &str| {
            // Names that were skipped are listed in their escaped form.
            let is_skipped =
                |path: &str| now.skipped.contains_key(path.escape_debug().to_string().as_str());
            let mut above = Path::new(name).ancestors().filter_map(Path::to_str);
            now.skipped.contains_key(".") || above.any(is_skipped)
        };
        for name in self.before.files.keys() {
            if now.files.contains_key(name) || is_hidden(name) {
                continue;
            }
            match self.target.remove(name) {
                Ok(()) | Err(FileError::NotFound { .. }) => {}
                Err(error) => {
                    let error = unsaved_error(&error);
                    unsaved.failed = unsaved.failed.take().or(Some(error));
                }
            }
        }
    }
}

fn copy_file(
    (source, from): (&SandboxDirectory, &str),
    (target, to): (&SandboxDirectory, &str),
    redactor: &OutputRedactor,
    until: Instant,
) -> Result<(), FileError> {
    let (file, size) = source.open(from)?;
    // The file may still be growing.
    let file = file.take(size);
    let mut reader = CopyReader {
        file,
        redacting: redactor.stream(),
        piece: vec![0; PIECE_BYTES],
        ready: Vec::new(),
        taken: 0,
        is_over: false,
        until,
    };
    target.write(to, &mut reader).map(drop)
}

/// Reads a file without the values of secrets, until a time.
struct CopyReader {
    file: io::Take<File>,
    redacting: RedactingStream,
    piece: Vec<u8>,
    /// Bytes that were redacted and not yet taken, from `taken` on.
    ready: Vec<u8>,
    taken: usize,
    is_over: bool,
    until: Instant,
}

impl CopyReader {
    fn fill(&mut self) -> io::Result<()> {
        if Instant::now() > self.until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "copying took too long"));
        }
        self.taken = 0;
        match self.file.read(&mut self.piece)? {
            0 => {
                self.is_over = true;
                self.ready = self.redacting.finish();
            }
            count => self.ready = self.redacting.feed(&self.piece[..count]).into_owned(),
        }
        Ok(())
    }
}

impl Read for CopyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.ready.len() && !self.is_over {
            self.fill()?;
        }
        let left = &self.ready[self.taken..];
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.taken += count;
        Ok(count)
    }
}

fn unsaved_error(error: &FileError) -> Error {
    let error = file_error(error);
    Error { message: format!("not copied into the session: {}", error.message), ..error }
}

fn interrupted_error() -> Error {
    Error::new(ErrorCode::SandboxUnreachable, "copying the files of the session was interrupted")
}
