//! The keys for the MACs of approvals and of file URLs: each is created at the first start, and
//! readable by the server's user only.
//!
//! Nothing is valid without the key of its MAC. So a lost key invalidates pending approvals and the
//! URLs that were given out, and never lets anything run or be read.

use policy::{ApprovalKey, FileUrlKey};
use std::io;
use std::path::Path;

const KEY_BYTES: usize = ApprovalKey::BYTES;
const APPROVAL_KEY: &str = "approval.key";
const FILE_URL_KEY: &str = "file-url.key";

pub(crate) fn approval_key(data: &Path) -> Result<ApprovalKey, keyfile::Error> {
    load_or_create(data, APPROVAL_KEY).map(ApprovalKey::new)
}

pub(crate) fn file_url_key(data: &Path) -> Result<FileUrlKey, keyfile::Error> {
    load_or_create(data, FILE_URL_KEY).map(FileUrlKey::new)
}

fn load_or_create(data: &Path, name: &str) -> Result<[u8; KEY_BYTES], keyfile::Error> {
    let path = data.join("db").join(name);
    let mut bytes = [0; KEY_BYTES];
    match keyfile::read_key(&path, KEY_BYTES)? {
        Some(kept) => bytes.copy_from_slice(&kept),
        None => {
            let random = getrandom::fill(&mut bytes).map_err(io::Error::other);
            random.map_err(|cause| keyfile::Error::Io { path: path.clone(), cause })?;
            keyfile::create(&path, &bytes)?;
        }
    }
    Ok(bytes)
}
