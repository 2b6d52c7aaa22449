//! The signature of a URL that lets its holder read one file for a limited time.
//!
//! The MAC covers everything that the URL grants: the file, the credential whose rights the holder
//! uses, and the end. The rights themselves are checked when the URL is used.

use crate::approval::{MacBuilder, MacTag};
use types::{KeyId, PrincipalId};

/// The server's secret key of file URLs, as long as a block of the hash. Another key ends every URL.
#[derive(Clone)]
pub struct FileUrlKey([u8; Self::BYTES]);

impl FileUrlKey {
    pub const BYTES: usize = 64;

    pub fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

impl std::fmt::Debug for FileUrlKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FileUrlKey(..)")
    }
}

/// Everything that a file URL grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileUrlGrant<'a> {
    /// The path of the file in the API, without percent-encoding.
    pub path: &'a str,
    pub credential: FileUrlCredential<'a>,
    /// Seconds since 1970.
    pub expires: u64,
}

/// The credential that the URL was made for. The URL grants nothing that it does not grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileUrlCredential<'a> {
    Key(KeyId),
    /// Access tokens of a principal, which the issuer knows by the external id.
    Tokens {
        principal: PrincipalId,
        external_id: &'a str,
    },
}

pub fn mac_for_file_url(key: &FileUrlKey, grant: &FileUrlGrant<'_>) -> MacTag {
    let mut builder = MacBuilder::new(&key.0, b"belljar file url 1");
    builder.field(grant.path.as_bytes());
    match grant.credential {
        FileUrlCredential::Key(id) => {
            builder.field(b"key");
            builder.field(id.uuid().as_bytes());
        }
        FileUrlCredential::Tokens { principal, external_id } => {
            builder.field(b"tokens");
            builder.field(principal.uuid().as_bytes());
            builder.field(external_id.as_bytes());
        }
    }
    builder.field(&grant.expires.to_be_bytes());
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::macs_equal;
    use uuid::Uuid;

    #[test]
    fn t255_a_change_of_any_part_breaks_the_signature() {
        let key = FileUrlKey([7; FileUrlKey::BYTES]);
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let tokens = |id, external_id| FileUrlCredential::Tokens {
            principal: PrincipalId::new(id),
            external_id,
        };
        let plain = FileUrlGrant {
            path: "/v1/assets/1/a.png",
            credential: FileUrlCredential::Key(KeyId::new(one)),
            expires: 1_800_000_000,
        };
        let right = mac_for_file_url(&key, &plain);
        assert!(macs_equal(&right, &mac_for_file_url(&key, &plain.clone())));
        for changed in [
            FileUrlGrant { path: "/v1/assets/1/b.png", ..plain },
            FileUrlGrant { path: "/v1/assets/2/a.png", ..plain },
            FileUrlGrant { expires: plain.expires + 1, ..plain },
            FileUrlGrant { credential: FileUrlCredential::Key(KeyId::new(other)), ..plain },
            FileUrlGrant { credential: tokens(one, ""), ..plain },
            FileUrlGrant { credential: tokens(one, "ann"), ..plain },
        ] {
            assert!(!macs_equal(&right, &mac_for_file_url(&key, &changed)), "{changed:?}");
        }
        let ann = FileUrlGrant { credential: tokens(one, "ann"), ..plain };
        let bob = FileUrlGrant { credential: tokens(one, "bob"), ..plain };
        assert!(!macs_equal(&mac_for_file_url(&key, &ann), &mac_for_file_url(&key, &bob)));
        let elsewhere = FileUrlKey([8; FileUrlKey::BYTES]);
        assert!(!macs_equal(&right, &mac_for_file_url(&elsewhere, &plain)));
    }
}
