//! Pages of lists: newest first, each with a cursor for the next page.

use crate::error::{RequestError, invalid_field};
use db::PageRequest;
use serde::Serialize;
use utoipa::ToSchema;

const LIMIT_DEFAULT: u32 = 50;
/// The default page size. The database returns fewer rows if they are large.
const LIMIT_MAX: u32 = 200;

/// One page of a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Page<T> {
    /// Newest first. There are fewer than requested if records are large, and at least one.
    pub items: Vec<T>,
    /// Pass it as `cursor` to get the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl<T> From<db::RowPage<T>> for Page<T> {
    fn from(listed: db::RowPage<T>) -> Self {
        Self { items: listed.items, next_cursor: listed.next.map(|cursor| cursor.to_string()) }
    }
}

/// The requested page.
pub(crate) fn page_request(
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<PageRequest, RequestError> {
    let limit = limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(invalid_field("query/limit", format!("must be from 1 to {LIMIT_MAX}")));
    }
    let after = cursor.map(|cursor| {
        cursor.parse().map_err(|_| invalid_field("query/cursor", "is not a cursor from a list"))
    });
    Ok(PageRequest { after: after.transpose()?, limit })
}
