//! Identifiers. Each kind of object has its own type, so that one cannot be passed for another.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;
use uuid::Uuid;

/// Text that is not an id: most often a name, for an object that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id, such as 0198c0de-0000-7000-8000-000000000000")]
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

id!(ExecutionId, "One run of code.");
id!(SandboxId, "One session: a live interpreter with a working directory.");
id!(WorkspaceId, "One tenant: everything in it is invisible from outside of it.");
id!(PrincipalId, "Who asks: a user, a role or a service.");
id!(KeyId, "One API key of a principal.");
id!(GrantId, "One privilege that a principal was given.");
id!(OfferId, "OWNERSHIP of an object that a principal was offered, and has not accepted yet.");
id!(VolumeId, "A named directory that outlives sessions.");
id!(NetworkRuleId, "A named list of hosts and ports.");
id!(IntegrationId, "Permission for code to leave its sandbox.");
id!(SecretId, "A value that is written and never read again.");
id!(FunctionId, "Code that is deployed apart from agents.");
id!(ToolId, "Something an agent can call.");
id!(AgentId, "A specification, and the tools that are attached to it.");
id!(FileId, "Bytes with a name: a document, or what code made.");
id!(ApprovalId, "One question to a person.");
