//! The one loop: a model is asked, what it calls is called, what came of it is told to it, until it
//! answers in words, somebody has to be asked, or the budget is spent.

use crate::budget::{Budget, Spent, Used};
use crate::made::Made;
use crate::model::{
    Answer, Ask, Choice, Message, Model, ModelError, Offer, Stop, ToolCall, ToolResult,
};
use crate::observe::Told;
use crate::prompts;
use crate::talk::Talk;
use crate::toolbox::Toolbox;
use crate::trace::{Purpose, Scribe};
use service::{Caller, Run, Service};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use types::{Code, Event, Fault, FileOut, SandboxId, Warning};

/// Pieces of words are told to whoever listens when there are so many characters of them.
const TOLD_BYTES: usize = 80;
const NOT_RUN: &str = "This was not run: the run has ended.";
pub(crate) const STOPPED: &str =
    "This was begun and stopped in the middle: what it has done is not known.";

/// A run, and what it has used and written so far.
pub(crate) struct Walk<'a> {
    pub(crate) service: &'a Arc<Service>,
    pub(crate) run: &'a Run,
    /// Whoever asked, as they are now.
    pub(crate) caller: Caller,
    pub(crate) model: &'a dyn Model,
    pub(crate) budget: Budget,
    pub(crate) used: Used,
    pub(crate) scribe: Scribe,
    pub(crate) made: Made,
    /// The warning about each tool that ran in the interpreter of the session, by the tool's name.
    pub(crate) unisolated: BTreeMap<String, Warning>,
    /// What failed, if nothing was computed since. Then no number is believed that the model was
    /// not told.
    pub(crate) doubt: Option<Fault>,
    /// Whether something has to be run before numbers are believed, and nothing was.
    pub(crate) unproven: bool,
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
    /// Whoever asked has no good key any more.
    Unknown,
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
            Self::Unknown => {
                Fault::new(Code::AuthMissing, "the key that this run was asked for with is gone")
            }
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
        // They may have lost their key, or rights, since the last time.
        self.caller = self.service.still(&self.caller).ok_or(Stopped::Unknown)?;
        let since = Instant::now();
        let (system, messages) = (system.to_owned(), talk.messages.clone());
        let ask = Ask { system, messages, tools, choice };
        let words = Words { run: self.run, held: Mutex::default() };
        let held_back = self.holds_back();
        let hear = |piece: &str| {
            if !held_back {
                words.hear(piece)
            }
        };
        let answer = self.model.answer(&ask, &hear).await;
        words.tell();
        let new = ask.messages.get(told_before(&ask.messages)..).unwrap_or_default();
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.scribe.unanswered(since, purpose, &ask.system, new, &error);
                return Err(Stopped::Model(error));
            }
        };
        self.used.asked(&answer);
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
            let (choice, held_back) = (tools.choice(), self.holds_back());
            let answer = self.ask(Purpose::Work, system, talk, tools.offers(), choice).await?;
            let Answer { text, calls, stop, .. } = answer;
            if stop == Stop::Length {
                // Half a call is no call, and half an answer none.
                self.used.failed("the model's answer was cut off because it was too long");
                talk.say(prompts::CUT.trim_end());
                continue;
            }
            if text.trim().is_empty() && calls.is_empty() {
                self.used.failed("the model's answer was empty");
                talk.say(prompts::EMPTY.trim_end());
                continue;
            }
            let said = Message::Model { text: text.clone(), calls: calls.clone() };
            talk.messages.push(said);
            if calls.is_empty() {
                return Ok(Left::Said(text));
            }
            if held_back && !text.is_empty() && talk.is_ground_for(&text) {
                self.run.tell(Event::Said { text });
            }
            tools.call_all(self, talk, calls).await?;
            if !talk.pending.is_empty() {
                return Ok(Left::Asking);
            }
            talk.tell_results();
        }
    }

    /// Whether what the model says is judged before anybody hears it.
    fn holds_back(&self) -> bool {
        self.doubt.is_some() || self.unproven
    }

    /// What the model says at the end, or why it is not passed on.
    pub(crate) fn judge(&self, talk: &Talk, said: String) -> Result<String, Fault> {
        match &self.doubt {
            Some(fault) if !talk.is_ground_for(&said) => Err(fault.clone()),
            _ => Ok(said),
        }
    }

    /// Notes what a call has left.
    pub(crate) fn made(&mut self, files: &[FileOut], sandbox: Option<SandboxId>) {
        self.made.add(files, sandbox);
        files.iter().for_each(|file| self.run.tell(Event::File(file.clone())));
    }

    /// Notes how a call has ended.
    pub(crate) fn came(&mut self, told: &Told) {
        if told.failed {
            self.used.failed(&told.failure());
            self.doubt = told.fault.clone().or(self.doubt.take());
            return;
        }
        self.used.worked();
        if told.computed {
            self.doubt = None;
        }
    }
}

/// How many of these the model has been told when it was asked before.
fn told_before(messages: &[Message]) -> usize {
    let last = messages.iter().rposition(|message| matches!(message, Message::Model { .. }));
    last.map_or(0, |last| last + 1)
}

/// A conversation that stopped in the middle of its calls could not be gone on from: every call has
/// to have a result. What was begun and has none is given back.
pub(crate) fn close(talk: &mut Talk) -> Vec<ToolCall> {
    let Some(Message::Model { calls, .. }) = talk.messages.last() else { return Vec::new() };
    if calls.is_empty() || !talk.pending.is_empty() {
        return Vec::new();
    }
    let mut stopped = Vec::new();
    for call in calls {
        if talk.answered.iter().any(|result| result.call_id == call.id) {
            continue;
        }
        let begun = talk.begun.contains(&call.id);
        let text = if begun { STOPPED } else { NOT_RUN };
        talk.answered.push(ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text: text.to_owned(),
            failed: true,
        });
        stopped.extend(begun.then(|| call.clone()));
    }
    talk.tell_results();
    stopped
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
