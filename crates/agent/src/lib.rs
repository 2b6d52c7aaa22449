//! Lets a language model use Belljar, within a budget.

mod model;

pub use model::{
    Answer, Ask, Choice, Message, Model, ModelError, Offer, Stop, Tokens, ToolCall, ToolResult,
};
