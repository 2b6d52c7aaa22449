//! Source text that is safe to parse, and places in it.
//!
//! A parser builds a tree as deep as the text is nested, and a deep tree overflows the stack when
//! it is walked or dropped. So the text is measured before there is a tree.

use crate::problem::{Place, Problem};
use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer};
use ruff_text_size::{Ranged, TextRange};
use types::Code;

/// Ten times what the longest tool that we know of has.
pub const SOURCE_BYTES_MAX: usize = 1024 * 1024;
/// CPython gives up at 200 brackets and 100 indentations. Operators in a row nest as well, and a
/// tree of this depth fits a thread's stack four times over.
const NESTING_MAX: usize = 1000;

/// More of a line than this is not shown: a line may be as long as the source.
const SHOWN_CHARS_MAX: usize = 240;

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn of(node: &impl Ranged) -> Self {
        Self::from(node.range())
    }
}

impl From<TextRange> for Span {
    fn from(range: TextRange) -> Self {
        Self { start: range.start().to_usize(), end: range.end().to_usize() }
    }
}

/// Python source that can be parsed: UTF-8, bounded in size and in nesting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    text: String,
    /// Where each line starts, in bytes.
    lines: Vec<usize>,
}

impl Source {
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Problem> {
        if bytes.len() > SOURCE_BYTES_MAX {
            let message = format!(
                "the source has {} bytes, and at most {SOURCE_BYTES_MAX} are read",
                bytes.len()
            );
            return Err(Problem::new(Code::CodeSyntax, message));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::new(text),
            Err(error) => {
                let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                let message = format!("the source is not UTF-8: line {line} has other bytes");
                Err(Problem::new(Code::CodeSyntax, message).hint("save the file as UTF-8"))
            }
        }
    }

    pub fn new(text: &str) -> Result<Self, Problem> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.len() > SOURCE_BYTES_MAX {
            return Self::from_bytes(text.as_bytes());
        }
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        let source = Self { lines: lines.collect(), text: text.to_owned() };
        if let Some(at) = text.find('\0') {
            let problem = Problem::new(Code::CodeSyntax, "the source has a NUL character");
            return Err(problem.at(source.place(Span { start: at, end: at + 1 })));
        }
        if !is_too_deep(text) {
            return Ok(source);
        }
        let message = format!("the source is nested deeper than {NESTING_MAX} levels here");
        Err(Problem::new(Code::CodeSyntax, message)
            .at(source.too_deep_line())
            .hint("name the parts of the expression, or put the data into a list"))
    }

    /// The lexer keeps positions to itself, so the line is found by cutting the text.
    fn too_deep_line(&self) -> Place {
        let ends = |line: usize| self.lines.get(line + 1).copied().unwrap_or(self.text.len());
        let (mut fine, mut deep) = (0, self.lines.len());
        while fine < deep {
            let middle = usize::midpoint(fine, deep);
            let is_fine = self.text.get(..ends(middle)).is_some_and(|part| !is_too_deep(part));
            (fine, deep) = if is_fine { (middle + 1, deep) } else { (fine, middle) };
        }
        let start = self.lines.get(deep).copied().unwrap_or(0);
        self.place(Span { start, end: ends(deep) })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The place of a span, of which only the first line is shown.
    pub(crate) fn place(&self, Span { start, end }: Span) -> Place {
        let line = self.lines.partition_point(|first| *first <= start).saturating_sub(1);
        let first = self.lines.get(line).copied().unwrap_or(0);
        let text = self.text.get(first..).and_then(|rest| rest.split('\n').next());
        let text = text.unwrap_or_default().trim_end_matches('\r');
        let last = first + text.len();
        let characters =
            |from: usize, to: usize| self.text.get(from..to).map_or(0, |part| part.chars().count());
        Place {
            line: line + 1,
            column: characters(first, start.min(last)) + 1,
            width: characters(start.min(last), end.min(last)).clamp(1, SHOWN_CHARS_MAX),
            text: text.chars().take(SHOWN_CHARS_MAX).collect(),
        }
    }

    pub(crate) fn slice(&self, span: Span) -> &str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }
}

/// How deep the tree of a logical line can become, from its tokens alone.
#[derive(Default)]
struct Nesting {
    indents: usize,
    /// For each open bracket, the operators that stand in a row before and inside it.
    brackets: Vec<usize>,
    /// Operators in a row outside of brackets, or in the innermost one.
    chain: usize,
    /// Kept over commas, which separate the parameters of a lambda as well as its neighbours.
    lambdas: usize,
}

impl Nesting {
    fn depth(&self) -> usize {
        self.indents
            + self.brackets.iter().map(|chain| chain + 1).sum::<usize>()
            + self.chain
            + self.lambdas
    }

    fn next_line(&mut self) {
        *self = Self { indents: self.indents, ..Self::default() };
    }

    fn take(&mut self, token: TokenKind) {
        match token {
            TokenKind::Indent => self.indents += 1,
            TokenKind::Dedent => self.indents = self.indents.saturating_sub(1),
            TokenKind::Newline | TokenKind::Semi => self.next_line(),
            TokenKind::Lpar
            | TokenKind::Lsqb
            | TokenKind::Lbrace
            | TokenKind::FStringStart
            | TokenKind::TStringStart => self.brackets.push(std::mem::take(&mut self.chain)),
            TokenKind::Rpar
            | TokenKind::Rsqb
            | TokenKind::Rbrace
            | TokenKind::FStringEnd
            | TokenKind::TStringEnd => {
                // What follows may call or index what was just closed.
                self.chain = self.brackets.pop().unwrap_or(0) + 1;
            }
            TokenKind::Comma => self.chain = 0,
            TokenKind::Lambda => self.lambdas += 1,
            TokenKind::Name
            | TokenKind::Int
            | TokenKind::Float
            | TokenKind::Complex
            | TokenKind::String
            | TokenKind::FStringMiddle
            | TokenKind::TStringMiddle
            | TokenKind::Comment
            | TokenKind::NonLogicalNewline
            | TokenKind::EndOfFile => {}
            statement if begins_statement(statement) => self.next_line(),
            _ => self.chain += 1,
        }
    }
}

/// Words that never stand inside an expression: after a bracket that was not closed, the parser
/// starts anew at them, and a file that misses one is not a deep one.
fn begins_statement(token: TokenKind) -> bool {
    matches!(
        token,
        TokenKind::Assert
            | TokenKind::Break
            | TokenKind::Class
            | TokenKind::Continue
            | TokenKind::Def
            | TokenKind::Del
            | TokenKind::Except
            | TokenKind::Finally
            | TokenKind::Global
            | TokenKind::Import
            | TokenKind::Nonlocal
            | TokenKind::Pass
            | TokenKind::Raise
            | TokenKind::Return
            | TokenKind::Try
            | TokenKind::While
            | TokenKind::With
    )
}

fn is_too_deep(text: &str) -> bool {
    let mut lexer = lexer::lex(text, Mode::Module);
    let mut nesting = Nesting::default();
    loop {
        let token = lexer.next_token();
        nesting.take(token);
        if nesting.depth() > NESTING_MAX {
            return true;
        }
        if token == TokenKind::EndOfFile {
            return false;
        }
    }
}
