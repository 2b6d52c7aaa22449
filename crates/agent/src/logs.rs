//! The transcript of a code run, with the markers that clients parse.

use crate::observation::is_failed;
use types::{Round, SandboxId};

/// Length of a step in the heading of a round.
const STEP_CHARS_MAX: usize = 80;

pub(crate) fn render_logs(
    sandbox_id: SandboxId,
    resumed: bool,
    plan: &[String],
    rounds: &[Round],
    max_rounds: u32,
) -> String {
    let verb = if resumed { "Resumed" } else { "Started" };
    let mut text = format!("INFO: {verb} sandbox session: {sandbox_id}\n");
    text.push_str(&format!("INFO: Development plan: {}\n", json_list(plan)));
    for round in rounds {
        text.push_str(&format!(
            "\n--- Round {}/{max_rounds}: {}... ---\nGENERATED CODE:\n{}\n",
            round.number,
            heading(&round.step),
            round.code.trim_end()
        ));
        let mut stream = |name: &str, content: &str| {
            if !content.trim_end().is_empty() {
                text.push_str(&format!("{name}:\n{}\n", content.trim_end()));
            }
        };
        stream("STDOUT", &round.stdout);
        stream("STDERR", &round.stderr);
        match (&round.error, is_failed(round.status)) {
            (_, false) => text.push_str("\nSTATUS: Execution successful\n"),
            (Some(error), true) => {
                text.push_str(&format!("\nSTATUS: Execution failed: {error}\n"));
            }
            (None, true) => {
                let status = round.status.name();
                text.push_str(&format!("\nSTATUS: Execution failed: {status}\n"));
            }
        }
    }
    text
}

/// A JSON list with a space after each comma.
fn json_list(plan: &[String]) -> String {
    let steps = plan.iter().map(|step| serde_json::Value::from(step.as_str()).to_string());
    format!("[{}]", steps.collect::<Vec<_>>().join(", "))
}

/// A step on one line, without trailing dots.
fn heading(step: &str) -> String {
    let line = step.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = line.chars().take(STEP_CHARS_MAX).collect();
    cut.trim_end_matches(['.', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ExecutionStatus;
    use uuid::Uuid;

    fn round(number: u32, step: &str) -> Round {
        Round {
            number,
            step: step.to_owned(),
            code: "import pandas as pd\nprint(pd)\n".to_owned(),
            execution_id: None,
            status: ExecutionStatus::Succeeded,
            stdout: "First few rows\n".to_owned(),
            stderr: String::new(),
            error: None,
        }
    }

    // proves U-038, U-039, U-040, U-041, U-042, U-043, U-044, U-045
    #[test]
    fn the_transcript_has_the_markers_of_the_published_example() {
        let id = SandboxId::new(Uuid::nil());
        let plan = ["Load the CSV file.".to_owned(), "Say \"done\"".to_owned()];
        let failed = Round {
            status: ExecutionStatus::Failed,
            stdout: String::new(),
            stderr: "a warning\n".to_owned(),
            error: Some("ValueError: no such column".to_owned()),
            ..round(2, "Say \"done\"")
        };
        let rounds = [round(1, "Load the CSV file."), failed];
        let expected = format!(
            "INFO: Started sandbox session: {id}\n\
             INFO: Development plan: [\"Load the CSV file.\", \"Say \\\"done\\\"\"]\n\
             \n--- Round 1/6: Load the CSV file... ---\n\
             GENERATED CODE:\nimport pandas as pd\nprint(pd)\n\
             STDOUT:\nFirst few rows\n\
             \nSTATUS: Execution successful\n\
             \n--- Round 2/6: Say \"done\"... ---\n\
             GENERATED CODE:\nimport pandas as pd\nprint(pd)\n\
             STDERR:\na warning\n\
             \nSTATUS: Execution failed: ValueError: no such column\n"
        );
        assert_eq!(render_logs(id, false, &plan, &rounds, 6), expected);
        let resumed = render_logs(id, true, &[], &[], 6);
        assert!(resumed.starts_with(&format!("INFO: Resumed sandbox session: {id}\n")));
    }
}
