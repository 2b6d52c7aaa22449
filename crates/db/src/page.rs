//! Pages of lists, newest first.
//!
//! A page begins after a row and not at an offset, so that rows that are added meanwhile do not
//! shift it. It has fewer rows than requested if they are large.

use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// The end of a page. Clients must not interpret it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub(crate) Uuid);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}

impl FromStr for Cursor {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct PageRequest {
    pub after: Option<Cursor>,
    pub limit: u32,
}

impl PageRequest {
    /// The id that all rows of the page are smaller than.
    pub(crate) fn before(self) -> Uuid {
        self.after.map_or(Uuid::max(), |cursor| cursor.0)
    }

    /// One more row than the page has, to know whether there is another page.
    pub(crate) fn row_limit(self) -> u32 {
        self.limit.saturating_add(1)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPage<T> {
    pub items: Vec<T>,
    /// Absent on the last page.
    pub next: Option<Cursor>,
}

impl<T> RowPage<T> {
    pub(crate) fn from_rows(mut rows: Vec<(Cursor, T)>, page: PageRequest) -> Self {
        let shown = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let more = rows.len() > shown;
        rows.truncate(shown);
        let next = rows.last().map(|(cursor, _)| *cursor).filter(|_| more);
        Self { items: rows.into_iter().map(|(_, item)| item).collect(), next }
    }
}
