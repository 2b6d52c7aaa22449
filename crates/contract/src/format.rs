//! Validation of the formats of a schema.

use crate::schema::SchemaFormat;
use chrono::{NaiveDate, NaiveTime, Timelike};
use serde_json::Number;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum of a DNS name, and of each of its labels.
const HOSTNAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

pub(crate) fn matches_format(format: SchemaFormat, text: &str) -> bool {
    match format {
        SchemaFormat::DateTime => canonical_datetime(text).is_some(),
        SchemaFormat::Date => is_plain_date(text),
        SchemaFormat::Time => time_and_offset(text).is_some(),
        SchemaFormat::Email => is_email(text),
        SchemaFormat::Uuid => text.len() == 36 && uuid::Uuid::try_parse(text).is_ok(),
        SchemaFormat::Uri => is_uri(text),
        SchemaFormat::Hostname => is_hostname(text),
        SchemaFormat::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
        SchemaFormat::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
        // Formats of numbers; a string has none of them.
        SchemaFormat::Int32 | SchemaFormat::Int64 | SchemaFormat::Float | SchemaFormat::Double => {
            false
        }
    }
}

/// Whether a number fits a format.
pub(crate) fn fits_format(format: SchemaFormat, number: &Number) -> bool {
    match format {
        SchemaFormat::Int32 => {
            number.as_i64().is_some_and(|integer| i32::try_from(integer).is_ok())
        }
        SchemaFormat::Int64 => number.is_i64(),
        SchemaFormat::Float => number.as_f64().is_some_and(|float| (float as f32).is_finite()),
        _ => true,
    }
}

/// A date and time as Python's `fromisoformat` reads it: with the original offset, or without one.
pub(crate) fn canonical_datetime(text: &str) -> Option<String> {
    // Other notations are refused: libraries read week dates and packed digits differently.
    let date = text.get(..10).filter(|date| is_plain_date(date))?;
    let rest = text.get(10..)?;
    let rest = if rest.is_empty() { "00:00:00" } else { rest.strip_prefix(['T', 't', ' '])? };
    let (time, offset) = time_and_offset(rest)?;
    let fraction = match time.nanosecond() / 1000 {
        0 => String::new(),
        micros => format!(".{micros:06}"),
    };
    Some(format!("{date}T{}{fraction}{offset}", time.format("%H:%M:%S")))
}

fn is_plain_date(text: &str) -> bool {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    // Python has no year 0.
    shape && !text.starts_with("0000") && NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok()
}

/// The time, and the offset in the form `+01:00`, empty if there is none.
fn time_and_offset(text: &str) -> Option<(NaiveTime, String)> {
    let (time, offset) = match text.find(['Z', 'z', '+', '-']) {
        None => (text, String::new()),
        Some(at) => {
            let (time, offset) = text.split_at(at);
            (time, canonical_offset(offset)?)
        }
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let shape = matches!(clock.len(), 5 | 8) && (1..=18).contains(&fraction.len());
    if !shape || !digits(fraction) {
        return None;
    }
    let clock = if clock.len() == 5 { format!("{clock}:00") } else { clock.to_owned() };
    let parts: Vec<&str> = clock.split(':').collect();
    let &[hour, minute, second] = parts.as_slice() else { return None };
    if [hour, minute, second].iter().any(|part| part.len() != 2 || !digits(part)) {
        return None;
    }
    let micros: u32 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let number = |part: &str| part.parse::<u32>().ok();
    let time =
        NaiveTime::from_hms_micro_opt(number(hour)?, number(minute)?, number(second)?, micros)?;
    Some((time, offset))
}

/// `Z`, `+01`, `+0130` or `+01:30`.
fn canonical_offset(text: &str) -> Option<String> {
    if matches!(text, "Z" | "z") {
        return Some("+00:00".to_owned());
    }
    let (sign, rest) = text.split_at_checked(1)?;
    let (hours, minutes) = match rest.len() {
        2 => (rest, "00"),
        4 => rest.split_at_checked(2)?,
        _ => rest.split_once(':')?,
    };
    let below = |digits: &str, limit: u8| {
        let shape = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        shape && digits.parse::<u8>().is_ok_and(|number| number < limit)
    };
    (below(hours, 24) && below(minutes, 60)).then(|| format!("{sign}{hours}:{minutes}"))
}

/// One `@`, a non-empty local part, and a host: this does not check that mail is deliverable.
fn is_email(text: &str) -> bool {
    let printable = text.chars().all(|c| !c.is_whitespace() && !c.is_control());
    printable
        && text.rsplit_once('@').is_some_and(|(name, host)| {
            !name.is_empty() && !name.contains('@') && is_hostname(host)
        })
}

fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= HOSTNAME_BYTES_MAX && text.split('.').all(is_label)
}

/// A scheme, a colon, and the characters of URIs.
fn is_uri(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    let fits = |c: char| {
        c.is_ascii_graphic() && !matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}')
    };
    text.split_once(':').is_some_and(|(scheme, rest)| {
        is_scheme(scheme) && !rest.is_empty() && rest.chars().all(fits)
    })
}
