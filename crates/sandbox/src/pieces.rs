//! Turns what a sandbox writes into pieces of output, so that a program that writes single bytes
//! does not make a record of single bytes.
//!
//! A piece costs its text and about 60 bytes around it. Text is emitted at once unless the last
//! piece was emitted a moment ago; then it is held until the next tick of the supervisor. The number
//! of pieces stays in proportion to the bytes: an execution that has used up its pieces has its
//! output emitted once a second, each stream for itself.

use types::{Event, Output, Stream};

/// Text that comes sooner than this after the last piece is held until the next tick.
const INTERVAL_MS: u64 = 20;
/// The same for an execution that has used up its pieces.
const SLOW_INTERVAL_MS: u64 = 1_000;
/// Held text of this size is emitted whatever the time is.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// Pieces that an execution may have however small they are: about 16 KiB around them.
const PIECES_FREE: u64 = 256;
/// Each so many bytes of output allow one piece more.
const BYTES_FOR_A_PIECE: u64 = 256;

/// Output of one execution that was read and is not emitted yet.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// In the order in which they began; at most one for each stream.
    held: Vec<Output>,
    /// When the last piece was emitted, in milliseconds after the start.
    emitted_at: Option<u64>,
    emitted: u64,
    /// Of all text so far.
    bytes: u64,
}

impl Pieces {
    /// Takes text that was read `t` milliseconds after the start.
    pub(crate) fn take(
        &mut self,
        t: u64,
        stream: Stream,
        text: String,
        emit: &mut (dyn FnMut(Event) + Send),
    ) {
        self.bytes += text.len() as u64;
        let other = self.held.iter().any(|piece| piece.stream != stream);
        if other && self.has_pieces_left() {
            // The order of the two streams is kept while that is cheap.
            self.emit(t, emit);
        }
        match self.held.iter_mut().find(|piece| piece.stream == stream) {
            Some(piece) => piece.text.push_str(&text),
            None => self.held.push(Output { t, stream, text }),
        }
        if self.held.iter().any(|piece| piece.text.len() >= HELD_BYTES_MAX) {
            self.emit(t, emit);
        }
    }

    /// Emits what is held if it is time to.
    pub(crate) fn emit_due(&mut self, t: u64, emit: &mut (dyn FnMut(Event) + Send)) {
        let interval = if self.has_pieces_left() { INTERVAL_MS } else { SLOW_INTERVAL_MS };
        if self.emitted_at.is_none_or(|at| t >= at + interval) {
            self.emit(t, emit);
        }
    }

    /// Emits all that is held.
    pub(crate) fn emit(&mut self, t: u64, emit: &mut (dyn FnMut(Event) + Send)) {
        for mut piece in self.held.drain(..) {
            piece.text.shrink_to_fit();
            self.emitted += 1;
            self.emitted_at = Some(t);
            emit(Event::Output(piece));
        }
    }

    fn has_pieces_left(&self) -> bool {
        self.emitted < PIECES_FREE + self.bytes / BYTES_FOR_A_PIECE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(events: &[Event]) -> Vec<(Stream, &str)> {
        let outputs = events.iter().filter_map(|event| match event {
            Event::Output(piece) => Some((piece.stream, piece.text.as_str())),
            _ => None,
        });
        outputs.collect()
    }

    #[test]
    fn the_first_text_is_emitted_at_once_and_what_follows_soon_is_held() {
        let (mut pieces, mut events) = (Pieces::default(), Vec::new());
        let mut emit = |event| events.push(event);
        for text in ["a", "b", "c"] {
            pieces.take(1, Stream::Stdout, text.into(), &mut emit);
            pieces.emit_due(1, &mut emit);
        }
        pieces.emit_due(1 + INTERVAL_MS, &mut emit);
        assert_eq!(texts(&events), [(Stream::Stdout, "a"), (Stream::Stdout, "bc")]);
    }

    #[test]
    fn the_two_streams_keep_their_order_while_there_are_pieces() {
        let (mut pieces, mut events) = (Pieces::default(), Vec::new());
        let mut emit = |event| events.push(event);
        let written = [(Stream::Stdout, "a"), (Stream::Stderr, "b"), (Stream::Stdout, "c")];
        for (stream, text) in written {
            pieces.take(1, stream, text.into(), &mut emit);
        }
        pieces.emit(1, &mut emit);
        assert_eq!(texts(&events), written);
    }

    #[test]
    fn t78_single_bytes_of_two_streams_make_few_pieces_and_lose_nothing() {
        const BYTES: usize = 200_000;
        let (mut pieces, mut events) = (Pieces::default(), Vec::new());
        let mut emit = |event| events.push(event);
        for _ in 0..BYTES / 2 {
            pieces.take(1, Stream::Stdout, "o".into(), &mut emit);
            pieces.take(1, Stream::Stderr, "e".into(), &mut emit);
            pieces.emit_due(1, &mut emit);
        }
        pieces.emit(1, &mut emit);
        let most = PIECES_FREE + BYTES as u64 / BYTES_FOR_A_PIECE + 100;
        assert!((events.len() as u64) < most, "{} pieces", events.len());
        let count = |wanted: Stream| {
            texts(&events).iter().filter(|it| it.0 == wanted).map(|it| it.1.len()).sum::<usize>()
        };
        assert_eq!((count(Stream::Stdout), count(Stream::Stderr)), (BYTES / 2, BYTES / 2));
    }
}
