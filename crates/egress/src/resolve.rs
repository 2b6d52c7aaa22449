//! From the name of a host to its addresses. One question is asked for each connection, and its
//! answer is what is judged and what is connected to: a name that answers differently the next
//! time gains nothing.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Who knows the addresses of names.
#[derive(Clone, Default)]
pub enum Resolver {
    /// The resolver of this machine.
    #[default]
    System,
    /// Names of the operator's own, and the resolver of this machine for all others.
    Named(Arc<HashMap<String, IpAddr>>),
    /// A table or another source of the operator's that answers at once. It is judged like any
    /// other.
    Own(Arc<Lookup>),
}

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Resolver {
    pub(crate) async fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        match self {
            Self::System => ask_system(name).await,
            Self::Named(names) => match names.get(name) {
                Some(address) => Ok(vec![*address]),
                None => ask_system(name).await,
            },
            Self::Own(lookup) => lookup(name),
        }
    }
}

async fn ask_system(name: &str) -> io::Result<Vec<IpAddr>> {
    // The port is not part of the question, but of this function's type.
    let answers = tokio::net::lookup_host((name, 0)).await?;
    Ok(answers.map(|answer| answer.ip()).collect())
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Named(_) => "Named",
            Self::Own(_) => "Own",
        })
    }
}
