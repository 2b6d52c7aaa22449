//! Trusted root certificates.

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    #[error("this machine has no root certificates; install ca-certificates, or set SSL_CERT_FILE")]
    None,
    #[error("the certificates are not valid PEM")]
    Unreadable(#[source] tokio_rustls::rustls::pki_types::pem::Error),
}

/// Root certificates, of the machine or of the operator.
#[derive(Debug, Clone, Default)]
pub struct Roots(Vec<CertificateDer<'static>>);

impl Roots {
    /// Loads the roots that this machine trusts.
    pub fn load_native() -> Result<Self, RootsError> {
        let found = rustls_native_certs::load_native_certs().certs;
        if found.is_empty() { Err(RootsError::None) } else { Ok(Self(found)) }
    }

    pub fn from_pem(pem: &[u8]) -> Result<Self, RootsError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match read.map_err(RootsError::Unreadable)? {
            none if none.is_empty() => Err(RootsError::None),
            some => Ok(Self(some)),
        }
    }

    /// A PEM bundle for clients that read one.
    pub fn to_pem(&self) -> String {
        let block =
            |root: &CertificateDer<'_>| pem::encode(&pem::Pem::new("CERTIFICATE", root.as_ref()));
        self.0.iter().map(block).collect()
    }

    /// Skips certificates that rustls cannot parse, as some machines have; they are then not
    /// trusted.
    pub(crate) fn to_cert_store(&self) -> RootCertStore {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(self.0.iter().cloned());
        store
    }
}
