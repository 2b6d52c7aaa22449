//! `belljar bench`: it starts in every environment. What it measures depends on the machine, and no
//! test judges it.

use crate::harness::{belljar, stderr, stdout};
use serde_json::Value;

#[test]
fn the_figures_of_an_environment_without_packages_are_printed_as_json() {
    let output = belljar(&["bench", "--env", "bare", "--samples", "3", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let figures: Value = serde_json::from_str(&stdout(&output)).unwrap();
    for name in ["fresh", "pooled", "exec", "idle_mb", "check", "tool_call"] {
        assert!(figures[name]["value"].as_f64().unwrap() > 0.0, "{name}: {figures}");
    }
    assert_eq!(figures["worked_mb"], Value::Null, "it needs pandas");
}
