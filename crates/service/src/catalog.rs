//! Agents, tools, functions and environments: what can be run.

pub(crate) mod agents;
pub(crate) mod callable_tools;
pub(crate) mod embedded_tools;
pub(crate) mod environments;
pub(crate) mod explain;
pub(crate) mod functions;
pub(crate) mod packages;
pub(crate) mod specification;
pub(crate) mod tool_bindings;
pub(crate) mod tool_definition;
pub(crate) mod tools;
