//! The budget of a run, and its usage.

use crate::model::{ModelResponse, TokenUsage};
use service::ROUNDS_MAX;
use std::time::Duration;
use types::{Error, ErrorCode};

/// Rounds of a code run with a short plan, as in the published example.
const CODE_ROUNDS: u32 = 6;
/// Each step may run once and be repaired once.
const ROUNDS_PER_STEP: u32 = 2;
/// Rounds of an agent. Each may call several tools.
const AGENT_ROUNDS: u32 = 20;
/// A few hundred pages of input and output.
const TOKENS: u64 = 1_000_000;
/// Bytes per token of a text, as an upper bound.
const BYTES_PER_TOKEN_MAX: u64 = 8;
/// A person waits for the result.
const TIME: Duration = Duration::from_secs(10 * 60);
/// One attempt and two repairs.
const FAILURES: u32 = 3;
/// Length of a failure message: one or two sentences.
const FAILURE_CHARS_MAX: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunBudget {
    pub(crate) rounds: u32,
    pub(crate) tokens: u64,
    pub(crate) time: Duration,
    /// Consecutive tool failures.
    pub(crate) failures: u32,
}

/// The exhausted part of the budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BudgetExceeded {
    #[error("the limit of {0} rounds was reached")]
    Rounds(u32),
    #[error("the limit of {0} tokens was reached")]
    Tokens(u64),
    #[error("the limit of {} seconds was reached", .0.as_secs())]
    Time(Duration),
    #[error("{times} consecutive attempts failed; the last error: {last}")]
    Failures { times: u32, last: String },
}

impl BudgetExceeded {
    pub(crate) fn to_error(&self) -> Error {
        let hint = match self {
            Self::Rounds(_) => "request less at once, or continue in the same session",
            Self::Tokens(_) => "request less at once, or raise the budget of the agent",
            Self::Time(_) => "request less at once, or continue in the same session",
            Self::Failures { .. } => {
                "check the failed steps in the trace, and give a more detailed request"
            }
        };
        Error::new(ErrorCode::BudgetExhausted, self.to_string()).hint(hint)
    }
}

impl RunBudget {
    pub(crate) fn for_agent() -> Self {
        Self { rounds: AGENT_ROUNDS, tokens: TOKENS, time: TIME, failures: FAILURES }
    }

    pub(crate) fn for_code(rounds: Option<u32>) -> Self {
        Self { rounds: rounds.unwrap_or(CODE_ROUNDS), ..Self::for_agent() }
    }

    /// Rounds for a plan with this many steps, if the request sets no limit.
    pub(crate) fn rounds_for_steps(steps: usize) -> u32 {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        steps.saturating_mul(ROUNDS_PER_STEP).clamp(CODE_ROUNDS, ROUNDS_MAX)
    }
}

/// Usage so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunUsage {
    pub(crate) rounds: u32,
    pub(crate) requests: u64,
    pub(crate) tokens: TokenUsage,
    /// Consecutive failures, and the message of the last one.
    failures: u32,
    last_failure: String,
}

impl RunUsage {
    /// Raises the provider's output count to a lower bound computed from the text.
    pub(crate) fn record_response(&mut self, answer: &ModelResponse) {
        let calls = answer.calls.iter().map(|call| call.arguments.to_string().len());
        let bytes = answer.text.len() + calls.sum::<usize>();
        let least = u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_PER_TOKEN_MAX;
        let TokenUsage { input, output } = answer.tokens;
        self.requests += 1;
        self.tokens += TokenUsage { input, output: output.max(least) };
    }

    /// Checked before each request to a model.
    pub(crate) fn check(&self, budget: &RunBudget) -> Result<(), BudgetExceeded> {
        if self.tokens.input + self.tokens.output >= budget.tokens {
            return Err(BudgetExceeded::Tokens(budget.tokens));
        }
        if self.failures >= budget.failures {
            return Err(BudgetExceeded::Failures {
                times: self.failures,
                last: self.last_failure.clone(),
            });
        }
        Ok(())
    }

    /// Checked before each round.
    pub(crate) fn begin_round(&mut self, budget: &RunBudget) -> Result<u32, BudgetExceeded> {
        if self.rounds >= budget.rounds {
            return Err(BudgetExceeded::Rounds(budget.rounds));
        }
        self.rounds += 1;
        Ok(self.rounds)
    }

    /// `what` is shown to users, so it is shortened.
    pub(crate) fn record_failure(&mut self, what: &str) {
        self.failures += 1;
        let line = what.split_whitespace().collect::<Vec<_>>().join(" ");
        self.last_failure = line.chars().take(FAILURE_CHARS_MAX).collect();
    }

    pub(crate) fn reset_failures(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves P-060
    #[test]
    fn a_task_is_tried_once_and_mended_twice() {
        let (budget, mut used) = (RunBudget::for_code(None), RunUsage::default());
        for tried in 0..3 {
            assert_eq!(used.check(&budget), Ok(()), "{tried}");
            used.record_failure(&format!("try {tried}\nfailed"));
        }
        let last = "try 2 failed".to_owned();
        assert_eq!(used.check(&budget), Err(BudgetExceeded::Failures { times: 3, last }));
        used.reset_failures();
        assert_eq!(used.check(&budget), Ok(()), "what has worked is a new beginning");
    }

    #[test]
    fn a_plan_has_two_rounds_for_each_step_and_six_at_least() {
        let rounds = [0, 1, 3, 4, 6, usize::MAX].map(RunBudget::rounds_for_steps);
        assert_eq!(rounds, [6, 6, 6, 8, 12, ROUNDS_MAX]);
    }
}
