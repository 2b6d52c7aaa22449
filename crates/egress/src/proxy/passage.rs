//! The decision about one request: whether a destination is open, by what, and at which addresses.
//!
//! A [`Passage`] is made of the rules of this moment and used up by one request. Nothing must
//! connect to an address that it has not judged.

use super::Sandbox;
use super::refusal::Refusal;
use crate::authority::{Credential, Scheme, Way};
use http::header::{HeaderMap, HeaderValue};
use policy::{Destination, Opening, RouteRefused, opened_by, public, reachable};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::time::timeout;

/// A destination that is open at this moment, and the rules that say so.
#[derive(Debug, Clone)]
pub(super) struct Passage {
    way: Arc<Way>,
    to: Destination,
    scheme: Scheme,
    by: String,
}

/// How requests to a destination with a credential are spoken. They have to be seen to get it.
pub(super) fn intercepted(way: &Way, to: &Destination) -> Option<Scheme> {
    let mut schemes = way.credentials.iter().filter(|it| it.to == *to).map(|it| it.scheme);
    let first = schemes.next()?;
    Some(schemes.find(|scheme| *scheme == Scheme::Https).unwrap_or(first))
}

fn credentials<'a>(
    way: &'a Way,
    to: &'a Destination,
    scheme: Scheme,
) -> impl Iterator<Item = &'a Credential> {
    way.credentials.iter().filter(move |it| it.to == *to && it.scheme == scheme)
}

fn not_opened(way: &Way, to: &Destination) -> Refusal {
    let to = to.clone();
    match opened_by(&way.switched_off, &to) {
        Some(Opening { integration, .. }) => {
            Refusal::SwitchedOff { to, integration: integration.clone() }
        }
        None => Refusal::NotOpened { to, named_in: way.named_in },
    }
}

impl Passage {
    pub(super) fn new(way: Arc<Way>, to: &Destination, scheme: Scheme) -> Result<Self, Refusal> {
        let opener = credentials(&way, to, scheme).find(|it| it.opens);
        let by = match (opener, opened_by(&way.openings, to)) {
            (Some(credential), _) => format!("secret:{}", credential.secret),
            (None, Some(opening)) => opening.integration.clone(),
            (None, None) if credentials(&way, to, Scheme::Https).any(|it| it.opens) => {
                return Err(Refusal::OnlyHttps(to.clone()));
            }
            (None, None) => return Err(not_opened(&way, to)),
        };
        Ok(Self { way, to: to.clone(), scheme, by })
    }

    pub(super) fn to(&self) -> &Destination {
        &self.to
    }

    pub(super) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// What opened it, for the log.
    pub(super) fn by(&self) -> &str {
        &self.by
    }

    pub(super) fn credentials(&self) -> impl Iterator<Item = &Credential> {
        credentials(&self.way, &self.to, self.scheme)
    }

    /// The addresses that may be connected to. A name is looked up here and nowhere else.
    pub(super) async fn route(&self, sandbox: &Sandbox) -> Result<Vec<SocketAddr>, Refusal> {
        let name = match self.to.address() {
            Some(address) => return self.judge(&[address]),
            None => self.to.host().to_string(),
        };
        let time_max = sandbox.proxy.limits.connect;
        let room = timeout(time_max, sandbox.room_to_look_up()).await;
        let Ok(Ok(room)) = room else { return Err(Refusal::LookupsBusy(self.to.clone())) };
        match timeout(time_max, sandbox.proxy.resolver.addresses(&name, room)).await {
            Ok(Ok(answers)) => self.judge(&answers),
            Ok(Err(_)) | Err(_) => Err(Refusal::Unresolved(self.to.clone())),
        }
    }

    /// Judges addresses of the destination, just found or in use since an earlier request.
    pub(super) fn judge(&self, answers: &[IpAddr]) -> Result<Vec<SocketAddr>, Refusal> {
        let opens = self.credentials().any(|it| it.opens);
        let routed = reachable(&self.way.openings, &self.to, answers).or_else(|refused| {
            // A credential that opens is an opening of exactly its destination.
            let exactly = Opening { integration: String::new(), values: vec![(&self.to).into()] };
            if opens { reachable(&[exactly], &self.to, answers) } else { Err(refused) }
        });
        let addresses = routed.map_err(|refused| self.refused(refused))?;
        let plain = self.scheme == Scheme::Http && self.credentials().next().is_some();
        if plain && addresses.iter().any(|address| public(address.ip()).is_ok()) {
            return Err(Refusal::PlainSecret(self.to.clone()));
        }
        Ok(addresses)
    }

    fn refused(&self, refused: RouteRefused) -> Refusal {
        let to = self.to.clone();
        match refused {
            RouteRefused::NoAddress => Refusal::Unresolved(to),
            RouteRefused::Address(reason) if reason.is_internal() => {
                Refusal::NotNamed { to, reason }
            }
            RouteRefused::Address(reason) => Refusal::NeverOpened { to, reason },
        }
    }

    /// Puts each credential where the client has put its placeholder, or into its first header if the
    /// client has left all of them to us. A header that the client filled with something of its own
    /// is left as it is, and so is a placeholder in any other place.
    pub(super) fn give_credentials(&self, headers: &mut HeaderMap) -> Result<(), Refusal> {
        let credentials: Vec<&Credential> = self.credentials().collect();
        // Not by its name: a workspace and one of its principals can each have one of that name.
        for places in credentials.chunk_by(|one, next| one.placeholder == next.placeholder) {
            let silent = places.iter().all(|it| !headers.contains_key(&it.header));
            let asked = places.iter().filter(|it| holds(headers, it));
            let due = if silent { places[..1].to_vec() } else { asked.copied().collect() };
            for credential in due {
                headers.insert(credential.header.clone(), filled(credential)?);
            }
        }
        Ok(())
    }
}

fn filled(credential: &Credential) -> Result<HeaderValue, Refusal> {
    let text = format!("{}{}", credential.prefix, credential.value.expose());
    let mut value =
        HeaderValue::try_from(text).map_err(|_| Refusal::SecretUnfit(credential.secret.clone()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn holds(headers: &HeaderMap, credential: &Credential) -> bool {
    let has = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        !credential.placeholder.is_empty() && text.contains(&credential.placeholder)
    };
    headers.get_all(&credential.header).iter().any(has)
}
