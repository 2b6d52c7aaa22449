//! The command line: one file a verb, and this one that tells them apart.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what a command line is for; nothing else in the workspace does"
)]

mod agent;
mod api;
mod approvals;
mod audit;
mod bench;
mod demo;
mod display;
mod doctor;
mod embedded_service;
mod engine_args;
mod env;
mod exec;
mod execution;
mod function;
mod grant;
mod images;
mod key;
mod mcp;
mod model_args;
mod network;
mod one_shot;
mod package;
mod permission;
mod principal;
mod progress;
mod remote;
mod request_args;
mod resource_names;
mod secret;
mod serve;
mod session;
mod skill;
mod terminal;
mod tool;
mod volume;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A server has refused.
const EXIT_REJECTED: u8 = 1;
/// Something in the request itself is wrong; as for most commands.
const EXIT_USAGE: u8 = 2;
/// Belljar, and not the code, has failed; as for container runtimes.
const EXIT_INTERNAL: u8 = 125;

/// A real Python for AI agents, that they can use and cannot break out of.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve sessions, tools, files and approvals over REST
    Serve(Box<serve::Args>),
    /// Be an MCP server on standard input and output, for any agent
    Mcp(mcp::Args),
    /// Run code in a fresh sandbox
    Exec(exec::Args),
    /// Work at a prompt, in a sandbox that remembers; or look after the sessions of a server
    Session(session::Args),
    /// Make typed tools of plain functions: check, test, call; and bring them to a server
    Tool(tool::Args),
    /// Look after functions of a server, and call them (`belljar tool deploy` deploys one)
    Function(function::Args),
    /// Look after skills: check, list, show, install, and run their scripts in a sandbox
    Skill(skill::Args),
    /// Look after environments: a Python and its packages, built once
    Env(env::Args),
    /// Look after the agents of a server
    Agent(agent::Args),
    /// Look after directories of a server that outlive sessions
    Volume(volume::Args),
    /// Say whom code of a server may talk to, and see whom it has tried to reach
    Network(network::Args),
    /// Look after values that a server keeps and nobody reads again
    Secret(secret::Args),
    /// Look at what has run on a server
    Execution(execution::Args),
    /// Answer questions that wait for a person
    Approvals(approvals::Args),
    /// Say whether code that is sent to a workspace runs, or a person is asked first
    Permission(permission::Args),
    /// Say which packages the sessions of a workspace may install
    Package(package::Args),
    /// Look after API keys
    Key(key::Args),
    /// Look after who is in a workspace
    Principal(principal::Args),
    /// Say who may do what
    Grant(grant::Args),
    /// Look after the workspaces of a server
    Workspace(workspace::Args),
    /// Call any operation of a server
    Api(api::Args),
    /// Look whether the audit log of a server is as it was written
    Audit(audit::Args),
    /// Say which walls this machine has, prove each, and tell how to get what is missing
    Doctor(doctor::Args),
    /// Watch an agent at work, without a key: it plans, writes code, corrects itself and draws
    Demo(demo::Args),
    /// Measure what the walls cost
    Bench(bench::Args),
}

pub(crate) fn main() -> ExitCode {
    let done = parse_arguments().and_then(|Cli { verb }| match verb {
        Command::Serve(args) => serve::main(*args),
        Command::Mcp(args) => mcp::main(args),
        Command::Exec(args) => exec::main(args),
        Command::Session(args) => session::main(args),
        Command::Tool(args) => tool::main(args),
        Command::Function(args) => function::main(args),
        Command::Skill(args) => skill::main(args),
        Command::Env(args) => env::main(args),
        Command::Agent(args) => agent::main(args),
        Command::Volume(args) => volume::main(args),
        Command::Network(args) => network::main(args),
        Command::Secret(args) => secret::main(args),
        Command::Execution(args) => execution::main(args),
        Command::Approvals(args) => approvals::main(args),
        Command::Permission(args) => permission::main(args),
        Command::Package(args) => package::main(args),
        Command::Key(args) => key::main(args),
        Command::Principal(args) => principal::main(args),
        Command::Grant(args) => grant::main(args),
        Command::Workspace(args) => workspace::main(args),
        Command::Api(args) => api::main(args),
        Command::Audit(args) => audit::main(args),
        Command::Doctor(args) => doctor::main(args),
        Command::Demo(args) => demo::main(args),
        Command::Bench(args) => bench::main(args),
    });
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("belljar: {}", terminal::for_stderr(&error.to_string()));
            for detail in &error.details {
                eprintln!("  {}", terminal::for_stderr(&detail.replace('\n', " ")));
            }
            ExitCode::from(error.exit)
        }
    }
}

/// What was asked for, or what is wrong with it in one line instead of clap's several.
fn parse_arguments() -> Result<Cli, CliError> {
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    Cli::try_parse().map_err(|error| {
        if !error.use_stderr() || error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
            error.exit()
        }
        let rendered = error.to_string();
        let lines = rendered.lines().take_while(|line| !line.is_empty()).map(str::trim);
        let problem = lines.collect::<Vec<_>>().join(" ");
        let problem = problem.strip_prefix("error: ").unwrap_or(&problem);
        let hint = suggestion(&error).unwrap_or_else(|| "--help explains the options".to_owned());
        CliError::usage(format!("{problem} ({hint})"))
    })
}

/// What is spelled nearly as what was said.
fn suggestion(error: &clap::Error) -> Option<String> {
    use clap::error::ContextKind::{SuggestedArg, SuggestedSubcommand, SuggestedValue};
    let mut kinds = [SuggestedSubcommand, SuggestedArg, SuggestedValue].into_iter();
    let similar = kinds.find_map(|kind| error.get(kind))?;
    Some(format!("did you mean {similar}?"))
}

/// A failure of the command itself, in one line, and one more for each place that it is about.
#[derive(Debug)]
struct CliError {
    message: String,
    details: Vec<String>,
    exit: u8,
}

impl CliError {
    fn usage(message: impl Into<String>) -> Self {
        Self::new(message, EXIT_USAGE)
    }

    /// What was asked for is not there, or not allowed.
    fn rejected(message: impl Into<String>) -> Self {
        Self::new(message, EXIT_REJECTED)
    }

    /// Not the request, but Belljar or the machine has failed.
    fn internal(message: impl Into<String>) -> Self {
        Self::new(message, EXIT_INTERNAL)
    }

    fn new(message: impl Into<String>, exit: u8) -> Self {
        Self { message: message.into(), details: Vec::new(), exit }
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message.replace('\n', " "))
    }
}

impl From<types::Error> for CliError {
    fn from(fault: types::Error) -> Self {
        let asked_wrongly = matches!(
            fault.code,
            types::ErrorCode::ArgsInvalid
                | types::ErrorCode::ArgsMissing
                | types::ErrorCode::ArgsUnknown
                | types::ErrorCode::FileUnsupported
                | types::ErrorCode::FileNotFound
        );
        let exit = if asked_wrongly { EXIT_USAGE } else { EXIT_INTERNAL };
        Self::new(fault.to_string(), exit)
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    /// A verb, and the verbs below it.
    fn describe(verb: &mut clap::Command, reference: &mut String) {
        let help = verb.render_long_help().to_string();
        let name = verb.get_bin_name().unwrap_or_default();
        *reference += &format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
        for inner in verb.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
            describe(inner, reference);
        }
    }

    /// `docs/reference/cli.md` is what `--help` says, verb by verb.
    #[test]
    fn the_reference_of_the_command_line_is_current() {
        let mut command = Cli::command().term_width(100);
        command.build();
        let mut reference = String::from(
            "# The command line\n\nMade from the program itself: \
             `BELLJAR_REGENERATE=1 cargo test -p belljar-cli --bin belljar reference`\n",
        );
        for verb in command.get_subcommands_mut().filter(|verb| verb.get_name() != "help") {
            describe(verb, &mut reference);
        }
        crate::reference::assert_current("cli.md", &reference);
    }
}
