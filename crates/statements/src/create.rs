//! CREATE.

use crate::cursor::{Cursor, missing_option};
use crate::error::StatementError;
use crate::statement::{
    CreateMode, NamedKind, NewAgent, NewIntegration, NewNetworkRule, NewSecret, ObjectName,
    SecretNames, SecretText, StatementKind,
};

/// Types and modes of Snowflake's network rules that Belljar does not have.
const OTHER_RULE_TYPES: [&str; 6] =
    ["IPV4", "AWSVPCEID", "AZURELINKID", "GCPPSCID", "PRIVATE_HOST_PORT", "COMPUTE_POOL"];
const OTHER_RULE_MODES: [&str; 4] =
    ["INGRESS", "INTERNAL_STAGE", "SNOWFLAKE_MANAGED_STORAGE_VOLUME", "POSTGRES_INGRESS"];
/// Types of Snowflake's secrets that Belljar does not have.
const OTHER_SECRET_TYPES: [&str; 4] =
    ["PASSWORD", "OAUTH2", "CLOUD_PROVIDER_TOKEN", "SYMMETRIC_KEY"];

pub(crate) fn create(cursor: &mut Cursor) -> Result<StatementKind, StatementError> {
    let replaces = cursor.take_keywords("OR REPLACE");
    match cursor.expect_kind()? {
        NamedKind::NetworkRule => {
            let (mode, name) = new_name(cursor, replaces)?;
            network_rule(cursor, mode, name).map(StatementKind::CreateNetworkRule)
        }
        NamedKind::Integration => {
            let (mode, name) = new_name(cursor, replaces)?;
            integration(cursor, mode, name).map(StatementKind::CreateIntegration)
        }
        NamedKind::Secret => {
            cursor.enter_secret();
            let (mode, name) = new_name(cursor, replaces)?;
            secret(cursor, mode, name).map(StatementKind::CreateSecret)
        }
        NamedKind::Agent => {
            let (mode, name) = new_name(cursor, replaces)?;
            agent(cursor, mode, name).map(StatementKind::CreateAgent)
        }
    }
}

fn new_name(
    cursor: &mut Cursor,
    replaces: bool,
) -> Result<(CreateMode, ObjectName), StatementError> {
    let error = cursor.error("OR REPLACE and IF NOT EXISTS exclude each other");
    let mode = match (replaces, cursor.take_keywords("IF NOT EXISTS")) {
        (true, true) => return Err(error),
        (true, false) => CreateMode::OrReplace,
        (false, true) => CreateMode::IfNotExists,
        (false, false) => CreateMode::New,
    };
    Ok((mode, cursor.expect_name()?))
}

fn network_rule(
    cursor: &mut Cursor,
    mode: CreateMode,
    name: ObjectName,
) -> Result<NewNetworkRule, StatementError> {
    const STATEMENT: &str = "CREATE NETWORK RULE";
    let (mut values, mut comment, mut seen) = (None, None, Vec::new());
    let options = ["TYPE", "MODE", "VALUE_LIST", "COMMENT"];
    while let Some(option) = cursor.take_option(STATEMENT, &options, &mut seen)? {
        cursor.expect_equals()?;
        match option {
            "TYPE" => expect_only(cursor, "TYPE", "HOST_PORT", &OTHER_RULE_TYPES)?,
            "MODE" => expect_only(cursor, "MODE", "EGRESS", &OTHER_RULE_MODES)?,
            "VALUE_LIST" => values = Some(cursor.expect_list(Cursor::expect_string)?),
            _ => comment = Some(cursor.expect_string()?),
        }
    }
    for (option, example) in [("TYPE", "TYPE = HOST_PORT"), ("MODE", "MODE = EGRESS")] {
        if !seen.contains(&option) {
            return Err(missing_option(name.position, STATEMENT, example));
        }
    }
    let value_list =
        values.ok_or_else(|| missing_option(name.position, STATEMENT, "VALUE_LIST"))?;
    Ok(NewNetworkRule { mode, name, value_list, comment })
}

/// Takes the one supported value of an option.
fn expect_only(
    cursor: &mut Cursor,
    option: &str,
    value: &'static str,
    others: &[&'static str],
) -> Result<(), StatementError> {
    if cursor.take_keyword(value) {
        return Ok(());
    }
    let error = cursor.expected(value);
    match cursor.take_one_of(others) {
        Some(other) => {
            let message = format!("{option} = {other} is not supported; use {option} = {value}");
            Err(StatementError::new(error.position, message))
        }
        None => Err(error),
    }
}

fn integration(
    cursor: &mut Cursor,
    mode: CreateMode,
    name: ObjectName,
) -> Result<NewIntegration, StatementError> {
    const STATEMENT: &str = "CREATE EXTERNAL ACCESS INTEGRATION";
    let (mut rules, mut secrets, mut enabled) = (None, SecretNames::None, None);
    let (mut comment, mut seen) = (None, Vec::new());
    let options = ["ALLOWED_NETWORK_RULES", "ALLOWED_AUTHENTICATION_SECRETS", "ENABLED", "COMMENT"];
    while let Some(option) = cursor.take_option(STATEMENT, &options, &mut seen)? {
        cursor.expect_equals()?;
        match option {
            "ALLOWED_NETWORK_RULES" => rules = Some(cursor.expect_list(Cursor::expect_name)?),
            "ALLOWED_AUTHENTICATION_SECRETS" => secrets = secret_names(cursor)?,
            "ENABLED" => enabled = Some(cursor.expect_one_of(&["TRUE", "FALSE"])? == "TRUE"),
            _ => comment = Some(cursor.expect_string()?),
        }
    }
    let missing = |option| missing_option(name.position, STATEMENT, option);
    let allowed_network_rules = rules.ok_or_else(|| missing("ALLOWED_NETWORK_RULES"))?;
    let enabled = enabled.ok_or_else(|| missing("ENABLED = TRUE or ENABLED = FALSE"))?;
    let allowed_secrets = secrets;
    Ok(NewIntegration { mode, name, allowed_network_rules, allowed_secrets, enabled, comment })
}

/// `all` and `none` are words of the list unless they are quoted.
fn secret_names(cursor: &mut Cursor) -> Result<SecretNames, StatementError> {
    let position = cursor.position();
    // Snowflake's documentation has them both with and without parentheses.
    let names = match cursor.take_one_of(&["ALL", "NONE"]) {
        Some("ALL") => return Ok(SecretNames::All),
        Some(_) => return Ok(SecretNames::None),
        None => cursor.expect_list(Cursor::expect_name)?,
    };
    let is_word = |name: &ObjectName, word: &str| {
        !name.is_quoted && !name.is_qualified && name.text.eq_ignore_ascii_case(word)
    };
    let all = names.iter().any(|name| is_word(name, "ALL"));
    let none = names.iter().any(|name| is_word(name, "NONE"));
    match names.len() {
        1 if all => Ok(SecretNames::All),
        1 if none => Ok(SecretNames::None),
        0 => Ok(SecretNames::None),
        _ if all || none => {
            let message = "ALL and NONE cannot stand beside names; quote a secret of that name";
            Err(StatementError::new(position, message))
        }
        _ => Ok(SecretNames::Named(names)),
    }
}

fn secret(
    cursor: &mut Cursor,
    mode: CreateMode,
    name: ObjectName,
) -> Result<NewSecret, StatementError> {
    const STATEMENT: &str = "CREATE SECRET";
    let (mut value, mut comment, mut seen) = (None, None, Vec::new());
    let options = ["TYPE", "SECRET_STRING", "COMMENT"];
    while let Some(option) = cursor.take_option(STATEMENT, &options, &mut seen)? {
        cursor.expect_equals()?;
        match option {
            "TYPE" => expect_only(cursor, "TYPE", "GENERIC_STRING", &OTHER_SECRET_TYPES)?,
            "SECRET_STRING" => value = Some(SecretText::new(cursor.expect_string()?)),
            _ => comment = Some(cursor.expect_string()?),
        }
    }
    if !seen.contains(&"TYPE") {
        return Err(missing_option(name.position, STATEMENT, "TYPE = GENERIC_STRING"));
    }
    let value = value.ok_or_else(|| missing_option(name.position, STATEMENT, "SECRET_STRING"))?;
    Ok(NewSecret { mode, name, value, comment })
}

fn agent(
    cursor: &mut Cursor,
    mode: CreateMode,
    name: ObjectName,
) -> Result<NewAgent, StatementError> {
    const STATEMENT: &str = "CREATE AGENT";
    let (mut seen, mut ignored) = (Vec::new(), Vec::new());
    let options = ["COMMENT", "PROFILE", "FROM"];
    while let Some(option) = cursor.take_option(STATEMENT, &options, &mut seen)? {
        if option == "FROM" {
            cursor.expect_keywords("SPECIFICATION")?;
            let specification = cursor.expect_string()?;
            cursor.expect_end(STATEMENT, &[])?;
            return Ok(NewAgent { mode, name, specification, ignored });
        }
        cursor.expect_equals()?;
        cursor.expect_string()?;
        ignored.push(option);
    }
    Err(missing_option(name.position, STATEMENT, "FROM SPECIFICATION $$ ... $$"))
}
