//! The allowed values of a schema.

use crate::number::{canonical_text, json_equal};
use crate::step_budget::StepBudget;
use serde_json::Value;
use std::collections::HashSet;

/// Allowed values. Looking one up takes as long as reading it, however many there are; only arrays
/// and objects are compared one by one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choices {
    values: Vec<Value>,
    /// Canonical texts of the scalars.
    scalars: HashSet<String>,
    /// Length of the longest string.
    text_bytes_max: usize,
    /// Positions of arrays and objects.
    composites: Vec<usize>,
}

impl From<Vec<Value>> for Choices {
    fn from(values: Vec<Value>) -> Self {
        let mut choices = Self::default();
        for (at, value) in values.iter().enumerate() {
            if value.is_array() || value.is_object() {
                choices.composites.push(at);
                continue;
            }
            let bytes = value.as_str().map_or(0, str::len);
            choices.text_bytes_max = choices.text_bytes_max.max(bytes);
            choices.scalars.insert(canonical_text(value));
        }
        Self { values, ..choices }
    }
}

impl Choices {
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn contains(&self, value: &Value, budget: &mut StepBudget) -> bool {
        budget.spend_steps(1);
        match value {
            Value::Array(_) | Value::Object(_) => {
                let mut composites = self.composites.iter().filter_map(|at| self.values.get(*at));
                composites.any(|choice| json_equal(choice, value, budget))
            }
            Value::String(text) if text.len() > self.text_bytes_max => false,
            scalar => {
                budget.spend_text(scalar.as_str().unwrap_or_default());
                self.scalars.contains(&canonical_text(scalar))
            }
        }
    }
}
