//! The proxy of the sandboxes: the only listener inside a sandbox, and its only egress.
//!
//! Clients use CONNECT or absolute URLs, over a socket that belongs to one sandbox; only that
//! socket identifies the sandbox. A request is parsed once, checked against the current policy, and
//! sent to an address that was checked. Every other path ends in an error that is logged; a failure
//! must never let a request through.

mod allowed_route;
mod attempt;
mod connection;
mod connection_slots;
mod error;
mod limits;
mod message;
mod meter;
mod outbound;
mod redacting_body;
mod response_secrets;
mod sni;
mod socket_buffers;
mod upstream;
mod websocket_redact;

pub use limits::ProxyLimits;
pub use outbound::{OutboundClient, OutboundError, OutboundResponse};

use crate::ca::{Ca, crypto_provider};
use crate::policy_source::{EgressPolicy, EgressPolicySource};
use crate::resolve::Resolver;
use crate::roots::Roots;
use allowed_route::AllowedRoute;
use connection::Connection;
use connection_slots::{ConnectionSlots, TrackedConnection};
use error::EgressError;
use meter::TrafficMeter;
use policy::Destination;
use redact::{MaskingStream, SecretEncodingsCache};
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::rustls::{self, ClientConfig};

/// ALPN names of the HTTP versions.
pub(crate) const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// rustls reads a quarter of a record at a time by default, which would take four times the system
/// calls.
const TLS_READ_BYTES: usize = 64 * 1024;

/// Delay before the next `accept` after the machine ran out of resources.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Settings of the operator for the proxy.
#[derive(Debug)]
pub struct ProxyConfig {
    pub ca: Ca,
    /// Trusted roots for hosts with credentials.
    pub roots: Roots,
    pub resolver: Resolver,
    pub limits: ProxyLimits,
}

/// Serves any number of sandboxes.
#[derive(Debug, Clone)]
pub struct Proxy(Arc<ProxyState>);

/// State shared by all sandboxes.
#[derive(Debug)]
struct ProxyState {
    ca: Ca,
    resolver: Resolver,
    limits: ProxyLimits,
    /// Connections of all sandboxes.
    connection_slots: ConnectionSlots,
    /// Encodings of secrets that are redacted in responses.
    secret_encodings: SecretEncodingsCache,
    /// Numbers that identify sandboxes.
    sandboxes: AtomicU64,
    /// Limits concurrent name lookups of all sandboxes.
    lookups: Arc<Semaphore>,
    tls_http1: Arc<ClientConfig>,
    tls_http2: Arc<ClientConfig>,
}

impl Proxy {
    pub fn new(config: ProxyConfig) -> Result<Self, rustls::Error> {
        let ProxyConfig { ca, roots, resolver, limits } = config;
        let mut http1 = ClientConfig::builder_with_provider(crypto_provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots.to_cert_store())
            .with_no_client_auth();
        let mut http2 = http1.clone();
        http1.alpn_protocols = vec![HTTP1.to_vec()];
        http2.alpn_protocols = vec![HTTP2.to_vec()];
        let (tls_http1, tls_http2) = (Arc::new(http1), Arc::new(http2));
        let connection_slots = ConnectionSlots::new(limits.clone());
        let (secret_encodings, sandboxes) = (SecretEncodingsCache::default(), AtomicU64::new(0));
        let lookups = Arc::new(Semaphore::new(limits.lookups_total));
        Ok(Self(Arc::new(ProxyState {
            ca,
            resolver,
            limits,
            connection_slots,
            secret_encodings,
            sandboxes,
            lookups,
            tls_http1,
            tls_http2,
        })))
    }

    /// Serves the listener of one sandbox. Dropping the future closes all of its connections.
    pub async fn serve(
        &self,
        listener: std::net::TcpListener,
        authority: Arc<dyn EgressPolicySource>,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let sandbox = Arc::new(ProxyClient::new(self.0.clone(), authority));
        let mut lines = JoinSet::new();
        loop {
            let stream = accept(&listener, &mut lines).await;
            let presence = TrackedConnection::new(sandbox.clone());
            let line = Connection::run(sandbox.clone(), presence.clone(), stream);
            lines.spawn(async move {
                tokio::select! {
                    () = line => {}
                    () = presence.evicted() => {}
                }
            });
        }
    }
}

/// Accepts the next connection, and meanwhile collects those that have ended.
async fn accept(listener: &TcpListener, lines: &mut JoinSet<()>) -> TcpStream {
    loop {
        tokio::select! {
            Some(_) = lines.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if socket_buffers::set_socket_buffers(&stream, socket_buffers::SANDBOX_BUFFER_BYTES).is_ok() => return stream,
                Ok(_) => {}
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            },
        }
    }
}

/// One sandbox as a client of the proxy.
struct ProxyClient {
    proxy: Arc<ProxyState>,
    policy_source: Arc<dyn EgressPolicySource>,
    meter: Arc<TrafficMeter>,
    id: u64,
    /// Limits its concurrent name lookups, so that one sandbox cannot use up those of all.
    lookups: Arc<Semaphore>,
    /// Hosts that accept HTTP/1.1 without selecting it by ALPN.
    http1_only: Mutex<HashSet<Destination>>,
}

impl ProxyClient {
    fn new(proxy: Arc<ProxyState>, authority: Arc<dyn EgressPolicySource>) -> Self {
        let meter = Arc::new(TrafficMeter::new(proxy.limits.clone()));
        let number = proxy.sandboxes.fetch_add(1, Ordering::Relaxed);
        let lookups = Arc::new(Semaphore::new(proxy.limits.lookups));
        Self {
            proxy,
            policy_source: authority,
            meter,
            id: number,
            lookups,
            http1_only: Mutex::default(),
        }
    }

    /// Waits for permits for one name lookup.
    async fn acquire_lookup_permits(&self) -> Result<Vec<OwnedSemaphorePermit>, AcquireError> {
        let own = self.lookups.clone().acquire_owned().await?;
        Ok(vec![own, self.proxy.lookups.clone().acquire_owned().await?])
    }

    /// Gets the current policy.
    async fn current_policy(&self) -> Result<Arc<EgressPolicy>, EgressError> {
        self.policy_source
            .current_policy()
            .await
            .map_err(|why| EgressError::PolicyUnavailable { why })
    }

    /// Whether this host was offered HTTP/2 and did not select it.
    fn is_http1_only(&self, to: &Destination) -> bool {
        self.http1_only.lock().unwrap_or_else(PoisonError::into_inner).contains(to)
    }

    /// Bounded by the number of hosts with a credential, since only their TLS is terminated here.
    fn mark_http1_only(&self, to: &Destination) {
        self.http1_only.lock().unwrap_or_else(PoisonError::into_inner).insert(to.clone());
    }

    /// Masks the credentials of a route in a response, if it has any.
    async fn masking_stream(
        &self,
        route: &AllowedRoute,
    ) -> Result<Option<MaskingStream>, EgressError> {
        let encodings = response_secrets::encodings(&self.proxy.secret_encodings, route).await?;
        Ok(encodings.map(MaskingStream::new))
    }
}

impl fmt::Debug for ProxyClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("meter", &self.meter).finish_non_exhaustive()
    }
}
