//! Counts the work of one check in steps, so that a check of any schema and value ends. Work that
//! depends on the size of a text or a value must be counted before it is done.

/// A step takes at most a tenth of a microsecond in a release build, so that a check ends within
/// half a second of CPU time. Arguments of the largest size have some hundred thousand values.
pub(crate) const STEPS_MAX: usize = 4_000_000;
/// Bytes of a text that are read, hashed or compared in one step.
const STEP_TEXT_BYTES: usize = 16;

#[derive(Debug)]
pub(crate) struct StepBudget {
    steps_left: usize,
}

impl StepBudget {
    pub(crate) fn new() -> Self {
        Self { steps_left: STEPS_MAX }
    }

    pub(crate) fn spend_steps(&mut self, steps: usize) {
        self.steps_left = self.steps_left.saturating_sub(steps);
    }

    /// Counts work on a text.
    pub(crate) fn spend_text(&mut self, text: &str) {
        self.spend_steps(1 + text.len() / STEP_TEXT_BYTES);
    }

    pub(crate) fn steps_left(&self) -> usize {
        self.steps_left
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps_left() == 0
    }
}
