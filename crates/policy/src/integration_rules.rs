//! What is open for a session: the union of what its integrations open.
//!
//! Two questions are asked for each connection. Whether the destination is opened, before its name
//! is looked up; and whether the answers may be connected to. Neither alone lets anything out.

use crate::address::check_public;
use crate::destination::Destination;
use crate::fetch::RouteError;
use crate::host_port::HostPort;
use std::net::{IpAddr, SocketAddr};

/// What one integration opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegrationRules {
    pub integration: String,
    pub values: Vec<HostPort>,
}

/// The integration that every server has: all of the public web.
pub fn internet_integration() -> IntegrationRules {
    IntegrationRules { integration: "internet".to_owned(), values: vec![HostPort::all_hosts()] }
}

/// The first that opens the destination.
pub fn matching_integration<'a>(
    openings: &'a [IntegrationRules],
    to: &Destination,
) -> Option<&'a IntegrationRules> {
    openings.iter().find(|opening| opening.values.iter().any(|value| value.covers(to)))
}

/// The addresses that may be connected to, of those that its name has. One that is refused refuses
/// all. An address that is not public has to be named as such by a value, since a name can be given
/// any address by whoever owns it.
pub fn allowed_addresses(
    openings: &[IntegrationRules],
    to: &Destination,
    answers: &[IpAddr],
) -> Result<Vec<SocketAddr>, RouteError> {
    if answers.is_empty() {
        return Err(RouteError::NoAddress);
    }
    let named = |address: IpAddr| {
        let mut values = openings.iter().flat_map(|opening| &opening.values);
        values.any(|value| value.is_address(address, to.port()))
    };
    let judged =
        answers.iter().map(|answer| answer.to_canonical()).map(|address| {
            match check_public(address) {
                Err(reason) if !(reason.is_internal() && named(address)) => {
                    Err(RouteError::Address(reason))
                }
                _ => Ok(SocketAddr::new(address, to.port())),
            }
        });
    judged.collect()
}
