//! What the code has left in its working directory.

use sandbox::{Files, Sandbox};
use sha2::{Digest, Sha256};
use std::io::{ErrorKind, Read};
use types::{FileKind, FileOut, SkippedFile};

/// Of all the files of one execution together. The working directory is bounded as well, but files
/// with holes can be longer than all of it.
const FILES_BYTES_MAX: u64 = 1024 * 1024 * 1024;
const PIECE_BYTES: usize = 64 * 1024;
/// Names of files left out that a record carries.
const SKIPPED_MAX: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) files: Vec<FileOut>,
    pub(crate) skipped: Vec<SkippedFile>,
    /// Only when the content was asked for.
    pub(crate) contents: Vec<(String, Vec<u8>)>,
}

/// Reads every file that is new or changed since the last execution.
pub(crate) async fn collect(sandbox: &mut Sandbox, keep_contents: bool) -> Collected {
    let (changed, listing) = sandbox.changed_files();
    let mut collected = Collected::default();
    if !changed.is_empty()
        && let Ok(files) = sandbox.files()
    {
        // Hashing can take a second, and other executions are served by the same threads.
        let reading = tokio::task::spawn_blocking(move || {
            for name in changed {
                collected.take(&files, name, keep_contents);
            }
            collected
        });
        collected = reading.await.unwrap_or_default();
    }
    let others = listing.skipped.into_iter();
    collected.skipped.extend(others.map(|(name, reason)| SkippedFile { name, reason }));
    collected.skipped.truncate(SKIPPED_MAX);
    collected
}

impl Collected {
    fn take(&mut self, files: &Files, name: String, keep_content: bool) {
        let read: u64 = self.files.iter().map(|file| file.size).sum();
        let mut file = match files.open(&name, FILES_BYTES_MAX - read) {
            Ok(file) => file,
            Err(error) => {
                return self.skipped.push(SkippedFile { name, reason: error.to_string() });
            }
        };
        let mut hash = Sha256::new();
        let (mut size, mut content) = (0, Vec::new());
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match file.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => {
                    hash.update(&piece[..count]);
                    size += count as u64;
                    if keep_content {
                        content.extend_from_slice(&piece[..count]);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let reason = error.to_string();
                    return self.skipped.push(SkippedFile { name, reason });
                }
            }
        }
        self.files.push(describe(&name, size, &hash.finalize()));
        if keep_content {
            self.contents.push((name, content));
        }
    }
}

fn describe(name: &str, size: u64, hash: &[u8]) -> FileOut {
    let mime = mime_guess::from_path(name).first_or_octet_stream();
    let media = matches!(mime.type_().as_str(), "image" | "audio" | "video");
    FileOut {
        name: name.to_owned(),
        mime: mime.essence_str().to_owned(),
        size,
        sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        kind: if media { FileKind::Media } else { FileKind::Data },
    }
}
