//! The one loop: a model is asked, what it calls is called, what came of it is told to it, until it
//! answers in words, somebody has to be asked, or the budget is spent.

use crate::budget::{Budget, Spent, Used};
use crate::model::{Answer, Ask, Choice, Message, Model, ModelError, Offer, Stop, ToolResult};
use crate::prompts;
use crate::talk::Talk;
use crate::toolbox::{Came, Toolbox};
use crate::trace::{Purpose, Scribe};
use service::{Run, Service};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use types::{Code, Event, Fault};

/// Pieces of words are told to whoever listens when there are so many characters of them.
const TOLD_BYTES: usize = 80;
const NOT_RUN: &str = "This was not run: the run has ended.";

/// A run, and what it has used and written so far.
pub(crate) struct Walk<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) run: &'a Run,
    pub(crate) model: &'a dyn Model,
    pub(crate) budget: Budget,
    pub(crate) used: Used,
    pub(crate) scribe: Scribe,
}

/// How the model and the tools have left it.
#[derive(Debug)]
pub(crate) enum Left {
    Said(String),
    /// Somebody has to be asked first.
    Asking,
}

/// Why a run is not finished.
#[derive(Debug)]
pub(crate) enum Stopped {
    Model(ModelError),
    /// The model does not want to.
    Refusal,
    Spent(Spent),
    Cancelled,
}

impl From<Spent> for Stopped {
    fn from(spent: Spent) -> Self {
        Self::Spent(spent)
    }
}

impl Stopped {
    pub(crate) fn fault(&self) -> Fault {
        match self {
            Self::Model(error) => error.fault(),
            Self::Refusal => {
                Fault::new(Code::ModelUnavailable, "the model refuses to answer this request")
                    .hint("say it in another way, or choose another model")
            }
            Self::Spent(spent) => spent.fault(),
            Self::Cancelled => Fault::new(Code::Cancelled, "the run was cancelled"),
        }
    }
}

impl Walk<'_> {
    /// Asks once.
    pub(crate) async fn ask(
        &mut self,
        purpose: Purpose,
        system: &str,
        talk: &Talk,
        tools: Vec<Offer>,
        choice: Choice,
    ) -> Result<Answer, Stopped> {
        self.used.check(&self.budget)?;
        let since = Instant::now();
        let (system, messages) = (system.to_owned(), talk.messages.clone());
        let ask = Ask { system, messages, tools, choice };
        let words = Words { run: self.run, held: Mutex::default() };
        let answer = self.model.answer(&ask, &|piece| words.hear(piece)).await;
        words.tell();
        let answer = answer.map_err(Stopped::Model)?;
        self.used.asked(answer.tokens);
        let new = ask.messages.get(told_before(&ask.messages)..).unwrap_or_default();
        self.scribe.asked(since, purpose, &ask.system, new, &answer);
        match answer.stop {
            Stop::Refusal => Err(Stopped::Refusal),
            Stop::Done | Stop::Length => Ok(answer),
        }
    }

    pub(crate) async fn converse(
        &mut self,
        system: &str,
        talk: &mut Talk,
        tools: &mut Toolbox,
    ) -> Result<Left, Stopped> {
        loop {
            let choice = tools.choice();
            let answer = self.ask(Purpose::Work, system, talk, tools.offers(), choice).await?;
            let Answer { text, calls, .. } = answer;
            if text.trim().is_empty() && calls.is_empty() {
                self.used.came(true);
                talk.say(prompts::EMPTY.trim_end());
                continue;
            }
            let said = Message::Model { text: text.clone(), calls: calls.clone() };
            talk.messages.push(said);
            if calls.is_empty() {
                return Ok(Left::Said(text));
            }
            for came in tools.call_all(self, calls).await? {
                match came {
                    Came::Back(result) => talk.answered.push(result),
                    Came::Waits(pending) => talk.pending.push(pending),
                }
            }
            if !talk.pending.is_empty() {
                return Ok(Left::Asking);
            }
            let results = std::mem::take(&mut talk.answered);
            talk.messages.push(Message::Tools { results });
        }
    }
}

/// How many of these the model has been told when it was asked before.
fn told_before(messages: &[Message]) -> usize {
    let last = messages.iter().rposition(|message| matches!(message, Message::Model { .. }));
    last.map_or(0, |last| last + 1)
}

/// A conversation that stopped in the middle of its calls could not be gone on from: every call has
/// to have a result.
pub(crate) fn close(talk: &mut Talk) {
    let Some(Message::Model { calls, .. }) = talk.messages.last() else { return };
    if calls.is_empty() || !talk.pending.is_empty() {
        return;
    }
    let mut results = std::mem::take(&mut talk.answered);
    for call in calls {
        if !results.iter().any(|result| result.call_id == call.id) {
            let (call_id, name) = (call.id.clone(), call.name.clone());
            results.push(ToolResult { call_id, name, text: NOT_RUN.to_owned(), failed: true });
        }
    }
    talk.messages.push(Message::Tools { results });
}

/// What a model says, for whoever listens: not letter by letter.
struct Words<'a> {
    run: &'a Run,
    held: Mutex<String>,
}

impl Words<'_> {
    fn hear(&self, piece: &str) {
        let long = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.push_str(piece);
            held.len() >= TOLD_BYTES || held.ends_with('\n')
        };
        if long {
            self.tell();
        }
    }

    fn tell(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.is_empty() {
            self.run.tell(Event::Said { text: std::mem::take(&mut held) });
        }
    }
}
