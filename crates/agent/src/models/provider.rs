//! A model of a provider: asked over the network, and asked again while it is worth it and nobody
//! has heard anything yet.

use super::endpoint::{Endpoint, Wire};
use super::failure::{Again, Failure};
use super::hearing::Hearing;
use super::request;
use super::wiretap::Wiretap;
use crate::model::{Answer, Ask, Listener, Model, ModelError};
use futures_util::future::BoxFuture;
use genai::adapter::AdapterKind;
use genai::resolver::AuthData;
use genai::{ModelIden, ServiceTarget};
use reqwest::redirect::Policy;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

/// A host that is there takes a connection within a second or two.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a provider is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until the first event. Models think before they write, and a local one may have to be loaded.
    pub first: Duration,
    /// From one event to the next, also while a model thinks in between.
    pub between: Duration,
    /// For one whole answer.
    pub whole: Duration,
    /// How often is asked at most. With the pauses in between this takes about four seconds: longer
    /// troubles are for people.
    pub tries: u32,
    /// Before the second try; twice as long before each further one, and a random part of it less, so
    /// that many who failed together do not return together.
    pub pause: Duration,
    /// The longest that a provider may ask to be left alone. One that asks for more is not asked
    /// again.
    pub pause_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(300),
            between: Duration::from_secs(120),
            whole: Duration::from_secs(1800),
            tries: 4,
            pause: Duration::from_millis(500),
            pause_max: Duration::from_secs(30),
        }
    }
}

impl Patience {
    /// How long to wait after so many tries, if another one is worth it.
    fn pause_after(&self, tries: u32, again: Again) -> Option<Duration> {
        if tries >= self.tries {
            return None;
        }
        let pause = self.pause.saturating_mul(2u32.saturating_pow(tries - 1)).min(self.pause_max);
        let pause = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        match again {
            Again::Never => None,
            Again::Soon => Some(pause),
            Again::After(asked) if asked > self.pause_max => None,
            Again::After(asked) => Some(asked.max(pause)),
        }
    }
}

/// Redirects are off, since a key would follow them. Proxies are as the operator's environment says.
pub(super) fn client() -> Result<genai::Client, String> {
    let client = reqwest::Client::builder()
        .redirect(Policy::none())
        .connect_timeout(CONNECT)
        .no_gzip()
        .build()
        .map_err(|error| error.to_string())?;
    genai::Client::builder().with_reqwest(client).build().map_err(|error| error.to_string())
}

#[derive(Debug)]
pub(super) struct Provider {
    name: String,
    endpoint: Endpoint,
    target: ServiceTarget,
    client: genai::Client,
    patience: Patience,
}

impl Provider {
    pub(super) fn new(
        endpoint: &Endpoint,
        model: &str,
        client: genai::Client,
        patience: Patience,
    ) -> Self {
        Self {
            name: format!("{}/{model}", endpoint.provider),
            target: target(endpoint, model),
            endpoint: endpoint.clone(),
            client,
            patience,
        }
    }

    async fn persist(&self, ask: &Ask, said: Listener<'_>) -> Result<Answer, ModelError> {
        let told = AtomicBool::new(false);
        let said = |piece: &str| {
            told.store(true, Ordering::Relaxed);
            said(piece);
        };
        let mut tries = 1;
        loop {
            let failure = match self.once(ask, &said).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let pause = self.patience.pause_after(tries, failure.again);
            let Some(pause) = pause.filter(|_| !told.load(Ordering::Relaxed)) else {
                return Err(failure.error);
            };
            tracing::info!(model = self.name, tries, ?pause, "a model is asked again");
            sleep(pause).await;
            tries += 1;
        }
    }

    async fn once(&self, ask: &Ask, said: Listener<'_>) -> Result<Answer, Failure> {
        let wiretap = Arc::new(Wiretap::default());
        let options =
            request::options(ask, self.endpoint.wire).with_raw_frame_sink_arc(wiretap.clone());
        let stream = self
            .client
            .exec_chat_stream(self.target.clone(), request::request(ask), Some(&options))
            .with_subscriber(NoSubscriber::new())
            .await
            .map_err(|error| Failure::of(&error, &self.endpoint))?
            .stream;
        let hearing = Hearing {
            endpoint: &self.endpoint,
            patience: self.patience,
            wiretap: &wiretap,
            stream,
        };
        timeout(self.patience.whole, hearing.answer(ask, said)).await.unwrap_or_else(|_| {
            let reason = format!("it has no end after {} seconds", self.patience.whole.as_secs());
            Err(Failure::unreadable(&self.endpoint, &reason, Again::Never))
        })
    }
}

fn target(endpoint: &Endpoint, model: &str) -> ServiceTarget {
    let kind = match (endpoint.wire, &endpoint.key) {
        (Wire::Chat, Some(_)) => AdapterKind::OpenAI,
        // The same, for one that may have no key.
        (Wire::Chat, None) => AdapterKind::Omlx,
        (Wire::Responses, _) => AdapterKind::OpenAIResp,
        (Wire::Anthropic, _) => AdapterKind::Anthropic,
        (Wire::Gemini, _) => AdapterKind::Gemini,
    };
    ServiceTarget {
        endpoint: genai::resolver::Endpoint::from_owned(endpoint.base.as_str()),
        auth: match &endpoint.key {
            Some(key) => AuthData::from_single(key.reveal()),
            None => AuthData::None,
        },
        // genai takes off what stands before the first `::`, and fine-tuned models have one.
        model: ModelIden::new(kind, format!("belljar::{model}")),
    }
}

impl Model for Provider {
    fn name(&self) -> &str {
        &self.name
    }

    fn answer<'a>(
        &'a self,
        ask: &'a Ask,
        said: Listener<'a>,
    ) -> BoxFuture<'a, Result<Answer, ModelError>> {
        Box::pin(self.persist(ask, said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_are_spread_and_end() {
        let patience = Patience::default();
        let pause = |tries| patience.pause_after(tries, Again::Soon).unwrap();
        for _ in 0..100 {
            assert!((250..=500).contains(&pause(1).as_millis()));
            assert!((1_000..=2_000).contains(&pause(3).as_millis()));
        }
        assert!((0..20).any(|_| pause(1) != pause(1)));
        assert_eq!(patience.pause_after(patience.tries, Again::Soon), None);
        assert_eq!(patience.pause_after(1, Again::Never), None);
    }

    #[test]
    fn a_provider_is_left_alone_for_as_long_as_it_asks_within_reason() {
        let patience = Patience::default();
        let asked = |seconds| patience.pause_after(1, Again::After(Duration::from_secs(seconds)));
        assert_eq!(asked(7), Some(Duration::from_secs(7)));
        assert_eq!(asked(31), None);
        assert!(asked(0).unwrap() >= Duration::from_millis(250));
    }
}
