//! Tokens of the issuer that the operator trusts (RFC 9068): each identifies a principal, and no more.
//!
//! A token is believed when the issuer has signed it, for this server, and it is not over. How it
//! must be signed follows from the issuer's key and never from the token. It is not passed on,
//! logged or kept.

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

/// Several times what issuers make, and less than a request's headers may have.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Allowed clock skew.
const LEEWAY: Duration = Duration::from_secs(30);
/// The `typ` of access tokens: that of RFC 9068, and the older one.
const TOKEN_TYPES: [&str; 3] = ["at+jwt", "application/at+jwt", "jwt"];

/// Whom a good token names, and until when.
#[derive(Debug)]
pub(crate) struct TokenSubject {
    pub(crate) name: String,
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
    fn from(refused: TokenError) -> Self {
        let error = match refused {
            TokenError::Unreachable => {
                let message = format!("the access token cannot be verified now: {refused}");
                Error::new(ErrorCode::AuthUnavailable, message)
                    .hint("retry later, or send an API key; the log of the server has the reason")
            }
            refused => {
                let message = format!("invalid access token: {refused}");
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
    /// One, although the check of it would take several.
    #[serde(rename = "iss")]
    _iss: String,
}

/// Says whom tokens name.
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
        // Whole seconds; a number that no calendar has is none.
        let until = DateTime::from_timestamp(claims.exp as i64, 0).map(|exp| exp + LEEWAY);
        let until = until.ok_or(TokenError::Claims)?;
        // The same moment for a request as for a stream, which looks at this later.
        if now >= until {
            return Err(TokenError::Expired);
        }
        Ok(TokenSubject { name: claims.sub, until })
    }
}

/// The name of the key that the token says it is signed with, if it is of a form that is taken.
fn key_id(header: &Header) -> Result<&str, TokenError> {
    if !matches!(header.alg, Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA) {
        return Err(TokenError::Algorithm);
    }
    let kind = header.typ.as_deref().unwrap_or("jwt");
    // What must be understood is not (RFC 7515, 4.1.11).
    if header.crit.is_some() || !TOKEN_TYPES.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
        return Err(TokenError::Kind);
    }
    header.kid.as_deref().ok_or(TokenError::KeyUnknown)
}
