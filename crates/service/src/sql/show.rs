//! SHOW and DESCRIBE: rows in the form of REST, without what can be large in a list.

use super::Done;
use super::access::kind_in_grants;
use super::names::{object_ref, qualifier_warning};
use crate::error::RequestError;
use crate::identity::caller::Caller;
use crate::identity::grants::GrantQuery;
use crate::identity::ownership::ObjectQuery;
use crate::page::Page;
use crate::service::Service;
use serde::Serialize;
use serde_json::Value;
use statements::{GrantsFilter, NamedKind, ObjectName, ShowFilter};
use types::{Error, ErrorCode, ObjectRef};

/// Bytes of the rows of one request, as JSON: many times what a person reads, and no burden for the server.
const ROW_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Rows of one page of a list.
const PAGE_ROWS: u32 = 200;

/// The bytes that the rows of one request may still have.
#[derive(Debug)]
pub(super) struct RowBudget {
    bytes: usize,
}

impl RowBudget {
    pub(super) fn new() -> Self {
        Self { bytes: ROW_BYTES_MAX }
    }

    fn take(&mut self, row: &Value) -> Result<(), RequestError> {
        let bytes = row.to_string().len();
        match self.bytes.checked_sub(bytes) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => {
                let message = format!("the rows of this request exceed {ROW_BYTES_MAX} bytes");
                let hint = "use LIKE and LIMIT, or send the statements in several requests";
                Err(Error::new(ErrorCode::QuotaExceeded, message).hint(hint).into())
            }
        }
    }
}

fn row(record: &impl Serialize) -> Result<Value, RequestError> {
    serde_json::to_value(record).map_err(|error| {
        Error::server_fault(format!("a record cannot be written as JSON: {error}")).into()
    })
}

/// The rows of one page, and the cursor of the next.
type RowPage = (Vec<Value>, Option<String>);

fn rows<T: Serialize>(page: Page<T>) -> Result<RowPage, RequestError> {
    let items: Result<Vec<Value>, RequestError> = page.items.iter().map(row).collect();
    Ok((items?, page.next_cursor))
}

/// The row of an object in a list. Its values can be large; DESCRIBE shows them.
fn list_row(kind: NamedKind, mut row: Value) -> Value {
    if let Some(fields) = row.as_object_mut() {
        match kind {
            NamedKind::NetworkRule => {
                let values = fields.shift_remove("value_list");
                let count = values.as_ref().and_then(Value::as_array).map_or(0, Vec::len);
                fields.insert("entries_in_value_list".to_owned(), count.into());
            }
            NamedKind::Agent => {
                fields.shift_remove("specification");
            }
            NamedKind::Integration | NamedKind::Secret => {}
        }
    }
    row
}

impl Service {
    pub(super) async fn sql_show(
        &self,
        caller: &Caller,
        filter: ShowFilter,
        budget: &mut RowBudget,
    ) -> Result<Done, RequestError> {
        let limit = filter.limit.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
        let (mut shown, mut cursor) = (Vec::new(), None);
        loop {
            let query = ObjectQuery { limit: Some(PAGE_ROWS), cursor, search: None };
            let (page, next) = self.sql_page(caller, filter.kind, query).await?;
            let matching = page
                .into_iter()
                .filter(|row| row["name"].as_str().is_some_and(|name| filter.matches(name)));
            for row in matching.take(limit - shown.len()) {
                let row = list_row(filter.kind, row);
                budget.take(&row)?;
                shown.push(row);
            }
            if next.is_none() || shown.len() >= limit {
                return Ok(Done::rows(None, shown));
            }
            cursor = next;
        }
    }

    async fn sql_page(
        &self,
        caller: &Caller,
        kind: NamedKind,
        query: ObjectQuery,
    ) -> Result<RowPage, RequestError> {
        match kind {
            NamedKind::NetworkRule => rows(self.network_rules(caller, query).await?),
            NamedKind::Integration => rows(self.integrations(caller, query).await?),
            NamedKind::Secret => rows(self.secrets(caller, query).await?),
            NamedKind::Agent => rows(self.agents(caller, query).await?),
        }
    }

    pub(super) async fn sql_show_grants(
        &self,
        caller: &Caller,
        filter: GrantsFilter,
        budget: &mut RowBudget,
    ) -> Result<Done, RequestError> {
        let mut query = GrantQuery { limit: Some(PAGE_ROWS), ..GrantQuery::default() };
        let mut object = None;
        match &filter {
            GrantsFilter::Own => query.principal = Some(caller.id()),
            GrantsFilter::To(grantee) => {
                query.principal = Some(self.sql_principal(caller, grantee)?.0);
            }
            GrantsFilter::On(kind, name) => {
                let found = self.sql_require(caller, *kind, name)?;
                query.object_kind = Some(kind_in_grants(*kind));
                query.object_id = Some(found.id);
                object = Some(found);
            }
        }
        let mut shown = Vec::new();
        loop {
            let page = self.grants(caller, query.clone()).await?;
            for grant in &page.items {
                let mut row = row(grant)?;
                // Of principals that the caller may see.
                if let Ok(principal) = self.principal(caller, grant.principal) {
                    row["principal_name"] = principal.name.into();
                }
                budget.take(&row)?;
                shown.push(row);
            }
            if page.next_cursor.is_none() {
                return Ok(Done::rows(object, shown));
            }
            query.cursor = page.next_cursor;
        }
    }

    pub(super) async fn sql_describe(
        &self,
        caller: &Caller,
        kind: NamedKind,
        name: ObjectName,
        budget: &mut RowBudget,
    ) -> Result<Done, RequestError> {
        let found = self.sql_require(caller, kind, &name)?;
        let row = match object_ref(kind, found.id) {
            ObjectRef::NetworkRule(id) => row(&self.network_rule(caller, id)?)?,
            ObjectRef::Integration(id) => row(&self.integration(caller, id)?)?,
            ObjectRef::Secret(id) => row(&self.secret(caller, id)?)?,
            ObjectRef::Agent(id) => row(&self.agent(caller, id).await?)?,
            other => return Err(crate::error::not_found(other.kind(), other.uuid())),
        };
        budget.take(&row)?;
        let warnings = Vec::from_iter(qualifier_warning(&name));
        Ok(Done { warnings, ..Done::rows(Some(found), vec![row]) })
    }
}
