//! The report of the doctor, as a table and as JSON.

use super::proofs::SandboxTrial;
use serde::Serialize;
use std::fmt::Write;
use std::io::IsTerminal;

/// One isolation layer or tool of the host.
#[derive(Debug, Clone, Serialize)]
pub(super) struct HostCheck {
    pub(super) name: String,
    pub(super) state: HostCheckState,
    /// Observed version, path or setting, or the error of Linux.
    pub(super) evidence: String,
    /// The purpose of the layer or tool; empty if it is not used.
    pub(super) provides: &'static str,
    /// Command or setting that makes it available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HostCheckState {
    Ok,
    /// Required, and not available: Belljar does not run code.
    Missing,
    /// Not available, and not required to run code safely.
    Optional,
    /// Available, and not used.
    Skipped,
}

/// One attempt of code in a sandbox.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Proof {
    pub(super) name: &'static str,
    /// The property that the attempt proves.
    pub(super) claim: &'static str,
    pub(super) outcome: ProofOutcome,
    /// Observed result of the attempt.
    pub(super) evidence: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProofOutcome {
    Proved,
    NotProved,
    /// No sandbox could be started.
    NotTried,
}

#[derive(Debug, Serialize)]
pub(super) struct DoctorReport {
    pub(super) safe: bool,
    version: &'static str,
    layers: Vec<HostCheck>,
    tools: Vec<HostCheck>,
    environment: String,
    proofs: Vec<Proof>,
    /// Why no sandbox could be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl DoctorReport {
    pub(super) fn new(layers: Vec<HostCheck>, tools: Vec<HostCheck>, trial: SandboxTrial) -> Self {
        let SandboxTrial { environment, proofs, error } = trial;
        let complete =
            |rows: &[HostCheck]| rows.iter().all(|row| row.state != HostCheckState::Missing);
        let all_proved = proofs.iter().all(|proof| proof.outcome == ProofOutcome::Proved);
        let safe = complete(&layers) && complete(&tools) && all_proved;
        let version = env!("CARGO_PKG_VERSION");
        Self { safe, version, layers, tools, environment, proofs, error }
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn table(&self) -> String {
        self.table_with(ColorMode::for_stdout())
    }

    fn table_with(&self, paint: ColorMode) -> String {
        let mut table = String::new();
        self.write_table(&mut table, paint).map(|()| table).unwrap_or_default()
    }

    fn write_table(&self, table: &mut String, paint: ColorMode) -> std::fmt::Result {
        writeln!(table, "LAYERS")?;
        for HostCheck { name, state, evidence, provides, .. } in &self.layers {
            writeln!(table, "  {} {name:<17} {evidence:<24} {provides}", paint.state(*state))?;
        }
        writeln!(table, "\nTOOLS")?;
        // Paths come last, because they may be long.
        for HostCheck { name, state, evidence, provides, .. } in &self.tools {
            let provides =
                if provides.is_empty() { String::new() } else { format!("{provides:<24} ") };
            writeln!(table, "  {} {name:<17} {provides}{evidence}", paint.state(*state))?;
        }
        writeln!(table, "\nPROOFS (code in a sandbox of the environment `{}`)", self.environment)?;
        for Proof { claim, outcome, evidence, .. } in &self.proofs {
            let line = format!("{claim:<42}  {evidence}");
            writeln!(table, "  {} {}", paint.outcome(*outcome), line.trim_end())?;
        }
        if let Some(error) = &self.error {
            writeln!(table, "  {error}")?;
        }
        self.write_fixes(table, "TO FIX", HostCheckState::Missing)?;
        self.write_fixes(table, "OPTIONAL", HostCheckState::Optional)?;
        let verdict = if self.safe {
            "Code can be run safely on this machine."
        } else {
            "Code cannot be run safely on this machine."
        };
        writeln!(table, "\n{verdict}")
    }

    /// Prints each fix once: one setting often disables several layers.
    fn write_fixes(
        &self,
        table: &mut String,
        heading: &str,
        state: HostCheckState,
    ) -> std::fmt::Result {
        let mut fixes: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in self.layers.iter().chain(&self.tools).filter(|row| row.state == state) {
            let Some(fix) = &row.fix else {
                continue;
            };
            match fixes.iter_mut().find(|(known, _)| known == fix) {
                Some((_, names)) => names.push(&row.name),
                None => fixes.push((fix, vec![&row.name])),
            }
        }
        if !fixes.is_empty() {
            writeln!(table, "\n{heading}")?;
        }
        for (fix, names) in fixes {
            match names.as_slice() {
                [first, second, _, others @ ..] => {
                    writeln!(table, "  {first}, {second} and {} more:", others.len() + 1)?;
                }
                few => writeln!(table, "  {}:", few.join(", "))?,
            }
            for line in fix.lines() {
                writeln!(table, "      {line}")?;
            }
        }
        Ok(())
    }
}

/// Whether to print colours, which is for terminals only.
#[derive(Debug, Clone, Copy)]
enum ColorMode {
    Color,
    Plain,
}

impl ColorMode {
    fn for_stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if wanted && std::io::stdout().is_terminal() { Self::Color } else { Self::Plain }
    }

    fn state(self, state: HostCheckState) -> String {
        match state {
            HostCheckState::Ok => self.paint("ok", "32"),
            HostCheckState::Missing => self.paint("MISSING", "31"),
            HostCheckState::Optional => self.paint("optional", "33"),
            HostCheckState::Skipped => self.paint("skipped", "33"),
        }
    }

    fn outcome(self, outcome: ProofOutcome) -> String {
        match outcome {
            ProofOutcome::Proved => self.paint("proved", "32"),
            ProofOutcome::NotProved => self.paint("NOT PROVED", "31"),
            ProofOutcome::NotTried => self.paint("not tried", "33"),
        }
    }

    fn paint(self, word: &str, colour: &str) -> String {
        let word = format!("{word:<10}");
        match self {
            Self::Color => format!("\x1b[{colour}m{word}\x1b[0m"),
            Self::Plain => word,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, state: HostCheckState, fix: Option<&str>) -> HostCheck {
        let (name, fix) = (name.to_owned(), fix.map(str::to_owned));
        HostCheck { name, state, evidence: "found".into(), provides: "something", fix }
    }

    fn report(layers: Vec<HostCheck>, outcome: ProofOutcome) -> DoctorReport {
        let proof = Proof { name: "a", claim: "it holds", outcome, evidence: "EPERM".into() };
        let environment = "bare".to_owned();
        DoctorReport::new(
            layers,
            Vec::new(),
            SandboxTrial { environment, proofs: vec![proof], error: None },
        )
    }

    #[test]
    fn a_machine_is_safe_when_every_layer_is_there_and_proved() {
        assert!(report(vec![row("a", HostCheckState::Ok, None)], ProofOutcome::Proved).safe);
        assert!(report(vec![row("a", HostCheckState::Optional, None)], ProofOutcome::Proved).safe);
        assert!(!report(vec![row("a", HostCheckState::Missing, None)], ProofOutcome::Proved).safe);
        assert!(!report(vec![row("a", HostCheckState::Ok, None)], ProofOutcome::NotProved).safe);
        assert!(!report(vec![row("a", HostCheckState::Ok, None)], ProofOutcome::NotTried).safe);
    }

    #[test]
    fn a_fix_for_two_layers_is_written_once() {
        let layers = vec![
            row("a", HostCheckState::Missing, Some("do x")),
            row("b", HostCheckState::Missing, Some("do x")),
        ];
        let table = report(layers, ProofOutcome::Proved).table_with(ColorMode::Plain);
        assert!(table.ends_with(
            "\nTO FIX\n  a, b:\n      do x\n\nCode cannot be run safely on this machine.\n"
        ));
    }

    #[test]
    fn nothing_but_a_terminal_gets_colours() {
        let report = report(vec![row("a", HostCheckState::Ok, None)], ProofOutcome::Proved);
        assert!(!report.table_with(ColorMode::Plain).contains('\x1b'));
        assert!(report.table_with(ColorMode::Color).contains("\x1b[32mok"));
    }
}
