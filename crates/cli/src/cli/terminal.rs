//! Displays text of a sandbox on a terminal.
//!
//! A terminal executes escape sequences: they rename its window, write to the clipboard and inject
//! input, and format characters make a line read as another one. Therefore a terminal gets only
//! text, line ends, tabs and colours; everything else is printed as an escape. If the output is not
//! a terminal, all bytes pass unchanged.

use std::io::{self, IsTerminal, Write};
use types::{DisplayData, ErrorCode, Event, Execution, OutputStream, Round, Warning};

const ESCAPE: char = '\x1b';
/// Maximum length of a colour sequence: longer than any real one.
const COLOUR_BYTES_MAX: usize = 64;
const RESET: &str = "\x1b[0m";

/// The terminal output of one execution.
#[derive(Debug)]
pub(super) struct TerminalOutput {
    stdout: SanitizedWriter<io::Stdout>,
    stderr: SanitizedWriter<io::Stderr>,
}

impl TerminalOutput {
    pub(super) fn new() -> Self {
        Self {
            stdout: SanitizedWriter::new(io::stdout()),
            stderr: SanitizedWriter::new(io::stderr()),
        }
    }

    /// Displays the events of running code.
    pub(super) fn show_event(&mut self, event: &Event) {
        match event {
            Event::Output(piece) => match piece.stream {
                OutputStream::Stdout => self.stdout.show(&piece.text),
                OutputStream::Stderr => self.stderr.show(&piece.text),
            },
            Event::Result(result) => {
                if let Some(text) = plain_text(result) {
                    self.stdout.show(&format!("{text}\n"));
                }
            }
            Event::Plan { steps } => {
                self.print_note("Plan");
                for (number, step) in (1..).zip(steps) {
                    self.print_note(&format!("  {number}. {step}"));
                }
            }
            Event::Round(round) => self.show_round(round),
            Event::Tool(tool) => {
                let ended = if tool.failed { "failed" } else { "answered" };
                self.print_note(&format!(
                    "\n--- {} {ended} ---\n{}",
                    tool.name,
                    tool.result.trim_end()
                ));
            }
            // The final record contains these too, and is displayed at the end.
            Event::Status { .. }
            | Event::File(_)
            | Event::Approval { .. }
            | Event::Text { .. }
            | Event::Answer { .. }
            | Event::Error(_)
            | Event::End { .. } => {}
        }
    }

    /// Displays a result on standard error, with standard output reserved for what a script writes.
    pub(super) fn show_result_as_note(&mut self, event: &Event) {
        if let Event::Result(result) = event {
            plain_text(result).into_iter().for_each(|text| self.print_note(text));
        }
    }

    /// Displays code that a model wrote, and its result.
    fn show_round(&mut self, round: &Round) {
        self.print_note(&format!("\n--- Round {}: {} ---", round.number, round.step));
        for line in round.code.trim_end().lines() {
            self.print_note(&format!("    {line}"));
        }
        for output in [&round.stdout, &round.stderr] {
            if !output.trim().is_empty() {
                self.print_note(output.trim_end());
            }
        }
        round.error.iter().for_each(|error| self.print_note(&format!("failed: {error}")));
    }

    /// Displays the events of a running tool, with standard output reserved for its value.
    pub(super) fn show_log_event(&mut self, event: &Event) {
        if let Event::Output(piece) = event {
            self.stderr.show(&piece.text);
        }
    }

    /// Displays how the execution ended, unless it succeeded.
    pub(super) fn show_outcome(&mut self, execution: &Execution) {
        self.stdout.finish();
        self.stderr.finish();
        if let Some(error) = &execution.error {
            if let Some(traceback) = &error.traceback {
                self.print_note(traceback.trim_end());
            }
            // The traceback of a limit ends in an interrupt or a `MemoryError` without its cause.
            let is_limit =
                matches!(error.code, ErrorCode::TimeExceeded | ErrorCode::MemoryExceeded);
            if error.traceback.is_none() || is_limit {
                self.print_note(&format!("belljar: {}: {}", error.code, error.message));
            }
            if let Some(hint) = &error.hint {
                self.print_note(&format!("belljar: {hint}"));
            }
        }
        for Warning { message, .. } in &execution.warnings {
            self.print_note(&format!("belljar: warning: {message}"));
        }
    }

    /// Why a part of the output is missing, such as a full disk behind a redirection.
    pub(super) fn write_error(&self) -> Option<&io::Error> {
        self.stdout.write_error.as_ref()
    }

    /// Ends an incomplete last line, which a prompt on a terminal would overwrite.
    pub(super) fn end_line(&mut self) {
        self.stdout.end_line();
        self.stderr.end_line();
    }

    /// Prints a line on standard error.
    pub(super) fn print_note(&mut self, line: &str) {
        self.stderr.show(line);
        self.stderr.finish();
        self.stderr.write("\n");
        self.stderr.in_line = false;
    }
}

/// The text representation, which every result of the runner has.
pub(super) fn plain_text(result: &DisplayData) -> Option<&str> {
    result.data.get("text/plain").and_then(|text| text.as_str())
}

/// Standard output or standard error.
#[derive(Debug)]
struct SanitizedWriter<W> {
    writer: W,
    /// `None` if bytes pass unchanged.
    sanitizer: Option<TerminalSanitizer>,
    in_line: bool,
    /// The first write error, other than a closed pipe.
    write_error: Option<io::Error>,
}

impl<W: Write + IsTerminal> SanitizedWriter<W> {
    fn new(to: W) -> Self {
        let cleaner = to.is_terminal().then(TerminalSanitizer::default);
        Self { writer: to, sanitizer: cleaner, in_line: false, write_error: None }
    }

    fn show(&mut self, text: &str) {
        if let Some(last) = text.chars().next_back() {
            self.in_line = last != '\n';
        }
        let clean = self.sanitizer.as_mut().map(|cleaner| cleaner.clean(text));
        self.write(clean.as_deref().unwrap_or(text));
    }

    /// Ends a sequence that the last chunk may have started.
    fn finish(&mut self) {
        let rest = self.sanitizer.as_mut().map(TerminalSanitizer::finish);
        self.write(&rest.unwrap_or_default());
    }

    fn end_line(&mut self) {
        if self.sanitizer.is_some() && std::mem::take(&mut self.in_line) {
            self.write("\n");
        }
    }

    /// Ignores closed outputs: the code continues when the reader has gone.
    fn write(&mut self, text: &str) {
        let result = self.writer.write_all(text.as_bytes()).and_then(|()| self.writer.flush());
        if let Err(error) = result
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.write_error.get_or_insert(error);
        }
    }
}

/// Escapes all control characters, for any output: people base decisions on this text, also in a
/// pager. Colours are escaped too, because text can have the colour of the background.
pub(super) fn sanitize_plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    text.chars().for_each(|character| push_visible(character, &mut plain));
    plain
}

/// A complete text, safe for standard error.
pub(super) fn for_stderr(text: &str) -> String {
    if io::stderr().is_terminal() { sanitize(text) } else { text.to_owned() }
}

/// A complete text, safe for standard output.
pub(super) fn for_stdout(text: &str) -> String {
    if io::stdout().is_terminal() { sanitize(text) } else { text.to_owned() }
}

fn sanitize(text: &str) -> String {
    let mut cleaner = TerminalSanitizer::default();
    let mut clean = cleaner.clean(text);
    clean.push_str(&cleaner.finish());
    clean
}

/// Holds the end of a chunk, since chunks may be cut anywhere.
#[derive(Debug, Default)]
struct TerminalSanitizer {
    /// The start of a possible colour sequence, or a carriage return.
    held: String,
    coloured: bool,
}

impl TerminalSanitizer {
    fn clean(&mut self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        for character in text.chars() {
            self.push(character, &mut clean);
        }
        clean
    }

    fn push(&mut self, character: char, clean: &mut String) {
        match (self.held.as_str(), character) {
            ("", ESCAPE | '\r') => self.held.push(character),
            ("", _) => push_visible(character, clean),
            ("\r", '\n') => self.flush_held(clean),
            ("\r", _) => {
                self.flush_held(clean);
                self.push(character, clean);
            }
            ("\x1b", '[') => self.held.push('['),
            (held, 'm') if held.len() > 1 => {
                clean.push_str(held);
                clean.push('m');
                self.held.clear();
                self.coloured = true;
            }
            (held, '0'..='9' | ';' | ':') if (2..COLOUR_BYTES_MAX).contains(&held.len()) => {
                self.held.push(character);
            }
            _ => {
                self.flush_held(clean);
                self.push(character, clean);
            }
        }
    }

    /// Releases held characters that did not become a colour sequence.
    fn flush_held(&mut self, clean: &mut String) {
        for character in std::mem::take(&mut self.held).chars() {
            // Progress bars use carriage returns to overwrite their line; here each state gets its
            // own line.
            let character = if character == '\r' { '\n' } else { character };
            push_visible(character, clean);
        }
    }

    fn finish(&mut self) -> String {
        let mut rest = String::new();
        self.flush_held(&mut rest);
        if std::mem::take(&mut self.coloured) {
            rest.push_str(RESET);
        }
        rest
    }
}

fn push_visible(character: char, clean: &mut String) {
    match character {
        '\n' | '\t' => clean.push(character),
        _ if !is_unsafe_char(character) => clean.push(character),
        '\0'..='\x7f' => clean.push_str(&format!("\\x{:02x}", u32::from(character))),
        // Escaped as in JSON, so that a record on a terminal is still valid JSON.
        '\u{80}'..='\u{ffff}' => clean.push_str(&format!("\\u{:04x}", u32::from(character))),
        _ => clean.push_str(&format!("\\U{:08x}", u32::from(character))),
    }
}

/// Whether a character controls the terminal, or changes how the text around it reads. The two
/// joiners are allowed, because emoji and several scripts need them.
fn is_unsafe_char(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}'
            | '\u{200f}' | '\u{feff}'
            // Blank letters, which are valid in Python names.
            | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}'
            // Unusual line ends, embeddings, overrides, isolates and invisible operators.
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            // Annotations, and letters that are invisible to people but not to models.
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t49_cli_escapes() {
        for (from_sandbox, shown) in [
            ("plain ☃ 😀 日本 👩\u{200d}🚀\n\tx", "plain ☃ 😀 日本 👩\u{200d}🚀\n\tx"),
            ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
            ("\x1b]52;c;cm0gLXJmIC8=\x1b\\", "\\x1b]52;c;cm0gLXJmIC8=\\x1b\\"),
            ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
            ("\x1b[6n\x1bc\x1bP", "\\x1b[6n\\x1bc\\x1bP"),
            ("\u{9b}2J\u{9d}0;x\u{9c}", "\\u009b2J\\u009d0;x\\u009c"),
            ("safe\u{202e}exe.txt\u{2066}", "safe\\u202eexe.txt\\u2066"),
            ("a\u{e0041}\u{200b}b\u{feff}", "a\\U000e0041\\u200bb\\ufeff"),
            ("a\x08\x7f\0\x0b", "a\\x08\\x7f\\x00\\x0b"),
            ("\x1b[?25l\x1b[1;999H", "\\x1b[?25l\\x1b[1;999H"),
        ] {
            assert_eq!(sanitize(from_sandbox), shown, "{from_sandbox:?}");
        }
    }

    #[test]
    fn t105_what_people_decide_by_reads_as_it_is() {
        for (written, shown) in [
            ("if admin:\u{202e} # user\u{2066}", "if admin:\\u202e # user\\u2066"),
            ("a\u{3164} = 1\n\tb", "a\\u3164 = 1\n\tb"),
            ("\x1b[8mhidden\x1b[0m\r", "\\x1b[8mhidden\\x1b[0m\\x0d"),
            ("plain ☃ 日本 عربى עברית 👩\u{200d}🚀", "plain ☃ 日本 عربى עברית 👩\u{200d}🚀"),
        ] {
            assert_eq!(sanitize_plain(written), shown, "{written:?}");
        }
    }

    #[test]
    fn colours_are_kept_and_end_with_the_text() {
        assert_eq!(sanitize("\x1b[1;31mred"), "\x1b[1;31mred\x1b[0m");
        assert_eq!(sanitize("\x1b[38:5:9mred\x1b[m"), "\x1b[38:5:9mred\x1b[m\x1b[0m");
        assert_eq!(sanitize("no colour"), "no colour");
    }

    #[test]
    fn a_sequence_may_be_cut_anywhere() {
        let whole = "a\x1b[31mb\x1b[2Jc\r\nd\re";
        for cut in 0..=whole.len() {
            let mut cleaner = TerminalSanitizer::default();
            let mut shown = cleaner.clean(&whole[..cut]);
            shown.push_str(&cleaner.clean(&whole[cut..]));
            shown.push_str(&cleaner.finish());
            assert_eq!(shown, "a\x1b[31mb\\x1b[2Jc\nd\ne\x1b[0m", "cut at {cut}");
        }
    }

    #[test]
    fn an_endless_sequence_is_not_kept_in_memory() {
        let mut cleaner = TerminalSanitizer::default();
        let digits = "1".repeat(10_000);
        let shown = cleaner.clean(&format!("\x1b[{digits}"));
        assert!(cleaner.held.len() <= COLOUR_BYTES_MAX);
        assert_eq!(shown, format!("\\x1b[{digits}"));
    }
}
