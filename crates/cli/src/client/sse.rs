//! Reads a stream of server-sent events (SSE).

use super::{ClientError, read_error};
use reqwest::Response;

/// Maximum size of an event: larger than any event of a Belljar server.
const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct EventStream {
    response: Response,
    /// Received bytes that are not yet a complete event.
    buffer: Vec<u8>,
    /// The number of bytes that were already searched for the end of an event.
    searched: usize,
}

impl EventStream {
    /// Returns the stream of a response, or the response if it is not a stream.
    pub(crate) fn from_response(answer: Response) -> Result<Self, Response> {
        let kind = answer.headers().get(reqwest::header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            Ok(Self { response: answer, buffer: Vec::new(), searched: 0 })
        } else {
            Err(answer)
        }
    }

    /// Returns the data of the next event, or `None` at the end of the stream.
    pub(crate) async fn next_data(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            while let Some(end) = end_of_event(&self.buffer, self.searched) {
                let event: Vec<u8> = self.buffer.drain(..end).collect();
                self.searched = 0;
                if let Some(data) = event_data(&event) {
                    return Ok(Some(data));
                }
            }
            self.searched = self.buffer.len().saturating_sub(1);
            match self.response.chunk().await.map_err(|error| read_error(&error))? {
                None => return Ok(None),
                Some(more) if self.buffer.len() + more.len() > EVENT_BYTES_MAX => {
                    let reason = format!("an event has more than {EVENT_BYTES_MAX} bytes");
                    return Err(ClientError::Interrupted { reason });
                }
                Some(more) => self.buffer.extend_from_slice(&more),
            }
        }
    }
}

/// An event ends with an empty line.
fn end_of_event(held: &[u8], from: usize) -> Option<usize> {
    let at = held.get(from..)?.windows(2).position(|pair| pair == b"\n\n")?;
    Some(from + at + 2)
}

/// The data lines of an event. An event without data only keeps the connection alive.
fn event_data(event: &[u8]) -> Option<String> {
    let event = String::from_utf8_lossy(event);
    let lines: Vec<&str> = event
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_an_event_is_what_its_lines_say_and_nothing_else() {
        assert_eq!(event_data(b"id: 1\nevent: status\ndata: {\"a\":1}\n\n").unwrap(), "{\"a\":1}");
        assert_eq!(event_data(b"data: one\ndata:two\n\n").unwrap(), "one\ntwo");
        assert_eq!(event_data(b": keep alive\n\n"), None);
    }

    #[test]
    fn an_event_that_has_only_begun_is_waited_for() {
        assert_eq!(end_of_event(b"data: 1\n", 0), None);
        assert_eq!(end_of_event(b"data: 1\n\ndata: 2", 7), Some(9));
    }
}
