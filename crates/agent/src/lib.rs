//! Lets a language model use Belljar, within a budget.

mod model;
mod models;

pub use model::{
    Answer, Ask, Choice, Listener, Message, Model, ModelError, Offer, Stop, Tokens, ToolCall,
    ToolResult,
};
pub use models::{
    ModelSettings, Models, ModelsError, Patience, Script, ScriptError, ScriptedCall, ScriptedModel,
    Turn,
};
