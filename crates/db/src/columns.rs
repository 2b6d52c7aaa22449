//! Conversion between values and columns.

use crate::DatabaseError;
use chrono::{DateTime, Utc};
use rusqlite::Row;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde::{Deserialize, Serialize};

/// Nanoseconds since 1970, exact and ordered. Times before 1677 and after 2262 become the first and
/// the last one that can be stored.
pub(crate) fn to_nanos(at: DateTime<Utc>) -> i64 {
    let outermost = if at < DateTime::UNIX_EPOCH { i64::MIN } else { i64::MAX };
    at.timestamp_nanos_opt().unwrap_or(outermost)
}

pub(crate) fn from_nanos(moment: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_nanos(moment)
}

/// A record as JSON.
pub(crate) fn to_json<T: Serialize>(
    what: &'static str,
    value: &T,
) -> Result<String, DatabaseError> {
    serde_json::to_string(value).map_err(|_| DatabaseError::Corrupt { what })
}

pub(crate) fn from_json_column<T: DeserializeOwned>(
    what: &'static str,
    row: &Row<'_>,
    column: &str,
) -> Result<T, DatabaseError> {
    let json = row.get_ref(column)?.as_bytes().map_err(|_| DatabaseError::Corrupt { what })?;
    serde_json::from_slice(json).map_err(|_| DatabaseError::Corrupt { what })
}

/// The name of a variant without fields, as in JSON but without quotes.
pub(crate) fn variant_name<T: Serialize>(
    what: &'static str,
    value: &T,
) -> Result<String, DatabaseError> {
    Ok(to_json(what, value)?.trim_matches('"').to_owned())
}

pub(crate) fn parse_variant<'a, T: Deserialize<'a>>(
    what: &'static str,
    word: &'a str,
) -> Result<T, DatabaseError> {
    let word: StrDeserializer<'a, Error> = word.into_deserializer();
    T::deserialize(word).map_err(|_| DatabaseError::Corrupt { what })
}
