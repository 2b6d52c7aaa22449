//! Which secrets are masked in the responses of a host: the credentials that its requests may have.

use super::allowed_route::AllowedRoute;
use super::error::EgressError;
use redact::{SecretEncodings, SecretEncodingsCache, SecretEncodingsError, SecretVersion};
use std::sync::Arc;

/// More secrets than the clients of any host use.
const SECRETS_PER_HOST_MAX: usize = 32;
/// Total size of their values: twice the longest that a header takes.
const SECRET_BYTES_PER_HOST_MAX: usize = 16 * 1024;

/// The encodings of a route's credentials, if it has any, shared by all sandboxes that have them.
pub(super) async fn encodings(
    cache: &SecretEncodingsCache,
    route: &AllowedRoute,
) -> Result<Option<Arc<SecretEncodings>>, EgressError> {
    let secrets = distinct_secrets(route);
    let Some(first) = secrets.first() else { return Ok(None) };
    let (count, bytes) = (secrets.len(), secrets.iter().map(|it| it.value.expose().len()).sum());
    if count > SECRETS_PER_HOST_MAX || bytes > SECRET_BYTES_PER_HOST_MAX {
        let to = route.destination().clone();
        let (count_max, bytes_max) = (SECRETS_PER_HOST_MAX, SECRET_BYTES_PER_HOST_MAX);
        return Err(EgressError::TooManySecrets { to, count, bytes, count_max, bytes_max });
    }
    cache.get_or_build(&secrets).await.map(Some).map_err(|error| match error {
        SecretEncodingsError::CacheFull => EgressError::RedactionBusy(route.destination().clone()),
        SecretEncodingsError::TooLong | SecretEncodingsError::NotBuilt => {
            EgressError::InvalidSecretValue(first.name.clone())
        }
    })
}

/// Each secret once, however many headers it may be sent in.
fn distinct_secrets(route: &AllowedRoute) -> Vec<&SecretVersion> {
    let mut distinct: Vec<&SecretVersion> = Vec::new();
    for credential in route.credentials() {
        let secret = &credential.secret;
        if !distinct.iter().any(|it| it.id == secret.id && it.value == secret.value) {
            distinct.push(secret);
        }
    }
    distinct
}
