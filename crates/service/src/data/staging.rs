//! Temporary files for uploads and fetched files: hashed while they are written, and deleted unless
//! they are stored.

use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::service::Service;
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use types::{Error, ErrorCode, SandboxId};

/// A temporary file that is being written.
#[derive(Debug)]
pub struct StagingFile {
    pub(crate) file: File,
    pub(crate) path: TempPath,
    hash: Sha256,
    size: u64,
    size_max: u64,
}

/// A temporary file that is complete.
#[derive(Debug)]
pub struct StagedFile {
    pub(crate) path: TempPath,
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// A temporary path. Dropping it deletes the file.
#[derive(Debug)]
pub(crate) struct TempPath(PathBuf);

impl TempPath {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        // A stored file has been renamed; the next start deletes leftover files.
        let _ = fs::remove_file(&self.0);
    }
}

impl Service {
    /// The size limit of a document.
    pub fn document_bytes_max(&self) -> u64 {
        self.config.document_bytes_max
    }

    /// Whether the caller may store a document or a file of the session; checked before the upload
    /// is read.
    pub fn check_upload(
        &self,
        caller: &Caller,
        session: Option<SandboxId>,
    ) -> Result<(), RequestError> {
        match session {
            Some(id) => self.usable_session(caller, id).map(drop),
            None => self.require_usage(caller).map(drop),
        }
    }

    #[boxed::future]
    pub async fn stage(&self) -> Result<StagingFile, RequestError> {
        let path = TempPath::new(self.db.blobs().staging_path());
        let file =
            File::create_new(path.as_path()).await.map_err(|error| file_write_error(&error))?;
        let size_max = self.config.document_bytes_max;
        Ok(StagingFile { file, path, hash: Sha256::new(), size: 0, size_max })
    }
}

impl StagingFile {
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), RequestError> {
        self.size += piece.len() as u64;
        if self.size > self.size_max {
            let message = format!("the file exceeds {} bytes", self.size_max);
            return Err(Error::new(ErrorCode::RequestTooLarge, message).into());
        }
        self.hash.update(piece);
        self.file.write_all(piece).await.map_err(|error| file_write_error(&error))
    }

    pub async fn finish(mut self) -> Result<StagedFile, RequestError> {
        self.file.flush().await.map_err(|error| file_write_error(&error))?;
        Ok(StagedFile { path: self.path, size: self.size, sha256: hex(&self.hash.finalize()) })
    }
}

impl StagedFile {
    pub(crate) fn open(&self) -> Result<fs::File, RequestError> {
        fs::File::open(self.path.as_path()).map_err(|error| file_write_error(&error))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn file_write_error(error: &io::Error) -> RequestError {
    let message = format!("the file could not be stored: {error}");
    Error::new(ErrorCode::DatabaseUnavailable, message)
        .hint("the disk of the server may be full; try again later, or ask the operator")
        .into()
}
