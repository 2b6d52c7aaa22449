//! Queries, concurrent with the writer.
//!
//! A reader sees one moment from its first look to its last. It cannot write: its connections are
//! opened for reading only.

use crate::page::{Cursor, PageRequest, RowPage};
use crate::{DatabaseError, schema};
use rusqlite::{Connection, Params, Row, ToSql};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Connections that wait for the next reader; more are opened when more read at once.
const IDLE_CONNECTIONS: usize = 8;
/// Reads that may take long, at once: they share the disk, and each has a thread and a connection.
const LONG_READS_MAX: usize = 8;

/// Of rows, in one page of a list: as much as one large record, whose code alone may have half of
/// this. A page always has one row.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Everything that can be asked. The questions are in the files of the tables.
#[derive(Debug)]
pub struct Reader<'c> {
    connection: &'c Connection,
}

impl<'c> Reader<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self { connection }
    }

    /// Pages of the file that no row needs.
    pub(crate) fn unused_pages(&self) -> Result<u32, DatabaseError> {
        let pages = self.query_one("PRAGMA freelist_count", [], |row| Ok(row.get(0)?))?;
        Ok(pages.unwrap_or_default())
    }

    pub(crate) fn query_one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, DatabaseError>,
    ) -> Result<Option<T>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(read).transpose()
    }

    pub(crate) fn query_many<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl Fn(&Row<'_>) -> Result<T, DatabaseError>,
    ) -> Result<Vec<T>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(row)?);
        }
        Ok(found)
    }

    /// Visits rows until `visit` returns false. Returns whether it did.
    pub(crate) fn visit(
        &self,
        sql: &str,
        params: impl Params,
        mut visit: impl FnMut(&Row<'_>) -> Result<bool, DatabaseError>,
    ) -> Result<bool, DatabaseError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            if !visit(row)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// In `sql`, `?1` is the id before which a page begins and `?2` how many rows are wanted; what
    /// it is filtered by follows. The column of the id is named `id`.
    pub(crate) fn query_page<T>(
        &self,
        page: PageRequest,
        sql: &str,
        filters: &[&dyn ToSql],
        read: impl Fn(&Row<'_>) -> Result<T, DatabaseError>,
    ) -> Result<RowPage<T>, DatabaseError> {
        let (before, limit) = (page.before(), page.row_limit());
        let mut params: Vec<&dyn ToSql> = vec![&before, &limit];
        params.extend(filters);
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(&*params)?;
        let (mut listed, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            if bytes >= PAGE_BYTES {
                let next = listed.last().map(|(cursor, _)| *cursor);
                return Ok(RowPage { next, ..RowPage::from_rows(listed, page) });
            }
            bytes += row_bytes(row)?;
            listed.push((Cursor(row.get("id")?), read(row)?));
        }
        Ok(RowPage::from_rows(listed, page))
    }
}

/// Of what is long in a row.
fn row_bytes(row: &Row<'_>) -> Result<usize, DatabaseError> {
    let columns = 0..row.as_ref().column_count();
    columns.map(|column| Ok(row.get_ref(column)?.as_bytes().map_or(0, <[u8]>::len))).sum()
}

pub(crate) struct ReaderPool {
    database: PathBuf,
    idle: Mutex<Vec<Connection>>,
    pub(crate) long_reads: Semaphore,
}

impl ReaderPool {
    pub(crate) fn new(database: PathBuf) -> Self {
        Self { database, idle: Mutex::default(), long_reads: Semaphore::new(LONG_READS_MAX) }
    }

    pub(crate) fn read<T>(
        &self,
        job: impl FnOnce(&Reader<'_>) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let (mut job, mut result) = (Some(job), Err(DatabaseError::Aborted));
        self.with_reader(&mut |reader| {
            if let Some(job) = job.take() {
                result = job(reader);
            }
        })?;
        result
    }

    /// Calls `job` once. It is compiled once, and not for each of the hundred kinds of reads.
    fn with_reader(&self, job: &mut dyn FnMut(&Reader<'_>)) -> Result<(), DatabaseError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = idle.map_or_else(|| schema::open_to_read(&self.database), Ok)?;
        connection.prepare_cached("BEGIN")?.execute([])?;
        job(&Reader::new(&connection));
        connection.prepare_cached("COMMIT")?.execute([])?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS {
            idle.push(connection);
        }
        Ok(())
    }
}
