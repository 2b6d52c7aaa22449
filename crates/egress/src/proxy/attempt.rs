//! One attempt to connect, from the moment its destination is known.
//!
//! It is logged however it ends: even if the client disconnects or the sandbox ends during a
//! request, which the host may have received by then.

use super::ProxyClient;
use super::allowed_route::AllowedRoute;
use super::error::EgressError;
use super::message::{self, RequestedHost};
use crate::policy_source::{EgressAttempt, EgressPolicy, Scheme};
use chrono::Utc;
use http::Request;
use policy::Destination;
use std::sync::Arc;

/// An attempt in progress. If it is dropped without an outcome, it is logged as unfinished.
pub(super) struct PendingAttempt {
    sandbox: Arc<ProxyClient>,
    destination: Destination,
    /// The integration or secret that allows the attempt, once that is decided.
    allowed_by: Option<String>,
    is_recorded: bool,
}

impl PendingAttempt {
    pub(super) fn new(sandbox: Arc<ProxyClient>, to: Destination) -> Self {
        Self { sandbox, destination: to, allowed_by: None, is_recorded: false }
    }

    pub(super) fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Checks the attempt against the current policy.
    pub(super) async fn authorize(&mut self, scheme: Scheme) -> Result<AllowedRoute, EgressError> {
        self.allowed_by = None;
        let policy = self.sandbox.current_policy().await?;
        self.authorize_with(policy, scheme)
    }

    /// Checks the attempt against this policy.
    pub(super) fn authorize_with(
        &mut self,
        policy: Arc<EgressPolicy>,
        scheme: Scheme,
    ) -> Result<AllowedRoute, EgressError> {
        let route = AllowedRoute::new(policy, &self.destination, scheme)?;
        self.allowed_by = Some(route.allowed_by().to_owned());
        Ok(route)
    }

    pub(super) fn finish(mut self, error: Option<&EgressError>) {
        self.record(error);
    }

    fn record(&mut self, error: Option<&EgressError>) {
        self.is_recorded = true;
        let to = RequestedHost {
            host: self.destination.host().to_string(),
            port: self.destination.port(),
        };
        record_attempt(&self.sandbox, to, self.allowed_by.take(), error);
    }
}

impl Drop for PendingAttempt {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.record(Some(&EgressError::Aborted(self.destination.clone())));
        }
    }
}

/// Logs that the proxy closed a connection on a route that had been allowed.
pub(super) fn record_disconnect(sandbox: &ProxyClient, route: &AllowedRoute, error: &EgressError) {
    let to = route.destination();
    let to = RequestedHost { host: to.host().to_string(), port: to.port() };
    record_attempt(sandbox, to, Some(route.allowed_by().to_owned()), Some(error));
}

/// Logs a request that was rejected before its destination was known.
pub(super) fn record_rejection<B>(
    sandbox: &ProxyClient,
    request: &Request<B>,
    error: &EgressError,
) {
    record_attempt(sandbox, message::requested_host(request), None, Some(error));
}

fn record_attempt(
    sandbox: &ProxyClient,
    to: RequestedHost,
    by: Option<String>,
    error: Option<&EgressError>,
) {
    sandbox.policy_source.record_attempt(EgressAttempt {
        at: Utc::now(),
        host: to.host,
        port: to.port,
        allowed: by.is_some() && !error.is_some_and(EgressError::is_denial),
        integration: by,
        reason: error.map(EgressError::reason),
    });
}
