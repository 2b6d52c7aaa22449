//! The certificate authority for intercepted TLS, trusted by sandboxes only.
//!
//! It is created once and stored in one file with its key, which only the server's user can read.
//! It must never sign a certificate for a host without a credential.

use policy::Destination;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use url::Host;
use zeroize::Zeroizing;

const FILE: &str = "ca.pem";
const NAME: &str = "Belljar interception";
/// Sandboxes get the certificate at each start, so a shorter life would work too; with this one no
/// operator has to renew it.
const CA_LIFE: Duration = Duration::days(10 * 365);
/// Leaf certificates are only in memory, and are reissued long before they expire.
const LEAF_LIFE: Duration = Duration::days(30);
const LEAF_RENEWAL_AGE: Duration = Duration::days(10);
/// Tolerance for differences between clocks.
const CLOCK_SKEW: Duration = Duration::hours(1);
/// More hosts than have credentials. An evicted leaf is issued again.
const LEAVES_MAX: usize = 1024;
/// Many times the size of a key and a certificate.
const FILE_BYTES_MAX: usize = 64 * 1024;
/// Signed once at start to test the authority.
const SELF_TEST_HOST: &str = "self-test.invalid";

#[derive(Debug, thiserror::Error)]
pub enum CaError {
    #[error("cannot read or create the CA key of the egress proxy: {0}")]
    File(#[from] keyfile::Error),
    #[error(
        "{} is not a valid CA key of the egress proxy with its certificate; delete the file, and \
         the next start creates a new one",
        path.display()
    )]
    InvalidFile { path: PathBuf, source: CaFileError },
    #[error("cannot create a certificate")]
    Generate(#[from] rcgen::Error),
    #[error("the created certificate is unusable")]
    Tls(#[from] rustls::Error),
}

/// Why the file of the authority is invalid.
#[derive(Debug, thiserror::Error)]
pub enum CaFileError {
    #[error("the file has no certificate")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    #[error("the file is not text")]
    Text(#[source] std::str::Utf8Error),
    #[error("the file has no key")]
    Key(#[source] rcgen::Error),
    #[error("the key does not match the certificate")]
    Signature(#[source] Box<CaError>),
}

/// The authority and the leaves that it issued.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    leaves: Mutex<HashMap<Host, LeafCertificate>>,
}

struct LeafCertificate {
    issued_at: OffsetDateTime,
    config: Arc<ServerConfig>,
}

impl Ca {
    /// Loads the authority from a directory, or creates it there.
    pub fn load_or_create(directory: &Path) -> Result<Self, CaError> {
        let path = directory.join(FILE);
        if let Some(text) = keyfile::read(&path, FILE_BYTES_MAX)? {
            return Self::load(&path, &text);
        }
        let pem = generate_pem()?;
        match keyfile::create(&path, pem.as_bytes()) {
            // Another process may have created it first; the file on disk counts.
            Err(error) if !error.is_already_there() => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        let text = keyfile::read(&path, FILE_BYTES_MAX)?;
        Self::load(&path, &text.unwrap_or_default())
    }

    fn load(path: &Path, text: &[u8]) -> Result<Self, CaError> {
        let broken = |source| CaError::InvalidFile { path: path.to_owned(), source };
        let certificate = CertificateDer::from_pem_slice(text);
        let certificate = certificate.map_err(|error| broken(CaFileError::Certificate(error)))?;
        let text = std::str::from_utf8(text).map_err(|error| broken(CaFileError::Text(error)))?;
        let key = KeyPair::from_pem(text).map_err(|error| broken(CaFileError::Key(error)))?;
        let issuer = Issuer::new(ca_certificate_params(), key);
        let ca = Self { issuer, certificate, leaves: Mutex::default() };
        ca.verify_key_pair().map_err(|error| broken(CaFileError::Signature(Box::new(error))))?;
        Ok(ca)
    }

    /// The certificate for clients that trust it.
    pub fn certificate_pem(&self) -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", self.certificate.as_ref()))
    }

    /// The TLS configuration that answers a client as this host.
    pub(crate) fn server_config_for(&self, to: &Destination) -> Result<Arc<ServerConfig>, CaError> {
        let now = OffsetDateTime::now_utc();
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) =
            leaves.get(to.host()).filter(|leaf| now - leaf.issued_at < LEAF_RENEWAL_AGE)
        {
            return Ok(leaf.config.clone());
        }
        let (certificate, key) = self.sign(to.host())?;
        let mut config = ServerConfig::builder_with_provider(crypto_provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())?;
        config.alpn_protocols = vec![crate::proxy::HTTP1.to_vec()];
        let config = Arc::new(config);
        if leaves.len() >= LEAVES_MAX {
            leaves.clear();
        }
        leaves
            .insert(to.host().clone(), LeafCertificate { issued_at: now, config: config.clone() });
        Ok(config)
    }

    /// Each leaf has its own key; its serial number is derived from that key.
    fn sign(
        &self,
        host: &Host,
    ) -> Result<(CertificateDer<'static>, PrivatePkcs8KeyDer<'static>), rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut leaf = certificate_params(LEAF_LIFE);
        leaf.distinguished_name.push(DnType::CommonName, "host of a credential");
        leaf.subject_alt_names = vec![match host {
            Host::Domain(name) => SanType::DnsName(name.as_str().try_into()?),
            Host::Ipv4(address) => SanType::IpAddress((*address).into()),
            Host::Ipv6(address) => SanType::IpAddress((*address).into()),
        }];
        leaf.is_ca = IsCa::ExplicitNoCa;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.use_authority_key_identifier_extension = true;
        let certificate = leaf.signed_by(&key, &self.issuer)?;
        Ok((certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der())))
    }

    /// Detects a mismatched key or an expired certificate at start, before users do.
    fn verify_key_pair(&self) -> Result<(), CaError> {
        let (leaf, _) = self.sign(&Host::Domain(SELF_TEST_HOST.to_owned()))?;
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), crypto_provider())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let name = ServerName::try_from(SELF_TEST_HOST)
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now())?;
        Ok(())
    }
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ca(..)")
    }
}

pub(crate) fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Name and permissions of the authority. Leaves are derived from these parameters too, so a change
/// needs a new authority.
fn ca_certificate_params() -> CertificateParams {
    let mut params = certificate_params(CA_LIFE);
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn certificate_params(life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = OffsetDateTime::now_utc() - CLOCK_SKEW;
    params.not_after = OffsetDateTime::now_utc() + life;
    params
}

/// Generates a key and its certificate.
fn generate_pem() -> Result<Zeroizing<String>, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = ca_certificate_params().self_signed(&key)?;
    let key = Zeroizing::new(key.serialize_pem());
    Ok(Zeroizing::new(format!("{}{}", *key, certificate.pem())))
}
