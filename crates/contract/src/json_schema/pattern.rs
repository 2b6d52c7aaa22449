//! Patterns of a schema: translated from ECMA 262, compiled within a limit of memory for all patterns
//! of the schema together, and matched by a simulation whose work is known before.

use crate::step_budget::StepBudget;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, WhichCaptures};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// Limit of one compiled pattern, in bytes; an ordinary one has some kilobytes.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;
/// Limit of all compiled patterns of a schema, in bytes: a tool is kept in memory with them.
const PATTERNS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Limit of one pattern, in characters: the compiler needs memory for each of them.
const PATTERN_CHARS_MAX: usize = 2000;
/// Memory that the compiler needs for a byte of a translated pattern.
const TRANSLATED_BYTE_MEMORY: usize = 8;
/// States of a pattern that are visited for a byte of a text in one step.
const STEP_STATES: usize = 32;

#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    automaton: PikeVM,
}

/// The patterns of one schema, each compiled once.
#[derive(Debug)]
pub(super) struct PatternCompiler<'a> {
    known: HashMap<&'a str, Arc<Pattern>>,
    bytes_left: usize,
}

impl Pattern {
    /// Whether the pattern matches a part of a text. The result means nothing if the budget is
    /// exhausted.
    pub(super) fn is_match(&self, text: &str, budget: &mut StepBudget) -> bool {
        // Each byte can visit each state.
        let visits = (text.len() + 1).saturating_mul(self.automaton.get_nfa().states().len());
        budget.spend_steps(1 + visits / STEP_STATES);
        if budget.is_exhausted() {
            return false;
        }
        // Not kept for the next match, so that matching does not increase the memory of a schema.
        self.automaton.is_match(&mut self.automaton.create_cache(), text)
    }
}

impl<'a> PatternCompiler<'a> {
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), bytes_left: PATTERNS_BYTES_MAX }
    }

    /// Memory of the patterns so far.
    pub(super) fn memory_bytes(&self) -> usize {
        PATTERNS_BYTES_MAX - self.bytes_left
    }

    /// The pattern, or the reason why it is refused.
    pub(super) fn compile_pattern(&mut self, text: &'a str) -> Result<Arc<Pattern>, String> {
        if let Some(known) = self.known.get(text) {
            return Ok(Arc::clone(known));
        }
        if text.chars().count() > PATTERN_CHARS_MAX {
            return Err(format!("pattern has more than {PATTERN_CHARS_MAX} characters"));
        }
        let invalid = || {
            let reason = "invalid, too large, or has a look-around or a backreference";
            format!("pattern {text:?} is {reason}")
        };
        let simple = simplify_escapes(text);
        let translated = jsonschema_regex::to_rust_regex(&simple).map_err(|()| invalid())?;
        self.take_bytes(translated.len() * TRANSLATED_BYTE_MEMORY)?;
        let limits = thompson::Config::new()
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(PATTERN_BYTES_MAX.min(self.bytes_left)));
        let built = PikeVM::builder().thompson(limits).build(&translated);
        let automaton = match built {
            Ok(automaton) => automaton,
            Err(_) if self.bytes_left < PATTERN_BYTES_MAX => return Err(too_many_bytes()),
            Err(_) => return Err(invalid()),
        };
        self.take_bytes(text.len() + automaton.get_nfa().memory_usage())?;
        let pattern = Arc::new(Pattern { text: text.to_owned(), automaton });
        self.known.insert(text, Arc::clone(&pattern));
        Ok(pattern)
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(too_many_bytes)?;
        Ok(())
    }
}

fn too_many_bytes() -> String {
    let most = PATTERNS_BYTES_MAX / (1024 * 1024);
    format!("the patterns of the schema need more than {most} MiB when they are compiled")
}

/// Writes escapes of classes within brackets, and control characters by their number: the
/// translation changes all of these in one pass, and of the others one in each pass.
fn simplify_escapes(pattern: &str) -> String {
    let mut simple = String::with_capacity(pattern.len());
    let mut is_in_brackets = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '[' => is_in_brackets = true,
            ']' => is_in_brackets = false,
            _ => {}
        }
        simple.push(c);
        let escaped = if c == '\\' { chars.next() } else { None };
        match (escaped, chars.as_str().chars().next()) {
            (Some(class @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')), _) if !is_in_brackets => {
                simple.pop();
                // Writing to a string cannot fail.
                let _ = write!(simple, "[\\{class}]");
            }
            (Some('c'), Some(letter)) if letter.is_ascii_alphabetic() => {
                chars.next();
                let _ = write!(simple, "x{{{:x}}}", u32::from(letter) % 32);
            }
            (escaped, _) => simple.extend(escaped),
        }
    }
    simple
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_translated_in_one_pass() {
        assert_eq!(simplify_escapes(r"\d+[\d\]]\\d\s\cA[\cb]"), r"[\d]+[\d\]]\\d[\s]\x{1}[\x{2}]");
        let many = r"\s".repeat(1000);
        let translated = simplify_escapes(&many);
        assert_eq!(translated, r"[\s]".repeat(1000));
        let mut compiler = PatternCompiler::new();
        let budget = &mut StepBudget::new();
        let word = compiler.compile_pattern(r"^\w\d\S\cJ$").unwrap();
        assert!(word.is_match("_7x\n", budget) && !word.is_match("é7x\n", budget));
    }

    #[test]
    fn a_match_takes_steps_for_the_text_and_the_size_of_the_pattern() {
        let mut compiler = PatternCompiler::new();
        let small = compiler.compile_pattern("^[a-z]+$").unwrap();
        let large = compiler.compile_pattern("^[ab]*a[ab]{9000}c").unwrap();
        let text = "ab".repeat(512 * 1024);
        let mut budget = StepBudget::new();
        assert!(small.is_match(&text, &mut budget));
        let used = StepBudget::new().steps_left() - budget.steps_left();
        assert!((text.len() / STEP_STATES..text.len()).contains(&used), "{used}");
        large.is_match(&text, &mut budget);
        assert!(budget.is_exhausted());
        let mut budget = StepBudget::new();
        assert!(!large.is_match("abc", &mut budget), "the twin: a short text");
        assert!(!budget.is_exhausted());
    }
}
