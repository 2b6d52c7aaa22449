//! `belljar secret`: manages secrets, whose values the server never returns.
//!
//! A value comes from a file, from standard input, or from a prompt without echo. It is never an
//! argument, because all users of the machine can see arguments.

mod prompt;

use super::CliError;
use super::display::Column;
use super::remote::{ListArgs, Remote, RemoteArgs};
use super::request_args::read_bounded;
use super::resource_names::ResourceKind;
use super::terminal;
use crate::client::ApiRequest;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use types::ClientKind;

const COLUMNS: &[Column] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("scope", "/scope"),
    ("used as", "/used_as"),
    ("exposed", "/exposed"),
    ("changed", "/updated_at"),
];
/// Maximum size of a value on the server, and a line end.
const VALUE_BYTES_MAX: u64 = 64 * 1024 + 2;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    remote: RemoteArgs,

    #[command(subcommand)]
    verb: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a secret or replace its value
    ///
    /// Use it to store a value that code needs. The value comes from a prompt, from standard input
    /// or from --file, never from the command line.
    #[command(after_help = "Examples:\n  \
        belljar secret set DATABASE_PASSWORD\n  \
        belljar secret set openai --client openai < key.txt\n  \
        belljar secret set shop --header api.example.com:X-Api-Key --file key.txt")]
    Set(Box<SetSecretArgs>),
    /// List secrets
    ///
    /// Use it to see which secrets exist. The list does not contain their values.
    #[command(after_help = "Examples:\n  \
        belljar secret ls")]
    Ls(ListArgs),
    /// Show the settings of a secret
    ///
    /// Use it to check how code gets a secret. The value is never shown.
    #[command(after_help = "Examples:\n  \
        belljar secret show openai")]
    Show {
        /// Name or id of the secret
        #[arg(value_name = "NAME | ID")]
        secret: String,
    },
    /// Reject the request: values are never shown
    #[command(hide = true)]
    Get {
        /// Name or id of the secret
        #[arg(value_name = "NAME | ID")]
        secret: String,
    },
    /// Delete a secret
    ///
    /// Use it when code no longer needs a secret.
    #[command(after_help = "Examples:\n  \
        belljar secret rm shop")]
    Rm {
        /// Name or id of the secret
        #[arg(value_name = "NAME | ID")]
        secret: String,
    },
    /// Replace the master key and re-encrypt all secrets
    ///
    /// Use it as the operator when the master key may have leaked, or on a schedule. The server keeps
    /// running.
    #[command(after_help = "Examples:\n  \
        belljar secret rotate")]
    Rotate,
}

#[derive(Debug, clap::Args)]
struct SetSecretArgs {
    /// Name of the secret
    #[arg(value_name = "NAME")]
    name: String,

    /// Rejected: a value on the command line is visible to other users of the machine
    #[arg(hide = true, value_name = "VALUE")]
    values: Vec<OsString>,

    /// Read the value from this file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    inject: InjectArgs,

    /// Make the secret personal: only code that you run can use it
    #[arg(long)]
    mine: bool,

    /// Comment for people
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

#[derive(Debug, clap::Args)]
struct InjectArgs {
    /// Expose the value to code in this environment variable [default: the name of the secret]
    #[arg(long, value_name = "VAR", conflicts_with_all = ["client", "header"])]
    env: Option<String>,

    /// Inject the value into requests of a client: openai, anthropic, gemini, groq, cohere, mistral,
    /// together or cognite. Code never sees the value
    #[arg(long, value_name = "CLIENT", value_parser = parse_client, conflicts_with = "header")]
    client: Option<ClientKind>,

    /// Base URL of the service [default: that of the provider]
    #[arg(long, value_name = "URL", requires = "client")]
    base_url: Option<String>,

    /// Project of a cognite client
    #[arg(long, value_name = "PROJECT", requires = "client")]
    project: Option<String>,

    /// Inject the value into this header of requests to this host. Code never sees the value
    #[arg(long, value_name = "HOST:HEADER")]
    header: Option<String>,

    /// Text before the value in the header, such as "Bearer "
    #[arg(long, value_name = "TEXT", requires = "header")]
    prefix: Option<String>,

    /// Environment variable that holds the placeholder of the value
    #[arg(long, value_name = "VAR", requires = "header")]
    placeholder: Option<String>,
}

fn parse_client(text: &str) -> Result<ClientKind, String> {
    let known = ClientKind::ALL.into_iter().find(|client| client.name() == text);
    known.ok_or_else(|| {
        format!("must be one of {}", ClientKind::ALL.map(ClientKind::name).join(", "))
    })
}

impl InjectArgs {
    /// Returns `None` if no option was passed.
    fn json(self) -> Result<Option<Value>, CliError> {
        if let Some(header) = self.header {
            // Split at the last colon: a host may have a port, and a header name has no colon.
            let (host, name) = header.rsplit_once(':').ok_or_else(|| {
                CliError::usage("--header must be HOST:HEADER, such as api.example.com:X-Api-Key")
            })?;
            let header = json!({
                "host": host,
                "name": name,
                "prefix": self.prefix.unwrap_or_default(),
                "env": self.placeholder,
            });
            return Ok(Some(json!({"header": header})));
        }
        Ok(match (self.env, self.client) {
            (Some(env), _) => Some(json!({"env": env})),
            (None, Some(client)) => Some(json!({
                "client": client, "base_url": self.base_url, "project": self.project,
            })),
            (None, None) => None,
        })
    }
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    args.remote.run(async |remote| match args.verb {
        Command::Set(secret) => set_secret(remote, *secret).await,
        Command::Ls(list) => show_all(remote, list).await,
        Command::Show { secret } => {
            remote.show(ApiRequest::get(secret_path(remote, &secret).await?)).await
        }
        Command::Get { secret } => Err(CliError::usage(format!(
            "the value of a secret cannot be read; `belljar secret show {secret}` shows its metadata"
        ))),
        Command::Rm { secret } => {
            let call = ApiRequest::delete(secret_path(remote, &secret).await?);
            remote.send_and_report(call, &format!("secret {secret} deleted")).await
        }
        Command::Rotate => {
            let call = ApiRequest::post("/v1/secrets/rotate");
            remote.send_and_report(call, "re-encrypted all secrets with a new key").await
        }
    })
}

async fn secret_path(remote: &Remote, secret: &str) -> Result<String, CliError> {
    remote.client.resolve_path(ResourceKind::Secret, secret).await
}

/// Creates a secret, or replaces the value of an existing one, and its injection if passed.
async fn set_secret(remote: &Remote, secret: SetSecretArgs) -> Result<(), CliError> {
    if !secret.values.is_empty() || secret.name.contains('=') {
        return Err(CliError::usage(
            "secret values are not accepted as arguments, because other users of this machine can see them: use --file or standard input (and replace the value if it is real)",
        ));
    }
    let inject = secret.inject.json()?;
    let scope = if secret.mine { "caller" } else { "workspace" };
    let there = find_secret(remote, &secret.name, scope).await?;
    let value = read_value(secret.file.as_deref(), &secret.name)?;
    let mut body = Map::from_iter([("value".to_owned(), Value::String(value))]);
    body.extend(inject.map(|inject| ("inject".to_owned(), inject)));
    body.extend(secret.comment.map(|comment| ("comment".to_owned(), comment.into())));
    let call = match there {
        Some(id) => ApiRequest::patch(format!("{}/{id}", ResourceKind::Secret.path())),
        None => {
            body.insert("name".to_owned(), secret.name.into());
            body.insert("scope".to_owned(), scope.into());
            ApiRequest::post(ResourceKind::Secret.path())
        }
    };
    let secret = remote.client.json(call.json(&Value::Object(body))).await?;
    print_secret(remote, secret)
}

async fn find_secret(remote: &Remote, name: &str, scope: &str) -> Result<Option<String>, CliError> {
    let (secrets, _) = remote.client.list(ResourceKind::Secret.path(), &[], usize::MAX).await?;
    let me = remote.client.json(ApiRequest::get("/v1/principals/me")).await?;
    let mut same = secrets.iter().filter(|secret| {
        let mine = scope != "caller" || secret["owner"] == me["id"];
        secret["name"] == name && secret["scope"] == scope && mine
    });
    Ok(same.next().and_then(|secret| secret["id"].as_str()).map(str::to_owned))
}

fn print_secret(remote: &Remote, mut secret: Value) -> Result<(), CliError> {
    if remote.json {
        return super::remote::print_json(&secret);
    }
    let name = secret["name"].as_str().unwrap_or_default().to_owned();
    let how = describe_use(&secret);
    eprintln!("belljar: {}", terminal::for_stderr(&format!("stored secret {name}, used as {how}")));
    for warning in secret["warnings"].as_array_mut().into_iter().flatten() {
        let message = warning["message"].as_str().unwrap_or_default();
        eprintln!("belljar: {}", terminal::for_stderr(message));
        if warning["code"] == "secret.not_allowed" {
            let hint = format!("belljar network integration new INTEGRATION --secret {name}");
            eprintln!("belljar: try `{}`", terminal::for_stderr(&hint));
        }
    }
    Ok(())
}

async fn show_all(remote: &Remote, list: ListArgs) -> Result<(), CliError> {
    if remote.json {
        return remote.list(ApiRequest::get(ResourceKind::Secret.path()), list, COLUMNS).await;
    }
    let (mut secrets, _) =
        remote.client.list(ResourceKind::Secret.path(), &[], list.limit as usize).await?;
    for secret in &mut secrets {
        secret["used_as"] = describe_use(secret).into();
    }
    remote.table(secrets, COLUMNS)
}

/// A short description of how code uses a secret.
fn describe_use(secret: &Value) -> String {
    let inject = &secret["inject"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match (&inject["env"], &inject["client"], &inject["header"]) {
        (Value::String(variable), _, _) => format!("environment variable {variable}"),
        (_, Value::String(client), _) => format!("credential of {client}"),
        (_, _, header) => format!("{} at {}", text(&header["name"]), text(&header["host"])),
    }
}

/// Reads the value, without the line end if it is a single line.
fn read_value(file: Option<&Path>, name: &str) -> Result<String, CliError> {
    let usage_error = |reason: String| match file {
        Some(file) => CliError::usage(format!("--file {}: {reason}", file.display())),
        None => CliError::usage(format!("the value: {reason}")),
    };
    let bytes = match file {
        Some(file) => File::open(file).and_then(|file| read_bounded(file, VALUE_BYTES_MAX)),
        None if io::stdin().is_terminal() => prompt::read_hidden(&format!("Value of {name}: ")),
        None => read_bounded(io::stdin(), VALUE_BYTES_MAX),
    };
    let bytes = bytes.map_err(|error| usage_error(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| usage_error("not UTF-8 text".to_owned()))?;
    let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.filter(|line| !line.contains('\n')).unwrap_or(&text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(bytes: &[u8]) -> Result<String, CliError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read_value(Some(file.path()), "x")
    }

    #[test]
    fn a_line_is_its_text_and_several_are_as_they_are() {
        for (given, secret) in [
            ("sk-1", "sk-1"),
            ("sk-1\n", "sk-1"),
            ("sk-1\r\n", "sk-1"),
            ("sk-1\n\n", "sk-1\n\n"),
            ("-----BEGIN\nabc\n-----END\n", "-----BEGIN\nabc\n-----END\n"),
            (" sk ", " sk "),
        ] {
            assert_eq!(read(given.as_bytes()).unwrap(), secret, "{given:?}");
        }
        assert!(read(&[0xff, 0xfe]).is_err());
        assert!(read(&vec![b'x'; 70_000]).is_err());
    }
}
