//! The destinations open to a session: the union of what its integrations open.
//!
//! Each connection needs two checks: whether a rule opens the destination, before its name is
//! looked up, and whether the resolved addresses are allowed. Neither alone allows a connection.

use crate::address::check_public;
use crate::destination::Destination;
use crate::fetch::RouteError;
use crate::host_port::HostPort;
use std::net::{IpAddr, SocketAddr};

/// The values that one integration opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegrationRules {
    pub integration: String,
    pub values: Vec<HostPort>,
}

/// The built-in integration of every server: all of the public web.
pub fn internet_integration() -> IntegrationRules {
    IntegrationRules { integration: "internet".to_owned(), values: vec![HostPort::all_hosts()] }
}

/// The first integration that opens the destination.
pub fn matching_integration<'a>(
    openings: &'a [IntegrationRules],
    to: &Destination,
) -> Option<&'a IntegrationRules> {
    openings.iter().find(|opening| opening.values.iter().any(|value| value.covers(to)))
}

/// The allowed addresses among those that a name resolves to. A single refused address refuses all.
/// A value must name an address that is not public explicitly, since the owner of a name can point
/// it to any address.
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
    let checked = answers.iter().map(|answer| answer.to_canonical()).map(|address| {
        match check_public(address) {
            Err(reason) if !(reason.is_internal() && named(address)) => {
                Err(RouteError::Address(reason))
            }
            _ => Ok(SocketAddr::new(address, to.port())),
        }
    });
    checked.collect()
}
