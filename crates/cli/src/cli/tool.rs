//! `belljar tool`: typed tools from plain functions, on this machine and on a server.

mod call;
mod check;
mod deploy;
mod diagnostic;
mod file;
mod junit;
mod new;
mod remote;
mod remote_test;
mod test;

pub(super) use call::read_arguments;

use super::CliError;
use contract::AnnotationMode;
use std::process::ExitCode;

/// Exit code for an invalid tool or a failed test.
const EXIT_INVALID: u8 = 1;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check a tool and print its contract as JSON Schema
    ///
    /// Use it while you write a tool: it lists all errors with their lines, without running the
    /// code.
    #[command(after_help = "Examples:\n  \
        belljar tool check convert.py\n  \
        belljar tool check convert.py --env mine --json")]
    Check(check::Args),
    /// Run the test() function of each tool
    ///
    /// Use it before you add a tool to a server, and in CI. With a server, a file is tested there
    /// without being saved, and a name is a tool of the server.
    #[command(after_help = "Examples:\n  \
        belljar tool test convert.py\n  \
        belljar tool test convert.py --junit report.xml\n  \
        belljar tool test book --agent helper --server http://127.0.0.1:7117")]
    Test(test::Args),
    /// Call a tool and print its return value as JSON
    ///
    /// Use it to try a tool: a file runs on this machine, a name calls the tool of a server.
    #[command(after_help = "Examples:\n  \
        belljar tool call convert.py --args '{\"text\": \"ho\", \"times\": 3}'\n  \
        belljar tool call media_probe --args '{\"media_path\": \"a.mp4\"}'")]
    Call(call::Args),
    /// Create a tool from a template
    ///
    /// Use it to start a tool: it writes a working file with a handle() and a test().
    #[command(after_help = "Examples:\n  \
        belljar tool new convert\n  \
        belljar tool new probe --style run")]
    New(new::Args),
    /// Add a tool to a server
    ///
    /// Use it to let agents and MCP clients of a server call the tool.
    #[command(after_help = "Examples:\n  \
        belljar tool add convert.py\n  \
        belljar tool add media_probe.json --approval review")]
    Add(remote::AddToolArgs),
    /// Deploy a directory as a function of a server
    ///
    /// Use it when a tool needs its own packages, more memory or more time. Deploying again
    /// replaces the function.
    #[command(after_help = "Examples:\n  \
        belljar tool deploy forecast\n  \
        belljar tool deploy ./forecast --name forecast_v2")]
    Deploy(deploy::Args),
    /// List the tools of a server
    ///
    /// Use it to find the name or id of a tool.
    #[command(after_help = "Examples:\n  \
        belljar tool ls\n  \
        belljar tool ls --search media")]
    Ls(remote::ListToolsArgs),
    /// Show a tool of a server with its code
    ///
    /// Use it to read what a call would run.
    #[command(after_help = "Examples:\n  \
        belljar tool show media_probe")]
    Show(remote::ToolNameArgs),
    /// Delete a tool of a server
    ///
    /// Use it for tools that no agent uses; detach the tool from its agents first.
    #[command(after_help = "Examples:\n  \
        belljar tool rm media_probe")]
    Rm(remote::ToolNameArgs),
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    match args.verb {
        Command::Check(args) => check::main(&args),
        Command::Test(args) => test::main(args),
        Command::Call(args) => call::main(args),
        Command::New(args) => new::main(&args),
        Command::Add(args) => remote::add(&args),
        Command::Deploy(args) => deploy::main(&args),
        Command::Ls(args) => remote::ls(args),
        Command::Show(args) => remote::show(&args),
        Command::Rm(args) => remote::rm(&args),
    }
}

/// Which annotations a `handle` may have.
#[derive(Debug, Clone, Copy, clap::Args)]
struct AnnotationArgs {
    /// Also accept Optional, Literal, dict, TypedDict, dataclass, nested lists and their defaults
    #[arg(long)]
    pub(super) extended: bool,
}

impl AnnotationArgs {
    fn mode(self) -> AnnotationMode {
        if self.extended { AnnotationMode::Extended } else { AnnotationMode::Strict }
    }
}
