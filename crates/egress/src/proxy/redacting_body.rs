//! Masks the values of secrets in the headers and the body of a response.
//!
//! A host that echoes its request must not give a secret to the sandbox.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use redact::MaskingStream;
use std::collections::VecDeque;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Masks the values in these headers. Removes a header whose name contains one.
pub(super) fn mask_headers(redactor: &MaskingStream, headers: &mut HeaderMap) {
    let has_secret =
        |name: &&HeaderName| redactor.mask_complete(name.as_str().as_bytes()).is_some();
    let named: Vec<HeaderName> = headers.keys().filter(has_secret).cloned().collect();
    for name in named {
        headers.remove(name);
    }
    for value in headers.values_mut() {
        if let Some(clean) = redactor.mask_complete(value.as_bytes()) {
            *value = HeaderValue::from_maybe_shared(clean).unwrap_or(HeaderValue::from_static(""));
        }
    }
}

/// The next result of polling a body.
type BodyFrameResult = Option<Result<Frame<Bytes>, Box<dyn Error + Send + Sync>>>;

/// A body in which the values of some secrets are redacted.
pub(super) struct RedactingBody<B> {
    body: B,
    redactor: MaskingStream,
    /// Chunks to release next, in order.
    pending: VecDeque<Bytes>,
    /// The last frame, after all pending and held bytes.
    final_frame: Option<BodyFrameResult>,
}

impl<B> RedactingBody<B> {
    pub(super) fn new(body: B, redactor: MaskingStream) -> Self {
        Self { body, redactor, pending: VecDeque::new(), final_frame: None }
    }

    /// Processes the next result of the inner body.
    fn push_frame(&mut self, step: BodyFrameResult) {
        let after = match step {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    self.pending.extend(self.redactor.mask_chunk(data));
                    return;
                }
                Err(frame) => Some(Ok(self.redact_trailers(frame))),
            },
            // The body failed, perhaps inside a value, and perhaps where code wanted it to: at a
            // limit.
            Some(Err(error)) => {
                self.final_frame = Some(Some(Err(error)));
                return;
            }
            None => None,
        };
        self.pending.push_back(self.redactor.finish());
        self.final_frame = Some(after);
    }

    /// The next frame that is ready, skipping empty ones.
    fn next_frame(&mut self) -> Option<BodyFrameResult> {
        while let Some(data) = self.pending.pop_front() {
            if !data.is_empty() {
                return Some(Some(Ok(Frame::data(data))));
            }
        }
        self.final_frame.take()
    }

    fn held_bytes(&self) -> usize {
        self.redactor.held_bytes() + self.pending.iter().map(Bytes::len).sum::<usize>()
    }

    fn redact_trailers(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        frame.into_trailers().map_or_else(
            |frame| frame,
            |mut trailers| {
                mask_headers(&self.redactor, &mut trailers);
                Frame::trailers(trailers)
            },
        )
    }
}

impl<B> Body for RedactingBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<BodyFrameResult> {
        let this = self.get_mut();
        loop {
            if let Some(next) = this.next_frame() {
                return Poll::Ready(next);
            }
            let step = ready!(Pin::new(&mut this.body).poll_frame(context));
            this.push_frame(step.map(|frame| frame.map_err(Into::into)));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held_bytes() == 0 && self.final_frame.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held_bytes() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use redact::{SecretEncodingsCache, SecretText, SecretVersion};
    use std::time::Duration;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio::time::timeout;
    use types::SecretId;
    use uuid::Uuid;

    /// A part of a body, or an error.
    type Part = Result<Frame<Bytes>, &'static str>;

    /// A host that sends what the test tells it to.
    struct ChannelBody(UnboundedReceiver<Part>);

    impl Body for ChannelBody {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Part>> {
            self.0.poll_recv(context)
        }
    }

    /// A host, and its redacted response for a sandbox that sent it this value.
    async fn body_of(value: &str) -> (UnboundedSender<Part>, RedactingBody<ChannelBody>) {
        let (host, sender) = unbounded_channel();
        (host, RedactingBody::new(ChannelBody(sender), redactor(value).await))
    }

    fn data(text: &str) -> Part {
        Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))
    }

    async fn redactor(value: &str) -> MaskingStream {
        let (id, name) = (SecretId::new(Uuid::nil()), "TOKEN".to_owned());
        let value = SecretText::new(value.to_owned());
        let secret = SecretVersion { id, version: 1, name, value };
        let cache = SecretEncodingsCache::default();
        MaskingStream::new(cache.get_or_build(&[&secret]).await.unwrap())
    }

    #[tokio::test]
    async fn a_name_of_a_header_does_not_tell_either() {
        let redactor = redactor("Secret-Value").await;
        let mut headers = HeaderMap::new();
        headers.insert("x-secret-value-x", HeaderValue::from_static("1"));
        headers.insert("x-other", HeaderValue::from_static("is Secret-Value"));
        mask_headers(&redactor, &mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["x-other"], "is ************");
    }

    #[tokio::test]
    async fn a_line_arrives_before_the_host_says_more() {
        let (host, mut body) = body_of("secret-value").await;
        for event in ["data: 1\n\n", "data: secret-va\n\n", "\n", "{\"a\": \"b\"}\r\n"] {
            host.send(data(event)).unwrap();
            let mut received = Vec::new();
            while received.len() < event.len() {
                let frame = timeout(Duration::from_secs(5), body.frame()).await.expect(event);
                received.extend(frame.unwrap().unwrap().into_data().unwrap());
            }
            assert_eq!(received, event.as_bytes());
        }
    }

    #[tokio::test]
    async fn what_a_host_says_arrives_before_how_it_ends() {
        let (host, body) = body_of("secret-value").await;
        host.send(data("secret-")).unwrap();
        host.send(data("value")).unwrap();
        let trailers = HeaderMap::from_iter([(
            HeaderName::from_static("x-sum"),
            HeaderValue::from_static("secret-value"),
        )]);
        host.send(Ok(Frame::trailers(trailers))).unwrap();
        drop(host);
        let whole = body.collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["x-sum"], "************");
        assert_eq!(whole.to_bytes(), "************");
    }

    #[tokio::test]
    async fn t42_a_host_that_pauses_inside_of_a_value_tells_nothing_of_it() {
        const VALUE: &str = "sk-0123456789abcdef";
        for cut in [1, VALUE.len() / 2, VALUE.len() - 1] {
            let (host, mut body) = body_of(VALUE).await;
            host.send(data(&format!("your key:\n{}", &VALUE[..cut]))).unwrap();
            let mut received = Vec::new();
            while let Ok(frame) = timeout(Duration::from_millis(200), body.frame()).await {
                received.extend(frame.unwrap().unwrap().into_data().unwrap());
            }
            assert_eq!(received, b"your key:\n", "{cut}");
            host.send(data(&VALUE[cut..])).unwrap();
            drop(host);
            assert_eq!(body.collect().await.unwrap().to_bytes(), "*".repeat(VALUE.len()));
        }
    }

    #[tokio::test]
    async fn t42_an_answer_that_breaks_off_inside_of_a_value_tells_nothing_of_it() {
        let (host, mut body) = body_of("sk-0123456789abcdef").await;
        host.send(data("your key:\nsk-0123456789abcde")).unwrap();
        host.send(Err("a limit")).unwrap();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "your key:\n");
        assert!(body.frame().await.unwrap().is_err());
    }
}
