//! The tokens of a text, and the place that has been read up to.

use crate::error::{Position, StatementError};
use crate::statement::{NamedKind, ObjectName};
use sqlparser::ast::DollarQuotedString;
use sqlparser::dialect::SnowflakeDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, TokenizerError, Word};
use std::mem;

/// Parts of a name: database, schema and name.
const NAME_PARTS_MAX: usize = 3;
/// A longer word is not repeated in an error.
const REPEATED_CHARS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Cursor {
    /// Without white space and comments.
    tokens: Vec<TokenWithSpan>,
    next: usize,
    end: Position,
    /// Whether a statement about a secret has begun. After it, an error repeats a word only if it is a
    /// keyword of SQL: a value whose quotes are wrong falls apart into words.
    has_secret: bool,
}

fn position_of(location: Location) -> Position {
    Position { line: location.line.max(1), column: location.column.max(1) }
}

/// The error of the tokenizer in own words, since its messages can repeat the text.
fn unreadable(error: &TokenizerError) -> StatementError {
    let message = &error.message;
    let message = if message.starts_with("Unterminated dollar") {
        "a $$ string does not end"
    } else if message.starts_with("Unterminated") {
        "a string does not end: its closing ' is missing"
    } else if message.contains("multi-line comment") {
        "a comment does not end: its */ is missing"
    } else if message.contains("close delimiter") {
        "a quoted name does not end: its closing \" is missing"
    } else {
        "this is not SQL"
    };
    StatementError::new(position_of(error.location), message)
}

impl Cursor {
    pub(crate) fn new(text: &str) -> Result<Self, StatementError> {
        let mut tokens = Vec::new();
        let read =
            Tokenizer::new(&SnowflakeDialect {}, text).tokenize_with_location_into_buf(&mut tokens);
        read.map_err(|error| unreadable(&error))?;
        let end = tokens.last().map_or(Position::START, |last| position_of(last.span.end));
        tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
        Ok(Self { tokens, next: 0, end, has_secret: false })
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|token| &token.token)
    }

    pub(crate) fn position(&self) -> Position {
        self.tokens.get(self.next).map_or(self.end, |token| position_of(token.span.start))
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.peek().is_none()
    }

    /// An error at the next token.
    pub(crate) fn error(&self, message: impl Into<String>) -> StatementError {
        StatementError::new(self.position(), message)
    }

    pub(crate) fn expected(&self, what: &str) -> StatementError {
        self.error(format!("expected {what}, found {}", self.found()))
    }

    /// What the next token is, for an error.
    pub(crate) fn found(&self) -> String {
        let kind = match self.peek() {
            None => "the end of the text",
            Some(Token::Word(word)) => return self.describe_word(word),
            Some(Token::SingleQuotedString(_) | Token::DollarQuotedString(_)) => "a string",
            Some(Token::Number(..)) => "a number",
            Some(Token::SemiColon) => "\";\"",
            Some(Token::Comma) => "\",\"",
            Some(Token::Period) => "\".\"",
            Some(Token::Eq) => "\"=\"",
            Some(Token::LParen) => "\"(\"",
            Some(Token::RParen) => "\")\"",
            Some(_) => "another symbol",
        };
        kind.to_owned()
    }

    fn describe_word(&self, word: &Word) -> String {
        let is_keyword = word.keyword != Keyword::NoKeyword;
        let is_short = word.value.len() <= REPEATED_CHARS_MAX;
        match word.quote_style {
            Some(_) => "a quoted name".to_owned(),
            None if is_short && (is_keyword || !self.has_secret) => format!("{:?}", word.value),
            None => "a word".to_owned(),
        }
    }

    fn is_keyword(&self, ahead: usize, keyword: &str) -> bool {
        let token = self.tokens.get(self.next + ahead).map(|token| &token.token);
        matches!(token, Some(Token::Word(Word { value, quote_style: None, .. }))
            if value.eq_ignore_ascii_case(keyword))
    }

    pub(crate) fn take_keyword(&mut self, keyword: &str) -> bool {
        let is_next = self.is_keyword(0, keyword);
        self.next += usize::from(is_next);
        is_next
    }

    /// Takes all of these words, or none.
    pub(crate) fn take_keywords(&mut self, keywords: &str) -> bool {
        let mut count = 0;
        for keyword in keywords.split(' ') {
            if !self.is_keyword(count, keyword) {
                return false;
            }
            count += 1;
        }
        self.next += count;
        true
    }

    pub(crate) fn expect_keywords(&mut self, keywords: &str) -> Result<(), StatementError> {
        match self.take_keywords(keywords) {
            true => Ok(()),
            false => Err(self.expected(keywords)),
        }
    }

    /// Takes one of these words.
    pub(crate) fn take_one_of(&mut self, keywords: &[&'static str]) -> Option<&'static str> {
        keywords.iter().copied().find(|keyword| self.take_keyword(keyword))
    }

    pub(crate) fn expect_one_of(
        &mut self,
        keywords: &[&'static str],
    ) -> Result<&'static str, StatementError> {
        self.take_one_of(keywords).ok_or_else(|| self.expected(&keywords.join(" or ")))
    }

    fn take(&mut self, token: &Token) -> bool {
        let is_next = self.peek() == Some(token);
        self.next += usize::from(is_next);
        is_next
    }

    pub(crate) fn take_semicolon(&mut self) -> bool {
        self.take(&Token::SemiColon)
    }

    pub(crate) fn expect_equals(&mut self) -> Result<(), StatementError> {
        match self.take(&Token::Eq) {
            true => Ok(()),
            false => Err(self.expected("\"=\"")),
        }
    }

    /// From here on, errors repeat keywords of SQL only.
    pub(crate) fn enter_secret(&mut self) {
        self.has_secret = true;
    }

    /// Takes the text of a string in quotes or between `$$`.
    pub(crate) fn expect_string(&mut self) -> Result<String, StatementError> {
        let token = match self.tokens.get_mut(self.next).map(|token| &mut token.token) {
            Some(Token::SingleQuotedString(text)) => mem::take(text),
            Some(Token::DollarQuotedString(DollarQuotedString { value, tag: None })) => {
                mem::take(value)
            }
            _ => return Err(self.expected("a string in single quotes")),
        };
        self.next += 1;
        Ok(token)
    }

    pub(crate) fn expect_number(&mut self) -> Result<u64, StatementError> {
        let number = match self.peek() {
            Some(Token::Number(digits, false)) => digits.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.expected("a whole number"))?;
        self.next += 1;
        Ok(number)
    }

    /// A name of one part or, with a database and a schema, of up to three.
    pub(crate) fn expect_name(&mut self) -> Result<ObjectName, StatementError> {
        let mut parts = self.expect_name_parts()?;
        let is_qualified = parts.len() > 1;
        let last = parts.pop().ok_or_else(|| self.expected("a name"))?;
        Ok(ObjectName { is_qualified, ..last })
    }

    /// A name of one part.
    pub(crate) fn expect_simple_name(&mut self) -> Result<ObjectName, StatementError> {
        let name = self.expect_name_part()?;
        match self.peek() {
            Some(Token::Period) => Err(self.error("the name of a principal has one part")),
            _ => Ok(name),
        }
    }

    pub(crate) fn expect_name_parts(&mut self) -> Result<Vec<ObjectName>, StatementError> {
        let mut parts = vec![self.expect_name_part()?];
        while self.take(&Token::Period) {
            if parts.len() == NAME_PARTS_MAX {
                let message = "a name has at most three parts: database, schema and name";
                return Err(self.error(message));
            }
            parts.push(self.expect_name_part()?);
        }
        Ok(parts)
    }

    fn expect_name_part(&mut self) -> Result<ObjectName, StatementError> {
        let position = self.position();
        let (text, is_quoted) = match self.peek() {
            Some(Token::Word(Word { value, quote_style: None, .. })) => (value.clone(), false),
            Some(Token::Word(Word { value, quote_style: Some('"'), .. })) => (value.clone(), true),
            _ => return Err(self.expected(
                "a name, in double quotes if it has other characters than letters, digits, _ and $",
            )),
        };
        self.next += 1;
        Ok(ObjectName { text, is_quoted, is_qualified: false, position })
    }

    /// A list in parentheses, which may be empty. Lists cannot be nested.
    pub(crate) fn expect_list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, StatementError>,
    ) -> Result<Vec<T>, StatementError> {
        if !self.take(&Token::LParen) {
            return Err(self.expected("a list in parentheses"));
        }
        let mut items = Vec::new();
        if self.take(&Token::RParen) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.take(&Token::RParen) {
                return Ok(items);
            }
            self.expect_comma("\",\" or \")\"")?;
        }
    }

    pub(crate) fn take_comma(&mut self) -> bool {
        self.take(&Token::Comma)
    }

    fn expect_comma(&mut self, what: &str) -> Result<(), StatementError> {
        match self.take_comma() {
            true => Ok(()),
            false => Err(self.expected(what)),
        }
    }

    /// The kind of an object of a statement that names one.
    pub(crate) fn expect_kind(&mut self) -> Result<NamedKind, StatementError> {
        let found = NamedKind::ALL.into_iter().find(|kind| self.take_keywords(kind.keywords()));
        let found =
            found.or_else(|| self.take_keyword("INTEGRATION").then_some(NamedKind::Integration));
        found.ok_or_else(|| {
            self.expected("NETWORK RULE, EXTERNAL ACCESS INTEGRATION, SECRET or AGENT")
        })
    }

    fn is_at_end_of_statement(&self) -> bool {
        matches!(self.peek(), None | Some(Token::SemiColon))
    }

    /// Requires the end of a statement that has these options.
    pub(crate) fn expect_end(
        &self,
        statement: &str,
        options: &[&str],
    ) -> Result<(), StatementError> {
        match self.is_at_end_of_statement() {
            true => Ok(()),
            false => Err(self.unknown_option(statement, options)),
        }
    }

    fn unknown_option(&self, statement: &str, options: &[&str]) -> StatementError {
        let message = format!("{statement} does not support {} here", self.found());
        let options = match options {
            [] => "the statement ends here; separate statements by ;".to_owned(),
            options => format!("supported here: {}", options.join(", ")),
        };
        self.error(message).hint(options)
    }

    /// Takes the name of the next option and its `=`; absent at the end of the statement.
    pub(crate) fn take_option(
        &mut self,
        statement: &'static str,
        options: &[&'static str],
        seen: &mut Vec<&'static str>,
    ) -> Result<Option<&'static str>, StatementError> {
        // Commas between options are allowed.
        if !seen.is_empty() {
            self.take_comma();
        }
        if self.is_at_end_of_statement() {
            return Ok(None);
        }
        let position = self.position();
        let option =
            self.take_one_of(options).ok_or_else(|| self.unknown_option(statement, options))?;
        if seen.contains(&option) {
            return Err(StatementError::new(position, format!("{option} is given twice")));
        }
        seen.push(option);
        Ok(Some(option))
    }
}

/// The error for a statement without a required option.
pub(crate) fn missing_option(position: Position, statement: &str, option: &str) -> StatementError {
    StatementError::new(position, format!("{statement} requires {option}"))
}
