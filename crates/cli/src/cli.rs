//! The command line: one module per command; this one parses arguments and dispatches.

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
mod local_engine;
mod mcp;
mod model;
mod model_args;
mod network;
mod one_shot;
mod package;
mod permission;
mod preference;
mod principal;
mod progress;
mod remote;
mod request_args;
mod resource_names;
mod secret;
mod serve;
mod session;
mod skill;
mod sql;
mod terminal;
mod tool;
mod volume;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Exit code when the server rejects the request.
const EXIT_REJECTED: u8 = 1;
/// Exit code for invalid arguments or input, as in most command-line programs.
const EXIT_USAGE: u8 = 2;
/// Exit code when Belljar fails and not the code, as in container runtimes.
const EXIT_INTERNAL: u8 = 125;

/// Run Python code of AI agents in isolated sandboxes
///
/// Use it on the command line (`exec`, `session`), as an MCP server (`mcp`) or as an HTTP server
/// (`serve`). The commands that manage resources of a server connect to `--server`.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, propagate_version = true)]
#[command(after_help = "Examples:\n  \
    belljar doctor\n  \
    belljar exec 'print(6 * 7)'\n  \
    belljar serve --listen 127.0.0.1:7117")]
struct Cli {
    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the HTTP server (REST API and MCP)
    ///
    /// Use it to share sandboxes, tools, files, agents and approvals between clients. The server
    /// listens on 127.0.0.1:7117 by default. On its first start it prints the API key of the owner
    /// once.
    #[command(after_help = "Examples:\n  \
        belljar serve\n  \
        belljar serve --config belljar.toml\n  \
        belljar serve --listen 0.0.0.0:7117 --public-host belljar.example.org")]
    Serve(Box<serve::Args>),
    /// Run an MCP server on standard input and output
    ///
    /// Use it as the command of an MCP client, such as a desktop assistant or a coding agent. Code
    /// runs on this machine, or on a server if --server is set.
    #[command(after_help = "Examples:\n  \
        belljar mcp\n  \
        belljar mcp --permission ask\n  \
        belljar mcp --server http://127.0.0.1:7117 --key-file key.txt")]
    Mcp(mcp::Args),
    /// Run code in a fresh sandbox
    ///
    /// Use it for a single script or expression. Variables and files do not outlive the run; use
    /// --session, or `belljar session`, to keep them.
    #[command(after_help = "Examples:\n  \
        belljar exec 'print(6 * 7)'\n  \
        belljar exec --timeout 5 report.py --json\n  \
        belljar exec --file sales.csv --out charts plot.py\n  \
        belljar exec --server http://127.0.0.1:7117 --session talk -")]
    Exec(exec::Args),
    /// Open a Python prompt in a sandbox, or manage sessions of a server
    ///
    /// Without a subcommand, use it to work interactively on this machine: variables and files stay
    /// until you exit. The subcommands manage sessions of a server, which `belljar exec --session`
    /// runs code in.
    #[command(after_help = "Examples:\n  \
        belljar session\n  \
        belljar session --env default --file sales.csv\n  \
        belljar session new --key talk")]
    Session(session::Args),
    /// Write, check, test and publish typed tools
    ///
    /// Use it to turn a Python function into a tool that models can call: create it from a
    /// template, check and test it on this machine, then add it to a server.
    #[command(after_help = "Examples:\n  \
        belljar tool new convert\n  \
        belljar tool test convert.py\n  \
        belljar tool add convert.py")]
    Tool(tool::Args),
    /// Manage and call deployed functions
    ///
    /// Use it for functions that a server runs with their own packages and limits. `belljar tool
    /// deploy` deploys one.
    #[command(after_help = "Examples:\n  \
        belljar function ls\n  \
        belljar function call forecast --args '{\"asset\": \"pump\"}'")]
    Function(function::Args),
    /// Manage skills, and run their scripts in a sandbox
    ///
    /// Use it for skills (directories with a SKILL.md that teach an agent a task): validate your
    /// own, and install the built-in ones into a project.
    #[command(after_help = "Examples:\n  \
        belljar skill ls\n  \
        belljar skill install code-interpreter")]
    Skill(skill::Args),
    /// Manage environments (a Python version with packages)
    ///
    /// Use it when code needs other packages than those of the default environment. Environments
    /// are built once, on this machine, or on a server if --server is set.
    #[command(after_help = "Examples:\n  \
        belljar env ls\n  \
        belljar env build requirements.txt --name mine\n  \
        belljar exec --env mine 'import polars'")]
    Env(env::Args),
    /// Manage and run agents
    ///
    /// Use it to register agents from specifications, attach tools to them and run them on a
    /// server. `agent run` without an agent also works without a server.
    #[command(after_help = "Examples:\n  \
        belljar agent add sales.yaml\n  \
        belljar agent run sales --request 'How much did we sell in March?'")]
    Agent(agent::Args),
    /// List the models of a server
    ///
    /// Use it to find the name of a model for an agent or a preference.
    #[command(after_help = "Examples:\n  \
        belljar model ls")]
    Model(model::Args),
    /// Get or set your preferences
    ///
    /// Use it to choose the model that writes code for you. Preferences belong to the principal of
    /// the API key.
    #[command(after_help = "Examples:\n  \
        belljar preference set code_model openai/gpt-4.1\n  \
        belljar preference ls")]
    Preference(preference::Args),
    /// Manage volumes (persistent directories)
    ///
    /// Use it for files that must outlive a session, or that several sessions share. Code sees a
    /// volume if the specification of its agent lists it.
    #[command(after_help = "Examples:\n  \
        belljar volume new notes --quota 10000000\n  \
        belljar volume put notes prices.csv reference/prices.csv")]
    Volume(volume::Args),
    /// Manage network access of sandboxes
    ///
    /// Use it to allow hosts. Code has no network access by default: a rule lists hosts, an
    /// integration makes rules and secrets available to code. Use `network log` to see which
    /// connections code attempted.
    #[command(after_help = "Examples:\n  \
        belljar network rule new github api.github.com\n  \
        belljar network integration new github_integration --rule github\n  \
        belljar network log --denied")]
    Network(network::Args),
    /// Manage secrets
    ///
    /// Use it for API keys and passwords that code needs. The server stores values encrypted and
    /// never returns them.
    #[command(after_help = "Examples:\n  \
        belljar secret set openai --client openai < key.txt\n  \
        belljar secret ls")]
    Secret(secret::Args),
    /// Run SQL statements of Snowflake worksheets
    ///
    /// Use it for network rules, external access integrations, secrets, agents and grants that exist as
    /// SQL. Statements run one after the other; the first error stops.
    #[command(after_help = "Examples:\n  \
        belljar sql 'SHOW AGENTS'\n  \
        belljar sql --file worksheet.sql\n  \
        belljar sql < worksheet.sql")]
    Sql(sql::Args),
    /// List, show and cancel executions
    ///
    /// Use it to find out what ran on a server, with which result and resource usage, and to stop
    /// what is still running.
    #[command(after_help = "Examples:\n  \
        belljar execution ls --status running\n  \
        belljar execution cancel 0198c0de-0000-7000-8000-000000000000")]
    Execution(execution::Args),
    /// Review and decide pending approvals
    ///
    /// Use it when tool calls or submitted code wait for a decision of a person.
    #[command(after_help = "Examples:\n  \
        belljar approvals ls --state pending\n  \
        belljar approvals watch")]
    Approvals(approvals::Args),
    /// Get or set the approval policy for submitted code
    ///
    /// Use it to decide whether code that clients submit to a workspace runs at once, needs an
    /// approval, or is denied.
    #[command(after_help = "Examples:\n  \
        belljar permission show\n  \
        belljar permission set ask")]
    Permission(permission::Args),
    /// Manage which packages sessions may install
    ///
    /// Use it to restrict the packages that code of agents may install at run time.
    #[command(after_help = "Examples:\n  \
        belljar package policy show\n  \
        belljar package policy set --deny requests")]
    Package(package::Args),
    /// Manage API keys
    ///
    /// Use it to create a key for each client, and to revoke keys that are lost or no longer
    /// needed.
    #[command(after_help = "Examples:\n  \
        belljar key new ci --principal agent\n  \
        belljar key revoke ci")]
    Key(key::Args),
    /// Manage principals (users, roles and services)
    ///
    /// Use it to add the people and programs that use a workspace. Give them rights with `belljar
    /// grant` and keys with `belljar key`.
    #[command(after_help = "Examples:\n  \
        belljar principal new ann\n  \
        belljar principal new agent --kind service\n  \
        belljar principal show me")]
    Principal(principal::Args),
    /// Manage grants (privileges of principals)
    ///
    /// Use it to share tools, agents, volumes, secrets, functions and integrations, or to transfer
    /// their ownership.
    #[command(after_help = "Examples:\n  \
        belljar grant add ann USAGE workspace\n  \
        belljar grant add ann USAGE tool:media_probe\n  \
        belljar grant ls --principal ann")]
    Grant(grant::Args),
    /// Manage workspaces (tenants)
    ///
    /// Use it as the operator of a server to separate teams or customers. Principals and resources
    /// belong to one workspace.
    #[command(after_help = "Examples:\n  \
        belljar workspace new guests\n  \
        belljar workspace ls")]
    Workspace(workspace::Args),
    /// Call any operation of the REST API
    ///
    /// Use it for operations that have no command of their own. It validates requests against the
    /// OpenAPI document before it sends them.
    #[command(after_help = "Examples:\n  \
        belljar api ls --search tool\n  \
        belljar api describe createAiTool\n  \
        belljar api call createAiTool --body @tool.json")]
    Api(api::Args),
    /// Verify or sign the audit log of a server
    ///
    /// Use it on the machine of the server to detect changes of the audit log. It reads the data
    /// directory and needs no API key.
    #[command(after_help = "Examples:\n  \
        belljar audit verify\n  \
        belljar audit verify --data /var/lib/belljar")]
    Audit(audit::Args),
    /// Check which isolation layers this machine supports, prove each one, and print fixes
    ///
    /// Use it before the first run, and when a command reports a missing isolation layer. The exit
    /// status is 0 only if all layers work.
    #[command(after_help = "Examples:\n  \
        belljar doctor\n  \
        belljar doctor --json")]
    Doctor(doctor::Args),
    /// Run an example agent with a scripted model
    ///
    /// Use it to see an agent plan, write code, correct an error and draw a chart. It needs no API
    /// key and no server; the code runs in a real sandbox.
    #[command(after_help = "Examples:\n  \
        belljar demo\n  \
        belljar demo csv-cleaner --out results")]
    Demo(demo::Args),
    /// Measure the overhead of the sandbox
    ///
    /// Use it to compare machines or versions. Each figure is a ratio to a baseline of the same
    /// run, so that the results of different machines can be compared.
    #[command(after_help = "Examples:\n  \
        belljar bench\n  \
        belljar bench --samples 50 --json\n  \
        belljar bench --server --seconds 10")]
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
        Command::Model(args) => model::main(args),
        Command::Preference(args) => preference::main(args),
        Command::Volume(args) => volume::main(args),
        Command::Network(args) => network::main(args),
        Command::Secret(args) => secret::main(args),
        Command::Sql(args) => sql::main(args),
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

/// Parses the arguments, and reports an error in one line instead of clap's several.
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
        let hint = suggestion(&error).unwrap_or_else(|| "see --help".to_owned());
        CliError::usage(format!("{problem} ({hint})"))
    })
}

/// Returns clap's suggestion for a misspelled name.
fn suggestion(error: &clap::Error) -> Option<String> {
    use clap::error::ContextKind::{SuggestedArg, SuggestedSubcommand, SuggestedValue};
    let mut kinds = [SuggestedSubcommand, SuggestedArg, SuggestedValue].into_iter();
    let similar = kinds.find_map(|kind| error.get(kind))?;
    Some(format!("did you mean {similar}?"))
}

/// An error of the command itself: one line, and one more for each detail.
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

    /// The requested object does not exist, or the caller may not use it.
    fn rejected(message: impl Into<String>) -> Self {
        Self::new(message, EXIT_REJECTED)
    }

    /// Belljar or the machine failed, although the request was valid.
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
    fn from(error: types::Error) -> Self {
        let is_usage_error = matches!(
            error.code,
            types::ErrorCode::ArgsInvalid
                | types::ErrorCode::ArgsMissing
                | types::ErrorCode::ArgsUnknown
                | types::ErrorCode::FileUnsupported
                | types::ErrorCode::FileNotFound
        );
        let exit = if is_usage_error { EXIT_USAGE } else { EXIT_INTERNAL };
        Self::new(error.to_string(), exit)
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{CommandFactory, Parser};

    /// Appends the help of a command and of its subcommands to the reference.
    fn describe(verb: &mut clap::Command, reference: &mut String) {
        let help = verb.render_long_help().to_string();
        let name = verb.get_bin_name().unwrap_or_default();
        *reference += &format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
        let listed =
            |inner: &&mut clap::Command| !inner.is_hide_set() && inner.get_name() != "help";
        for inner in verb.get_subcommands_mut().filter(listed) {
            describe(inner, reference);
        }
    }

    /// `docs/reference/cli.md` contains the output of `--help` of every command.
    #[test]
    fn the_reference_of_the_command_line_is_current() {
        let mut command = Cli::command().term_width(100);
        command.build();
        let mut reference = String::from(
            "# The command line\n\nGenerated from the program: \
             `BELLJAR_REGENERATE=1 cargo test -p belljar-cli --bin belljar reference`\n",
        );
        for verb in command.get_subcommands_mut().filter(|verb| verb.get_name() != "help") {
            describe(verb, &mut reference);
        }
        crate::reference::assert_current("cli.md", &reference);
    }

    /// Calls `visit` with the full name of each visible command and with the command itself.
    fn visit_commands(
        name: &str,
        command: &clap::Command,
        visit: &mut dyn FnMut(&str, &clap::Command),
    ) {
        visit(name, command);
        for inner in command.get_subcommands() {
            if !inner.is_hide_set() && inner.get_name() != "help" {
                visit_commands(&format!("{name} {}", inner.get_name()), inner, visit);
            }
        }
    }

    /// Returns the lines of the examples, each of which starts with `belljar`.
    fn examples(command: &clap::Command) -> Vec<String> {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with("belljar "));
        lines.map(str::to_owned).collect()
    }

    /// A summary (`about`), a sentence on when to use the command (`long_about`) and an example.
    #[test]
    fn the_help_of_every_command_is_complete() {
        let mut incomplete = Vec::new();
        visit_commands("belljar", &Cli::command(), &mut |name, command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let long_about = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            if about.is_empty() {
                incomplete.push(format!("{name}: no summary"));
            }
            if long_about.is_empty() || long_about == about {
                incomplete.push(format!("{name}: no sentence on when to use it"));
            }
            if examples(command).is_empty() {
                incomplete.push(format!("{name}: no example"));
            }
        });
        assert!(incomplete.is_empty(), "{}", incomplete.join("\n"));
    }

    /// Splits an example into arguments as a shell does, up to a redirection.
    fn split_arguments(example: &str) -> Vec<String> {
        let (mut arguments, mut quoted) = (vec![String::new()], false);
        for character in example.chars() {
            match character {
                '\'' => quoted = !quoted,
                ' ' if !quoted => arguments.push(String::new()),
                other => arguments.last_mut().unwrap().push(other),
            }
        }
        let redirection = |argument: &String| argument == "<" || argument == ">";
        arguments.into_iter().take_while(|argument| !redirection(argument)).collect()
    }

    #[test]
    fn the_examples_of_every_command_are_valid() {
        let mut invalid = Vec::new();
        visit_commands("belljar", &Cli::command(), &mut |_, command| {
            for example in examples(command) {
                if let Err(error) = Cli::try_parse_from(split_arguments(&example)) {
                    invalid.push(format!("{example}: {error}"));
                }
            }
        });
        assert!(invalid.is_empty(), "{}", invalid.join("\n"));
    }
}
