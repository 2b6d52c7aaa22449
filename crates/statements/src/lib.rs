//! Reads the SQL statements of Snowflake worksheets that Belljar supports: a text becomes a list of
//! [`Statement`]s, or the first error with its line and column.
//!
//! The tokens come from `sqlparser` with its dialect of Snowflake. The grammar is here, since
//! `sqlparser` has no statements for network rules, integrations and agents (decision 0064). It has no
//! recursion. No error repeats a string of the text, because a string can be the value of a secret.

mod access;
mod create;
mod cursor;
mod error;
mod list;
mod statement;

pub use error::{Position, StatementError};
pub use statement::{
    AccessChange, CreateMode, GrantedRole, GranteeKind, GranteeName, GrantsFilter, NamedKind,
    NewAgent, NewIntegration, NewNetworkRule, NewSecret, ObjectName, RoleChange, SecretNames,
    SecretText, ShowFilter, Statement, StatementKind,
};

use cursor::Cursor;

/// Bytes of a text. Five specifications of the largest size fit. Each byte can become a token of a hundred
/// bytes, so this is about 50 MB of memory while a text is read.
pub const TEXT_BYTES_MAX: usize = 512 * 1024;
/// Statements of a text. Each is an operation that can write to the disk.
pub const STATEMENTS_MAX: usize = 100;

const STATEMENTS: [&str; 6] = ["CREATE", "GRANT", "REVOKE", "SHOW", "DESCRIBE", "DROP"];

/// The statements of a text in their order: at least one, and at most [`STATEMENTS_MAX`].
pub fn parse(text: &str) -> Result<Vec<Statement>, StatementError> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the text exceeds {TEXT_BYTES_MAX} bytes");
        return Err(StatementError::new(Position::START, message)
            .hint("send the statements in several requests"));
    }
    let mut cursor = Cursor::new(text)?;
    let mut statements = Vec::new();
    loop {
        while cursor.take_semicolon() {}
        if cursor.is_at_end() {
            break;
        }
        if statements.len() == STATEMENTS_MAX {
            let message = format!("the text has more than {STATEMENTS_MAX} statements");
            return Err(cursor.error(message).hint("send the others in another request"));
        }
        let position = cursor.position();
        statements.push(Statement { position, kind: statement(&mut cursor)? });
    }
    match statements.is_empty() {
        true => Err(StatementError::new(Position::START, "the text has no statement")),
        false => Ok(statements),
    }
}

fn statement(cursor: &mut Cursor) -> Result<StatementKind, StatementError> {
    if cursor.take_keyword("CREATE") {
        return create::create(cursor);
    }
    if cursor.take_keyword("GRANT") {
        return access::grant(cursor);
    }
    if cursor.take_keyword("REVOKE") {
        return access::revoke(cursor);
    }
    if cursor.take_keyword("SHOW") {
        return list::show(cursor);
    }
    if cursor.take_keyword("DESCRIBE") || cursor.take_keyword("DESC") {
        return list::describe(cursor);
    }
    if cursor.take_keyword("DROP") {
        return list::drop_object(cursor);
    }
    let message = format!("a statement cannot start with {}", cursor.found());
    Err(cursor.error(message).hint(format!("supported statements: {}", STATEMENTS.join(", "))))
}
