//! Source text that is safe to parse, and positions in it.
//!
//! A parser builds a tree as deep as the text is nested, and a deep tree overflows the stack when
//! it is traversed or dropped. So the nesting of the text is bounded before parsing, and the tree
//! is handled on a stack of sufficient size.

use crate::diagnostic::{Diagnostic, SourceLocation};
use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer};
use ruff_text_size::{Ranged, TextRange};
use types::ErrorCode;

/// Ten times the longest known tool.
pub const SOURCE_BYTES_MAX: usize = 1024 * 1024;
/// CPython stops at 200 brackets and 100 indentations; consecutive operators nest as well.
const NESTING_MAX: usize = 1000;
/// Limit of all tokens that nest, of any kind and at any position: no tree of the source is deeper.
const NESTING_TOKENS_MAX: usize = 20_000;
/// Three kilobytes for each level of the deepest tree; dropping it takes a tenth of that. Untouched
/// stack pages take no memory.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Maximum length of a quoted line: a line may be as long as the source.
const LINE_CHARS_MAX: usize = 240;

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
pub struct PythonSource {
    text: String,
    /// Start of each line, in bytes of [`PythonSource::as_str`].
    line_starts: Vec<usize>,
}

impl PythonSource {
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Diagnostic> {
        if bytes.len() > SOURCE_BYTES_MAX {
            let message =
                format!("source has {} bytes; at most {SOURCE_BYTES_MAX} are allowed", bytes.len());
            return Err(Diagnostic::new(ErrorCode::CodeSyntax, message));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::new(text),
            Err(error) => {
                let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                let message = format!("source is not valid UTF-8 in line {line}");
                Err(Diagnostic::new(ErrorCode::CodeSyntax, message)
                    .with_hint("save the file as UTF-8"))
            }
        }
    }

    pub fn new(written: &str) -> Result<Self, Diagnostic> {
        if written.len() > SOURCE_BYTES_MAX {
            return Self::from_bytes(written.as_bytes());
        }
        let mut source = Self { text: written.to_owned(), line_starts: Vec::new() };
        source.line_starts = line_starts(source.as_str());
        if let Some(at) = source.as_str().find('\0') {
            let problem = Diagnostic::new(ErrorCode::CodeSyntax, "source contains a NUL character");
            return Err(problem.with_location(source.location(Span { start: at, end: at + 1 })));
        }
        match check_nesting(source.as_str()) {
            NestingCheck::Bounded => Ok(source),
            NestingCheck::TooDeep => {
                let message = format!("source is nested deeper than {NESTING_MAX} levels");
                Err(Diagnostic::new(ErrorCode::CodeSyntax, message)
                    .with_location(source.too_deep_location())
                    .with_hint(
                        "assign parts of the expression to variables, or put the data into a list",
                    ))
            }
            NestingCheck::Unclear => {
                let message = format!(
                    "source has more than {NESTING_TOKENS_MAX} operators, strings and comments \
                     inside the braces of f-strings"
                );
                Err(Diagnostic::new(ErrorCode::CodeSyntax, message).with_hint(
                    "assign these values to variables before the f-string, or shorten the source",
                ))
            }
        }
    }

    /// The lexer does not expose positions, so this finds the line by truncating the text.
    fn too_deep_location(&self) -> SourceLocation {
        let text = self.as_str();
        let ends = |line: usize| self.line_starts.get(line + 1).copied().unwrap_or(text.len());
        let (mut fine, mut deep) = (0, self.line_starts.len());
        while fine < deep {
            let middle = usize::midpoint(fine, deep);
            let part = text.get(..ends(middle)).unwrap_or_default();
            let is_fine = check_nesting(part) != NestingCheck::TooDeep;
            (fine, deep) = if is_fine { (middle + 1, deep) } else { (fine, middle) };
        }
        let start = self.line_starts.get(deep).copied().unwrap_or(0);
        self.location(Span { start, end: ends(deep) })
    }

    /// The text to compile, without a byte order mark: Python accepts one in files, not in text.
    pub fn as_str(&self) -> &str {
        self.text.strip_prefix('\u{feff}').unwrap_or(&self.text)
    }

    /// The original text, byte for byte.
    pub fn original_text(&self) -> &str {
        &self.text
    }

    /// The location of a span, of which only the first line is shown.
    pub(crate) fn location(&self, Span { start, end }: Span) -> SourceLocation {
        let line = self.line_starts.partition_point(|first| *first <= start).saturating_sub(1);
        let first = self.line_starts.get(line).copied().unwrap_or(0);
        let next = self.line_starts.get(line + 1).copied().unwrap_or(self.as_str().len());
        let text = self.slice(Span { start: first, end: next }).trim_end_matches(['\r', '\n']);
        let last = first + text.len();
        let characters = |start: usize, end: usize| self.slice(Span { start, end }).chars().count();
        SourceLocation {
            line: line + 1,
            column: characters(first, start.min(last)) + 1,
            width: characters(start.min(last), end.min(last)).clamp(1, LINE_CHARS_MAX),
            text: text.chars().take(LINE_CHARS_MAX).collect(),
        }
    }

    pub(crate) fn slice(&self, span: Span) -> &str {
        self.as_str().get(span.start..span.end).unwrap_or_default()
    }
}

/// Runs work on a parser tree, including its drop, on a large stack.
pub(crate) fn with_parser_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, work)
}

/// As Python counts them: `\n`, `\r\n` or `\r` ends a line.
fn line_starts(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let ends = bytes.iter().enumerate().filter(|(at, byte)| match byte {
        b'\n' => true,
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    });
    std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NestingCheck {
    Bounded,
    TooDeep,
    /// After an error in the braces of an f-string, the parser takes quotes there for its end, and
    /// what the lexer has as strings and comments for code.
    Unclear,
}

fn check_nesting(text: &str) -> NestingCheck {
    let mut lexer = lexer::lex(text, Mode::Module);
    let mut nesting = Nesting::default();
    loop {
        let token = lexer.next_token();
        nesting.push_token(token);
        if nesting.depth() > NESTING_MAX {
            return NestingCheck::TooDeep;
        }
        if token == TokenKind::EndOfFile {
            break;
        }
    }
    let is_unclear = nesting.quoted_in_braces || nesting.interpolated > 0;
    if is_unclear && count_nesting_tokens(text) > NESTING_TOKENS_MAX {
        NestingCheck::Unclear
    } else {
        NestingCheck::Bounded
    }
}

/// Each level of a tree has at least one of these characters or keywords.
fn count_nesting_tokens(text: &str) -> usize {
    let nests = |sign: &u8| sign.is_ascii_punctuation() && !matches!(sign, b',' | b'#' | b'_');
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    text.bytes().filter(nests).count()
        + words.filter(|word| matches!(*word, "not" | "if" | "await")).count()
}

/// Bounds the depth of the tree of a logical line, from its tokens alone.
#[derive(Default)]
struct Nesting {
    indents: usize,
    /// The state at each open bracket, the innermost last.
    brackets: Vec<BracketLevel>,
    /// The total depth of all of them.
    outer: usize,
    inner: BracketLevel,
    previous: Option<TokenKind>,
    /// Open f-strings.
    interpolated: usize,
    quoted_in_braces: bool,
}

/// Nesting between one bracket and the next.
#[derive(Default)]
struct BracketLevel {
    /// Consecutive operators.
    chain: usize,
    /// Lambdas and conditions with the operators before them. A comma may separate a lambda's
    /// parameters, and the parser continues after a condition without `else`.
    kept: usize,
    /// Lambdas whose colon is still to come.
    lambdas: usize,
}

impl BracketLevel {
    fn depth(&self) -> usize {
        self.chain + self.kept
    }

    fn keep(&mut self) {
        self.kept += std::mem::take(&mut self.chain) + 1;
    }

    fn end_expression(&mut self) {
        self.chain = 0;
        if self.lambdas == 0 {
            self.kept = 0;
        }
    }
}

impl Nesting {
    fn depth(&self) -> usize {
        self.indents + self.outer + self.inner.depth()
    }

    fn push_token(&mut self, token: TokenKind) {
        match token {
            TokenKind::Indent => self.indents += 1,
            TokenKind::Dedent => self.indents = self.indents.saturating_sub(1),
            TokenKind::Newline | TokenKind::Semi => self.end_statement(),
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => self.open(),
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => self.close(),
            TokenKind::FStringStart | TokenKind::TStringStart => {
                self.quoted_in_braces |= self.interpolated > 0;
                self.interpolated += 1;
                self.open();
            }
            TokenKind::FStringEnd | TokenKind::TStringEnd => {
                self.interpolated = self.interpolated.saturating_sub(1);
                self.close();
            }
            TokenKind::String | TokenKind::Comment => {
                self.quoted_in_braces |= self.interpolated > 0;
            }
            TokenKind::Comma
            | TokenKind::Equal
            | TokenKind::FStringMiddle
            | TokenKind::TStringMiddle => self.inner.end_expression(),
            TokenKind::Lambda => {
                self.inner.keep();
                self.inner.lambdas += 1;
            }
            TokenKind::Colon if self.inner.lambdas > 0 => self.inner.lambdas -= 1,
            TokenKind::Colon => self.inner.end_expression(),
            TokenKind::If => self.inner.keep(),
            // If another expression begins, the previous one has ended: a comma or a bracket is
            // missing.
            _ if is_operand(token) && self.previous.is_some_and(ends_operand) => {
                if is_statement_word(token) {
                    self.inner.end_expression();
                } else {
                    self.inner.chain = 0;
                }
            }
            _ if is_operand(token) => {}
            _ if nests_nothing(token) => {}
            _ => self.inner.chain += 1,
        }
        if !matches!(token, TokenKind::Comment | TokenKind::NonLogicalNewline) {
            self.previous = Some(token);
        }
    }

    fn end_statement(&mut self) {
        self.brackets.clear();
        self.outer = 0;
        self.inner = BracketLevel::default();
    }

    fn open(&mut self) {
        self.outer += self.inner.depth() + 1;
        self.brackets.push(std::mem::take(&mut self.inner));
    }

    fn close(&mut self) {
        if let Some(level) = self.brackets.pop() {
            self.outer -= level.depth() + 1;
            self.inner = level;
        }
        // The next token may call or index the closed expression.
        self.inner.chain += 1;
    }
}

fn is_operand(token: TokenKind) -> bool {
    matches!(
        token,
        TokenKind::Name
            | TokenKind::Int
            | TokenKind::Float
            | TokenKind::Complex
            | TokenKind::True
            | TokenKind::False
            | TokenKind::None
            | TokenKind::Ellipsis
    ) || token.is_soft_keyword()
        || is_statement_word(token)
}

fn ends_operand(token: TokenKind) -> bool {
    is_operand(token) || matches!(token, TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace)
}

fn nests_nothing(token: TokenKind) -> bool {
    matches!(
        token,
        TokenKind::NonLogicalNewline
            | TokenKind::EndOfFile
            | TokenKind::Question
            | TokenKind::Exclamation
            | TokenKind::Unknown
    )
}

/// Keywords that never occur inside an expression. The parser takes one that does for a name,
/// reports it, and continues nesting, so they close no bracket.
fn is_statement_word(token: TokenKind) -> bool {
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
