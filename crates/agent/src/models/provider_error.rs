//! Why one attempt failed, from genai's error, and whether to retry.

use super::endpoint::Endpoint;
use crate::model::ModelError;
use chrono::{DateTime, Utc};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::time::Duration;

/// Maximum length of a kept message: enough for an error; some providers respond with a whole HTML page.
const MESSAGE_CHARS_MAX: usize = 500;

#[derive(Debug)]
pub(super) struct ProviderError {
    pub(super) error: ModelError,
    pub(super) retry: RetryAdvice,
}

/// Whether and when to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryAdvice {
    Never,
    Soon,
    /// After the delay that the provider requested.
    After(Duration),
    /// At the time that the provider requested.
    At(DateTime<Utc>),
}

impl ProviderError {
    pub(super) fn unreadable(endpoint: &Endpoint, reason: &str, again: RetryAdvice) -> Self {
        let (provider, reason) = (endpoint.provider.clone(), sanitized_message(endpoint, reason));
        Self { error: ModelError::InvalidResponse { provider, reason }, retry: again }
    }

    pub(super) fn unreachable(endpoint: &Endpoint, reason: &str, again: RetryAdvice) -> Self {
        let (provider, reason) = (endpoint.provider.clone(), sanitized_message(endpoint, reason));
        Self { error: ModelError::Unavailable { provider, reason }, retry: again }
    }

    fn busy(endpoint: &Endpoint, text: &str, again: RetryAdvice) -> Self {
        let (provider, message) = (endpoint.provider.clone(), sanitized_message(endpoint, text));
        Self { error: ModelError::Busy { provider, message }, retry: again }
    }

    pub(super) fn from_genai(error: &genai::Error, endpoint: &Endpoint) -> Self {
        use genai::Error;
        match error {
            Error::HttpError { status, body, headers, .. } => {
                Self::from_response(endpoint, *status, body, headers)
            }
            Error::WebStream { error, .. } => {
                if let Some(error) = error.downcast_ref::<Error>() {
                    Self::from_genai(error, endpoint)
                } else if let Some(error) = error.downcast_ref::<reqwest::Error>() {
                    Self::from_connection(endpoint, error)
                } else {
                    Self::unreadable(endpoint, &error.to_string(), RetryAdvice::Never)
                }
            }
            Error::ChatResponse { body, .. } => Self::from_stream_event(endpoint, body),
            Error::StreamParse { serde_error, .. } => {
                Self::unreadable(endpoint, &serde_error.to_string(), RetryAdvice::Never)
            }
            other => Self::unreadable(endpoint, &other.to_string(), RetryAdvice::Never),
        }
    }

    fn from_response(
        endpoint: &Endpoint,
        status: StatusCode,
        body: &str,
        headers: &HeaderMap,
    ) -> Self {
        let body: Value = serde_json::from_str(body).unwrap_or_else(|_| body.into());
        let text = error_message(&body);
        let again =
            if is_quota_exhausted(&body) { RetryAdvice::Never } else { retry_after(headers) };
        match status.as_u16() {
            429 | 503 | 529 => Self::busy(endpoint, &text, again),
            408 | 500..=599 => {
                Self::unreachable(endpoint, &format!("HTTP status {status}: {text}"), again)
            }
            status => Self {
                error: ModelError::Rejected {
                    provider: endpoint.provider.clone(),
                    status,
                    message: sanitized_message(endpoint, &text),
                },
                retry: RetryAdvice::Never,
            },
        }
    }

    fn from_connection(endpoint: &Endpoint, error: &reqwest::Error) -> Self {
        if error.is_body() || error.is_decode() {
            return Self::unreadable(
                endpoint,
                "the connection closed before the end of the response",
                RetryAdvice::Soon,
            );
        }
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Self::unreachable(endpoint, &cause.to_string(), RetryAdvice::Soon)
    }

    /// An error in place of a stream event.
    fn from_stream_event(endpoint: &Endpoint, body: &Value) -> Self {
        let error = body.get("error").unwrap_or(body);
        let kind = ["type", "code", "status"]
            .iter()
            .find_map(|key| error.get(key).and_then(Value::as_str))
            .unwrap_or_default()
            .to_lowercase();
        let text = error_message(body);
        if is_quota_exhausted(body) {
            Self::busy(endpoint, &text, RetryAdvice::Never)
        } else if kind.contains("overloaded") || kind.contains("rate_limit") {
            Self::busy(endpoint, &text, RetryAdvice::Soon)
        } else if kind.contains("server_error") || kind == "api_error" {
            Self::unreachable(endpoint, &text, RetryAdvice::Soon)
        } else {
            Self::unreadable(endpoint, &text, RetryAdvice::Never)
        }
    }
}

/// Exhausted credit, which providers report with the status of a rate limit.
fn is_quota_exhausted(body: &Value) -> bool {
    let error = body.get("error").unwrap_or(body);
    ["type", "code"].iter().any(|key| error[key] == "insufficient_quota")
}

fn retry_after(headers: &HeaderMap) -> RetryAdvice {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |name: &str| text(name).and_then(|text| text.trim().parse::<f64>().ok());
    let at = || {
        let date = DateTime::parse_from_rfc2822(text("retry-after")?).ok()?;
        Some(RetryAdvice::At(date.with_timezone(&Utc)))
    };
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0).or(number("retry-after"));
    let after = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    after.map(RetryAdvice::After).or_else(at).unwrap_or(RetryAdvice::Soon)
}

/// The message of an error, wherever the provider puts it.
fn error_message(body: &Value) -> String {
    let first = body.get(0).unwrap_or(body);
    ["/error/message", "/message", "/error", "/detail", ""]
        .iter()
        .find_map(|path| first.pointer(path)?.as_str().map(str::to_owned))
        .unwrap_or_else(|| first.to_string())
}

/// Masks our key, joins lines, and shortens the text.
fn sanitized_message(endpoint: &Endpoint, text: &str) -> String {
    let text = match &endpoint.key {
        Some(key) => key.redact_in(text),
        None => text.to_owned(),
    };
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(MESSAGE_CHARS_MAX) {
        words.truncate(end);
        words.push('…');
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;
    use serde_json::json;

    fn retry_advice(name: &'static str, value: &str) -> RetryAdvice {
        let value = HeaderValue::from_str(value).unwrap();
        retry_after(&HeaderMap::from_iter([(name.parse().unwrap(), value)]))
    }

    #[test]
    fn the_time_that_a_provider_asks_for_is_read_in_every_form() {
        assert_eq!(retry_advice("retry-after", "3"), RetryAdvice::After(Duration::from_secs(3)));
        assert_eq!(
            retry_advice("retry-after-ms", "250"),
            RetryAdvice::After(Duration::from_millis(250))
        );
        assert_eq!(retry_advice("retry-after", "later"), RetryAdvice::Soon);
        assert_eq!(retry_advice("retry-after", "-1"), RetryAdvice::Soon);
        assert_eq!(retry_advice("retry-after", "1e400"), RetryAdvice::Soon);
        let date = DateTime::from_timestamp(784_111_777, 0).unwrap();
        assert_eq!(
            retry_advice("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"),
            RetryAdvice::At(date)
        );
    }

    #[test]
    fn the_words_of_an_error_are_found_wherever_they_stand() {
        for body in [
            json!({"error": {"message": "no"}}),
            json!({"type": "error", "error": {"message": "no"}}),
            json!([{"error": {"message": "no"}}]),
            json!({"error": "no"}),
            json!({"message": "no"}),
            json!({"detail": "no"}),
            json!("no"),
        ] {
            assert_eq!(error_message(&body), "no", "{body}");
        }
        assert_eq!(error_message(&json!({"code": 3})), r#"{"code":3}"#);
    }

    #[test]
    fn an_account_without_money_is_not_asked_again() {
        assert!(is_quota_exhausted(
            &json!({"error": {"message": "pay", "code": "insufficient_quota"}})
        ));
        assert!(!is_quota_exhausted(
            &json!({"error": {"message": "slow down", "code": "rate_limit_exceeded"}})
        ));
    }
}
