//! The statements.

use crate::error::Position;
use std::fmt;
use types::Privilege;

/// One statement of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Of its first word.
    pub position: Position,
    pub kind: StatementKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatementKind {
    CreateNetworkRule(NewNetworkRule),
    CreateIntegration(NewIntegration),
    CreateSecret(NewSecret),
    CreateAgent(NewAgent),
    Grant(AccessChange),
    Revoke(AccessChange),
    GrantRole(RoleChange),
    RevokeRole(RoleChange),
    Show(ShowFilter),
    ShowGrants(GrantsFilter),
    Describe { kind: NamedKind, name: ObjectName },
    Drop { kind: NamedKind, name: ObjectName, if_exists: bool },
}

impl StatementKind {
    /// The words that it starts with.
    pub fn label(&self) -> String {
        match self {
            Self::CreateNetworkRule(_) => "CREATE NETWORK RULE".to_owned(),
            Self::CreateIntegration(_) => "CREATE EXTERNAL ACCESS INTEGRATION".to_owned(),
            Self::CreateSecret(_) => "CREATE SECRET".to_owned(),
            Self::CreateAgent(_) => "CREATE AGENT".to_owned(),
            Self::Grant(_) => "GRANT".to_owned(),
            Self::Revoke(_) => "REVOKE".to_owned(),
            Self::GrantRole(_) => "GRANT ROLE".to_owned(),
            Self::RevokeRole(_) => "REVOKE ROLE".to_owned(),
            Self::Show(shown) => format!("SHOW {}", shown.kind.plural()),
            Self::ShowGrants(_) => "SHOW GRANTS".to_owned(),
            Self::Describe { kind, .. } => format!("DESCRIBE {}", kind.keywords()),
            Self::Drop { kind, .. } => format!("DROP {}", kind.keywords()),
        }
    }
}

/// A kind of object that statements name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedKind {
    NetworkRule,
    Integration,
    Secret,
    Agent,
}

impl NamedKind {
    pub const ALL: [Self; 4] = [Self::NetworkRule, Self::Integration, Self::Secret, Self::Agent];

    pub(crate) fn keywords(self) -> &'static str {
        match self {
            Self::NetworkRule => "NETWORK RULE",
            Self::Integration => "EXTERNAL ACCESS INTEGRATION",
            Self::Secret => "SECRET",
            Self::Agent => "AGENT",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::NetworkRule => "NETWORK RULES",
            Self::Integration => "EXTERNAL ACCESS INTEGRATIONS",
            Self::Secret => "SECRETS",
            Self::Agent => "AGENTS",
        }
    }

    /// The words of errors.
    pub fn noun(self) -> &'static str {
        match self {
            Self::NetworkRule => "network rule",
            Self::Integration => "integration",
            Self::Secret => "secret",
            Self::Agent => "agent",
        }
    }
}

/// A name as it is written, without its quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    pub text: String,
    /// A quoted name is exact. One without quotes also finds an object whose name differs only in upper
    /// and lower case.
    pub is_quoted: bool,
    /// Whether a database or a schema precedes it, which Belljar does not have.
    pub is_qualified: bool,
    pub position: Position,
}

/// What a CREATE does if there is an object with the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// It fails.
    New,
    /// It replaces the content of the object.
    OrReplace,
    /// It changes nothing.
    IfNotExists,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNetworkRule {
    pub mode: CreateMode,
    pub name: ObjectName,
    pub value_list: Vec<String>,
    pub comment: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewIntegration {
    pub mode: CreateMode,
    pub name: ObjectName,
    pub allowed_network_rules: Vec<ObjectName>,
    pub allowed_secrets: SecretNames,
    pub enabled: bool,
    pub comment: Option<String>,
}

/// `ALLOWED_AUTHENTICATION_SECRETS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretNames {
    All,
    None,
    Named(Vec<ObjectName>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSecret {
    pub mode: CreateMode,
    pub name: ObjectName,
    pub value: SecretText,
    pub comment: Option<String>,
}

/// The value of a secret. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The value, for the one who encrypts it.
    pub fn into_value(self) -> String {
        self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAgent {
    pub mode: CreateMode,
    pub name: ObjectName,
    pub specification: String,
    /// Options of the statement that Belljar has no use for.
    pub ignored: Vec<&'static str>,
}

/// GRANT or REVOKE of privileges on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessChange {
    /// At least one.
    pub privileges: Vec<Privilege>,
    pub kind: NamedKind,
    pub name: ObjectName,
    pub grantee: GranteeName,
}

/// The principal that gets or loses a privilege or a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GranteeName {
    /// Absent if the statement says neither ROLE nor USER.
    pub kind: Option<GranteeKind>,
    pub name: ObjectName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GranteeKind {
    Role,
    /// A user or a service.
    User,
}

/// GRANT ROLE or REVOKE ROLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleChange {
    pub role: GrantedRole,
    pub grantee: GranteeName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantedRole {
    /// `SNOWFLAKE.PYPI_REPOSITORY_USER`: the privilege INSTALL on the workspace.
    PypiRepositoryUser,
    Named(ObjectName),
}

/// SHOW of one kind of object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShowFilter {
    pub kind: NamedKind,
    /// `%` is any text, `_` one character, `\` takes the next one literally. The case of letters does not
    /// matter.
    pub like: Option<String>,
    pub limit: Option<u64>,
}

impl ShowFilter {
    /// Whether a name matches the pattern.
    pub fn matches(&self, name: &str) -> bool {
        self.like.as_ref().is_none_or(|pattern| crate::list::is_like(pattern, name))
    }
}

/// SHOW GRANTS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantsFilter {
    /// The grants of the caller.
    Own,
    On(NamedKind, ObjectName),
    To(GranteeName),
}
