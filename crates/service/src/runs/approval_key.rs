//! The key for the MACs of approvals: created at the first start, and readable by the server's user
//! only.
//!
//! An approval is invalid without the key of its MAC. So a lost key invalidates pending approvals,
//! and never lets anything run.

use policy::ApprovalKey;
use std::io;
use std::path::Path;

const NAME: &str = "approval.key";

pub(crate) fn load_or_create(data: &Path) -> Result<ApprovalKey, keyfile::Error> {
    let path = data.join("db").join(NAME);
    let mut bytes = [0; ApprovalKey::BYTES];
    match keyfile::read_key(&path, ApprovalKey::BYTES)? {
        Some(kept) => bytes.copy_from_slice(&kept),
        None => {
            let random = getrandom::fill(&mut bytes).map_err(io::Error::other);
            random.map_err(|cause| keyfile::Error::Io { path: path.clone(), cause })?;
            keyfile::create(&path, &bytes)?;
        }
    }
    Ok(ApprovalKey::new(bytes))
}
