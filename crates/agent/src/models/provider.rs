//! A model of a provider. Retries failed requests while that is useful and no text was streamed
//! yet.

use super::endpoint::{Endpoint, ProviderApi};
use super::frame_observer::FrameObserver;
use super::provider_error::{ProviderError, RetryAdvice};
use super::request;
use super::response_reader::ResponseReader;
use crate::model::{Model, ModelError, ModelRequest, ModelResponse, TextListener};
use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use genai::adapter::AdapterKind;
use genai::resolver::AuthData;
use genai::{ModelIden, ServiceTarget};
use reqwest::redirect::Policy;
use service::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

/// A reachable host accepts a connection within a second or two.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeouts and retries of requests to a provider.
#[derive(Debug, Clone, Copy)]
pub struct ProviderRetryPolicy {
    /// Until the first event. Models think before they write, and a local model may have to be
    /// loaded.
    pub first_event_timeout: Duration,
    /// Between two events, including thinking time.
    pub event_timeout: Duration,
    /// For one whole response.
    pub response_timeout: Duration,
    /// Maximum number of attempts. With the delays this takes about four seconds; longer outages
    /// need a person.
    pub attempts_max: u32,
    /// Delay before the second attempt. It doubles before each further one, minus a random part, so
    /// that clients that failed together do not retry together.
    pub retry_delay: Duration,
    /// Maximum `Retry-After`. If a provider asks for more, the request is not retried.
    pub retry_delay_max: Duration,
}

impl Default for ProviderRetryPolicy {
    fn default() -> Self {
        Self {
            first_event_timeout: Duration::from_secs(300),
            event_timeout: Duration::from_secs(120),
            response_timeout: Duration::from_secs(1800),
            attempts_max: 4,
            retry_delay: Duration::from_millis(500),
            retry_delay_max: Duration::from_secs(30),
        }
    }
}

impl ProviderRetryPolicy {
    /// The delay after this many attempts, or `None` if another one is useless.
    fn retry_delay_after(
        &self,
        attempts: u32,
        again: RetryAdvice,
        now: DateTime<Utc>,
    ) -> Option<Duration> {
        if attempts >= self.attempts_max {
            return None;
        }
        let pause = self
            .retry_delay
            .saturating_mul(2u32.saturating_pow(attempts - 1))
            .min(self.retry_delay_max);
        let pause = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        let requested = match again {
            RetryAdvice::Never => return None,
            RetryAdvice::Soon => Duration::ZERO,
            RetryAdvice::After(requested) => requested,
            RetryAdvice::At(date) => (date - now).to_std().unwrap_or_default(),
        };
        (requested <= self.retry_delay_max).then(|| requested.max(pause))
    }
}

/// Redirects are disabled, since the key would follow them. Proxies come from the environment.
pub(super) fn genai_client() -> Result<genai::Client, String> {
    let client = reqwest::Client::builder()
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .no_gzip()
        .build()
        .map_err(|error| error.to_string())?;
    genai::Client::builder().with_reqwest(client).build().map_err(|error| error.to_string())
}

#[derive(Debug)]
pub(super) struct ProviderModel {
    name: String,
    endpoint: Endpoint,
    target: ServiceTarget,
    client: genai::Client,
    retry_policy: ProviderRetryPolicy,
    clock: Clock,
}

impl ProviderModel {
    pub(super) fn new(
        endpoint: &Endpoint,
        model: &str,
        client: genai::Client,
        retry_policy: ProviderRetryPolicy,
        clock: Clock,
    ) -> Self {
        Self {
            name: format!("{}/{model}", endpoint.provider),
            target: service_target(endpoint, model),
            endpoint: endpoint.clone(),
            client,
            retry_policy,
            clock,
        }
    }

    async fn respond_with_retries(
        &self,
        ask: &ModelRequest,
        on_text: TextListener<'_>,
    ) -> Result<ModelResponse, ModelError> {
        let has_sent = AtomicBool::new(false);
        let on_text = |piece: &str| {
            has_sent.store(true, Ordering::Relaxed);
            on_text(piece);
        };
        let mut attempts = 1;
        loop {
            let failure = match self.attempt(ask, &on_text).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let now = self.clock.now();
            let pause = self.retry_policy.retry_delay_after(attempts, failure.retry, now);
            let Some(pause) = pause.filter(|_| !has_sent.load(Ordering::Relaxed)) else {
                return Err(failure.error);
            };
            tracing::info!(model = self.name, attempts, ?pause, "retrying the model request");
            sleep(pause).await;
            attempts += 1;
        }
    }

    async fn attempt(
        &self,
        ask: &ModelRequest,
        on_text: TextListener<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let frame_observer = Arc::new(FrameObserver::default());
        let options = request::chat_options(ask, self.endpoint.api)
            .with_raw_frame_sink_arc(frame_observer.clone());
        let stream = self
            .client
            .exec_chat_stream(self.target.clone(), request::chat_request(ask), Some(&options))
            .with_subscriber(NoSubscriber::new())
            .await
            .map_err(|error| ProviderError::from_genai(&error, &self.endpoint))?
            .stream;
        let reader = ResponseReader {
            endpoint: &self.endpoint,
            retry_policy: self.retry_policy,
            frame_observer: &frame_observer,
            stream,
        };
        timeout(self.retry_policy.response_timeout, reader.read(ask, on_text)).await.unwrap_or_else(
            |_| {
                let reason = format!(
                    "no end of the response after {} seconds",
                    self.retry_policy.response_timeout.as_secs()
                );
                Err(ProviderError::unreadable(&self.endpoint, &reason, RetryAdvice::Never))
            },
        )
    }
}

fn service_target(endpoint: &Endpoint, model: &str) -> ServiceTarget {
    let kind = match (endpoint.api, &endpoint.key) {
        (ProviderApi::ChatCompletions, Some(_)) => AdapterKind::OpenAI,
        // The same API, for a server that may need no key.
        (ProviderApi::ChatCompletions, None) => AdapterKind::Omlx,
        (ProviderApi::Responses, _) => AdapterKind::OpenAIResp,
        (ProviderApi::Anthropic, _) => AdapterKind::Anthropic,
        (ProviderApi::Gemini, _) => AdapterKind::Gemini,
    };
    ServiceTarget {
        endpoint: genai::resolver::Endpoint::from_owned(endpoint.base_url.as_str()),
        auth: match &endpoint.key {
            Some(key) => AuthData::from_single(key.reveal()),
            None => AuthData::None,
        },
        // genai strips everything up to the first `::`, and names of fine-tuned models contain one.
        model: ModelIden::new(kind, format!("belljar::{model}")),
    }
}

impl Model for ProviderModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn respond<'a>(
        &'a self,
        ask: &'a ModelRequest,
        on_text: TextListener<'a>,
    ) -> BoxFuture<'a, Result<ModelResponse, ModelError>> {
        Box::pin(self.respond_with_retries(ask, on_text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_are_spread_and_end() {
        let retry_policy = ProviderRetryPolicy::default();
        let after = |attempts, advice| {
            retry_policy.retry_delay_after(attempts, advice, Clock::manual().now())
        };
        let pause = |attempts| after(attempts, RetryAdvice::Soon).unwrap();
        for _ in 0..100 {
            assert!((250..=500).contains(&pause(1).as_millis()));
            assert!((1_000..=2_000).contains(&pause(3).as_millis()));
        }
        assert!((0..20).any(|_| pause(1) != pause(1)));
        assert_eq!(after(retry_policy.attempts_max, RetryAdvice::Soon), None);
        assert_eq!(after(1, RetryAdvice::Never), None);
    }

    #[test]
    fn a_provider_is_left_alone_for_as_long_as_it_asks_within_reason() {
        let retry_policy = ProviderRetryPolicy::default();
        let now = Clock::manual().now();
        let at = |after| RetryAdvice::At(now + after);
        let advices: [&dyn Fn(Duration) -> RetryAdvice; 2] = [&RetryAdvice::After, &at];
        for advice in advices {
            let requested = |seconds| {
                let advice = advice(Duration::from_secs(seconds));
                retry_policy.retry_delay_after(1, advice, now)
            };
            assert_eq!(requested(7), Some(Duration::from_secs(7)));
            assert_eq!(requested(31), None);
            assert!(requested(0).unwrap() >= Duration::from_millis(250));
        }
        let past = RetryAdvice::At(now - Duration::from_secs(60));
        let pause = retry_policy.retry_delay_after(1, past, now).unwrap();
        assert!((250..=500).contains(&pause.as_millis()));
    }
}
