//! Seals and opens values with the key of this machine.
//!
//! Each value has a data key of its own, and the master key wraps that; both are bound to the
//! [`types::Label`] of the value, so that nothing sealed for one place can be opened in another. A
//! value leaves as [`Plain`], which shows nothing of itself and is wiped. The only file here is that
//! of the master key; where there is any doubt about it, nothing is opened and nothing is sealed.

mod file;
mod key;
mod plain;
mod ring;
mod vault;

pub use file::KeyFileError;
pub use key::CannotSeal;
pub use plain::Plain;
pub use ring::{Keyring, NotAKeyring, Unsealed};
pub use vault::{Rotation, RotationError, Vault, VaultError};
