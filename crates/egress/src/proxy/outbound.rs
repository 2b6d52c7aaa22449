//! Requests that the server itself sends for an agent, under the same policy as the code of the
//! agent: the destination must be open to the agent and allowed by the operator, each address of a
//! lookup must be allowed by both, and a connection is made to these addresses only.
//!
//! A redirect is judged like the first URL. Credentials are added as the proxy adds them, per
//! destination, and are masked in responses.

use super::allowed_route::AllowedRoute;
use super::error::EgressError;
use super::{Proxy, ProxyState, response_secrets};
use crate::fetch::pinned_client;
use crate::policy_source::{EgressPolicy, Scheme};
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use policy::{
    Destination, HostPort, IntegrationRules, RouteError, allowed_addresses, check_public,
    matching_integration,
};
use redact::MaskingStream;
use reqwest::{Client, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::time::timeout;
use url::Url;

/// A server that moved redirects once or twice.
const REDIRECTS_MAX: usize = 3;
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// Why a request was not sent, or has no response.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    #[error("{0:?} is not an http or https URL of a host, without a user name")]
    Url(String),
    #[error("{0} is not among the hosts that the operator of this server allows")]
    NotAllowedByOperator(Destination),
    /// The text of a refusal by the policy of the agent.
    #[error("{0}")]
    Denied(String),
    #[error("{0} is public, so its URL must begin with https")]
    PlainHttp(Destination),
    #[error("cannot connect to {to}, or its certificate is invalid")]
    Connect { to: Destination, source: reqwest::Error },
    #[error("{to} sent an invalid response")]
    InvalidResponse { to: Destination, source: reqwest::Error },
    #[error("{0} redirects without a valid Location header")]
    Location(Destination),
    #[error("{0} redirects more than {REDIRECTS_MAX} times")]
    TooManyRedirects(Destination),
    #[error("this server has no root certificates")]
    Client(#[source] reqwest::Error),
}

impl OutboundError {
    /// Whether a policy refuses the destination.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::NotAllowedByOperator(_) | Self::Denied(_) | Self::PlainHttp(_))
    }
}

impl From<EgressError> for OutboundError {
    fn from(error: EgressError) -> Self {
        Self::Denied(error.to_string())
    }
}

/// Sends requests to one URL.
#[derive(Debug, Clone)]
pub struct OutboundClient {
    proxy: Arc<ProxyState>,
    policy: Arc<EgressPolicy>,
    /// What the operator allows, as one set of rules.
    operator: Arc<[IntegrationRules]>,
    url: Url,
}

/// A destination with the addresses that were checked.
struct CheckedRoute {
    route: AllowedRoute,
    client: Client,
}

/// A response whose body is read in chunks, without the credentials of the request.
#[derive(Debug)]
pub struct OutboundResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    to: Destination,
    response: Option<Response>,
    masking: Option<MaskingStream>,
}

impl Proxy {
    /// A client for one URL. Nothing is checked before a request is sent, and then everything is.
    pub fn outbound_client(
        &self,
        policy: Arc<EgressPolicy>,
        operator_hosts: Vec<HostPort>,
        url: &str,
    ) -> Result<OutboundClient, OutboundError> {
        let url = Url::parse(url).map_err(|_| OutboundError::Url(url.to_owned()))?;
        let rules = IntegrationRules { integration: String::new(), values: operator_hosts };
        Ok(OutboundClient { proxy: Arc::clone(&self.0), policy, operator: vec![rules].into(), url })
    }
}

impl OutboundClient {
    /// The host of the URL, for messages.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// Sends a request. The caller bounds the time and reads the body.
    pub async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<OutboundResponse, OutboundError> {
        let mut url = self.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let CheckedRoute { route, client } = self.checked_route(&url).await?;
            let to = route.destination().clone();
            let mut headers = headers.clone();
            headers.insert(ACCEPT_ENCODING, IDENTITY);
            route.inject_credentials(&mut headers)?;
            let request = client.request(method.clone(), url.clone()).headers(headers);
            let sent = request.body(body.clone()).send().await;
            let response = sent.map_err(|source| match source.is_connect() {
                true => OutboundError::Connect { to: to.clone(), source },
                false => OutboundError::InvalidResponse { to: to.clone(), source },
            })?;
            // The other redirects would turn the request into a GET.
            if !matches!(response.status().as_u16(), 307 | 308) {
                return self.masked(route, response).await;
            }
            let location = response.headers().get(LOCATION);
            let location = location.and_then(|location| location.to_str().ok());
            url = location
                .and_then(|location| url.join(location).ok())
                .ok_or(OutboundError::Location(to))?;
        }
        Err(OutboundError::TooManyRedirects(destination(&self.url)?.0))
    }

    async fn masked(
        &self,
        route: AllowedRoute,
        response: Response,
    ) -> Result<OutboundResponse, OutboundError> {
        let encodings = response_secrets::encodings(&self.proxy.secret_encodings, &route).await?;
        let masking = encodings.map(MaskingStream::new);
        let mut headers = response.headers().clone();
        // A header that echoes a credential is of no use to the caller.
        if let Some(masking) = &masking {
            let echoes = |value: &HeaderValue| masking.mask_complete(value.as_bytes()).is_some();
            let names: Vec<_> =
                headers.iter().filter(|it| echoes(it.1)).map(|it| it.0.clone()).collect();
            names.iter().for_each(|name| drop(headers.remove(name)));
        }
        Ok(OutboundResponse {
            status: response.status(),
            headers,
            to: route.destination().clone(),
            response: Some(response),
            masking,
        })
    }

    /// Judges a URL, looks up its name, and judges the addresses.
    async fn checked_route(&self, url: &Url) -> Result<CheckedRoute, OutboundError> {
        let (to, scheme) = destination(url)?;
        if matching_integration(&self.operator, &to).is_none() {
            return Err(OutboundError::NotAllowedByOperator(to));
        }
        let route = AllowedRoute::new(Arc::clone(&self.policy), &to, scheme)?;
        let answers = match to.address() {
            Some(address) => vec![address],
            None => self.lookup(&to).await?,
        };
        let addresses = route.check_addresses(&answers)?;
        match allowed_addresses(&self.operator, &to, &answers) {
            Ok(_) => {}
            Err(RouteError::NoAddress) => return Err(EgressError::Unresolved(to).into()),
            Err(RouteError::Address(_)) => return Err(OutboundError::NotAllowedByOperator(to)),
        }
        let is_public = |address: &SocketAddr| check_public(address.ip()).is_ok();
        if scheme == Scheme::Http && addresses.iter().any(is_public) {
            return Err(OutboundError::PlainHttp(to));
        }
        let client = pinned_client(&addresses).map_err(OutboundError::Client)?;
        Ok(CheckedRoute { route, client })
    }

    async fn lookup(&self, to: &Destination) -> Result<Vec<IpAddr>, OutboundError> {
        let time_max = self.proxy.limits.connect_timeout;
        let permit = timeout(time_max, Arc::clone(&self.proxy.lookups).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(EgressError::LookupsBusy(to.clone()).into());
        };
        let name = to.host().to_string();
        let lookup = self.proxy.resolver.lookup_addresses(&name, vec![permit]);
        match timeout(time_max, lookup).await {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(_)) | Err(_) => Err(EgressError::Unresolved(to.clone()).into()),
        }
    }
}

impl OutboundResponse {
    /// The next part of the body; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, OutboundError> {
        let Some(response) = &mut self.response else { return Ok(None) };
        let part = response
            .chunk()
            .await
            .map_err(|source| OutboundError::InvalidResponse { to: self.to.clone(), source })?;
        if part.is_none() {
            self.response = None;
        }
        Ok(match (&mut self.masking, part) {
            (None, part) => part,
            (Some(masking), Some(part)) => Some(masking.mask_chunk(part).concat().into()),
            (Some(masking), None) => Some(masking.finish()).filter(|rest| !rest.is_empty()),
        })
    }
}

fn destination(url: &Url) -> Result<(Destination, Scheme), OutboundError> {
    let invalid = || OutboundError::Url(url.to_string());
    let scheme = match url.scheme() {
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        _ => return Err(invalid()),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid());
    }
    let host = url.host_str().ok_or_else(invalid)?;
    let port = url.port_or_known_default().ok_or_else(invalid)?;
    Ok((Destination::new(host, port).map_err(|_| invalid())?, scheme))
}
