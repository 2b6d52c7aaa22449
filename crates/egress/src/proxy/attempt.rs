//! One attempt to reach somebody, from the moment when it is known whom.
//!
//! It is written down however it ends: also if the client hangs up or the sandbox ends while a host
//! is being asked, which may have heard all of it by then.

use super::Sandbox;
use super::message::{self, Named};
use super::passage::Passage;
use super::refusal::Refusal;
use crate::authority::{Attempt, Scheme, Way};
use chrono::Utc;
use http::Request;
use policy::Destination;
use std::sync::Arc;

/// An attempt under way. If nobody says how it ended, it was not finished.
pub(super) struct UnderWay {
    sandbox: Arc<Sandbox>,
    to: Destination,
    /// What opens it, as soon as that is decided.
    by: Option<String>,
    is_told: bool,
}

impl UnderWay {
    pub(super) fn new(sandbox: Arc<Sandbox>, to: Destination) -> Self {
        Self { sandbox, to, by: None, is_told: false }
    }

    pub(super) fn to(&self) -> &Destination {
        &self.to
    }

    /// Decides by the rules of now.
    pub(super) async fn passage(&mut self, scheme: Scheme) -> Result<Passage, Refusal> {
        self.by = None;
        let way = self.sandbox.way().await?;
        self.passage_by(way, scheme)
    }

    /// Decides by these rules.
    pub(super) fn passage_by(&mut self, way: Arc<Way>, scheme: Scheme) -> Result<Passage, Refusal> {
        let passage = Passage::new(way, &self.to, scheme)?;
        self.by = Some(passage.by().to_owned());
        Ok(passage)
    }

    pub(super) fn end(mut self, refusal: Option<&Refusal>) {
        self.tell(refusal);
    }

    fn tell(&mut self, refusal: Option<&Refusal>) {
        self.is_told = true;
        let to = Named { host: self.to.host().to_string(), port: self.to.port() };
        tell(&self.sandbox, to, self.by.take(), refusal);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell(Some(&Refusal::Unfinished(self.to.clone())));
        }
    }
}

/// That a connection through a passage, which was opened before, was ended by us.
pub(super) fn cut_off(sandbox: &Sandbox, passage: &Passage, refusal: &Refusal) {
    let to = passage.to();
    let to = Named { host: to.host().to_string(), port: to.port() };
    tell(sandbox, to, Some(passage.by().to_owned()), Some(refusal));
}

/// That a request was turned away before it was known whom it is for.
pub(super) fn turned_away<B>(sandbox: &Sandbox, request: &Request<B>, refusal: &Refusal) {
    tell(sandbox, message::named(request), None, Some(refusal));
}

fn tell(sandbox: &Sandbox, to: Named, by: Option<String>, refusal: Option<&Refusal>) {
    sandbox.authority.attempted(Attempt {
        at: Utc::now(),
        host: to.host,
        port: to.port,
        allowed: by.is_some() && !refusal.is_some_and(Refusal::is_denial),
        integration: by,
        reason: refusal.map(Refusal::reason),
    });
}
