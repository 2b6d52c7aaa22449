//! The events of one execution on their way out.

use super::{Redactor, Stream};
use types::{Event, Output, Rich};

/// Both streams of output, each with what is held of it.
pub(crate) struct Screen {
    redactor: Redactor,
    stdout: Stream,
    stderr: Stream,
    /// When something was printed last.
    t: u64,
}

impl Screen {
    pub(crate) fn new(redactor: &Redactor) -> Self {
        let (stdout, stderr) = (redactor.stream(), redactor.stream());
        Self { redactor: redactor.clone(), stdout, stderr, t: 0 }
    }

    pub(crate) fn pass(&mut self, event: Event, mut tell: impl FnMut(Event)) {
        match event {
            Event::Output(Output { t, stream, text }) => {
                self.t = t;
                let clean = self.stream(stream).feed(text.as_bytes());
                output(t, stream, &clean, tell);
            }
            Event::Result(Rich { data, main }) => {
                // Code chooses the names of forms as well.
                let clean = |(form, value): (String, _)| {
                    (self.redactor.text(&form).into_owned(), self.redactor.json(value))
                };
                tell(Event::Result(Rich { data: data.into_iter().map(clean).collect(), main }));
            }
            event => tell(event),
        }
    }

    /// What was held, and turned out to be nothing else.
    pub(crate) fn finish(&mut self, mut tell: impl FnMut(Event)) {
        for stream in [types::Stream::Stdout, types::Stream::Stderr] {
            let left = self.stream(stream).finish();
            output(self.t, stream, &left, &mut tell);
        }
    }

    fn stream(&mut self, stream: types::Stream) -> &mut Stream {
        match stream {
            types::Stream::Stdout => &mut self.stdout,
            types::Stream::Stderr => &mut self.stderr,
        }
    }
}

fn output(t: u64, stream: types::Stream, clean: &[u8], mut tell: impl FnMut(Event)) {
    if !clean.is_empty() {
        let text = String::from_utf8_lossy(clean).into_owned();
        tell(Event::Output(Output { t, stream, text }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn t115_the_name_of_a_form_does_not_tell_a_value_either() {
        let secret = [("TOKEN".to_owned(), "Canary-4F7A-Zz".to_owned())];
        let redactor = Redactor::prepare(secret).await.unwrap();
        let mut told = Vec::new();
        let data = [("text/canary-4f7a-zz", json!("x")), ("text/html", json!("y"))];
        let data = data.map(|(form, value)| (form.to_owned(), value)).into();
        Screen::new(&redactor).pass(Event::Result(Rich { data, main: true }), |it| told.push(it));
        let Some(Event::Result(Rich { data, .. })) = told.pop() else { panic!("{told:?}") };
        let forms: Vec<&str> = data.keys().map(String::as_str).collect();
        assert_eq!(forms, ["text/[redacted:TOKEN]", "text/html"]);
    }
}
