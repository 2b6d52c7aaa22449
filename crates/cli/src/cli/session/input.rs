//! Reads cells: from a line editor with a history, or from a pipe.

use super::super::CliError;
use super::cell::is_complete;
use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::{Cmd, DefaultEditor, KeyEvent, Modifiers};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::thread;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

const PROMPT: &str = ">>> ";
const PROMPT_MORE: &str = "... ";
/// The indentation that style guides for Python recommend.
const INDENT: &str = "    ";
const HISTORY_CELLS_MAX: usize = 1_000;
/// Lines read ahead of the cell that is running.
const LINES_AHEAD: usize = 64;

/// One complete input of the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PromptInput {
    Cell(String),
    /// A line that begins with `%`.
    Command(String),
}

pub(super) enum CellSource {
    Terminal(Box<LineEditor>),
    Pipe(PipeInput),
}

impl CellSource {
    pub(super) fn open(history: &Path) -> Result<Self, CliError> {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            Ok(Self::Terminal(Box::new(
                LineEditor::open(history).map_err(|error| input_error(&error))?,
            )))
        } else {
            Ok(Self::Pipe(PipeInput::start()))
        }
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// The next cell or command; `None` at the end of the input.
    pub(super) fn next_input(
        &mut self,
        runtime: &Runtime,
    ) -> Result<Option<PromptInput>, CliError> {
        let entered = match self {
            Self::Terminal(terminal) => {
                terminal.next_cell().map_err(|error| input_error(&error))?
            }
            Self::Pipe(lines) => runtime.block_on(lines.next_cell())?,
        };
        Ok(entered.map(|text| classify(&text)))
    }
}

fn input_error(error: &dyn std::error::Error) -> CliError {
    CliError::usage(format!("cannot read input: {error}"))
}

/// Treats `exit()` and `quit()` as the end of the prompt.
fn classify(text: &str) -> PromptInput {
    match text.trim() {
        "exit" | "exit()" | "quit" | "quit()" => PromptInput::Command("%exit".into()),
        line if line.starts_with('%') => PromptInput::Command(line.to_owned()),
        _ => PromptInput::Cell(text.to_owned()),
    }
}

/// Lines that may become a cell.
#[derive(Debug, Default)]
struct CellBuffer(String);

impl CellBuffer {
    /// Adds a line, and returns the cell if it is complete.
    fn push(&mut self, line: &str) -> Option<String> {
        if self.0.is_empty() {
            if line.trim().is_empty() {
                return None;
            }
            if line.starts_with('%') {
                return Some(line.to_owned());
            }
        } else {
            self.0.push('\n');
        }
        self.0.push_str(line);
        is_complete(&self.0).then(|| std::mem::take(&mut self.0))
    }
}

pub(super) struct LineEditor {
    editor: DefaultEditor,
    history: PathBuf,
}

impl LineEditor {
    fn open(history: &Path) -> rustyline::Result<Self> {
        let mut editor = DefaultEditor::new()?;
        editor.set_max_history_size(HISTORY_CELLS_MAX)?;
        editor
            .bind_sequence(KeyEvent::new('\t', Modifiers::NONE), Cmd::Insert(1, INDENT.to_owned()));
        // The file is missing the first time, and an unreadable history must not prevent a session.
        let _ = editor.load_history(history);
        Ok(Self { editor, history: history.to_owned() })
    }

    fn next_cell(&mut self) -> rustyline::Result<Option<String>> {
        let mut draft = CellBuffer::default();
        loop {
            let prompt = if draft.0.is_empty() { PROMPT } else { PROMPT_MORE };
            match self.editor.readline(prompt) {
                Ok(line) => {
                    if let Some(text) = draft.push(&line) {
                        self.add_history(&text);
                        return Ok(Some(text));
                    }
                }
                Err(ReadlineError::Interrupted) => draft = CellBuffer::default(),
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Saves the history at once, so that closing the window loses nothing. The library makes the
    /// file readable for its owner only.
    fn add_history(&mut self, text: &str) {
        let text = text.trim_end();
        if self.editor.add_history_entry(text).unwrap_or(false) {
            let _ = self.editor.append_history(&self.history);
        }
    }
}

/// Lines of standard input, read by a separate thread, which ends with the process.
pub(super) struct PipeInput {
    lines: mpsc::Receiver<io::Result<String>>,
}

impl PipeInput {
    fn start() -> Self {
        let (sender, lines) = mpsc::channel(LINES_AHEAD);
        thread::spawn(move || {
            for line in io::stdin().lines() {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines }
    }

    /// The next cell; at the end of the input, the incomplete one. An interrupt while nothing runs
    /// ends the input.
    async fn next_cell(&mut self) -> Result<Option<String>, CliError> {
        let mut draft = CellBuffer::default();
        let mut interrupts =
            signal(SignalKind::interrupt()).map_err(|error| input_error(&error))?;
        loop {
            let line = tokio::select! {
                line = self.lines.recv() => line,
                Some(()) = interrupts.recv() => return Ok(None),
            };
            match line {
                Some(Ok(line)) => {
                    if let Some(text) = draft.push(&line) {
                        return Ok(Some(text));
                    }
                }
                Some(Err(error)) => return Err(input_error(&error)),
                None => return Ok(Some(draft.0).filter(|text| !text.is_empty())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds lines and gives what they were taken for, and what is left.
    fn entered(lines: &[&str]) -> (Vec<String>, String) {
        let mut draft = CellBuffer::default();
        let whole = lines.iter().filter_map(|line| draft.push(line)).collect();
        (whole, draft.0)
    }

    #[test]
    fn lines_become_cells() {
        let lines = ["", "x = 1", "for i in range(2):", "    print(i)", "", "f(", "1)", "if x:"];
        let cells = ["x = 1", "for i in range(2):\n    print(i)\n", "f(\n1)"];
        assert_eq!(entered(&lines), (cells.map(String::from).to_vec(), "if x:".into()));
    }

    #[test]
    fn a_command_is_one_only_at_the_beginning() {
        assert_eq!(entered(&["%files", "x = (7", "%2)"]).0, ["%files", "x = (7\n%2)"]);
        assert_eq!(classify("%files"), PromptInput::Command("%files".into()));
        assert_eq!(classify("exit()"), PromptInput::Command("%exit".into()));
        assert_eq!(classify("exit_code"), PromptInput::Cell("exit_code".into()));
    }
}
