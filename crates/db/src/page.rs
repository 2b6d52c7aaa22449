//! Lists, a page at a time, newest first.
//!
//! A page begins after a row and not at a number of rows, so that what is added meanwhile moves
//! nothing. It has fewer rows than were asked for when they are large.

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
    /// Every row is before this one.
    pub(crate) fn before(self) -> Uuid {
        self.after.map_or(Uuid::max(), |cursor| cursor.0)
    }

    /// One more than is shown tells whether there is another page.
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
