//! Encrypts (seals) and decrypts (opens) values with the master key of this host.
//!
//! Each value has its own data key, which the master key wraps. Both are bound to the
//! [`types::SealContext`] of the value, so that nothing sealed for one context can be opened in
//! another. An opened value is a [`Plaintext`], which has no `Display` and is wiped when it is
//! dropped. The only file here is that of the master key; if there is any doubt about it, the vault
//! opens and seals nothing.

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
