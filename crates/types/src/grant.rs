//! Grants: what a principal may do to an object.

use crate::{
    AgentId, FunctionId, GrantId, IntegrationId, NetworkRuleId, OfferId, PrincipalId, SecretId,
    SkillId, ToolId, VolumeId, WorkspaceId,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Privilege {
    /// Call the tool or the function, invoke the agent, read the volume, use the secret or the
    /// skill, use the integration or the rule for network access; in a workspace: run code and store files.
    Usage,
    /// Change it; in a workspace: create tools, functions, agents, volumes, secrets, skills,
    /// network rules and integrations.
    Modify,
    /// Everything, including granting and deleting.
    Ownership,
    /// Install packages into sessions.
    Install,
}

impl Privilege {
    pub const ALL: [Self; 4] = [Self::Usage, Self::Modify, Self::Ownership, Self::Install];

    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "USAGE",
            Self::Modify => "MODIFY",
            Self::Ownership => "OWNERSHIP",
            Self::Install => "INSTALL",
        }
    }
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The object of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", content = "id", rename_all = "snake_case")]
pub enum ObjectRef {
    Workspace(WorkspaceId),
    Tool(ToolId),
    Agent(AgentId),
    Volume(VolumeId),
    Secret(SecretId),
    Function(FunctionId),
    NetworkRule(NetworkRuleId),
    Integration(IntegrationId),
    Skill(SkillId),
}

/// An alias: in a description of the API, `Object` is any JSON object.
pub type GrantedObject = ObjectRef;

impl ObjectRef {
    pub fn kind(self) -> &'static str {
        match self {
            Self::Workspace(_) => "workspace",
            Self::Tool(_) => "tool",
            Self::Agent(_) => "agent",
            Self::Volume(_) => "volume",
            Self::Secret(_) => "secret",
            Self::Function(_) => "function",
            Self::NetworkRule(_) => "network_rule",
            Self::Integration(_) => "integration",
            Self::Skill(_) => "skill",
        }
    }

    pub fn uuid(self) -> Uuid {
        match self {
            Self::Workspace(id) => id.uuid(),
            Self::Tool(id) => id.uuid(),
            Self::Agent(id) => id.uuid(),
            Self::Volume(id) => id.uuid(),
            Self::Secret(id) => id.uuid(),
            Self::Function(id) => id.uuid(),
            Self::NetworkRule(id) => id.uuid(),
            Self::Integration(id) => id.uuid(),
            Self::Skill(id) => id.uuid(),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.uuid())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    pub id: GrantId,
    pub principal: PrincipalId,
    pub privilege: Privilege,
    #[schema(value_type = GrantedObject)]
    pub object: ObjectRef,
    pub granted_by: PrincipalId,
    pub created_at: DateTime<Utc>,
}

/// An offer of OWNERSHIP, which takes effect when its recipient accepts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnershipOffer {
    pub id: OfferId,
    /// The recipient. A role stands for each of its members.
    pub principal: PrincipalId,
    #[schema(value_type = GrantedObject)]
    pub object: ObjectRef,
    pub offered_by: PrincipalId,
    pub created_at: DateTime<Utc>,
}
