//! The kinds of work that have an environment of their own.

/// A kind of work whose vendor document fixes what its code can import. It decides the environment
/// where neither the request nor the object names one. All other work runs in the environment of
/// plain executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A `runPythonCode` tool.
    RunPythonCode,
    /// A `code_runner` tool.
    CodeRunner,
    /// Code of an agent whose specification has a section `code_execution`.
    CodeExecution,
}

impl WorkKind {
    pub const ALL: [Self; 3] = [Self::RunPythonCode, Self::CodeRunner, Self::CodeExecution];

    pub fn name(self) -> &'static str {
        match self {
            Self::RunPythonCode => "run_python_code",
            Self::CodeRunner => "code_runner",
            Self::CodeExecution => "code_execution",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The environment of this kind of work by default.
    pub fn default_environment(self) -> &'static str {
        match self {
            Self::RunPythonCode => "atlas",
            Self::CodeRunner => "coderunner",
            Self::CodeExecution => "cortex",
        }
    }
}
