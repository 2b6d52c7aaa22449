//! `belljar api call`: calls one operation and prints its response unchanged.

use super::document::OpenApiDocument;
use super::request::{InputBody, RequestInput, build_request};
use crate::cli::one_shot::print_record;
use crate::cli::remote::{ServerArgs, print_json};
use crate::cli::request_args::read_bounded;
use crate::cli::{CliError, engine_args, terminal};
use crate::client::{ApiClient, ApiRequest, ClientError, EventStream};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum size of `--body`. Larger content is uploaded with `--file`, which streams.
const BODY_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    server: ServerArgs,

    /// Parameter of the path, the query or a header; repeatable
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_pair)]
    params: Vec<(String, String)>,

    /// Field of the JSON body, as text or JSON according to its schema; repeatable
    #[arg(long = "field", value_name = "NAME=VALUE", value_parser = parse_pair)]
    fields: Vec<(String, String)>,

    /// Request body: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON | @FILE | -", allow_hyphen_values = true)]
    body: Option<String>,

    /// File to upload; repeatable
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,

    /// Additional header, such as Accept=text/event-stream; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_pair)]
    headers: Vec<(String, String)>,

    /// Send the request without validating it
    #[arg(long)]
    no_validate: bool,

    /// Write the response body to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Name of the operation, as listed by `belljar api ls`
    #[arg(value_name = "OPERATION")]
    operation: String,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    if name.is_empty() {
        return Err("must be NAME=VALUE".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn main(args: Args) -> Result<ExitCode, CliError> {
    let document = OpenApiDocument::embedded();
    let operation = document.find_operation(&args.operation)?;
    let input = RequestInput {
        params: args.params,
        fields: args.fields,
        headers: args.headers,
        body: args.body.as_deref().map(read_body).transpose()?,
        files: args.files,
        validate: !args.no_validate,
    };
    let call = build_request(&document, &operation, input)?;
    let client = args.server.connect()?;
    engine_args::build_runtime()?.block_on(send(&client, call, args.out.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

fn read_body(body: &str) -> Result<InputBody, CliError> {
    let path = if body == "-" { Some(body) } else { body.strip_prefix('@') };
    let Some(path) = path else {
        return Ok(InputBody { extension: None, bytes: body.as_bytes().to_vec() });
    };
    let read = match path {
        "-" => read_bounded(io::stdin(), BODY_BYTES_MAX),
        path => File::open(path).and_then(|file| read_bounded(file, BODY_BYTES_MAX)),
    };
    let bytes = read.map_err(|error| CliError::usage(format!("--body {body}: {error}")))?;
    let ending = Path::new(path).extension().and_then(|ending| ending.to_str());
    Ok(InputBody { extension: ending.map(str::to_owned), bytes })
}

async fn send(client: &ApiClient, call: ApiRequest, out: Option<&Path>) -> Result<(), CliError> {
    let answer = client.send(call).await?;
    if let Some(path) = out {
        return save_response(answer, path).await;
    }
    match EventStream::from_response(answer) {
        Ok(events) => print_events(events).await,
        Err(answer) => print_response(answer).await,
    }
}

/// Prints each event as a line when it arrives.
async fn print_events(mut events: EventStream) -> Result<(), CliError> {
    while let Some(data) = events.next_data().await? {
        print_record(&terminal::for_stdout(&data))?;
    }
    Ok(())
}

async fn print_response(answer: Response) -> Result<(), CliError> {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.map(terminal::sanitize_plain);
    let is_json = kind.as_ref().is_some_and(|kind| kind.starts_with("application/json"));
    let bytes = answer.bytes().await.map_err(read_error)?;
    if is_json {
        return match serde_json::from_slice(&bytes) {
            Ok(value) if io::stdout().is_terminal() => print_json(&value),
            _ => print_record(&String::from_utf8_lossy(&bytes)),
        };
    }
    if !bytes.is_empty() && io::stdout().is_terminal() {
        if kind.as_ref().is_some_and(|kind| kind.starts_with("text/")) {
            return print_record(&terminal::for_stdout(&String::from_utf8_lossy(&bytes)));
        }
        let (kind, size) = (kind.as_deref().unwrap_or("no content type"), bytes.len());
        return Err(CliError::usage(format!(
            "the response ({kind}, {size} bytes) is not printed to a terminal (save it with --out FILE, or pipe it)"
        )));
    }
    let result = io::stdout().write_all(&bytes);
    result.map_err(|error| CliError::internal(format!("cannot write the response: {error}")))
}

async fn save_response(mut answer: Response, path: &Path) -> Result<(), CliError> {
    let failed =
        |error: io::Error| CliError::internal(format!("--out {}: {error}", path.display()));
    let mut file = File::create(path).map_err(failed)?;
    while let Some(bytes) = answer.chunk().await.map_err(read_error)? {
        file.write_all(&bytes).map_err(failed)?;
    }
    Ok(())
}

fn read_error(error: reqwest::Error) -> ClientError {
    ClientError::Interrupted { reason: error.to_string() }
}
