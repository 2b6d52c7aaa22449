//! What the code has left in its working directory.

use sandbox::Sandbox;
use sha2::{Digest, Sha256};
use types::{FileKind, FileOut, SkippedFile};

/// Files that one execution brings out, together, with as much again for the copy being hashed.
const FILES_BYTES_MAX: u64 = 1024 * 1024 * 1024;
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
pub(crate) fn collect(sandbox: &mut Sandbox, keep_contents: bool) -> Collected {
    let (changed, listing) = sandbox.changed_files();
    let mut collected = Collected::default();
    let mut left = FILES_BYTES_MAX;
    for name in changed {
        match sandbox.read_file(&name, left) {
            Ok(content) => {
                left -= content.len() as u64;
                collected.files.push(describe(&name, &content));
                if keep_contents {
                    collected.contents.push((name, content));
                }
            }
            Err(error) => collected.skipped.push(SkippedFile { name, reason: error.to_string() }),
        }
    }
    let others = listing.skipped.into_iter();
    collected.skipped.extend(others.map(|(name, reason)| SkippedFile { name, reason }));
    collected.skipped.truncate(SKIPPED_MAX);
    collected
}

fn describe(name: &str, content: &[u8]) -> FileOut {
    let mime = mime_guess::from_path(name).first_or_octet_stream();
    let media = matches!(mime.type_().as_str(), "image" | "audio" | "video");
    FileOut {
        name: name.to_owned(),
        mime: mime.essence_str().to_owned(),
        size: content.len() as u64,
        sha256: Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect(),
        kind: if media { FileKind::Media } else { FileKind::Data },
    }
}
