//! Groups the output of a sandbox into chunks, so that a program that writes single bytes does not make
//! a record of single bytes.
//!
//! A chunk costs its text and about 60 bytes around it. Text is emitted at once unless the last chunk
//! was emitted a moment ago; then it is held until the next tick of the supervisor. The number of chunks
//! stays in proportion to the bytes: an execution that has used up its chunks has its output emitted once
//! a second, each stream separately.

use types::{Event, OutputChunk, OutputStream};

/// Text that arrives sooner than this after the last chunk is held until the next tick.
const INTERVAL_MS: u64 = 20;
/// The same for an execution that has used up its chunks.
const SLOW_INTERVAL_MS: u64 = 1_000;
/// Held text of this size is emitted at once.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// Chunks that an execution may have independent of their size: about 16 KiB around them.
const CHUNKS_FREE: u64 = 256;
/// Bytes of output that allow one chunk more.
const BYTES_PER_CHUNK: u64 = 256;

/// Output of one execution that was read and is not emitted yet.
#[derive(Debug, Default)]
pub(crate) struct OutputChunks {
    /// Held chunks in the order in which they began; at most one for each stream.
    held: Vec<OutputChunk>,
    /// When the last chunk was emitted, in milliseconds after the start.
    emitted_at: Option<u64>,
    emitted: u64,
    /// Bytes of all text so far.
    bytes: u64,
}

impl OutputChunks {
    /// Takes text that was read `t` milliseconds after the start.
    pub(crate) fn push(
        &mut self,
        t: u64,
        stream: OutputStream,
        text: String,
        emit: &mut (dyn FnMut(Event) + Send),
    ) {
        self.bytes += text.len() as u64;
        let other = self.held.iter().any(|chunk| chunk.stream != stream);
        if other && self.has_chunks_left() {
            // The order of the two streams is kept while that is cheap.
            self.emit(t, emit);
        }
        match self.held.iter_mut().find(|chunk| chunk.stream == stream) {
            Some(chunk) => chunk.text.push_str(&text),
            None => self.held.push(OutputChunk { t, stream, text }),
        }
        if self.held.iter().any(|chunk| chunk.text.len() >= HELD_BYTES_MAX) {
            self.emit(t, emit);
        }
    }

    /// Emits the held text if its interval has passed.
    pub(crate) fn emit_due(&mut self, t: u64, emit: &mut (dyn FnMut(Event) + Send)) {
        let interval = if self.has_chunks_left() { INTERVAL_MS } else { SLOW_INTERVAL_MS };
        if self.emitted_at.is_none_or(|at| t >= at + interval) {
            self.emit(t, emit);
        }
    }

    /// Emits all that is held.
    pub(crate) fn emit(&mut self, t: u64, emit: &mut (dyn FnMut(Event) + Send)) {
        for mut chunk in self.held.drain(..) {
            chunk.text.shrink_to_fit();
            self.emitted += 1;
            self.emitted_at = Some(t);
            emit(Event::Output(chunk));
        }
    }

    fn has_chunks_left(&self) -> bool {
        self.emitted < CHUNKS_FREE + self.bytes / BYTES_PER_CHUNK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(events: &[Event]) -> Vec<(OutputStream, &str)> {
        let outputs = events.iter().filter_map(|event| match event {
            Event::Output(chunk) => Some((chunk.stream, chunk.text.as_str())),
            _ => None,
        });
        outputs.collect()
    }

    #[test]
    fn the_first_text_is_emitted_at_once_and_what_follows_soon_is_held() {
        let (mut chunks, mut events) = (OutputChunks::default(), Vec::new());
        let mut emit = |event| events.push(event);
        for text in ["a", "b", "c"] {
            chunks.push(1, OutputStream::Stdout, text.into(), &mut emit);
            chunks.emit_due(1, &mut emit);
        }
        chunks.emit_due(1 + INTERVAL_MS, &mut emit);
        assert_eq!(texts(&events), [(OutputStream::Stdout, "a"), (OutputStream::Stdout, "bc")]);
    }

    #[test]
    fn the_two_streams_keep_their_order_while_there_are_pieces() {
        let (mut chunks, mut events) = (OutputChunks::default(), Vec::new());
        let mut emit = |event| events.push(event);
        let written =
            [(OutputStream::Stdout, "a"), (OutputStream::Stderr, "b"), (OutputStream::Stdout, "c")];
        for (stream, text) in written {
            chunks.push(1, stream, text.into(), &mut emit);
        }
        chunks.emit(1, &mut emit);
        assert_eq!(texts(&events), written);
    }

    #[test]
    fn t78_single_bytes_of_two_streams_make_few_pieces_and_lose_nothing() {
        const BYTES: usize = 200_000;
        let (mut chunks, mut events) = (OutputChunks::default(), Vec::new());
        let mut emit = |event| events.push(event);
        for _ in 0..BYTES / 2 {
            chunks.push(1, OutputStream::Stdout, "o".into(), &mut emit);
            chunks.push(1, OutputStream::Stderr, "e".into(), &mut emit);
            chunks.emit_due(1, &mut emit);
        }
        chunks.emit(1, &mut emit);
        let most = CHUNKS_FREE + BYTES as u64 / BYTES_PER_CHUNK + 100;
        assert!((events.len() as u64) < most, "{} pieces", events.len());
        let count = |wanted: OutputStream| {
            texts(&events).iter().filter(|it| it.0 == wanted).map(|it| it.1.len()).sum::<usize>()
        };
        assert_eq!(
            (count(OutputStream::Stdout), count(OutputStream::Stderr)),
            (BYTES / 2, BYTES / 2)
        );
    }
}
