//! `belljar serve`: runs the server.
//!
//! An option comes from the command line, its environment variable, the configuration file or its
//! default, in this order. [`options`] defines each option once, [`config`] has the defaults.

mod config;
mod extra_packages;
mod options;
mod public_url;
mod telemetry;
#[cfg_attr(not(feature = "otlp"), path = "serve/no_traces.rs")]
mod traces;
// Compiled for its test, so that the error is tested in both kinds of build.
#[cfg(all(test, feature = "otlp"))]
mod no_traces;

pub(super) use config::TASK_SECONDS;
pub(super) use options::Args;

use super::{CliError, engine_args};
use agent::{Agents, Models};
use api::{AllowedHosts, AppState};
use config::ServeConfig;
use mcp::{McpOptions, McpServer};
use public_url::{PublicUrl, file_url_config};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use service::{Service, StartedService};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};

/// Length of the accept queue; the system drops further connections silently.
const BACKLOG: u32 = 1024;
/// Limit of descriptors: enough for every connection that is accepted, and for the sandboxes and files of each.
const DESCRIPTORS_MAX: u64 = 65_536;

/// Time to finish sending responses after all executions have ended. Endless streams are cut off
/// then.
const RESPONSE_DRAIN_MAX: Duration = Duration::from_secs(3);

/// Reports invalid options as plain text. After that every line on standard error is one JSON
/// object, also for a failed start.
pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    let config = ServeConfig::resolve(args)?;
    let runtime = engine_args::build_runtime()?;
    let telemetry = telemetry::init_telemetry(&config)?;
    let served = extra_packages::add_extra_packages(config).and_then(|config| {
        raise_fd_limit();
        runtime.block_on(serve(config))
    });
    telemetry.finish();
    Ok(served.unwrap_or_else(|error| telemetry::log_failure(&error)))
}

async fn serve(config: ServeConfig) -> Result<ExitCode, CliError> {
    let listener = listen(config.listen).map_err(|error| {
        let address = config.listen;
        CliError::internal(format!(
            "cannot listen on {address}: {error} (choose another address with --listen)"
        ))
    })?;
    let address = listener.local_addr().map_err(|error| CliError::internal(error.to_string()))?;
    let oauth = config.oauth.as_ref();
    let public_url = config.public_url.as_ref();
    let issuer =
        oauth.map(|it| it.issuer(address, public_url, &config.public_hosts)).transpose()?;
    let resource = issuer.as_ref().map(api::ProtectedResource::new);
    let file_urls = file_url_config(address, public_url, config.file_url_lifetime);
    let service_config = service::Config { issuer, file_urls, ..config.service };
    let started = Service::start(service_config, config.engine);
    let StartedService { service, owner_key } =
        started.await.map_err(|error| CliError::internal(error.to_string()))?;
    if let Some(key) = owner_key {
        // First, so that a later failure of the start does not lose the key: it exists only once.
        print_key_once(key.reveal());
    }
    // Before the server accepts requests, so that a failed build is reported now and not to the
    // first user.
    service.prepare_environment(telemetry::log_progress()).await?;
    let public_host = public_url.map(PublicUrl::host).into_iter();
    let hosts: Vec<String> = config.public_hosts.iter().cloned().chain(public_host).collect();
    let hosts = AllowedHosts::new(address, &hosts);
    let models = Models::new(config.models).map_err(|error| CliError::usage(error.to_string()))?;
    let agents = Agents::new(Arc::clone(&service), models);
    let app = AppState::new(
        Arc::clone(&service),
        Arc::clone(&agents),
        hosts,
        config.request_limits,
        resource,
    );
    print_address(&format!("http://{address}"));
    let base_url = service.base_url().map(str::to_owned);
    let options = McpOptions { task_after: config.task_after, base_url };
    let router = api::router(app, McpServer::new(agents, None, options));
    // The listener stays open while executions drain: clients get their responses and read records,
    // and new work is rejected with an error.
    let stopped = async {
        shutdown_signal().await;
        service.stop(config.drain).await;
    };
    api::serve(listener, router, stopped, RESPONSE_DRAIN_MAX, fd_limit()).await;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Lets a restarted server bind while connections of the previous one are closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Raises the file descriptor limit: the default suits programs that use `select`, and would allow
/// a few hundred users.
fn raise_fd_limit() {
    let bound = getrlimit(Resource::Nofile);
    let most = bound.maximum.map_or(DESCRIPTORS_MAX, |most| most.min(DESCRIPTORS_MAX));
    // Without it the server accepts fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..bound });
}

pub(super) fn fd_limit() -> usize {
    let bound = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS_MAX);
    usize::try_from(bound).unwrap_or(usize::MAX)
}

fn print_key_once(key: &str) {
    print_lines(&format!("API key of the owner (shown only once):\n{key}"));
}

/// Prints the last lines to standard output; everything later is a log on standard error.
fn print_address(address: &str) {
    print_lines(&format!("Belljar listens on {address}\nAPI documentation: {address}/docs"));
}

fn print_lines(lines: &str) {
    let mut out = std::io::stdout().lock();
    // Standard output may be closed, which must not stop the server.
    let _ = writeln!(out, "{lines}").and_then(|()| out.flush());
}

/// Returns at the first SIGTERM or SIGINT.
pub(super) async fn shutdown_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};
    use options::ServeOptions;

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        args: Args,
    }

    /// `docs/reference/serve.md`: each option with its variable and its key in the file.
    #[test]
    fn the_reference_of_the_server_is_current() {
        let mut page = String::from(
            "# Options of `belljar serve`\n\nGenerated from the program: \
             `BELLJAR_REGENERATE=1 cargo test -p belljar-cli --bin belljar reference`\n\n\
             Options of the command line take precedence over environment variables, and these over \
             the file of `--config`.\n\n| option | variable | key in the file | |\n|---|---|---|---|\n",
        );
        for option in Serve::command().get_arguments().filter(|it| it.get_id() != "help") {
            let long = option.get_long().unwrap();
            let value = option.get_value_names().unwrap().first().unwrap();
            let variable = option.get_env().unwrap().to_str().unwrap();
            let key = if long == "config" { String::new() } else { format!("`{long}`") };
            let help = option.get_help().unwrap().to_string().replace('|', "\\|");
            page += &format!("| `--{long} {value}` | `{variable}` | {key} | {help} |\n");
        }
        crate::reference::assert_current("serve.md", &page);
    }

    #[test]
    fn the_file_that_the_guide_shows_is_taken() {
        let guide = include_str!("../../../../docs/server.md");
        let shown = guide.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```"));
        toml::from_str::<ServeOptions>(shown.unwrap().0).unwrap();
    }

    #[test]
    fn every_option_has_a_key_in_the_file_and_a_variable_of_its_name() {
        for option in Serve::command().get_arguments().filter(|it| it.get_id() != "config") {
            let key = option.get_long().unwrap();
            let variable = match key {
                // Operators know these from elsewhere, and errors name the first.
                "imports" => "PYTHON_PACKAGES_WHITELIST_IMPORT".to_owned(),
                "packages" => "PYTHON_PACKAGES_AUTO_INSTALL".to_owned(),
                "run-milliseconds" => "PYTHON_FUNCTIONS_RUN_TIMEOUT".to_owned(),
                "pool" => "KERNEL_POOL_SIZE".to_owned(),
                key => format!("BELLJAR_{}", key.replace('-', "_").to_uppercase()),
            };
            assert_eq!(option.get_env().unwrap().to_str(), Some(&*variable));
            let read = toml::from_str::<ServeOptions>(&format!("{key} = {{}}"));
            let problem = read.unwrap_err().to_string();
            assert!(!problem.contains("unknown field"), "{problem}");
        }
        assert!(toml::from_str::<ServeOptions>("colour = 1").is_err());
    }
}
