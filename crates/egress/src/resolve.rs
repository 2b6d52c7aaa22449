//! From the name of a host to its addresses. One question is asked for each connection, and its
//! answer is what is judged and what is connected to: a name that answers differently the next
//! time gains nothing.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;

/// Who knows the addresses of names.
#[derive(Clone, Default)]
pub enum Resolver {
    /// The resolver of this machine.
    #[default]
    System,
    /// Names of the operator's own, and the resolver of this machine for all others.
    WithHosts(Arc<HashMap<String, IpAddr>>),
    /// A table or another source of the operator's. It is judged like any other.
    Custom(Arc<Lookup>),
}

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Resolver {
    /// A question takes a thread for as long as it takes, also when nobody waits for its answer any
    /// more. `held` is given back when the thread is.
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
            // The port is not part of the question, but of this function's type.
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
