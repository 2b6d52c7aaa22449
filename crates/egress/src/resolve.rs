//! Resolves host names. Each connection uses one lookup, and its result is both what is checked and
//! what is connected to, so a name that resolves differently the next time gains nothing.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;

/// The source of addresses.
#[derive(Clone, Default)]
pub enum Resolver {
    /// The system resolver.
    #[default]
    System,
    /// Names of the operator, and the system resolver for all others.
    WithHosts(Arc<HashMap<String, IpAddr>>),
    /// A custom source of the operator. Its addresses are checked like any others.
    Custom(Arc<Lookup>),
}

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Resolver {
    /// A lookup blocks a thread until it ends, even if the caller no longer waits. `held` is
    /// released with the thread.
    pub(crate) async fn lookup_addresses(
        &self,
        name: &str,
        held: Vec<OwnedSemaphorePermit>,
    ) -> io::Result<Vec<IpAddr>> {
        if let Self::WithHosts(names) = self
            && let Some(address) = names.get(name)
        {
            return Ok(vec![*address]);
        }
        let (name, resolver) = (name.to_owned(), self.clone());
        let asking = spawn_blocking(move || {
            let answers = resolver.lookup_blocking(&name);
            drop(held);
            answers
        });
        asking.await.map_err(io::Error::other)?
    }

    fn lookup_blocking(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        match self {
            // The port is not part of the lookup, but of this function's type.
            Self::System | Self::WithHosts(_) => {
                Ok((name, 0).to_socket_addrs()?.map(|answer| answer.ip()).collect())
            }
            Self::Custom(lookup) => lookup(name),
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::WithHosts(_) => "Named",
            Self::Custom(_) => "Own",
        })
    }
}
