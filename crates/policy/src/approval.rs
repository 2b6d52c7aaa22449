//! The subject of an approval, as bytes that a MAC covers.
//!
//! [`BoundCall`] has everything that decides what will run. An approval is valid only if its MAC
//! matches the call that is about to run. Fields are encoded with their lengths, so that two
//! different calls never give the same bytes.

use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use types::{
    AgentId, ApprovalAction, ApprovalId, ApprovalScope, ExecutionId, LimitsRequest, PrincipalId,
    SandboxId, ToolId, WorkspaceId,
};

/// The server's secret key, as long as a block of the hash. Without it no approval can be created
/// or used.
#[derive(Clone)]
pub struct ApprovalKey([u8; Self::BYTES]);

impl ApprovalKey {
    pub const BYTES: usize = 64;

    pub fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for ApprovalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

/// A MAC over exactly what will run.
pub type MacTag = [u8; 32];

/// One call of a tool by a principal, with everything that it depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundCall<'a> {
    pub workspace: WorkspaceId,
    pub requester: PrincipalId,
    pub run_as: PrincipalId,
    pub tool: ToolId,
    pub agent: Option<AgentId>,
    pub session: Option<SandboxId>,
    pub environment: &'a str,
    /// The integrations through which the code could reach hosts.
    pub network: &'a [String],
    /// The names of the secrets that it could use.
    pub secrets: &'a [String],
    /// A hash over what those names refer to: hosts, destinations of secrets, the specification of
    /// an agent.
    pub reach: &'a MacTag,
    /// The tool's definition as its author wrote it, with its code.
    pub definition: &'a str,
    pub limits: LimitsRequest,
}

/// The parts that belong to a single execution.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundExecution<'a> {
    pub execution: ExecutionId,
    /// The arguments as JSON, in their original order.
    pub arguments: &'a str,
    /// Names of input files, and the hash of each.
    pub files: &'a [(String, String)],
    /// The digest of the session's working directory, if the caller sent code to a session.
    pub working_directory: Option<&'a str>,
    pub expires_at: DateTime<Utc>,
}

/// The scope of a remembered decision in addition to [`BoundCall`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RememberedCoverage<'a> {
    /// Any arguments: the code is in the definition.
    Definition,
    /// Code sent by the caller, with these arguments: the code, its entry, its environment and its
    /// requests.
    SentCode { arguments: &'a str },
}

/// The stage of an approval. Each stage has a different MAC, so that write access to the records
/// without the key is not enough to answer an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalStage {
    Requested,
    AllowedBy(PrincipalId),
}

/// The MAC of an approval for one execution.
pub fn mac_for_execution(
    key: &ApprovalKey,
    stage: ApprovalStage,
    bound: &BoundCall<'_>,
    once: &BoundExecution<'_>,
) -> MacTag {
    let mut sealer = MacBuilder::for_approval(key, "once");
    let by = match stage {
        ApprovalStage::Requested => None,
        ApprovalStage::AllowedBy(principal) => Some(principal.uuid()),
    };
    sealer.optional(by.as_ref().map(|id| id.as_bytes().as_slice()));
    sealer.bound_call(bound);
    sealer.field(once.execution.uuid().as_bytes());
    sealer.field(once.arguments.as_bytes());
    sealer.count(once.files.len());
    for (name, hash) in once.files {
        sealer.field(name.as_bytes());
        sealer.field(hash.as_bytes());
    }
    sealer.optional(once.working_directory.map(str::as_bytes));
    sealer.field(&once.expires_at.timestamp_micros().to_be_bytes());
    sealer.finish()
}

/// The MAC of an answer that is remembered for further calls. `None` if there is no such answer:
/// `session` needs a session; `always` for sent code needs a fresh sandbox, since code in a session
/// depends on the files and variables there.
pub fn mac_for_remembered(
    key: &ApprovalKey,
    bound: &BoundCall<'_>,
    covers: RememberedCoverage<'_>,
    scope: ApprovalScope,
) -> Option<MacTag> {
    let (name, session, exactly) = match (scope, bound.session, covers) {
        (ApprovalScope::Once, ..) | (ApprovalScope::Session, None, _) => return None,
        (ApprovalScope::Always, Some(_), RememberedCoverage::SentCode { .. }) => return None,
        (ApprovalScope::Session, session, _) => ("session", session, None),
        (ApprovalScope::Always, _, RememberedCoverage::Definition) => ("always", None, None),
        (ApprovalScope::Always, None, RememberedCoverage::SentCode { arguments }) => {
            ("always this code", None, Some(arguments))
        }
    };
    let mut sealer = MacBuilder::for_approval(key, name);
    sealer.bound_call(&BoundCall { session, ..bound.clone() });
    sealer.optional(exactly.map(str::as_bytes));
    Some(sealer.finish())
}

/// The MAC that shows that the caller was asked through their own client.
pub fn mac_for_elicitation(
    key: &ApprovalKey,
    approval: ApprovalId,
    requester: PrincipalId,
) -> MacTag {
    let mut sealer = MacBuilder::for_approval(key, "asked back");
    sealer.field(approval.uuid().as_bytes());
    sealer.field(requester.uuid().as_bytes());
    sealer.finish()
}

/// Compares in constant time.
pub fn macs_equal(one: &MacTag, other: &MacTag) -> bool {
    one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The action for a call: the stricter one of the tool's and the agent's for the tool. An agent
/// cannot waive what the owner of the tool requires.
pub fn effective_action(
    of_tool: ApprovalAction,
    of_agent: Option<ApprovalAction>,
) -> ApprovalAction {
    of_agent.map_or(of_tool, |of_agent| of_agent.max(of_tool))
}

/// Builds a MAC of fields, each with its length.
pub(crate) struct MacBuilder(Hmac<Sha256>);

impl MacBuilder {
    /// `context` separates the kinds of MACs from each other.
    pub(crate) fn new(key: &[u8; ApprovalKey::BYTES], context: &[u8]) -> Self {
        let mut builder = Self(Hmac::new(key.into()));
        builder.field(context);
        builder
    }

    fn for_approval(key: &ApprovalKey, purpose: &str) -> Self {
        let mut sealer = Self::new(&key.0, b"belljar approval 2");
        sealer.field(purpose.as_bytes());
        sealer
    }

    fn count(&mut self, count: usize) {
        self.0.update(&(count as u64).to_be_bytes());
    }

    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    fn optional(&mut self, bytes: Option<&[u8]>) {
        self.count(usize::from(bytes.is_some()));
        self.field(bytes.unwrap_or_default());
    }

    fn bound_call(&mut self, bound: &BoundCall<'_>) {
        let BoundCall {
            workspace,
            requester,
            run_as,
            tool,
            agent,
            session,
            environment,
            network,
            secrets,
            reach,
            definition,
            limits,
        } = bound;
        self.field(workspace.uuid().as_bytes());
        self.field(requester.uuid().as_bytes());
        self.field(run_as.uuid().as_bytes());
        self.field(tool.uuid().as_bytes());
        self.optional(agent.map(AgentId::uuid).as_ref().map(|id| id.as_bytes().as_slice()));
        self.optional(session.map(SandboxId::uuid).as_ref().map(|id| id.as_bytes().as_slice()));
        self.field(environment.as_bytes());
        self.count(network.len());
        for integration in *network {
            self.field(integration.as_bytes());
        }
        self.count(secrets.len());
        for secret in *secrets {
            self.field(secret.as_bytes());
        }
        self.field(*reach);
        self.field(definition.as_bytes());
        for limit in limits.values() {
            self.optional(limit.map(u64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice));
        }
    }

    pub(crate) fn finish(self) -> MacTag {
        self.0.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const KEY: ApprovalKey = ApprovalKey([7; ApprovalKey::BYTES]);

    fn bound<'a>(network: &'a [String]) -> BoundCall<'a> {
        BoundCall {
            workspace: WorkspaceId::new(Uuid::from_u128(1)),
            requester: PrincipalId::new(Uuid::from_u128(2)),
            run_as: PrincipalId::new(Uuid::from_u128(3)),
            tool: ToolId::new(Uuid::from_u128(4)),
            agent: None,
            session: None,
            environment: "default",
            network,
            secrets: &[],
            reach: &[0; 32],
            definition: "def handle(): ...",
            limits: LimitsRequest::default(),
        }
    }

    fn once<'a>(files: &'a [(String, String)]) -> BoundExecution<'a> {
        let expires_at = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let execution = ExecutionId::new(Uuid::from_u128(5));
        BoundExecution { execution, arguments: "{}", files, working_directory: None, expires_at }
    }

    #[test]
    fn a_change_of_any_part_breaks_the_seal() {
        let hosts = ["a.example".to_owned()];
        let files = [("a".to_owned(), "b".to_owned())];
        let (plain, one) = (bound(&[]), once(&[]));
        let id = Uuid::from_u128(99);
        let longer = LimitsRequest { wall_ms: Some(1), ..LimitsRequest::default() };
        let plans = [
            BoundCall { workspace: WorkspaceId::new(id), ..plain.clone() },
            BoundCall { requester: PrincipalId::new(id), ..plain.clone() },
            BoundCall { run_as: PrincipalId::new(id), ..plain.clone() },
            BoundCall { tool: ToolId::new(id), ..plain.clone() },
            BoundCall { agent: Some(AgentId::new(id)), ..plain.clone() },
            BoundCall { session: Some(SandboxId::new(id)), ..plain.clone() },
            BoundCall { environment: "bare", ..plain.clone() },
            BoundCall { network: &hosts, ..plain.clone() },
            BoundCall { secrets: &hosts, ..plain.clone() },
            BoundCall { reach: &[1; 32], ..plain.clone() },
            BoundCall { definition: "def handle(): ....", ..plain.clone() },
            BoundCall { limits: longer, ..plain.clone() },
        ];
        let later = one.expires_at + chrono::Duration::microseconds(1);
        let ones = [
            BoundExecution { execution: ExecutionId::new(id), ..one.clone() },
            BoundExecution { arguments: "{ }", ..one.clone() },
            BoundExecution { files: &files, ..one.clone() },
            BoundExecution { working_directory: Some(""), ..one.clone() },
            BoundExecution { expires_at: later, ..one.clone() },
        ];
        let seal_once = |key: &ApprovalKey, bound: &BoundCall<'_>, once: &BoundExecution<'_>| {
            super::mac_for_execution(key, ApprovalStage::Requested, bound, once)
        };
        let right = seal_once(&KEY, &plain, &one);
        assert!(macs_equal(&right, &seal_once(&KEY, &bound(&[]), &once(&[]))));
        let other = ApprovalStage::AllowedBy(PrincipalId::new(id));
        assert!(!macs_equal(&right, &super::mac_for_execution(&KEY, other, &plain, &one)));
        for plan in &plans {
            assert!(!macs_equal(&right, &seal_once(&KEY, plan, &one)), "{plan:?}");
        }
        for other in &ones {
            assert!(!macs_equal(&right, &seal_once(&KEY, &plain, other)), "{other:?}");
        }
        assert!(!macs_equal(
            &right,
            &seal_once(&ApprovalKey([8; ApprovalKey::BYTES]), &plain, &one)
        ));
    }

    #[test]
    fn what_moves_from_one_field_to_the_next_is_seen() {
        let one = BoundCall { environment: "ab", definition: "c", ..bound(&[]) };
        let other = BoundCall { environment: "a", definition: "bc", ..bound(&[]) };
        let seal = |bound: &BoundCall<'_>| {
            mac_for_execution(&KEY, ApprovalStage::Requested, bound, &once(&[]))
        };
        assert_ne!(seal(&one), seal(&other));
    }

    #[test]
    fn an_answer_for_a_session_is_not_one_for_another_session() {
        let session = |number: u128| BoundCall {
            session: Some(SandboxId::new(Uuid::from_u128(number))),
            ..bound(&[])
        };
        let of = |bound: &BoundCall<'_>, scope| {
            mac_for_remembered(&KEY, bound, RememberedCoverage::Definition, scope)
        };
        assert_ne!(
            of(&session(1), ApprovalScope::Session),
            of(&session(2), ApprovalScope::Session)
        );
        assert_eq!(of(&session(1), ApprovalScope::Always), of(&session(2), ApprovalScope::Always));
        assert_ne!(of(&session(1), ApprovalScope::Always), of(&session(1), ApprovalScope::Session));
        assert_eq!(of(&bound(&[]), ApprovalScope::Session), None, "there is no session");
        assert_eq!(of(&session(1), ApprovalScope::Once), None, "once is not remembered");
    }

    #[test]
    fn t100_always_for_sent_code_is_for_that_code_alone() {
        let session = BoundCall { session: Some(SandboxId::new(Uuid::from_u128(1))), ..bound(&[]) };
        let always = |bound: &BoundCall<'_>, arguments| {
            mac_for_remembered(
                &KEY,
                bound,
                RememberedCoverage::SentCode { arguments },
                ApprovalScope::Always,
            )
        };
        let agreed = always(&bound(&[]), "print(1)");
        assert!(agreed.is_some());
        assert_eq!(agreed, always(&bound(&[]), "print(1)"));
        assert_ne!(agreed, always(&bound(&[]), "print(2)"));
        assert_ne!(agreed, always(&bound(&["internet".to_owned()]), "print(1)"));
        assert_eq!(always(&session, "print(1)"), None, "a session has files and variables");
        let of_tool = mac_for_remembered(
            &KEY,
            &bound(&[]),
            RememberedCoverage::Definition,
            ApprovalScope::Always,
        );
        assert_ne!(agreed, of_tool);
    }

    #[test]
    fn the_stricter_word_holds() {
        use ApprovalAction::{Allow, Confirm, Deny, Review};
        for (of_tool, of_agent, result) in [
            (Allow, None, Allow),
            (Allow, Some(Allow), Allow),
            (Confirm, None, Confirm),
            (Confirm, Some(Allow), Confirm),
            (Allow, Some(Confirm), Confirm),
            (Review, Some(Confirm), Review),
            (Confirm, Some(Deny), Deny),
            (Allow, Some(Review), Review),
            (Review, Some(Allow), Review),
            (Review, None, Review),
            (Deny, Some(Allow), Deny),
            (Allow, Some(Deny), Deny),
        ] {
            assert_eq!(effective_action(of_tool, of_agent), result);
        }
    }
}
