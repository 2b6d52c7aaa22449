//! Executions, sessions, calls of tools and their approvals.

pub(crate) mod approvals;
pub(crate) mod call_target;
pub(crate) mod calls;
pub(crate) mod code_permission;
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
