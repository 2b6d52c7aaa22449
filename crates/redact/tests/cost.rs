//! CPU time of the search for secrets, relative to that of similar work.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use belljar_redact::OutputRedactor;
use std::fs;
use std::time::Duration;

const SECRET: &str = "Canary-4F7A-Zz";
/// What the clock of a thread and a busy machine may add.
const TOLERANCE: Duration = Duration::from_millis(100);

fn redactor_of(value: &str) -> OutputRedactor {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let secret = ("TOKEN".to_owned(), value.to_owned());
    runtime.block_on(OutputRedactor::prepare([secret])).unwrap()
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

fn cpu_time_of<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = cpu_time();
    let done = work();
    (done, cpu_time() - before)
}

fn redact_in_pieces(redactor: &OutputRedactor, text: &str) -> Vec<u8> {
    let (mut stream, mut clean) = (redactor.stream(), Vec::new());
    for piece in text.as_bytes().chunks(4 * 1024) {
        clean.extend_from_slice(&stream.feed(piece));
    }
    clean.append(&mut stream.finish());
    clean
}

#[test]
fn t210_a_long_text_full_of_secrets_costs_as_much_as_the_same_text_in_pieces() {
    let redactor = redactor_of(SECRET);
    let clean = |text: &str| text.replace(SECRET, "[redacted:TOKEN]");
    // The twin has as many bytes and no secret.
    for unit in [format!("x{SECRET}"), "x".repeat(1 + SECRET.len())] {
        let text = unit.repeat(100_000);
        let (whole, of_whole) = cpu_time_of(|| redactor.redact_text(&text).into_owned());
        let (pieces, of_pieces) = cpu_time_of(|| redact_in_pieces(&redactor, &text));
        assert!(whole == clean(&text) && pieces == whole.as_bytes());
        assert!(of_whole < of_pieces * 5 + TOLERANCE, "{of_whole:?}, in pieces {of_pieces:?}");
    }
}

#[test]
fn t210_line_breaks_in_a_secret_do_not_make_those_of_a_text_expensive() {
    let breaks = "\n".repeat(8 * 1024);
    let text = "\n".repeat(100_000);
    let search = |redactor: &OutputRedactor| cpu_time_of(|| redactor.redact_text(&text) == text);
    let value = format!("Canary{breaks}4F7A-Zz");
    let (ordinary, hostile) = (redactor_of(SECRET), redactor_of(&value));
    let ((is_same, of_ordinary), (is_same_too, of_hostile)) = (search(&ordinary), search(&hostile));
    assert!(is_same && is_same_too);
    assert!(of_hostile < of_ordinary * 5 + TOLERANCE, "{of_hostile:?}, others {of_ordinary:?}");
    // The twin: such a value is found.
    assert_eq!(hostile.redact_text(&format!("x {value}")), "x [redacted:TOKEN]");
}

#[test]
fn t210_how_a_text_is_cut_makes_no_difference_where_line_breaks_end_a_secret() {
    let redactor = redactor_of(SECRET);
    let (first, last) = SECRET.split_at(10);
    for breaks in 0..5 {
        let text = format!("{first}{}{last}", "\n".repeat(breaks));
        let is_redacted = |size: usize| {
            let (mut stream, mut clean) = (redactor.stream(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                clean.extend_from_slice(&stream.feed(piece));
            }
            clean.append(&mut stream.finish());
            clean != text.as_bytes()
        };
        for size in 1..=text.len() {
            assert_eq!(is_redacted(size), breaks <= 2, "{breaks} line breaks, pieces of {size}");
        }
    }
}
