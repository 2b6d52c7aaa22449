//! `belljar demo`: one of the examples from its request to its files, with a model that plays what is
//! written down. It needs no key and no server, and leaves nothing behind but its results.

mod examples;

use super::agent::run::{Task, Wish, exit};
use super::named::Noun;
use super::own::{DRAIN, Own};
use super::setup::{self, EngineArgs};
use super::{Failure, progress};
use crate::client::{Call, Client};
use agent::ModelSettings;
use examples::{EXAMPLES, Example};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Besides what the code has made: how a trace is asked for, and what its file is called.
const FORMS: [(&str, &str); 2] = [("html", "report.html"), ("ipynb", "run.ipynb")];
const SCRIPT: &str = "script.yaml";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// sales-analyst, csv-cleaner, unit-converter, media-probe or chart-maker
    #[arg(value_name = "NAME", default_value = EXAMPLES[0].name, value_parser = example)]
    example: &'static Example,

    /// Write the results into this directory [default: a new one among the temporary files]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print the result as JSON, and nothing else
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    engine: EngineArgs,
}

fn example(name: &str) -> Result<&'static Example, String> {
    let known = || EXAMPLES.iter().map(|one| format!("{} ({})", one.name, one.about));
    let found = EXAMPLES.iter().find(|one| one.name == name);
    found.ok_or_else(|| format!("there are {}", known().collect::<Vec<_>>().join(", ")))
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let unwritten = |error: std::io::Error| Failure::belljar(format!("no room for it: {error}"));
    let given = tempfile::tempdir().map_err(unwritten)?;
    args.example.unpack(given.path()).map_err(unwritten)?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => {
            let made = tempfile::Builder::new().prefix("belljar-demo-").tempdir();
            made.map_err(unwritten)?.keep()
        }
    };
    setup::runtime()?.block_on(play(&args, given.path(), out))
}

async fn play(args: &Args, given: &Path, out: PathBuf) -> Result<ExitCode, Failure> {
    let script = format!("script:{}", given.join(SCRIPT).display());
    let models = ModelSettings { default: Some(script), ..ModelSettings::default() };
    let own = Own::start(&args.engine, Vec::new(), models).await?;
    own.service.prepare(progress::show()).await?;
    let client = own.client().await?;
    let played = ask(args, &client, given, &out).await;
    own.service.stop(DRAIN).await;
    let result = played?;
    if !args.json {
        eprintln!("belljar: everything is in {}; begin with {}", out.display(), FORMS[0].1);
    }
    Ok(exit(&result))
}

async fn ask(args: &Args, client: &Client, given: &Path, out: &Path) -> Result<Value, Failure> {
    let example = args.example;
    example.set_up(client).await?;
    if !args.json {
        eprintln!("belljar: {}, asked: {}", example.name, example.message);
    }
    let wish = Wish {
        agent: Some(example.name.to_owned()),
        request: Some(example.message.to_owned()),
        files: example.data.iter().map(|(name, _)| given.join(name)).collect(),
        out: Some(out.to_owned()),
        ..Wish::default()
    };
    let result = Task { client, wish: &wish, json: args.json }.run().await?;
    keep_forms(client, &result, out).await?;
    Ok(result)
}

async fn keep_forms(client: &Client, result: &Value, out: &Path) -> Result<(), Failure> {
    let run = result["execution_id"].as_str().unwrap_or_default();
    for (format, name) in FORMS {
        let call = Call::get(format!("/v1/executions/{run}/trace")).query("format", Some(format));
        let path = out.join(name);
        let failed =
            |error| Failure::belljar(format!("{} was not written: {error}", path.display()));
        fs::write(&path, client.text(call).await?).map_err(failed)?;
    }
    Ok(())
}

impl Example {
    fn unpack(&self, folder: &Path) -> std::io::Result<()> {
        fs::write(folder.join(SCRIPT), self.script)?;
        self.data.iter().try_for_each(|(name, bytes)| fs::write(folder.join(name), bytes))
    }

    /// The agent with its tools, in a service that has nothing yet.
    async fn set_up(&self, client: &Client) -> Result<(), Failure> {
        let agent = json!({"name": self.name, "specification": self.specification});
        client.json(Call::post(Noun::Agent.path()).json(&agent)).await?;
        let agent = client.path(Noun::Agent, self.name).await?;
        for tool in self.tools {
            let call = Call::post(Noun::Tool.path()).bytes("application/json", (*tool).into());
            let tool = client.json(call).await?;
            let id = tool["id"].as_str().unwrap_or_default();
            client.json(Call::post(format!("{agent}/tools/{id}"))).await?;
        }
        Ok(())
    }
}
