//! Redacts the events of one execution before they are emitted.

use redact::{OutputRedactor, RedactingStream};
use types::{DisplayData, Event, OutputChunk};

/// Both output streams, each with its held bytes.
pub(crate) struct EventRedactor {
    redactor: OutputRedactor,
    stdout: RedactingStream,
    stderr: RedactingStream,
    /// Time of the last output.
    t: u64,
}

impl EventRedactor {
    pub(crate) fn new(redactor: &OutputRedactor) -> Self {
        let (stdout, stderr) = (redactor.stream(), redactor.stream());
        Self { redactor: redactor.clone(), stdout, stderr, t: 0 }
    }

    pub(crate) fn redact_event(&mut self, event: Event, mut tell: impl FnMut(Event)) {
        match event {
            Event::Output(OutputChunk { t, stream, text }) => {
                self.t = t;
                let clean = self.stream(stream).feed(text.as_bytes());
                emit_output(t, stream, &clean, tell);
            }
            Event::Result(DisplayData { data, main }) => {
                // Code chooses the names of representations as well.
                let clean = |(form, value): (String, _)| {
                    (
                        self.redactor.redact_text(&form).into_owned(),
                        self.redactor.redact_json(value),
                    )
                };
                tell(Event::Result(DisplayData {
                    data: data.into_iter().map(clean).collect(),
                    main,
                }));
            }
            event => tell(event),
        }
    }

    /// Emits the held bytes that turned out not to be a secret.
    pub(crate) fn finish(&mut self, mut tell: impl FnMut(Event)) {
        for stream in [types::OutputStream::Stdout, types::OutputStream::Stderr] {
            let left = self.stream(stream).finish();
            emit_output(self.t, stream, &left, &mut tell);
        }
    }

    fn stream(&mut self, stream: types::OutputStream) -> &mut RedactingStream {
        match stream {
            types::OutputStream::Stdout => &mut self.stdout,
            types::OutputStream::Stderr => &mut self.stderr,
        }
    }
}

fn emit_output(t: u64, stream: types::OutputStream, clean: &[u8], mut tell: impl FnMut(Event)) {
    if !clean.is_empty() {
        let text = String::from_utf8_lossy(clean).into_owned();
        tell(Event::Output(OutputChunk { t, stream, text }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn t115_the_name_of_a_form_does_not_tell_a_value_either() {
        let secret = [("TOKEN".to_owned(), "Canary-4F7A-Zz".to_owned())];
        let redactor = OutputRedactor::prepare(secret).await.unwrap();
        let mut told = Vec::new();
        let data = [("text/canary-4f7a-zz", json!("x")), ("text/html", json!("y"))];
        let data = data.map(|(form, value)| (form.to_owned(), value)).into();
        EventRedactor::new(&redactor)
            .redact_event(Event::Result(DisplayData { data, main: true }), |it| told.push(it));
        let Some(Event::Result(DisplayData { data, .. })) = told.pop() else { panic!("{told:?}") };
        let forms: Vec<&str> = data.keys().map(String::as_str).collect();
        assert_eq!(forms, ["text/[redacted:TOKEN]", "text/html"]);
    }
}
