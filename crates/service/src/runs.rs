//! Executions, sessions, calls of tools and their approvals.

pub(crate) mod approvals;
pub(crate) mod call_target;
pub(crate) mod calls;
pub(crate) mod code_permission;
pub(crate) mod conversation_files;
pub(crate) mod executions;
pub(crate) mod launch;
pub(crate) mod live_log;
pub(crate) mod mcp_calls;
pub(crate) mod model_runs;
pub(crate) mod output_budget;
pub(crate) mod pending_call;
pub(crate) mod run_request;
pub(crate) mod sessions;
pub(crate) mod tool_result;

pub(crate) use conversation_files::CONVERSATION_ROOT;

/// Code of an agent finds the files of the agent's skills below this directory.
pub const SKILLS_ROOT: &str = "/mnt/skills";
