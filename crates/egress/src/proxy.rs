//! The proxy of the sandboxes: the only thing that listens inside, and the only way out.
//!
//! It is asked with CONNECT or with a whole URL, over a socket that belongs to one sandbox, and that
//! socket is all that says who asks. A request is read once, decided by the rules of that moment,
//! and carried out to an address that was judged. On every other path it ends in a refusal that is
//! written down; nothing must go through because something failed.

mod attempt;
mod buffers;
mod frames;
mod grams;
mod hello;
mod limits;
mod line;
mod message;
mod meter;
mod passage;
mod redact;
mod refusal;
mod seats;
mod shared_spellings;
mod spelling;
mod upstream;

pub use limits::Limits;

use crate::authority::{Authority, Way};
use crate::ca::{Ca, provider};
use crate::resolve::Resolver;
use crate::roots::Roots;
use line::Line;
use meter::Meter;
use passage::Passage;
use policy::Destination;
use redact::Redactor;
use refusal::Refusal;
use seats::{Presence, Seats};
use shared_spellings::SharedSpellings;
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

/// What a greeting calls the versions of HTTP.
pub(crate) const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// TLS asks for a quarter of a record at a time, which would be as many calls of the system.
const TLS_READ_BYTES: usize = 64 * 1024;

/// Before asking again for a connection when the machine has no room for one.
const PAUSE: Duration = Duration::from_millis(100);

/// What the operator decides about the proxy.
#[derive(Debug)]
pub struct ProxyConfig {
    pub ca: Ca,
    /// By which hosts with credentials are known.
    pub roots: Roots,
    pub resolver: Resolver,
    pub limits: Limits,
}

/// Serves any number of sandboxes.
#[derive(Debug, Clone)]
pub struct Proxy(Arc<Shared>);

/// What is the same for all sandboxes.
#[derive(Debug)]
struct Shared {
    ca: Ca,
    resolver: Resolver,
    limits: Limits,
    /// For connections of all sandboxes.
    seats: Seats,
    /// What is taken out of the answers of hosts.
    spellings: SharedSpellings,
    /// By which sandboxes are told apart.
    sandboxes: AtomicU64,
    /// For questions of all sandboxes.
    lookups: Arc<Semaphore>,
    tls_http1: Arc<ClientConfig>,
    tls_http2: Arc<ClientConfig>,
}

impl Proxy {
    pub fn new(config: ProxyConfig) -> Result<Self, rustls::Error> {
        let ProxyConfig { ca, roots, resolver, limits } = config;
        let mut http1 = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots.store())
            .with_no_client_auth();
        let mut http2 = http1.clone();
        http1.alpn_protocols = vec![HTTP1.to_vec()];
        http2.alpn_protocols = vec![HTTP2.to_vec()];
        let (tls_http1, tls_http2) = (Arc::new(http1), Arc::new(http2));
        let seats = Seats::new(limits.clone());
        let (spellings, sandboxes) = (SharedSpellings::default(), AtomicU64::new(0));
        let lookups = Arc::new(Semaphore::new(limits.lookups_of_all));
        Ok(Self(Arc::new(Shared {
            ca,
            resolver,
            limits,
            seats,
            spellings,
            sandboxes,
            lookups,
            tls_http1,
            tls_http2,
        })))
    }

    /// Serves who connects to the listener of one sandbox. When this is dropped, all of their
    /// connections end.
    pub async fn serve(
        &self,
        listener: std::net::TcpListener,
        authority: Arc<dyn Authority>,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let sandbox = Arc::new(Sandbox::new(self.0.clone(), authority));
        let mut lines = JoinSet::new();
        loop {
            let stream = accept(&listener, &mut lines).await;
            let presence = Presence::new(sandbox.clone());
            let line = Line::run(sandbox.clone(), presence.clone(), stream);
            lines.spawn(async move {
                tokio::select! {
                    () = line => {}
                    () = presence.given_way() => {}
                }
            });
        }
    }
}

/// The next connection; on the way, lets go of those that have ended.
async fn accept(listener: &TcpListener, lines: &mut JoinSet<()>) -> TcpStream {
    loop {
        tokio::select! {
            Some(_) = lines.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if buffers::bound(&stream, buffers::NEAR_BYTES).is_ok() => return stream,
                Ok(_) => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
        }
    }
}

/// The one who asks.
struct Sandbox {
    proxy: Arc<Shared>,
    authority: Arc<dyn Authority>,
    meter: Arc<Meter>,
    number: u64,
    /// For its questions: nobody takes all of the room for those of all.
    lookups: Arc<Semaphore>,
    /// Hosts that take HTTP/1.1 and do not say so in their greeting.
    plain: Mutex<HashSet<Destination>>,
}

impl Sandbox {
    fn new(proxy: Arc<Shared>, authority: Arc<dyn Authority>) -> Self {
        let meter = Arc::new(Meter::new(proxy.limits.clone()));
        let number = proxy.sandboxes.fetch_add(1, Ordering::Relaxed);
        let lookups = Arc::new(Semaphore::new(proxy.limits.lookups));
        Self { proxy, authority, meter, number, lookups, plain: Mutex::default() }
    }

    /// Waits for room for one more question.
    async fn room_to_look_up(&self) -> Result<Vec<OwnedSemaphorePermit>, AcquireError> {
        let own = self.lookups.clone().acquire_owned().await?;
        Ok(vec![own, self.proxy.lookups.clone().acquire_owned().await?])
    }

    /// The rules of now.
    async fn way(&self) -> Result<Arc<Way>, Refusal> {
        self.authority.way().await.map_err(|why| Refusal::Undecided { why })
    }

    /// Whether HTTP/2 has been offered to this host, which did not choose it.
    fn is_plain(&self, to: &Destination) -> bool {
        self.plain.lock().unwrap_or_else(PoisonError::into_inner).contains(to)
    }

    /// There are no more of them than hosts with a credential, which alone are greeted by the proxy.
    fn note_plain(&self, to: &Destination) {
        self.plain.lock().unwrap_or_else(PoisonError::into_inner).insert(to.clone());
    }

    /// What takes the credentials of a passage out of an answer, where there are any.
    async fn redactor(&self, passage: &Passage) -> Result<Option<Redactor>, Refusal> {
        Ok(self.proxy.spellings.of(passage).await?.map(Redactor::new))
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("meter", &self.meter).finish_non_exhaustive()
    }
}
