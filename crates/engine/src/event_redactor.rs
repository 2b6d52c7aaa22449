//! Redacts the events of one execution before they are emitted, in their order. Large results are
//! redacted on a blocking thread: a search of megabytes must stop no thread that serves requests.

use crate::off_thread::{SMALL_BYTES_MAX, run_off_thread};
use redact::{OutputRedactor, RedactingStream};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use types::{DisplayData, Event, OutputChunk, OutputStream};

/// Concurrent searches of large results in the whole process, so that cores are left for others.
static SEARCHES: Semaphore = Semaphore::const_new(2);
/// A sandbox is not read while more bytes of its events wait to be redacted. Results arrive faster
/// than a search takes.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Receives the events of an execution while they happen.
pub(crate) type EventSink<'a> = &'a mut (dyn FnMut(Event) + Send);

/// Where a sandbox puts its events. After it is dropped, no event follows.
pub(crate) struct EventQueue {
    events: UnboundedSender<(Event, usize)>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl EventQueue {
    pub(crate) fn push(&self, event: Event) {
        let bytes = memory_bytes(&event);
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        // The events of an execution that was given up have no reader.
        let _ = self.events.send((event, bytes));
    }
}

/// Redacts the events of a queue. Both output streams have their held bytes.
pub(crate) struct EventRedactor {
    redactor: OutputRedactor,
    stdout: RedactingStream,
    stderr: RedactingStream,
    /// Time of the last output.
    t: u64,
    /// Events, each with the memory that it takes.
    queue: UnboundedReceiver<(Event, usize)>,
    /// Memory of the events in the queue and of the one that is being searched.
    waiting_bytes: Arc<AtomicUsize>,
    search: Option<LargeSearch>,
}

/// The search of a large result, which all later events wait for.
struct LargeSearch {
    result: Pin<Box<dyn Future<Output = DisplayData> + Send>>,
    bytes: usize,
}

impl EventRedactor {
    pub(crate) fn new(redactor: &OutputRedactor) -> (EventQueue, Self) {
        let (events, queue) = mpsc::unbounded_channel();
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let event_queue = EventQueue { events, waiting_bytes: Arc::clone(&waiting_bytes) };
        let event_redactor = Self {
            redactor: redactor.clone(),
            stdout: redactor.stream(),
            stderr: redactor.stream(),
            t: 0,
            queue,
            waiting_bytes,
            search: None,
        };
        (event_queue, event_redactor)
    }

    /// Emits events while a sandbox runs.
    pub(crate) async fn redact_during<T>(
        &mut self,
        mut run: Pin<&mut impl Future<Output = T>>,
        sink: EventSink<'_>,
    ) -> T {
        let waiting_bytes = Arc::clone(&self.waiting_bytes);
        loop {
            // While too much waits, only the next redacted event wakes this task.
            let unless_full = poll_fn(|context| {
                match waiting_bytes.load(Ordering::Relaxed) > WAITING_BYTES_MAX {
                    true => Poll::Pending,
                    false => run.as_mut().poll(context),
                }
            });
            tokio::select! {
                biased;
                Some(event) = self.next() => sink(event),
                ended = unless_full => return ended,
            }
        }
    }

    /// Emits the rest of the queue, then the held bytes that turned out not to be a secret.
    pub(crate) async fn finish(&mut self, sink: EventSink<'_>) {
        while let Some(event) = self.next().await {
            sink(event);
        }
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let rest = self.stream(stream).finish();
            output_event(self.t, stream, &rest).into_iter().for_each(&mut *sink);
        }
    }

    /// The next event, `None` after the last. Dropping the future loses no event.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(LargeSearch { result, bytes }) = &mut self.search {
                let (redacted, bytes) = (result.await, *bytes);
                self.search = None;
                self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                return Some(Event::Result(redacted));
            }
            let (event, bytes) = self.queue.recv().await?;
            match event {
                Event::Result(result) if bytes > SMALL_BYTES_MAX && !self.redactor.is_empty() => {
                    let result = Box::pin(search_large(self.redactor.clone(), result, bytes));
                    self.search = Some(LargeSearch { result, bytes });
                    continue;
                }
                _ => {}
            }
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            if let Some(event) = self.redact_small(event) {
                return Some(event);
            }
        }
    }

    /// `None` for output of which all bytes are held.
    fn redact_small(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Output(OutputChunk { t, stream, text }) => {
                self.t = t;
                let clean = self.stream(stream).feed(text.as_bytes());
                output_event(t, stream, &clean)
            }
            Event::Result(result) => Some(Event::Result(redact_result(&self.redactor, result))),
            event => Some(event),
        }
    }

    fn stream(&mut self, stream: OutputStream) -> &mut RedactingStream {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }
}

async fn search_large(redactor: OutputRedactor, result: DisplayData, bytes: usize) -> DisplayData {
    let permit = SEARCHES.acquire().await;
    let search = move || {
        // Held until the search has ended, also if its execution was given up.
        let _permit = permit;
        redact_result(&redactor, result)
    };
    run_off_thread(bytes, search).await
}

/// Code chooses the names of representations as well.
fn redact_result(
    redactor: &OutputRedactor,
    DisplayData { data, main }: DisplayData,
) -> DisplayData {
    let clean = |(form, value): (String, _)| {
        (redactor.redact_text(&form).into_owned(), redactor.redact_json(value))
    };
    DisplayData { data: data.into_iter().map(clean).collect(), main }
}

fn memory_bytes(event: &Event) -> usize {
    match event {
        Event::Output(OutputChunk { text, .. }) => text.len(),
        Event::Result(result) => result.memory_bytes(),
        _ => 0,
    }
}

fn output_event(t: u64, stream: OutputStream, clean: &[u8]) -> Option<Event> {
    let text = String::from_utf8_lossy(clean).into_owned();
    (!clean.is_empty()).then_some(Event::Output(OutputChunk { t, stream, text }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::pin::pin;
    use tokio::task::yield_now;

    const SECRET: &str = "Canary-4F7A-Zz";

    async fn redactor() -> OutputRedactor {
        let secret = ("TOKEN".to_owned(), SECRET.to_owned());
        OutputRedactor::prepare([secret]).await.unwrap()
    }

    fn result(form: &str, value: Value) -> Event {
        Event::Result(DisplayData { data: [(form.to_owned(), value)].into(), main: true })
    }

    fn output(text: &str) -> Event {
        Event::Output(OutputChunk { t: 0, stream: OutputStream::Stdout, text: text.to_owned() })
    }

    /// The events of a run that does nothing else.
    async fn redacted(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
        let (queue, mut redactor) = EventRedactor::new(&redactor().await);
        let mut seen = Vec::new();
        events.into_iter().for_each(|event| queue.push(event));
        drop(queue);
        redactor.finish(&mut |event| seen.push(event)).await;
        seen
    }

    #[tokio::test]
    async fn t115_the_name_of_a_form_does_not_tell_a_value_either() {
        let forms = ["text/canary-4f7a-zz", "text/html"];
        let seen = redacted(forms.map(|form| result(form, json!("x")))).await;
        let clean = ["text/[redacted:TOKEN]", "text/html"];
        assert_eq!(seen, clean.map(|form| result(form, json!("x"))));
    }

    #[tokio::test]
    async fn t210_a_large_result_waits_for_its_turn_on_another_thread_and_a_small_one_does_not() {
        let turns = SEARCHES.acquire_many(2).await.unwrap();
        for (text, is_here) in [(SECRET.to_owned(), true), (SECRET.repeat(2_000), false)] {
            let (queue, mut redactor) = EventRedactor::new(&redactor().await);
            queue.push(result("text/plain", json!(text)));
            let mut next = pin!(redactor.next());
            let polled = poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_ready()));
            assert_eq!(polled.await, is_here, "{} bytes", text.len());
        }
        drop(turns);
    }

    #[tokio::test]
    async fn t210_events_keep_their_order_beside_large_results() {
        let large = |text: &str| result("text/plain", json!(text.repeat(2_000)));
        let seen = redacted([
            output("before\n"),
            large(SECRET),
            output("between\n"),
            result("text/plain", json!(SECRET)),
            output(SECRET),
        ]);
        let marker = "[redacted:TOKEN]";
        let clean = [
            output("before\n"),
            large(marker),
            output("between\n"),
            result("text/plain", json!(marker)),
            output(marker),
        ];
        assert_eq!(seen.await, clean);
    }

    #[tokio::test]
    async fn t210_a_sandbox_is_not_read_while_many_bytes_wait_to_be_redacted() {
        let (queue, mut redactor) = EventRedactor::new(&redactor().await);
        let waiting = Arc::clone(&queue.waiting_bytes);
        let run = async {
            let mut most = 0;
            for _ in 0..20 {
                most = most.max(waiting.load(Ordering::Relaxed));
                queue.push(result("text/plain", json!("x".repeat(WAITING_BYTES_MAX / 4))));
                yield_now().await;
            }
            most
        };
        let mut count = 0;
        let most = redactor.redact_during(pin!(run), &mut |_| count += 1).await;
        assert!((1..=WAITING_BYTES_MAX).contains(&most), "{most}");
        drop(queue);
        redactor.finish(&mut |_| count += 1).await;
        assert_eq!((count, waiting.load(Ordering::Relaxed)), (20, 0), "all arrive");
    }
}
