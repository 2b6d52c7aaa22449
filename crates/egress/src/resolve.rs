//! From the name of a host to its addresses. One question is asked for each connection, and its
//! answer is what is judged and what is connected to: a name that answers differently the next
//! time gains nothing.

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
    /// A table or another source of the operator's that answers at once. It is judged like any
    /// other.
    Own(Arc<Lookup>),
}

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Resolver {
    pub(crate) async fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        match self {
            // The port is not part of the question, but of this function's type.
            Self::System => {
                let answers = tokio::net::lookup_host((name, 0)).await?;
                Ok(answers.map(|answer| answer.ip()).collect())
            }
            Self::Own(lookup) => lookup(name),
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Own(_) => "Own",
        })
    }
}
