//! The tools with which the model of an agent runs code.

/// A tool that runs code. The specification names those that the model gets, because several tools
/// for one task confuse a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeToolName {
    /// Runs code, or a request in natural language.
    CodeExecution,
    /// The same tool under its other name.
    CodeInterpreter,
    /// Runs a script, with files.
    ExecutePython,
}

impl CodeToolName {
    pub const ALL: [Self; 3] = [Self::CodeExecution, Self::CodeInterpreter, Self::ExecutePython];

    pub const fn name(self) -> &'static str {
        match self {
            Self::CodeExecution => "code_execution",
            Self::CodeInterpreter => "code_interpreter",
            Self::ExecutePython => "execute_python",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Whether it also carries out requests in natural language.
    pub fn takes_requests(self) -> bool {
        self != Self::ExecutePython
    }
}
