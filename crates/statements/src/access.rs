//! GRANT and REVOKE.

use crate::cursor::Cursor;
use crate::error::StatementError;
use crate::statement::{
    AccessChange, GrantedRole, GranteeKind, GranteeName, ObjectName, RoleChange, StatementKind,
};
use types::Privilege;

const PRIVILEGES: [(&str, Privilege); 3] = [
    ("USAGE", Privilege::Usage),
    ("MODIFY", Privilege::Modify),
    ("OWNERSHIP", Privilege::Ownership),
];
/// The role that lets code install packages, behind the names of Snowflake's database and schema.
const PYPI_ROLE: &str = "PYPI_REPOSITORY_USER";

pub(crate) fn grant(cursor: &mut Cursor) -> Result<StatementKind, StatementError> {
    if let Some(role) = take_role(cursor)? {
        cursor.expect_keywords("TO")?;
        let grantee = expect_grantee(cursor)?;
        cursor.expect_end("GRANT ROLE", &[])?;
        return Ok(StatementKind::GrantRole(RoleChange { role, grantee }));
    }
    let change = access_change(cursor, "TO")?;
    let transfers = change.privileges.contains(&Privilege::Ownership);
    if transfers && cursor.take_keywords("REVOKE CURRENT GRANTS") {
        cursor.expect_end("GRANT OWNERSHIP", &[])?;
    }
    let options: &[&str] = if transfers { &["REVOKE CURRENT GRANTS"] } else { &[] };
    cursor.expect_end("GRANT", options)?;
    Ok(StatementKind::Grant(change))
}

pub(crate) fn revoke(cursor: &mut Cursor) -> Result<StatementKind, StatementError> {
    if let Some(role) = take_role(cursor)? {
        cursor.expect_keywords("FROM")?;
        let grantee = expect_grantee(cursor)?;
        cursor.expect_end("REVOKE ROLE", &[])?;
        return Ok(StatementKind::RevokeRole(RoleChange { role, grantee }));
    }
    let change = access_change(cursor, "FROM")?;
    // No grant depends on another one, so both mean the same.
    cursor.take_one_of(&["RESTRICT", "CASCADE"]);
    cursor.expect_end("REVOKE", &["RESTRICT", "CASCADE"])?;
    Ok(StatementKind::Revoke(change))
}

fn access_change(cursor: &mut Cursor, preposition: &str) -> Result<AccessChange, StatementError> {
    let privileges = expect_privileges(cursor)?;
    cursor.expect_keywords("ON")?;
    let kind = cursor.expect_kind()?;
    let name = cursor.expect_name()?;
    cursor.expect_keywords(preposition)?;
    Ok(AccessChange { privileges, kind, name, grantee: expect_grantee(cursor)? })
}

fn expect_privileges(cursor: &mut Cursor) -> Result<Vec<Privilege>, StatementError> {
    let (mut privileges, start) = (Vec::new(), cursor.position());
    loop {
        let found = PRIVILEGES.iter().find(|(keyword, _)| cursor.take_keyword(keyword));
        let Some((_, privilege)) = found else {
            let known = PRIVILEGES.map(|(keyword, _)| keyword).join(", ");
            let error = cursor.expected("a privilege");
            return Err(error.hint(format!("privileges on objects: {known}; also ROLE NAME")));
        };
        if !privileges.contains(privilege) {
            privileges.push(*privilege);
        }
        if !cursor.take_comma() {
            break;
        }
    }
    if privileges.len() > 1 && privileges.contains(&Privilege::Ownership) {
        let message = "OWNERSHIP cannot stand beside other privileges, which it contains";
        return Err(StatementError::new(start, message));
    }
    Ok(privileges)
}

/// The role of a GRANT ROLE or GRANT DATABASE ROLE; absent for another statement.
fn take_role(cursor: &mut Cursor) -> Result<Option<GrantedRole>, StatementError> {
    let is_of_database = cursor.take_keywords("DATABASE ROLE");
    if !is_of_database && !cursor.take_keyword("ROLE") {
        return Ok(None);
    }
    let position = cursor.position();
    let parts = cursor.expect_name_parts()?;
    if is_pypi_role(&parts) {
        return Ok(Some(GrantedRole::PypiRepositoryUser));
    }
    match <[ObjectName; 1]>::try_from(parts) {
        Ok([name]) if !is_of_database => Ok(Some(GrantedRole::Named(name))),
        _ => {
            let message = "the only role of a database is SNOWFLAKE.PYPI_REPOSITORY_USER";
            Err(StatementError::new(position, message))
        }
    }
}

fn is_pypi_role(parts: &[ObjectName]) -> bool {
    let is = |part: &ObjectName, name: &str| part.text.eq_ignore_ascii_case(name);
    match parts {
        [database, role] => is(database, "SNOWFLAKE") && is(role, PYPI_ROLE),
        [database, schema, role] => {
            is(database, "SNOWFLAKE") && is(schema, "SNOWPARK") && is(role, PYPI_ROLE)
        }
        _ => false,
    }
}

pub(crate) fn expect_grantee(cursor: &mut Cursor) -> Result<GranteeName, StatementError> {
    let kind = match cursor.take_one_of(&["ROLE", "USER"]) {
        Some("ROLE") => Some(GranteeKind::Role),
        Some(_) => Some(GranteeKind::User),
        None => None,
    };
    Ok(GranteeName { kind, name: cursor.expect_simple_name()? })
}
