//! SHOW, DESCRIBE and DROP.

use crate::access::expect_grantee;
use crate::cursor::Cursor;
use crate::error::StatementError;
use crate::statement::{GrantsFilter, NamedKind, ShowFilter, StatementKind};

/// Characters of a pattern: a few times those of the longest name, since it is compared with each name.
const PATTERN_CHARS_MAX: usize = 1_000;

pub(crate) fn show(cursor: &mut Cursor) -> Result<StatementKind, StatementError> {
    if cursor.take_keyword("GRANTS") {
        return show_grants(cursor);
    }
    let kind = NamedKind::ALL.into_iter().find(|kind| cursor.take_keywords(kind.plural()));
    let kind =
        kind.or_else(|| cursor.take_keyword("INTEGRATIONS").then_some(NamedKind::Integration));
    let kind = kind.ok_or_else(|| {
        cursor.expected("NETWORK RULES, EXTERNAL ACCESS INTEGRATIONS, SECRETS, AGENTS or GRANTS")
    })?;
    let like = match cursor.take_keyword("LIKE") {
        true => Some(expect_pattern(cursor)?),
        false => None,
    };
    let limit = match cursor.take_keyword("LIMIT") {
        true => Some(cursor.expect_number()?),
        false => None,
    };
    cursor.expect_end(&format!("SHOW {}", kind.plural()), &["LIKE 'pattern'", "LIMIT number"])?;
    Ok(StatementKind::Show(ShowFilter { kind, like, limit }))
}

fn expect_pattern(cursor: &mut Cursor) -> Result<String, StatementError> {
    let error = cursor.error(format!("a pattern has at most {PATTERN_CHARS_MAX} characters"));
    let pattern = cursor.expect_string()?;
    match pattern.chars().count() <= PATTERN_CHARS_MAX {
        true => Ok(pattern),
        false => Err(error),
    }
}

fn show_grants(cursor: &mut Cursor) -> Result<StatementKind, StatementError> {
    let filter = if cursor.take_keyword("ON") {
        let kind = cursor.expect_kind()?;
        GrantsFilter::On(kind, cursor.expect_name()?)
    } else if cursor.take_keyword("TO") {
        GrantsFilter::To(expect_grantee(cursor)?)
    } else {
        GrantsFilter::Own
    };
    let options: &[&str] = match filter {
        GrantsFilter::Own => &["ON object", "TO ROLE name", "TO USER name"],
        GrantsFilter::On(..) | GrantsFilter::To(_) => &[],
    };
    cursor.expect_end("SHOW GRANTS", options)?;
    Ok(StatementKind::ShowGrants(filter))
}

pub(crate) fn describe(cursor: &mut Cursor) -> Result<StatementKind, StatementError> {
    let kind = cursor.expect_kind()?;
    let name = cursor.expect_name()?;
    cursor.expect_end("DESCRIBE", &[])?;
    Ok(StatementKind::Describe { kind, name })
}

pub(crate) fn drop_object(cursor: &mut Cursor) -> Result<StatementKind, StatementError> {
    let kind = cursor.expect_kind()?;
    let if_exists = cursor.take_keywords("IF EXISTS");
    let name = cursor.expect_name()?;
    cursor.expect_end("DROP", &[])?;
    Ok(StatementKind::Drop { kind, name, if_exists })
}

/// Whether a name matches a pattern with `%`, `_` and `\`, in any case of letters. Looks at each pair of
/// characters at most once for each `%`.
pub(crate) fn is_like(pattern: &str, name: &str) -> bool {
    let pattern = pattern_parts(pattern);
    let name: Vec<char> = name.chars().flat_map(char::to_lowercase).collect();
    let (mut at, mut of_name) = (0, 0);
    // After the last `%`: where the pattern goes on, and the character that it is tried from.
    let mut retry: Option<(usize, usize)> = None;
    while let Some(char) = name.get(of_name) {
        match pattern.get(at) {
            Some(PatternPart::AnyText) => {
                retry = Some((at + 1, of_name));
                at += 1;
            }
            Some(part) if part.matches(*char) => {
                at += 1;
                of_name += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    (at, of_name) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|part| *part == PatternPart::AnyText)
}

#[derive(Debug, PartialEq, Eq)]
enum PatternPart {
    AnyText,
    AnyCharacter,
    Character(char),
}

impl PatternPart {
    fn matches(&self, char: char) -> bool {
        match self {
            Self::AnyText => false,
            Self::AnyCharacter => true,
            Self::Character(own) => *own == char,
        }
    }
}

fn pattern_parts(pattern: &str) -> Vec<PatternPart> {
    let (mut parts, mut chars) = (Vec::new(), pattern.chars().flat_map(char::to_lowercase));
    while let Some(char) = chars.next() {
        parts.push(match char {
            '%' => PatternPart::AnyText,
            '_' => PatternPart::AnyCharacter,
            '\\' => PatternPart::Character(chars.next().unwrap_or('\\')),
            char => PatternPart::Character(char),
        });
    }
    parts
}
