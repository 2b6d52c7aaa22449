//! Tokens of the issuer that the operator trusts (RFC 9068): each says who somebody is, and no more.
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
/// What the clocks of two machines that are looked after differ by.
const LEEWAY: Duration = Duration::from_secs(30);
/// What issuers call a token for a server; that of RFC 9068, and that of those who came before it.
const TOKEN_TYPES: [&str; 3] = ["at+jwt", "application/at+jwt", "jwt"];

/// Whom a good token names, and until when.
#[derive(Debug)]
pub(crate) struct TokenSubject {
    pub(crate) name: String,
    pub(crate) until: DateTime<Utc>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("it has more than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    #[error("it cannot be read")]
    Unreadable,
    #[error("it must be signed with RS256, ES256 or EdDSA")]
    Algorithm,
    #[error("it is not a token for a server")]
    Kind,
    #[error("it names no key that its issuer has")]
    KeyUnknown,
    #[error("it is not as its issuer has signed it")]
    Signature,
    #[error("it has another issuer")]
    Issuer,
    #[error("it is for another server")]
    Audience,
    #[error("it is over")]
    Expired,
    #[error("it is not good yet")]
    NotYetValid,
    #[error("iss, aud, exp and sub must be there, and be what they should")]
    Claims,
    #[error("the keys of its issuer cannot be had")]
    Unreachable,
}

impl From<TokenError> for RequestError {
    fn from(refused: TokenError) -> Self {
        let fault = match refused {
            TokenError::Unreachable => {
                let message = format!("the token cannot be checked now: {refused}");
                Error::new(ErrorCode::AuthUnavailable, message)
                    .hint("send it again later, or send an API key; the operator's log says more")
            }
            refused => {
                let message = format!("the token is not one that is good here: {refused}");
                Error::new(ErrorCode::AuthMissing, message).hint(
                    "/.well-known/oauth-protected-resource says whose tokens are, and for what",
                )
            }
        };
        fault.into()
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

/// All of a token that is looked at after its signature.
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
