//! Lets a language model use Belljar within a budget. `service` runs its calls with the privileges
//! of the principal who started the run, and the trace records everything.
//!
//! Start reading at `agent_loop.rs`. `code_task.rs` is the loop with a plan and only the
//! interpreter, `chat.rs` the loop with the tools of an agent.

mod agent_loop;
mod artifacts;
mod budget;
mod capabilities;
mod chat;
mod chat_result;
mod code_run;
mod code_task;
mod code_tools;
mod confirmation;
mod conversation;
mod conversation_files;
mod interpreter;
mod logs;
mod model;
mod models;
mod numeric_grounding;
mod observation;
mod prompts;
mod runs;
mod skills;
mod toolbox;
mod trace;

pub use capabilities::{
    CODE_INTERPRETER_DESCRIPTION, CODE_INTERPRETER_TITLE, Capability, CapabilityCategory,
    CapabilityKind, CapabilitySource, CapabilityState, NewCapability, skill_title,
};
pub use chat::{AGENT, ChatRequest, ExternalChatRequest, InputMessage};
pub use chat_result::{ChatEnvelope, ChatResult};
pub use code_run::{Artifact, CodeRequest, CodeResult, UploadedFile, code_result, not_a_run_error};
pub use confirmation::{Confirmation, ConfirmationKind, ConfirmationStatus};
pub use model::{
    Message, Model, ModelError, ModelRequest, ModelResponse, ModelStopReason, TextListener,
    TokenUsage, ToolCall, ToolCallMode, ToolDefinition, ToolResult,
};
pub use models::{
    ModelApi, ModelFeature, ModelScript, ModelSettings, ModelView, Models, ModelsError,
    ProviderRetryPolicy, ScriptError, ScriptTurn, ScriptedCall, ScriptedModel,
};
pub use runs::Agents;
pub use toolbox::{CODE_EXECUTION, CODE_INTERPRETER};
pub use trace::{Purpose, RunDetails, Trace, TraceAction, TraceStep};
