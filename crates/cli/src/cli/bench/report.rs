//! The figures as a table and as JSON.

use std::time::Duration;

/// The target of a figure: a minimum or a maximum.
#[derive(Debug, Clone, Copy)]
pub(super) enum FigureTarget {
    AtMost(f64),
    AtLeast(f64),
    /// No target; shown for comparison only.
    Unbounded,
}

impl FigureTarget {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
            Self::Unbounded => true,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    /// The value in `unit`.
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) target: FigureTarget,
    /// The measured times before the division.
    pub(super) raw: String,
}

pub(super) fn format_ms(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1000.0)
}

pub(super) fn table(figures: &[Figure]) -> String {
    let mut lines = vec![format!(
        "{:<22} {:>9} {:<10} {:>10}  {:<8} {}",
        "figure", "value", "unit", "reach", "", "measured"
    )];
    for figure in figures {
        let reach = match figure.target {
            FigureTarget::AtMost(most) => format!("<= {most}"),
            FigureTarget::AtLeast(least) => format!(">= {least}"),
            FigureTarget::Unbounded => String::new(),
        };
        let verdict = match figure.target {
            FigureTarget::Unbounded => "",
            _ if figure.target.is_met(figure.value) => "reached",
            _ => "MISSED",
        };
        lines.push(format!(
            "{:<22} {:>9.3} {:<10} {:>10}  {:<8} {}",
            figure.name, figure.value, figure.unit, reach, verdict, figure.raw
        ));
    }
    lines.join("\n")
}

pub(super) fn json(figures: &[Figure]) -> String {
    let entries: serde_json::Map<String, serde_json::Value> = figures
        .iter()
        .map(|figure| {
            let reach = match figure.target {
                FigureTarget::AtMost(most) => serde_json::json!({"at_most": most}),
                FigureTarget::AtLeast(least) => serde_json::json!({"at_least": least}),
                FigureTarget::Unbounded => serde_json::Value::Null,
            };
            let entry = serde_json::json!({
                "value": figure.value,
                "unit": figure.unit,
                "reach": reach,
                "reached": figure.target.is_met(figure.value),
                "measured": figure.raw,
            });
            (figure.name.to_owned(), entry)
        })
        .collect();
    serde_json::Value::Object(entries).to_string()
}
