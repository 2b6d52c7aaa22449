//! Lists in parts: newest first, each part with a mark where the next begins.

use crate::refused::{Refused, invalid};
use serde::Serialize;
use store::Page;
use utoipa::ToSchema;

const USUAL: u32 = 50;
/// What a person looks through. The store gives fewer when a program could not hold them.
const MOST: u32 = 200;

/// A part of a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Listed<T> {
    /// Newest first. Where records are large there are fewer than was asked for, and at least one.
    pub items: Vec<T>,
    /// Give it as `cursor` to have what comes after; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl<T> From<store::Listed<T>> for Listed<T> {
    fn from(listed: store::Listed<T>) -> Self {
        Self { items: listed.items, next_cursor: listed.next.map(|cursor| cursor.to_string()) }
    }
}

/// Which part was asked for.
pub(crate) fn page(limit: Option<u32>, cursor: Option<&str>) -> Result<Page, Refused> {
    let limit = limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return Err(invalid("query/limit", format!("must be from 1 to {MOST}")));
    }
    let after = cursor.map(|cursor| {
        cursor.parse().map_err(|_| invalid("query/cursor", "is not one that a list has given"))
    });
    Ok(Page { after: after.transpose()?, limit })
}
