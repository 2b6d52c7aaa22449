//! `belljar package`: which packages the sessions of a workspace may install.

use super::CliError;
use super::remote::RemoteArgs;
use crate::client::ApiRequest;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;

const POLICY: &str = "/v1/packages/policy";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Get or set the package policy
    ///
    /// Use it to allow, deny or pin the packages that sessions of a workspace may install.
    #[command(after_help = "Examples:\n  \
        belljar package policy show\n  \
        belljar package policy set --deny requests")]
    #[command(subcommand)]
    Policy(PackagePolicyCommand),
}

#[derive(Debug, clap::Subcommand)]
enum PackagePolicyCommand {
    /// Show the package policy
    ///
    /// Use it to find out why an installation was denied.
    #[command(after_help = "Examples:\n  \
        belljar package policy show")]
    Show,
    /// Replace the package policy
    ///
    /// Use it to change what sessions may install. It replaces the whole policy; without options,
    /// every package is allowed.
    #[command(after_help = "Examples:\n  \
        belljar package policy set --allow idna --allow six --pin six==1.17.0\n  \
        belljar package policy set --allow-none")]
    Set(PackagePolicyArgs),
}

#[derive(Debug, clap::Args)]
struct PackagePolicyArgs {
    /// Allow only this package; repeatable
    #[arg(long, value_name = "NAME", conflicts_with = "allow_none")]
    allow: Vec<String>,

    /// Allow no packages
    #[arg(long)]
    allow_none: bool,

    /// Deny this package, also as a dependency; repeatable
    #[arg(long, value_name = "NAME")]
    deny: Vec<String>,

    /// Allow only this version of a package; repeatable
    #[arg(long, value_name = "NAME==VERSION", value_parser = parse_pin)]
    pin: Vec<(String, String)>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::Policy(PackagePolicyCommand::Show) => remote.show(ApiRequest::get(POLICY)).await,
        Command::Policy(PackagePolicyCommand::Set(PackagePolicyArgs {
            allow,
            allow_none,
            deny,
            pin,
        })) => {
            let allow = (allow_none || !allow.is_empty()).then_some(allow);
            let pins = BTreeMap::from_iter(pin);
            let policy = json!({"allow": allow, "deny": deny, "pins": pins});
            remote.show(ApiRequest::put(POLICY).json(&policy)).await
        }
    })
}

fn parse_pin(text: &str) -> Result<(String, String), String> {
    let (name, version) =
        text.split_once("==").ok_or("must be NAME==VERSION, such as six==1.17.0")?;
    Ok((name.trim().to_owned(), version.trim().to_owned()))
}
