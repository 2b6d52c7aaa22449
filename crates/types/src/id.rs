//! Identifiers. Each kind of object has its own type, so that one cannot be passed for another.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;
use uuid::Uuid;

/// Text that is not an id: most often a name, for an object that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid id; expected a UUID such as 0198c0de-0000-7000-8000-000000000000")]
pub struct ParseIdError;

macro_rules! id {
    ($name:ident, $what:literal) => {
        #[doc = $what]
        #[derive(
            Debug,
            Clone,
            Copy,
            PartialEq,
            Eq,
            PartialOrd,
            Ord,
            Hash,
            Serialize,
            Deserialize,
            ToSchema,
        )]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            pub fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }

            pub fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                text.parse().map(Self).map_err(|_| ParseIdError)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(ExecutionId, "One execution.");
id!(SandboxId, "One session: a running interpreter with a working directory.");
id!(WorkspaceId, "One workspace (tenant). Nothing in it is visible to other workspaces.");
id!(PrincipalId, "One principal: a user, a role or a service.");
id!(KeyId, "One API key of a principal.");
id!(GrantId, "One privilege of a principal.");
id!(OfferId, "An offer of OWNERSHIP that its recipient has not accepted yet.");
id!(VolumeId, "One volume: a named directory that outlives sessions.");
id!(NetworkRuleId, "One network rule: a named list of hosts and ports.");
id!(IntegrationId, "One integration: a named set of network rules.");
id!(SkillId, "One uploaded skill: a folder with instructions for agents.");
id!(SecretId, "One secret: its value can be written, and is never returned.");
id!(FunctionId, "One function: code that is deployed independently of agents.");
id!(ToolId, "One tool that clients and agents can call.");
id!(AgentId, "One agent: a specification and its tools.");
id!(FileId, "One file: an uploaded document or the output of code.");
id!(ApprovalId, "One approval request.");
