//! Access tokens of callers that the egress proxy may pass on, in memory only.
//!
//! A token is held if the operator has named a service for it and the issuer has signed it for that
//! service as well. Each request brings the newest token of its principal. Nothing writes a token to
//! the disk, and no sandbox has one.

use chrono::{DateTime, Utc};
use redact::SecretText;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::{PrincipalId, SecretId};
use url::Url;
use uuid::Uuid;

/// Maximum number of principals whose tokens are held: at most 160 MB of the longest tokens.
const TOKENS_MAX: usize = 10_000;

/// The service to which the proxy passes the access tokens of callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerTokenService {
    /// Without a slash at the end.
    base_url: String,
    audience: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CallerTokenServiceError {
    #[error(
        "`{0}` must be URL=AUDIENCE, such as https://api.cognitedata.com=https://api.cognitedata.com"
    )]
    Form(String),
    #[error("`{0}` must be an https URL with a host and a path at most")]
    Url(String),
}

impl CallerTokenService {
    /// Reads `URL=AUDIENCE`.
    pub fn parse(text: &str) -> Result<Self, CallerTokenServiceError> {
        let form = || CallerTokenServiceError::Form(text.to_owned());
        let (address, audience) = text.split_once('=').ok_or_else(form)?;
        if audience.is_empty() {
            return Err(form());
        }
        let invalid = || CallerTokenServiceError::Url(address.to_owned());
        let url = Url::parse(address).map_err(|_| invalid())?;
        let is_plain = url.scheme() == "https"
            && url.host_str().is_some_and(|host| !host.contains('*'))
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !is_plain {
            return Err(invalid());
        }
        let base_url = url.to_string().trim_end_matches('/').to_owned();
        Ok(Self { base_url, audience: audience.to_owned() })
    }

    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The audience for which a token must be signed, besides this server.
    pub(crate) fn audience(&self) -> &str {
        &self.audience
    }
}

/// The newest token of a principal.
#[derive(Debug)]
pub(crate) struct CallerToken {
    /// Differs for each token.
    pub(crate) id: SecretId,
    pub(crate) value: SecretText,
    pub(crate) until: DateTime<Utc>,
}

/// Why no token can be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MissingToken {
    #[error(
        "the running code was not requested with an access token of the principal that it runs as; \
         call the server with an access token, not with an API key"
    )]
    NotPresented,
    #[error(
        "the access token of the caller has expired; send a new request with a new access token"
    )]
    Expired,
    #[error(
        "the access token of the caller is not for this service; request a token whose audience \
         includes the service"
    )]
    OtherAudience,
}

/// The newest token of each principal.
#[derive(Debug, Default)]
pub(crate) struct CallerTokens(Mutex<HashMap<PrincipalId, Arc<CallerToken>>>);

impl CallerTokens {
    fn tokens(&self) -> MutexGuard<'_, HashMap<PrincipalId, Arc<CallerToken>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a valid token, unless there is one that is valid for longer.
    pub(crate) fn hold(
        &self,
        principal: PrincipalId,
        token: &str,
        until: DateTime<Utc>,
        now: DateTime<Utc>,
    ) {
        let mut tokens = self.tokens();
        if tokens.get(&principal).is_some_and(|held| held.until >= until) {
            return;
        }
        if tokens.len() >= TOKENS_MAX && !tokens.contains_key(&principal) {
            tokens.retain(|_, held| now < held.until);
            let soonest = tokens.iter().min_by_key(|(_, held)| held.until).map(|(id, _)| *id);
            if let Some(soonest) = soonest.filter(|_| tokens.len() >= TOKENS_MAX) {
                tokens.remove(&soonest);
            }
        }
        let (id, value) = (SecretId::new(Uuid::now_v7()), SecretText::new(token.to_owned()));
        tokens.insert(principal, Arc::new(CallerToken { id, value, until }));
    }

    /// The token of a principal that has presented one for the running code.
    pub(crate) fn newest(
        &self,
        principal: PrincipalId,
        now: DateTime<Utc>,
    ) -> Result<Arc<CallerToken>, MissingToken> {
        let mut tokens = self.tokens();
        let held = tokens.get(&principal).ok_or(MissingToken::OtherAudience)?;
        if now < held.until {
            return Ok(Arc::clone(held));
        }
        // Its text is erased; the entry says that there was one.
        let (id, until) = (held.id, held.until);
        let erased = CallerToken { id, value: SecretText::new(String::new()), until };
        tokens.insert(principal, Arc::new(erased));
        Err(MissingToken::Expired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;

    #[test]
    fn tokens_are_passed_on_over_https_to_one_host_only() {
        let url = "https://api.cognitedata.com";
        let service = CallerTokenService::parse(&format!("{url}/={url}")).unwrap();
        assert_eq!((service.base_url(), service.audience()), (url, url));
        for text in [
            "https://a.example",
            "https://a.example=",
            "http://a.example=x",
            "https://*.example=x",
            "https://me:pw@a.example=x",
            "https://a.example?a=x",
            "a.example=x",
        ] {
            assert!(CallerTokenService::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_newest_token_of_a_principal_counts_until_it_expires() {
        let (tokens, now) = (CallerTokens::default(), Utc::now());
        let (ann, bob) = (PrincipalId::new(Uuid::now_v7()), PrincipalId::new(Uuid::now_v7()));
        let after = |minutes| now + TimeDelta::minutes(minutes);
        tokens.hold(ann, "first", after(10), now);
        tokens.hold(ann, "second", after(20), now);
        tokens.hold(ann, "older", after(15), now);
        assert_eq!(tokens.newest(ann, after(1)).unwrap().value.expose(), "second");
        assert_eq!(tokens.newest(bob, now).unwrap_err(), MissingToken::OtherAudience);
        assert_eq!(tokens.newest(ann, after(20)).unwrap_err(), MissingToken::Expired);
        assert_eq!(tokens.newest(ann, after(21)).unwrap_err(), MissingToken::Expired);
        tokens.hold(ann, "third", after(40), after(21));
        assert_eq!(tokens.newest(ann, after(22)).unwrap().value.expose(), "third");
    }

    #[test]
    fn tokens_of_many_principals_are_bounded() {
        let (tokens, now) = (CallerTokens::default(), Utc::now());
        for second in 0..TOKENS_MAX + 5 {
            let until = now + TimeDelta::seconds(i64::try_from(second).unwrap() + 60);
            tokens.hold(PrincipalId::new(Uuid::now_v7()), "a token", until, now);
        }
        assert_eq!(tokens.tokens().len(), TOKENS_MAX);
    }
}
