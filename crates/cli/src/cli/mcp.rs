//! `belljar mcp`: an MCP server on standard input and output, with an embedded engine or as a
//! bridge to a server. Standard output contains only the protocol.

mod bridge;
mod local;
mod stdout_reader;

use super::engine_args::{self, EngineArgs};
use super::model_args::ModelArgs;
use super::remote::ServerArgs;
use super::{CliError, permission, serve};
use std::process::ExitCode;
use std::time::Duration;
use types::Permission;

/// Time for pending responses after the client closed its input. The default time limit of code is
/// half of it, and the environment may have to be built first.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    engine: EngineArgs,

    #[command(flatten)]
    server: ServerArgs,

    #[command(flatten)]
    embedded: EmbeddedArgs,
}

/// Options of the embedded engine; a server has its own settings.
#[derive(Debug, clap::Args)]
struct EmbeddedArgs {
    /// Seconds after which a call becomes a task, for clients that support tasks
    #[arg(long, value_name = "S", default_value_t = serve::TASK_SECONDS)]
    task_seconds: u64,

    /// Approval policy for code: allow, ask (for every run), ask_once (per session) or deny
    /// [default: allow]. A server has its own policy (see `belljar permission`)
    #[arg(long, value_name = "PERMISSION", value_parser = permission::parse_permission)]
    permission: Option<Permission>,

    #[command(flatten)]
    models: ModelArgs,

    /// host:port of an internal server that `files` may be fetched from; repeatable. With --server,
    /// the setting of the server applies
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "BELLJAR_FETCH_FROM",
        value_delimiter = ',',
        hide_env_values = true
    )]
    fetch_from: Vec<String>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    let runtime = engine_args::build_runtime()?;
    if args.server.is_named() {
        if args.embedded.permission.is_some() {
            let message = "--permission cannot be used with --server; set the policy of the server with `belljar permission`";
            return Err(CliError::usage(message));
        }
        runtime.block_on(bridge::run(args.server.connect()?))?;
    } else {
        runtime.block_on(local::run(&args.engine, args.embedded))?;
    }
    // Do not wait for the thread that reads the next line of a client that has disconnected.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
