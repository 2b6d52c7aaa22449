//! The decision about one request: whether its destination is allowed, by which rule, and at which
//! addresses.
//!
//! An [`AllowedRoute`] is made from the current policy and used for one request. The proxy must not
//! connect to an address that the route has not checked.

use super::ProxyClient;
use super::error::EgressError;
use crate::policy_source::{Credential, EgressPolicy, Scheme};
use http::header::{HeaderMap, HeaderValue};
use policy::{
    Destination, IntegrationRules, RouteError, allowed_addresses, check_public,
    matching_integration,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::time::timeout;

/// A destination that is allowed at this moment, and the rules that allow it.
#[derive(Debug, Clone)]
pub(super) struct AllowedRoute {
    policy: Arc<EgressPolicy>,
    destination: Destination,
    scheme: Scheme,
    allowed_by: String,
}

/// The scheme of requests to a destination with a credential. The proxy must read them to inject
/// it.
pub(super) fn interception_scheme(policy: &EgressPolicy, to: &Destination) -> Option<Scheme> {
    let mut schemes =
        policy.credentials.iter().filter(|it| it.destination == *to).map(|it| it.scheme);
    let first = schemes.next()?;
    Some(schemes.find(|scheme| *scheme == Scheme::Https).unwrap_or(first))
}

fn credentials_for<'a>(
    policy: &'a EgressPolicy,
    to: &'a Destination,
    scheme: Scheme,
) -> impl Iterator<Item = &'a Credential> {
    policy.credentials.iter().filter(move |it| it.destination == *to && it.scheme == scheme)
}

fn denial(policy: &EgressPolicy, to: &Destination) -> EgressError {
    let to = to.clone();
    match matching_integration(&policy.disabled, &to) {
        Some(IntegrationRules { integration, .. }) => {
            EgressError::IntegrationDisabled { to, integration: integration.clone() }
        }
        None => EgressError::NotAllowed { to, named_in: policy.integrations_field },
    }
}

impl AllowedRoute {
    pub(super) fn new(
        policy: Arc<EgressPolicy>,
        to: &Destination,
        scheme: Scheme,
    ) -> Result<Self, EgressError> {
        let opener = credentials_for(&policy, to, scheme).find(|it| it.grants_access);
        let by = match (opener, matching_integration(&policy.openings, to)) {
            (Some(credential), _) => format!("secret:{}", credential.secret.name),
            (None, Some(opening)) => opening.integration.clone(),
            (None, None)
                if credentials_for(&policy, to, Scheme::Https).any(|it| it.grants_access) =>
            {
                return Err(EgressError::HttpsRequired(to.clone()));
            }
            (None, None) => return Err(denial(&policy, to)),
        };
        Ok(Self { policy, destination: to.clone(), scheme, allowed_by: by })
    }

    pub(super) fn destination(&self) -> &Destination {
        &self.destination
    }

    pub(super) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The integration or secret that allowed the route, for the log.
    pub(super) fn allowed_by(&self) -> &str {
        &self.allowed_by
    }

    pub(super) fn credentials(&self) -> impl Iterator<Item = &Credential> {
        credentials_for(&self.policy, &self.destination, self.scheme)
    }

    /// The addresses that may be connected to. The only place that looks up a name.
    pub(super) async fn resolve_addresses(
        &self,
        sandbox: &ProxyClient,
    ) -> Result<Vec<SocketAddr>, EgressError> {
        let name = match self.destination.address() {
            Some(address) => return self.check_addresses(&[address]),
            None => self.destination.host().to_string(),
        };
        let time_max = sandbox.proxy.limits.connect_timeout;
        let room = timeout(time_max, sandbox.acquire_lookup_permits()).await;
        let Ok(Ok(room)) = room else {
            return Err(EgressError::LookupsBusy(self.destination.clone()));
        };
        match timeout(time_max, sandbox.proxy.resolver.lookup_addresses(&name, room)).await {
            Ok(Ok(answers)) => self.check_addresses(&answers),
            Ok(Err(_)) | Err(_) => Err(EgressError::Unresolved(self.destination.clone())),
        }
    }

    /// Checks addresses of the destination, from a new lookup or from an earlier connection.
    pub(super) fn check_addresses(
        &self,
        answers: &[IpAddr],
    ) -> Result<Vec<SocketAddr>, EgressError> {
        let opens = self.credentials().any(|it| it.grants_access);
        let routed =
            allowed_addresses(&self.policy.openings, &self.destination, answers).or_else(|error| {
                // A credential that grants access allows exactly its destination.
                let exactly = IntegrationRules {
                    integration: String::new(),
                    values: vec![(&self.destination).into()],
                };
                if opens {
                    allowed_addresses(&[exactly], &self.destination, answers)
                } else {
                    Err(error)
                }
            });
        let addresses = routed.map_err(|error| self.address_error(error))?;
        let plain = self.scheme == Scheme::Http && self.credentials().next().is_some();
        if plain && addresses.iter().any(|address| check_public(address.ip()).is_ok()) {
            return Err(EgressError::SecretOverPlainHttp(self.destination.clone()));
        }
        Ok(addresses)
    }

    fn address_error(&self, error: RouteError) -> EgressError {
        let to = self.destination.clone();
        match error {
            RouteError::NoAddress => EgressError::Unresolved(to),
            RouteError::Address(reason) if reason.is_internal() => {
                EgressError::PrivateAddressNotListed { to, reason }
            }
            RouteError::Address(reason) => EgressError::AddressForbidden { to, reason },
        }
    }

    /// Replaces each placeholder by its credential, or adds the credential's first header if the
    /// client set none of them. A header with another value stays unchanged, as does a placeholder
    /// anywhere else.
    pub(super) fn inject_credentials(&self, headers: &mut HeaderMap) -> Result<(), EgressError> {
        let credentials: Vec<&Credential> = self.credentials().collect();
        if let Some(why) = credentials.iter().find_map(|it| it.unavailable.clone()) {
            return Err(EgressError::CredentialUnavailable { to: self.destination.clone(), why });
        }
        // Not by name: a workspace and one of its principals can have secrets of the same name.
        for group in credentials.chunk_by(|one, next| one.placeholder == next.placeholder) {
            let none_set = group.iter().all(|it| !headers.contains_key(&it.header));
            let with_placeholder = group.iter().filter(|it| has_placeholder(headers, it));
            let due =
                if none_set { group[..1].to_vec() } else { with_placeholder.copied().collect() };
            for credential in due {
                headers.insert(credential.header.clone(), credential_header_value(credential)?);
            }
        }
        Ok(())
    }
}

fn credential_header_value(credential: &Credential) -> Result<HeaderValue, EgressError> {
    let text = format!("{}{}", credential.prefix, credential.secret.value.expose());
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| EgressError::InvalidSecretValue(credential.secret.name.clone()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn has_placeholder(headers: &HeaderMap, credential: &Credential) -> bool {
    let has = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        !credential.placeholder.is_empty() && text.contains(&credential.placeholder)
    };
    headers.get_all(&credential.header).iter().any(has)
}
