//! Lets a language model use Belljar, within a budget: what it calls is done by `service`, with the
//! rights of whoever asked, and everything is written down.
//!
//! Start reading at `walk.rs`, which is the loop. `code.rs` is the loop with a plan and the
//! interpreter alone, `chat.rs` with the tools of an agent.

mod budget;
mod chat;
mod chat_view;
mod code;
mod code_run;
mod confirm;
mod ground;
mod interpreter;
mod logs;
mod made;
mod model;
mod models;
mod observe;
mod prompts;
mod runs;
mod skills;
mod talk;
mod toolbox;
mod trace;
mod walk;

pub use chat::{AGENT, ChatRequest, Said};
pub use chat_view::{ChatResult, Envelope};
pub use code_run::{Artifact, CodeRequest, CodeResult, Uploaded, code_result, not_a_run};
pub use confirm::{Confirmation, ConfirmationKind, ConfirmationStatus};
pub use model::{
    Answer, Ask, Choice, Listener, Message, Model, ModelError, Offer, Stop, Tokens, ToolCall,
    ToolResult,
};
pub use models::{
    ModelSettings, Models, ModelsError, Patience, Script, ScriptError, ScriptedCall, ScriptedModel,
    Turn,
};
pub use runs::Agents;
pub use toolbox::{CODE_EXECUTION, CODE_INTERPRETER};
pub use trace::{Did, Purpose, Step, Story, Trace};
