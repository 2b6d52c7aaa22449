//! Statements in SQL, as in Snowflake's worksheets: each is mapped to the operation that REST has for it,
//! so that it requires the same rights, makes the same checks and writes the same audit entries.
//!
//! A text is read completely before its first statement runs. Statements run one after the other and
//! are no transaction: the first error stops, and what ran before it stays.

mod access;
mod create;
mod names;
mod show;

use crate::error::{ErrorDetail, RequestError};
use crate::identity::caller::Caller;
use crate::service::Service;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use show::RowBudget;
use statements::{Statement, StatementError, StatementKind};
use types::{Error, ErrorCode, Warning};
use utoipa::ToSchema;
use uuid::Uuid;
use vault::Plaintext;

const FIELD: &str = "/statements";

/// Its text can contain the value of a secret, and is never shown.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StatementsRequest {
    /// Statements, separated by `;`. At most 100, in 512 KiB.
    #[schema(value_type = String)]
    pub statements: Plaintext,
}

/// Statements that have been read and not run.
#[derive(Debug)]
pub struct ParsedStatements(Vec<Statement>);

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct StatementsResponse {
    /// The result of each statement, in their order.
    pub statements: Vec<StatementResult>,
}

/// The result of one statement that ran.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct StatementResult {
    /// The words that it starts with, such as `CREATE NETWORK RULE`.
    pub statement: String,
    pub action: StatementAction,
    /// The line of its first word.
    pub line: u64,
    /// The object that it named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<NamedObjectRef>,
    /// Of SHOW and DESCRIBE.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub rows: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// What a statement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StatementAction {
    Created,
    Replaced,
    Dropped,
    Granted,
    Revoked,
    Shown,
    /// There was nothing to do, as with IF EXISTS and IF NOT EXISTS.
    Unchanged,
}

/// An object with its kind, its id and its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NamedObjectRef {
    pub kind: &'static str,
    pub id: Uuid,
    pub name: String,
}

/// The results of the statements that ran, and the error of the one that stopped them.
#[derive(Debug)]
pub struct StatementsOutcome {
    pub results: Vec<StatementResult>,
    pub error: Option<RequestError>,
}

impl ParsedStatements {
    /// Reads a text. It takes milliseconds for a large one, so it is for a thread that serves no requests.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        statements::parse(text).map(Self).map_err(unreadable)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

fn unreadable(error: StatementError) -> RequestError {
    let refused = Error::new(ErrorCode::ArgsInvalid, format!("{FIELD}: {error}"));
    let detail = ErrorDetail {
        path: Some(FIELD.to_owned()),
        message: error.message,
        line: usize::try_from(error.position.line).ok(),
        column: usize::try_from(error.position.column).ok(),
        hint: error.hint.clone(),
        ..ErrorDetail::default()
    };
    let hint = error.hint.unwrap_or_else(|| "no statement was executed".to_owned());
    RequestError { error: Box::new(refused.hint(hint)), details: vec![detail] }
}

/// What a statement did, before it is a result with its place.
#[derive(Debug)]
struct Done {
    action: StatementAction,
    object: Option<NamedObjectRef>,
    rows: Option<Vec<Value>>,
    warnings: Vec<Warning>,
}

impl Done {
    fn new(action: StatementAction, object: NamedObjectRef) -> Self {
        Self { action, object: Some(object), rows: None, warnings: Vec::new() }
    }

    fn rows(object: Option<NamedObjectRef>, rows: Vec<Value>) -> Self {
        Self { action: StatementAction::Shown, object, rows: Some(rows), warnings: Vec::new() }
    }
}

impl Service {
    /// Runs statements until one fails. The rights of the caller are read again for each.
    #[boxed::future]
    pub async fn run_statements(
        &self,
        caller: &Caller,
        statements: ParsedStatements,
    ) -> StatementsOutcome {
        let (mut results, mut budget) = (Vec::new(), RowBudget::new());
        for Statement { position, kind } in statements.0 {
            let label = kind.label();
            let done = match self.refresh_caller(caller) {
                Some(caller) => self.run_statement(&caller, kind, &mut budget).await,
                None => {
                    Err(Error::new(ErrorCode::AuthMissing, "the key or token is no longer valid")
                        .into())
                }
            };
            match done {
                Ok(Done { action, object, rows, warnings }) => results.push(StatementResult {
                    statement: label,
                    action,
                    line: position.line,
                    object,
                    rows,
                    warnings,
                }),
                Err(error) => {
                    let place = StatementPlace { number: results.len() + 1, label, position };
                    return StatementsOutcome { results, error: Some(place.locate(error)) };
                }
            }
        }
        StatementsOutcome { results, error: None }
    }

    #[boxed::future]
    async fn run_statement(
        &self,
        caller: &Caller,
        kind: StatementKind,
        budget: &mut RowBudget,
    ) -> Result<Done, RequestError> {
        match kind {
            StatementKind::CreateNetworkRule(rule) => self.sql_network_rule(caller, rule).await,
            StatementKind::CreateIntegration(new) => self.sql_integration(caller, new).await,
            StatementKind::CreateSecret(secret) => self.sql_secret(caller, secret).await,
            StatementKind::CreateAgent(agent) => self.sql_agent(caller, agent).await,
            StatementKind::Grant(change) => self.sql_grant(caller, change).await,
            StatementKind::Revoke(change) => self.sql_revoke(caller, change).await,
            StatementKind::GrantRole(change) => self.sql_grant_role(caller, change).await,
            StatementKind::RevokeRole(change) => self.sql_revoke_role(caller, change).await,
            StatementKind::Show(filter) => self.sql_show(caller, filter, budget).await,
            StatementKind::ShowGrants(filter) => self.sql_show_grants(caller, filter, budget).await,
            StatementKind::Describe { kind, name } => {
                self.sql_describe(caller, kind, name, budget).await
            }
            StatementKind::Drop { kind, name, if_exists } => {
                self.sql_drop(caller, kind, name, if_exists).await
            }
        }
    }
}

/// The place of a statement that failed.
#[derive(Debug)]
struct StatementPlace {
    number: usize,
    label: String,
    position: statements::Position,
}

impl StatementPlace {
    /// Adds the place to an error of an operation, and which statements ran before it.
    fn locate(self, mut refused: RequestError) -> RequestError {
        let Self { number, label, position } = self;
        let before = match number {
            1 => "no statement was executed".to_owned(),
            2 => "statement 1 was executed".to_owned(),
            number => format!("statements 1 to {} were executed", number - 1),
        };
        let error = &mut refused.error;
        if refused.details.is_empty() {
            let (message, code) = (error.message.clone(), Some(error.code.clone()));
            refused.details.push(ErrorDetail { message, code, ..ErrorDetail::default() });
        }
        error.message = format!("statement {number}, {label}: {}; {before}", error.message);
        for detail in &mut refused.details {
            // A path in the request of the operation is none in this one.
            if let Some(path) = detail.path.replace(FIELD.to_owned()) {
                detail.message = format!("{path}: {}", detail.message);
            }
            if detail.line.is_none() {
                detail.line = usize::try_from(position.line).ok();
                detail.column = usize::try_from(position.column).ok();
            }
        }
        refused
    }
}
