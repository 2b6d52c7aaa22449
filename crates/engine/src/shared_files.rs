//! The files of a session in the sandbox of a tool that has another environment.
//!
//! The tool gets a copy. Files that it creates or changes are copied back, also when it fails, as a
//! tool in the session's own sandbox would leave them there. Files that it deletes stay: the copy may
//! lack files that cannot be copied, which the tool has not deleted. The lease of the session is held
//! meanwhile, but not its sandbox, which stays as it is if the caller goes away.

use crate::engine::Engine;
use crate::files::{directory_error, file_error};
use crate::session::{SandboxHandle, SessionLease};
use redact::OutputRedactor;
use sandbox::{DirectoryListing, FileError, SandboxDirectory};
use tokio::task::spawn_blocking;
use types::{Error, ErrorCode, Execution, Warning};

/// Maximum number of reported files that could not be copied back; code can create any number.
const REPORTED_MAX: usize = 20;

/// The working directory of a session.
#[derive(Debug)]
pub(crate) struct SharedFiles {
    session: SandboxDirectory,
    /// For every secret that code of the session ever had.
    redactor: OutputRedactor,
}

/// The copy of a tool before it ran.
#[derive(Debug)]
pub(crate) struct CopiedFiles {
    directory: SandboxDirectory,
    listing: DirectoryListing,
}

/// Files that could not be copied back, and why.
#[derive(Debug, Default)]
pub(crate) struct UnreturnedFiles(Vec<String>);

impl SharedFiles {
    pub(crate) async fn open(engine: &Engine, lease: &mut SessionLease) -> Result<Self, Error> {
        let handle = lease.take_sandbox(engine).await?;
        let (session, redactor) = (handle.sandbox.directory(), handle.redactor.clone());
        lease.return_sandbox(handle);
        Ok(Self { session: session.map_err(|error| directory_error(&error))?, redactor })
    }

    /// Copies every file into the sandbox of the tool.
    pub(crate) async fn copy_to(&self, handle: &mut SandboxHandle) -> Result<CopiedFiles, Error> {
        handle.redactor = handle.redactor.merge(&self.redactor).await?;
        let directory = handle.sandbox.directory().map_err(|error| directory_error(&error))?;
        let session = self.session.try_clone().map_err(|error| directory_error(&error))?;
        let task = spawn_blocking(move || {
            let names: Vec<String> = session.list().files.into_keys().collect();
            let copied = names.iter().try_for_each(|name| copy(&session, &directory, name));
            (copied, names, CopiedFiles { listing: directory.snapshot(), directory })
        });
        let (copied, names, files) = task.await.map_err(|error| directory_error(&error.into()))?;
        let names = names.iter().map(String::as_str);
        handle.sandbox.ignore_changes(files.listing.clone(), names);
        copied.map_err(|error| file_error(&error))?;
        Ok(files)
    }

    /// Copies the files back that the tool has created or changed. They do not count as files that
    /// the next code of the session creates.
    pub(crate) async fn copy_back(
        self,
        engine: &Engine,
        lease: &mut SessionLease,
        redactor: OutputRedactor,
        CopiedFiles { directory, listing: before }: CopiedFiles,
    ) -> UnreturnedFiles {
        let session = self.session;
        let task = spawn_blocking(move || {
            let now = directory.snapshot();
            let changed: Vec<String> = now.changed_since(&before).cloned().collect();
            let copied = changed.iter().map(|name| copy(&directory, &session, name));
            let failed: Vec<String> =
                copied.filter_map(|copied| Some(copied.err()?.to_string())).collect();
            (changed, failed, session.snapshot())
        });
        let Ok((changed, failed, now)) = task.await else { return UnreturnedFiles::default() };
        if !changed.is_empty()
            && let Ok(mut of_session) = lease.take_sandbox(engine).await
        {
            of_session.sandbox.ignore_changes(now, changed.iter().map(String::as_str));
            lease.return_sandbox(of_session);
        }
        let reported = failed.iter().take(REPORTED_MAX);
        // A name can be the value of a secret.
        UnreturnedFiles(reported.map(|why| redactor.redact_text(why).into_owned()).collect())
    }
}

impl UnreturnedFiles {
    pub(crate) fn report_in(self, execution: &mut Execution) {
        execution.warnings.extend(self.0.into_iter().map(|why| Warning {
            code: ErrorCode::FileUnsupported.to_string(),
            message: format!("not copied back to the session: {why}"),
        }));
    }
}

fn copy(from: &SandboxDirectory, to: &SandboxDirectory, name: &str) -> Result<(), FileError> {
    let (mut content, _) = from.open(name)?;
    to.write(name, &mut content).map(drop)
}
