//! One key and its operations. A nonce is random and used for one text; should a nonce ever repeat,
//! AES-256-GCM-SIV would reveal only whether two texts are the same.

use aws_lc_rs::aead::{
    AES_256_GCM_SIV, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey,
};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use std::fmt;
use types::SealingKeyId;
use zeroize::{Zeroize, Zeroizing};

/// Bytes that sealing adds to a text.
pub(crate) const OVERHEAD: usize = NONCE_LEN + MAX_TAG_LEN;

#[derive(Clone)]
pub(crate) struct SealingKey(Zeroizing<[u8; Self::BYTES]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("secrets cannot be encrypted: the system random number generator failed")]
pub struct SealError;

impl SealingKey {
    pub(crate) const BYTES: usize = 32;

    pub(crate) fn random() -> Result<Self, SealError> {
        let mut key = Self(Zeroizing::new([0; Self::BYTES]));
        rand::fill(key.0.as_mut_slice()).map_err(|_| SealError)?;
        Ok(key)
    }

    /// `None` unless the length is that of a key.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(Zeroizing::new(bytes.try_into().ok()?)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Identifies the key and reveals nothing about it: that many random bits cannot be guessed
    /// from a hash.
    pub(crate) fn id(&self) -> SealingKeyId {
        let mut named = Zeroizing::new(b"belljar sealing key\0".to_vec());
        named.extend_from_slice(self.bytes());
        let hash = digest(&SHA256, &named);
        let mut id = SealingKeyId::default();
        id.iter_mut().zip(hash.as_ref()).for_each(|(to, from)| *to = *from);
        id
    }

    /// The nonce, the ciphertext, and the authentication tag.
    pub(crate) fn seal(&self, about: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).map_err(|_| SealError)?;
        // Allocated at once: a buffer that grows would leave copies of the text behind.
        let mut sealed = Vec::with_capacity(plain.len() + OVERHEAD);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let tag = self
            .cipher()
            .and_then(|cipher| {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let text = sealed.get_mut(NONCE_LEN..).unwrap_or_default();
                cipher.seal_in_place_separate_tag(nonce, Aad::from(about), text).ok()
            })
            .ok_or_else(|| {
                sealed.zeroize();
                SealError
            })?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// `None` if it was sealed with another key or with other associated data.
    pub(crate) fn open(&self, about: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = Zeroizing::new(text.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.cipher()?.open_in_place(nonce, Aad::from(about), &mut text).ok()?.len();
        text.truncate(opened);
        Some(text)
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM_SIV, self.bytes()).ok().map(LessSafeKey::new)
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
