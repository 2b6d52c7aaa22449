//! The key that approvals are sealed with: made at the first start, and readable by nobody else.
//!
//! Without the key that a seal was made with, an approval is worth nothing, so a lost key loses
//! questions that are open and never lets anything run.

use policy::SealKey;
use std::io;
use std::path::Path;

const NAME: &str = "approval.key";

pub(crate) fn load(data: &Path) -> Result<SealKey, keyfile::Error> {
    let path = data.join("store").join(NAME);
    let mut bytes = [0; SealKey::BYTES];
    match keyfile::read_key(&path, SealKey::BYTES)? {
        Some(kept) => bytes.copy_from_slice(&kept),
        None => {
            let random = getrandom::fill(&mut bytes).map_err(io::Error::other);
            random.map_err(|cause| keyfile::Error::Io { path: path.clone(), cause })?;
            keyfile::create(&path, &bytes)?;
        }
    }
    Ok(SealKey::new(bytes))
}
