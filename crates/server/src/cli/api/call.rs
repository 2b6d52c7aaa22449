//! `belljar api call`: one operation, and its answer as it is.

use super::document::Document;
use super::request::{GivenBody, Said, plan};
use crate::cli::once::print_record;
use crate::cli::remote::{ServerArgs, print_json};
use crate::cli::request::read_bounded;
use crate::cli::{Failure, setup, terminal};
use crate::client::{Call, Client, ClientError, Events};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Of a body that is sent as it is; what is larger is uploaded with --file, which is not read whole.
const BODY_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    server: ServerArgs,

    /// A parameter, wherever it belongs: in the path, the query or a header; may be repeated
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = pair)]
    params: Vec<(String, String)>,

    /// A field of the body, as text or as JSON, whichever it takes; may be repeated
    #[arg(long = "field", value_name = "NAME=VALUE", value_parser = pair)]
    fields: Vec<(String, String)>,

    /// The body: JSON, @FILE that has it, or @- for standard input
    #[arg(long, value_name = "JSON | @FILE | @-")]
    body: Option<String>,

    /// A file to upload; may be repeated
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,

    /// A header, such as Accept=text/event-stream; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = pair)]
    headers: Vec<(String, String)>,

    /// Send it although it is not what the operation takes
    #[arg(long)]
    no_validate: bool,

    /// Write the answer into this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// As `belljar api ls` lists it
    #[arg(value_name = "OPERATION")]
    operation: String,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("has no `=`")?;
    if name.is_empty() {
        return Err("has no name before `=`".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let document = Document::ours();
    let operation = document.operation(&args.operation)?;
    let said = Said {
        params: args.params,
        fields: args.fields,
        headers: args.headers,
        body: args.body.as_deref().map(given).transpose()?,
        files: args.files,
        validate: !args.no_validate,
    };
    let call = plan(&document, &operation, said)?;
    let client = args.server.connect()?;
    setup::runtime()?.block_on(send(&client, call, args.out.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

fn given(body: &str) -> Result<GivenBody, Failure> {
    let Some(path) = body.strip_prefix('@') else {
        return Ok(GivenBody { ending: None, bytes: body.as_bytes().to_vec() });
    };
    let read = match path {
        "-" => read_bounded(io::stdin(), BODY_BYTES_MAX),
        path => File::open(path).and_then(|file| read_bounded(file, BODY_BYTES_MAX)),
    };
    let bytes = read.map_err(|error| Failure::usage(format!("--body @{path}: {error}")))?;
    let ending = Path::new(path).extension().and_then(|ending| ending.to_str());
    Ok(GivenBody { ending: ending.map(str::to_owned), bytes })
}

async fn send(client: &Client, call: Call, out: Option<&Path>) -> Result<(), Failure> {
    let answer = client.send(call).await?;
    if let Some(path) = out {
        return write(answer, path).await;
    }
    match Events::of(answer) {
        Ok(events) => follow(events).await,
        Err(answer) => show(answer).await,
    }
}

/// Each event is a line, as soon as it is there.
async fn follow(mut events: Events) -> Result<(), Failure> {
    while let Some(data) = events.next().await? {
        print_record(&terminal::for_stdout(&data))?;
    }
    Ok(())
}

async fn show(answer: Response) -> Result<(), Failure> {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_json = kind.is_some_and(|kind| kind.starts_with("application/json"));
    let bytes = answer.bytes().await.map_err(broken)?;
    if is_json {
        return match serde_json::from_slice(&bytes) {
            Ok(value) if io::stdout().is_terminal() => print_json(&value),
            _ => print_record(&String::from_utf8_lossy(&bytes)),
        };
    }
    if !bytes.is_empty() && io::stdout().is_terminal() {
        let size = bytes.len();
        let message = format!("the answer is a file of {size} bytes, and nothing for a terminal");
        return Err(Failure::usage(format!("{message} (--out FILE keeps it)")));
    }
    let written = io::stdout().write_all(&bytes);
    written.map_err(|error| Failure::belljar(format!("the answer could not be written: {error}")))
}

async fn write(mut answer: Response, path: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::belljar(format!("--out {}: {error}", path.display()));
    let mut file = File::create(path).map_err(failed)?;
    while let Some(bytes) = answer.chunk().await.map_err(broken)? {
        file.write_all(&bytes).map_err(failed)?;
    }
    Ok(())
}

fn broken(error: reqwest::Error) -> ClientError {
    ClientError::Interrupted { reason: error.to_string() }
}
