//! OAuth access tokens (RFC 9068) of the issuer that the operator trusts: each identifies a
//! principal, and nothing more.
//!
//! A token is valid if the issuer has signed it for this server and it has not expired. The
//! algorithm is determined by the issuer's key and never by the token. Tokens are not logged
//! or stored. They are forwarded only as `caller_tokens` says.

mod issuer;
mod jwks;

pub use issuer::{Issuer, IssuerError};

use crate::error::RequestError;
use chrono::{DateTime, Utc};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation};
use jwks::{KeySetCache, MissingKey};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use types::{Error, ErrorCode};

/// Several times the usual size, and less than the headers of a request may have.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Allowed clock skew.
const LEEWAY: Duration = Duration::from_secs(30);
/// The `typ` of access tokens: that of RFC 9068, and the older one.
const TOKEN_TYPES: [&str; 3] = ["at+jwt", "application/at+jwt", "jwt"];

/// The subject of a valid token, its expiry, and its audiences.
#[derive(Debug)]
pub(crate) struct TokenSubject {
    pub(crate) name: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) until: DateTime<Utc>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("it exceeds {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    #[error("it is not a valid JWT")]
    Unreadable,
    #[error("it must be signed with RS256, ES256 or EdDSA")]
    Algorithm,
    #[error("its type is not an access token")]
    Kind,
    #[error("its key id is unknown to its issuer")]
    KeyUnknown,
    #[error("its signature is invalid")]
    Signature,
    #[error("its issuer (iss) is not the configured one")]
    Issuer,
    #[error("its audience (aud) is not this server")]
    Audience,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("the claims iss, aud, exp and sub are required and must have the right types")]
    Claims,
    #[error("the keys of its issuer are unavailable")]
    Unreachable,
}

impl From<TokenError> for RequestError {
    fn from(error: TokenError) -> Self {
        let error = match error {
            TokenError::Unreachable => {
                let message = format!("the access token cannot be verified now: {error}");
                Error::new(ErrorCode::AuthUnavailable, message)
                    .hint("retry later, or send an API key; the log of the server has the reason")
            }
            error => {
                let message = format!("invalid access token: {error}");
                Error::new(ErrorCode::AuthMissing, message).hint(
                    "see /.well-known/oauth-protected-resource for the issuer and the audience",
                )
            }
        };
        error.into()
    }
}

impl From<MissingKey> for TokenError {
    fn from(missing: MissingKey) -> Self {
        match missing {
            MissingKey::Unknown => Self::KeyUnknown,
            MissingKey::Unreachable => Self::Unreachable,
        }
    }
}

impl From<jsonwebtoken::errors::Error> for TokenError {
    fn from(error: jsonwebtoken::errors::Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidAlgorithm => Self::Algorithm,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYetValid,
            ErrorKind::MissingRequiredClaim(_)
            | ErrorKind::InvalidClaimFormat(_)
            | ErrorKind::Json(_) => Self::Claims,
            ErrorKind::InvalidToken | ErrorKind::Base64(_) => Self::Unreadable,
            _ => Self::Signature,
        }
    }
}

/// The claims that are checked after the signature.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: f64,
    /// Required to be a single issuer; the library would also accept several.
    #[serde(rename = "iss")]
    _iss: String,
    aud: Audiences,
}

/// One audience, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Several(Vec<String>),
}

/// Verifies access tokens.
#[derive(Debug)]
pub(crate) struct TokenVerifier {
    keys: Arc<KeySetCache>,
    expected: Validation,
}

impl TokenVerifier {
    pub(crate) fn new(issuer: Issuer) -> Self {
        let mut expected = Validation::new(Algorithm::EdDSA);
        expected.set_required_spec_claims(&["iss", "aud", "exp", "sub"]);
        expected.set_issuer(&[issuer.name()]);
        expected.set_audience(&[issuer.audience()]);
        expected.validate_nbf = true;
        expected.leeway = LEEWAY.as_secs();
        Self { keys: Arc::new(KeySetCache::new(issuer)), expected }
    }

    pub(crate) async fn verify(
        &self,
        token: &str,
        now: DateTime<Utc>,
    ) -> Result<TokenSubject, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::Unreadable)?;
        let kid = key_id(&header)?;
        let key = self.keys.find_key(kid, header.alg).await?;
        let expected = Validation { algorithms: vec![key.algorithm], ..self.expected.clone() };
        let claims = jsonwebtoken::decode::<Claims>(token, &key.key, &expected)?.claims;
        // In whole seconds; a number outside of the calendar is invalid.
        let until = DateTime::from_timestamp(claims.exp as i64, 0).map(|exp| exp + LEEWAY);
        let until = until.ok_or(TokenError::Claims)?;
        // The expiry is the same for requests and for event streams, which check it again later.
        if now >= until {
            return Err(TokenError::Expired);
        }
        let audiences = match claims.aud {
            Audiences::One(audience) => vec![audience],
            Audiences::Several(audiences) => audiences,
        };
        Ok(TokenSubject { name: claims.sub, audiences, until })
    }
}

/// The id of the key that a token names, if the type and the algorithm of the token are supported.
fn key_id(header: &Header) -> Result<&str, TokenError> {
    if !matches!(header.alg, Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA) {
        return Err(TokenError::Algorithm);
    }
    let kind = header.typ.as_deref().unwrap_or("jwt");
    // Extensions that must be understood are not supported (RFC 7515, 4.1.11).
    if header.crit.is_some() || !TOKEN_TYPES.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
        return Err(TokenError::Kind);
    }
    header.kid.as_deref().ok_or(TokenError::KeyUnknown)
}
