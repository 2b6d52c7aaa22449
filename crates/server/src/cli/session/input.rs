//! Where cells come from: a line editor with a history, or lines from a pipe.

use super::super::Failure;
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
/// As style guides for Python have it.
const INDENT: &str = "    ";
const HISTORY_CELLS_MAX: usize = 1_000;
/// Lines read ahead of the cell that is running.
const LINES_AHEAD: usize = 64;

/// What somebody has entered, whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entered {
    Cell(String),
    /// A line that begins with `%`.
    Command(String),
}

pub(super) enum Input {
    Terminal(Box<Terminal>),
    Pipe(Lines),
}

impl Input {
    pub(super) fn open(history: &Path) -> Result<Self, Failure> {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            Ok(Self::Terminal(Box::new(Terminal::open(history).map_err(|error| failed(&error))?)))
        } else {
            Ok(Self::Pipe(Lines::start()))
        }
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// The next cell or command; `None` when there will be no more.
    pub(super) fn next(&mut self, runtime: &Runtime) -> Result<Option<Entered>, Failure> {
        let entered = match self {
            Self::Terminal(terminal) => terminal.next().map_err(|error| failed(&error))?,
            Self::Pipe(lines) => runtime.block_on(lines.next())?,
        };
        Ok(entered.map(|text| classify(&text)))
    }
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::usage(format!("nothing more can be read: {error}"))
}

/// People type `exit()` at a prompt and mean the prompt.
fn classify(text: &str) -> Entered {
    match text.trim() {
        "exit" | "exit()" | "quit" | "quit()" => Entered::Command("%exit".into()),
        line if line.starts_with('%') => Entered::Command(line.to_owned()),
        _ => Entered::Cell(text.to_owned()),
    }
}

/// Lines that may become a cell.
#[derive(Debug, Default)]
struct Draft(String);

impl Draft {
    /// Takes a line; gives the whole if that completes it.
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

pub(super) struct Terminal {
    editor: DefaultEditor,
    history: PathBuf,
}

impl Terminal {
    fn open(history: &Path) -> rustyline::Result<Self> {
        let mut editor = DefaultEditor::new()?;
        editor.set_max_history_size(HISTORY_CELLS_MAX)?;
        editor
            .bind_sequence(KeyEvent::new('\t', Modifiers::NONE), Cmd::Insert(1, INDENT.to_owned()));
        // The first time there is none, and one that cannot be read is no reason not to work.
        let _ = editor.load_history(history);
        Ok(Self { editor, history: history.to_owned() })
    }

    fn next(&mut self) -> rustyline::Result<Option<String>> {
        let mut draft = Draft::default();
        loop {
            let prompt = if draft.0.is_empty() { PROMPT } else { PROMPT_MORE };
            match self.editor.readline(prompt) {
                Ok(line) => {
                    if let Some(text) = draft.push(&line) {
                        self.remember(&text);
                        return Ok(Some(text));
                    }
                }
                Err(ReadlineError::Interrupted) => draft = Draft::default(),
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Written at once, so that a window that is closed loses nothing. The library makes the file
    /// readable for its owner only.
    fn remember(&mut self, text: &str) {
        let text = text.trim_end();
        if self.editor.add_history_entry(text).unwrap_or(false) {
            let _ = self.editor.append_history(&self.history);
        }
    }
}

/// Lines of standard input, read by a thread of their own, which ends with the process.
pub(super) struct Lines {
    lines: mpsc::Receiver<io::Result<String>>,
}

impl Lines {
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

    /// The next cell; at the end, what there is of one. An interrupt while nothing runs is the end.
    async fn next(&mut self) -> Result<Option<String>, Failure> {
        let mut draft = Draft::default();
        let mut interrupts = signal(SignalKind::interrupt()).map_err(|error| failed(&error))?;
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
                Some(Err(error)) => return Err(failed(&error)),
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
        let mut draft = Draft::default();
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
        assert_eq!(classify("%files"), Entered::Command("%files".into()));
        assert_eq!(classify("exit()"), Entered::Command("%exit".into()));
        assert_eq!(classify("exit_code"), Entered::Cell("exit_code".into()));
    }
}
