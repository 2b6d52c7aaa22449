//! Options of all commands that run code locally, and the engine and runtime for them.

use super::CliError;
use contract::{CodeTool, ToolEntryPoint};
use engine::preflight::{self, EnvironmentContents};
use engine::{Config, Environments, IsolationLayer, PythonChoice};
use std::env;
use std::path::PathBuf;
use tokio::runtime::Runtime;
use types::{Error, WorkKind};

/// Environment of code that does not specify one.
pub(super) const DEFAULT_ENVIRONMENT: &str = "default";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct EngineArgs {
    /// Environment, built-in or your own (see `belljar env ls`) [default: that of the tool's kind,
    /// otherwise default; on a server, that of the server]
    #[arg(long = "env", value_name = "NAME")]
    pub(super) environment_name: Option<String>,

    #[command(flatten)]
    paths: LocalDataArgs,

    /// Modules that code may import besides the standard library, such as `numpy,pandas` [default:
    /// all installed]
    #[arg(
        long,
        value_name = "NAMES",
        env = "PYTHON_PACKAGES_WHITELIST_IMPORT",
        value_delimiter = ',',
        hide_env_values = true
    )]
    imports: Option<Vec<String>>,

    /// Run even if this isolation layer (landlock or seccomp) is missing; results have a warning.
    /// Repeatable
    #[arg(long, value_name = "NAME", value_parser = parse_layer)]
    allow_missing_layer: Vec<IsolationLayer>,
}

/// Paths on this machine.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct LocalDataArgs {
    /// Directory of the environments [default: the XDG data directory]
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA", hide_env_values = true)]
    data: Option<PathBuf>,

    /// Python to use: a version such as 3.12, or a path [default: the newest one found]
    #[arg(long, value_name = "VERSION | PATH", env = "BELLJAR_PYTHON", hide_env_values = true)]
    python: Option<PythonChoice>,
}

fn parse_layer(name: &str) -> Result<IsolationLayer, String> {
    let known = IsolationLayer::ALL.into_iter().find(|layer| layer.name() == name);
    known.ok_or_else(|| {
        let names = IsolationLayer::ALL.map(IsolationLayer::name).join(", ");
        format!("only these layers are optional: {names}")
    })
}

impl EngineArgs {
    /// Returns the environment of local code.
    pub(super) fn environment(&self) -> &str {
        self.environment_name.as_deref().unwrap_or(DEFAULT_ENVIRONMENT)
    }

    /// Returns the environment of a tool that runs locally.
    pub(super) fn tool_environment(&self, tool: &CodeTool) -> &str {
        tool_environment(self.environment_name.as_deref(), tool)
    }

    /// The configuration for one caller at a command line.
    pub(super) fn single_config(&self) -> Result<Config, CliError> {
        Ok(self.apply(self.paths.single_config()?))
    }

    /// The configuration for many sandboxes.
    pub(super) fn service_config(&self) -> Result<Config, CliError> {
        Ok(self.apply(self.paths.service_config()?))
    }

    /// Why a tool that starts these programs cannot be called, if it cannot.
    pub(super) fn missing_programs(&self, tool: &CodeTool) -> Result<Option<Error>, CliError> {
        if tool.requires_binaries.is_empty() {
            return Ok(None);
        }
        let environment = self.tool_environment(tool);
        let contents = self.paths.contents(environment, self.imports.as_deref())?;
        let missing = contents.missing_programs(&tool.requires_binaries);
        Ok((!missing.is_empty()).then(|| preflight::missing_programs_error(environment, &missing)))
    }

    fn apply(&self, config: Config) -> Config {
        let (without, imports) = (self.allow_missing_layer.clone(), self.imports.clone());
        Config { allowed_missing_layers: without, imports, ..config }
    }
}

impl LocalDataArgs {
    pub(super) fn new(data: Option<PathBuf>, python: Option<PythonChoice>) -> Self {
        Self { data, python }
    }

    /// The configuration of a server.
    pub(super) fn service_config(&self) -> Result<Config, CliError> {
        let python = self.python.clone();
        Ok(Config { python, ..Config::for_server(self.data()?, helper_program()) })
    }

    /// The configuration for one caller, with all isolation layers required.
    pub(super) fn single_config(&self) -> Result<Config, CliError> {
        Ok(Config {
            python: self.python.clone(),
            ..Config::for_command_line(self.data()?, helper_program())
        })
    }

    pub(super) fn python(&self) -> Option<&PythonChoice> {
        self.python.as_ref()
    }

    /// Returns the contents of an environment, as far as they are known without starting it.
    pub(super) fn contents(
        &self,
        environment: &str,
        imports: Option<&[String]>,
    ) -> Result<EnvironmentContents, CliError> {
        let environments = Environments::open(&self.data()?)
            .map_err(|error| CliError::internal(error.to_string()))?;
        EnvironmentContents::load(&environments, self.python(), imports, environment)
            .map_err(|error| CliError::usage(error.message))
    }

    pub(super) fn data(&self) -> Result<PathBuf, CliError> {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/share"));
        self.data
            .clone()
            .or_else(|| {
                let shared = variable("XDG_DATA_HOME").map(PathBuf::from).or_else(home)?;
                Some(shared.join("belljar"))
            })
            .ok_or_else(|| CliError::usage("HOME is not set; choose a data directory with --data"))
    }
}

/// Returns the named environment, or that of the kind of the tool.
pub(super) fn tool_environment<'a>(named: Option<&'a str>, tool: &CodeTool) -> &'a str {
    let kind = match tool.entry {
        ToolEntryPoint::Handle { .. } => WorkKind::RunPythonCode,
        ToolEntryPoint::Run { .. } => WorkKind::CodeRunner,
    };
    named.unwrap_or(kind.default_environment())
}

/// The path of this program, which stays valid if the file is replaced while it runs.
fn helper_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

pub(super) fn build_runtime() -> Result<Runtime, CliError> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| CliError::internal(format!("cannot start threads: {error}")))
}
