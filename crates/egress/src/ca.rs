//! The authority that vouches for hosts whose TLS is intercepted, to sandboxes and to nobody else.
//!
//! It is made once and kept in one file with its key, which only the user of the server can read.
//! It must never vouch for a host that has no credential.

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
/// Sandboxes are told of it at each start, so it could be less; nobody should have to care.
const CA_LIFE: Duration = Duration::days(10 * 365);
/// A leaf lives in memory. It is made anew long before its end.
const LEAF_LIFE: Duration = Duration::days(30);
const LEAF_RENEWAL_AGE: Duration = Duration::days(10);
/// Clocks differ.
const CLOCK_SKEW: Duration = Duration::hours(1);
/// More hosts than credentials are for. What is forgotten is made again.
const LEAVES_MAX: usize = 1024;
/// Many times what a key and a certificate have.
const FILE_BYTES_MAX: usize = 64 * 1024;
/// Signed once to see whether the authority can.
const SELF_TEST_HOST: &str = "trial.invalid";

#[derive(Debug, thiserror::Error)]
pub enum CaError {
    #[error("the interception key cannot be used: {0}")]
    File(#[from] keyfile::Error),
    #[error(
        "{} is not an interception key and its certificate; remove it, and the next start makes \
         another",
        path.display()
    )]
    InvalidFile { path: PathBuf, source: CaFileError },
    #[error("no certificate can be made")]
    Generate(#[from] rcgen::Error),
    #[error("a certificate that was made cannot be used")]
    Tls(#[from] rustls::Error),
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum CaFileError {
    #[error("it has no certificate")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    #[error("it is not text")]
    Text(#[source] std::str::Utf8Error),
    #[error("it has no key")]
    Key(#[source] rcgen::Error),
    #[error("what it signs is not trusted by its certificate")]
    Signature(#[source] Box<CaError>),
}

/// The authority and what it has signed.
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
    /// The one that is kept in a directory, or a new one.
    pub fn load_or_create(directory: &Path) -> Result<Self, CaError> {
        let path = directory.join(FILE);
        if let Some(kept) = keyfile::read(&path, FILE_BYTES_MAX)? {
            return Self::load(&path, &kept);
        }
        let made = generate_pem()?;
        match keyfile::create(&path, made.as_bytes()) {
            // Somebody else may have been faster; what is kept is what counts.
            Err(error) if !error.is_already_there() => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        let kept = keyfile::read(&path, FILE_BYTES_MAX)?;
        Self::load(&path, &kept.unwrap_or_default())
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

    /// For what trusts it.
    pub fn certificate_pem(&self) -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", self.certificate.as_ref()))
    }

    /// How to answer a client that wants to speak TLS with this host.
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

    /// Each leaf has its own key, from which its serial number is made too.
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

    /// A key that is another's, or a certificate that has expired, is found here and not by users.
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

/// What the authority is called and may do. Its leaves are made of this too, so a change here
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

/// A new key and its certificate.
fn generate_pem() -> Result<Zeroizing<String>, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = ca_certificate_params().self_signed(&key)?;
    let key = Zeroizing::new(key.serialize_pem());
    Ok(Zeroizing::new(format!("{}{}", *key, certificate.pem())))
}
