//! Collects the files that code created in its working directory.
//!
//! Each file is read once, so the hashed bytes are the collected ones. The total bytes and the time
//! are bounded, and files left out are listed with the reason. Secret values do not leave the
//! sandbox, neither in a file name nor in a file.

use crate::command::{FileCollection, StagingDirectory};
use redact::OutputRedactor;
use sandbox::{FileError, Sandbox, SandboxDirectory};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::iter;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use types::{FileKind, OutputFile, SkippedFile};

/// Limit for all files of one execution together. The working directory is bounded as well, but
/// sparse files can be longer than all of it.
const FILES_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Together with the other steps, the reply comes within five seconds after the code ends.
const COLLECTING_MAX: Duration = Duration::from_secs(3);
const PIECE_BYTES: usize = 64 * 1024;
/// Maximum number of skipped file names in a record.
const SKIPPED_MAX: usize = 100;
/// Only the caller may read files that its code created.
const COPY_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

#[derive(Debug, Default)]
pub(crate) struct CollectedFiles {
    pub(crate) files: Vec<OutputFile>,
    pub(crate) skipped: Vec<SkippedFile>,
    pub(crate) contents: Vec<(String, Vec<u8>)>,
    pub(crate) copies: Vec<(String, PathBuf)>,
}

#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("{0}")]
    File(#[from] FileError),
    #[error("it has {size} bytes; at most {most} are collected")]
    TooLarge { size: u64, most: u64 },
    #[error("the time limit for collecting files was reached")]
    Timeout,
    #[error("it could not be read: {0}")]
    Read(io::Error),
    #[error("it could not be saved: {0}")]
    Write(io::Error),
}

/// Reads every file that is new or changed since the last execution.
pub(crate) async fn collect_files(
    sandbox: &mut Sandbox,
    collection: &FileCollection,
    redactor: &OutputRedactor,
) -> CollectedFiles {
    let mut collected = CollectedFiles::default();
    let Ok(files) = sandbox.directory() else {
        return collected;
    };
    // Reading can take a second, and the same threads serve other executions.
    let looking = spawn_blocking(move || (files.snapshot(), files));
    let Ok((listing, files)) = looking.await else {
        return collected;
    };
    let changed = sandbox.take_changed_files(&listing);
    if !changed.is_empty() {
        let collector = FileCollector::new(files, collection.clone(), redactor.clone());
        let reading = spawn_blocking(move || collector.collect(changed));
        collected = reading.await.unwrap_or_default();
    }
    let others = listing.skipped.into_iter();
    let clean = |text: String| redactor.redact_text(&text).into_owned();
    let others = others.map(|(name, reason)| (clean(name), clean(reason)));
    collected.skipped.extend(others.map(|(name, reason)| SkippedFile { name, reason }));
    collected.skipped.truncate(SKIPPED_MAX);
    collected
}

struct FileCollector {
    files: SandboxDirectory,
    collection: FileCollection,
    bytes_left: u64,
    until: Instant,
    chunk: Vec<u8>,
    copies: usize,
    redactor: OutputRedactor,
    /// Names that replaced others.
    used_names: HashSet<String>,
}

/// Destination of the bytes of one file while they are hashed.
enum CopyTarget {
    Nowhere,
    Memory(Vec<u8>),
    Staged(File, PathBuf),
}

impl FileCollector {
    fn new(files: SandboxDirectory, collection: FileCollection, redactor: OutputRedactor) -> Self {
        let bytes_left = match &collection {
            FileCollection::Staged(StagingDirectory { bytes_max, .. }) => {
                FILES_BYTES_MAX.min(*bytes_max)
            }
            FileCollection::Nothing | FileCollection::Contents => FILES_BYTES_MAX,
        };
        let until = Instant::now() + COLLECTING_MAX;
        Self {
            files,
            collection,
            bytes_left,
            until,
            chunk: vec![0; PIECE_BYTES],
            copies: 0,
            redactor,
            used_names: HashSet::new(),
        }
    }

    fn collect(mut self, names: Vec<String>) -> CollectedFiles {
        let mut collected = CollectedFiles::default();
        for name in names {
            let result = self.collect_file(&name);
            let name = self.public_name(name);
            match result {
                Err(reason) => {
                    let reason = self.redactor.redact_text(&reason.to_string()).into_owned();
                    collected.skipped.push(SkippedFile { name, reason });
                }
                Ok((size, hash, copy)) => {
                    collected.files.push(describe(&name, size, &hash));
                    match copy {
                        CopyTarget::Nowhere => {}
                        CopyTarget::Memory(content) => collected.contents.push((name, content)),
                        CopyTarget::Staged(_, path) => collected.copies.push((name, path)),
                    }
                }
            }
        }
        collected
    }

    /// The name of a file outside of the sandbox, which is unique there.
    fn public_name(&mut self, name: String) -> String {
        let clean = self.redactor.redact_text(&name).into_owned();
        if clean == name {
            return name;
        }
        let numbered = (2..).map(|number| format!("{clean}-{number}"));
        let mut free = iter::once(clean.clone()).chain(numbered);
        let name = free.find(|name| !self.used_names.contains(name)).unwrap_or(clean);
        self.used_names.insert(name.clone());
        name
    }

    fn collect_file(&mut self, name: &str) -> Result<(u64, Vec<u8>, CopyTarget), CollectError> {
        if Instant::now() > self.until {
            return Err(CollectError::Timeout);
        }
        let (file, size) = self.files.open(name)?;
        if size > self.bytes_left {
            return Err(CollectError::TooLarge { size, most: self.bytes_left });
        }
        let mut copy = self.begin_copy()?;
        match self.read(file, &mut copy) {
            Ok((size, hash)) => Ok((size, hash, copy)),
            Err(left_out) => {
                copy.discard();
                Err(left_out)
            }
        }
    }

    fn begin_copy(&mut self) -> Result<CopyTarget, CollectError> {
        let staging = match &self.collection {
            FileCollection::Nothing => return Ok(CopyTarget::Nowhere),
            FileCollection::Contents => return Ok(CopyTarget::Memory(Vec::new())),
            FileCollection::Staged(staging) => staging,
        };
        if self.copies == 0 {
            let mut directory = DirBuilder::new();
            let made = directory.recursive(true).mode(DIRECTORY_MODE).create(&staging.directory);
            made.map_err(CollectError::Write)?;
        }
        let path = staging.directory.join(self.copies.to_string());
        self.copies += 1;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(COPY_MODE);
        Ok(CopyTarget::Staged(options.open(&path).map_err(CollectError::Write)?, path))
    }

    /// Reads to the end of the file, which may grow or shrink meanwhile.
    fn read(
        &mut self,
        mut file: File,
        copy: &mut CopyTarget,
    ) -> Result<(u64, Vec<u8>), CollectError> {
        let mut redacting = self.redactor.stream();
        let (mut hash, mut size, mut written) = (Sha256::new(), 0, 0);
        let most = self.bytes_left;
        let mut write = |chunk: &[u8]| {
            hash.update(chunk);
            written += chunk.len() as u64;
            // The replacement of a secret can be longer than the secret.
            if written > most {
                return Err(CollectError::TooLarge { size: written, most });
            }
            copy.write(chunk).map_err(CollectError::Write)
        };
        loop {
            let chunk = match file.read(&mut self.chunk) {
                Ok(0) => break,
                Ok(count) => &self.chunk[..count],
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(CollectError::Read(error)),
            };
            size += chunk.len() as u64;
            self.bytes_left = most.saturating_sub(size);
            if size > most {
                return Err(CollectError::TooLarge { size, most });
            }
            if Instant::now() > self.until {
                return Err(CollectError::Timeout);
            }
            write(&redacting.feed(chunk))?;
        }
        write(&redacting.finish())?;
        self.bytes_left = most.saturating_sub(size.max(written));
        Ok((written, hash.finalize().to_vec()))
    }
}

impl CopyTarget {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Memory(content) => {
                content.extend_from_slice(chunk);
                Ok(())
            }
            Self::Staged(file, _) => file.write_all(chunk),
        }
    }

    /// Removes a partial copy.
    fn discard(self) {
        if let Self::Staged(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

fn describe(name: &str, size: u64, hash: &[u8]) -> OutputFile {
    let mime = mime_guess::from_path(name).first_or_octet_stream();
    let media = matches!(mime.type_().as_str(), "image" | "audio" | "video");
    OutputFile {
        name: name.to_owned(),
        mime: mime.essence_str().to_owned(),
        size,
        sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        kind: if media { FileKind::Media } else { FileKind::Data },
        url: None,
    }
}
