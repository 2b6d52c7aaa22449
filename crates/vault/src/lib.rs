//! Seals and opens values with the key of this machine.
//!
//! Each value has a data key of its own, and the master key wraps that; both are bound to the
//! [`types::Label`] of the value, so that nothing sealed for one place can be opened in another. A
//! value leaves as [`Plain`], which shows nothing of itself and is wiped. The only file here is that
//! of the master key; where there is any doubt about it, nothing is opened and nothing is sealed.

mod key;
mod key_file;
mod keyring;
mod plaintext;
mod vault;

pub use key::SealError;
pub use key_file::KeyFileError;
pub use keyring::{Keyring, KeyringParseError, OpenError};
pub use plaintext::Plaintext;
pub use vault::{Rotation, RotationError, Vault, VaultError};
