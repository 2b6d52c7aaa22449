//! `belljar agent run`: a request in plain words, carried out by a model, here or on a server.

use crate::cli::models::ModelArgs;
use crate::cli::named::Noun;
use crate::cli::once::{OutcomeArgs, Shown, Stdout, follow, print_record, write_out};
use crate::cli::own::{DRAIN, Own};
use crate::cli::remote::{RemoteArgs, print_json};
use crate::cli::setup::{self, EngineArgs};
use crate::cli::{EXIT_REFUSED, Failure, progress, terminal};
use crate::client::{Body, Call, Client, ClientError};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const DOCUMENTS: &str = "/v1/documents";
const CODE_EXECUTION: &str = "/v1/code_execution";

/// What is wanted, of whom, and where it goes.
#[derive(Debug, Default, clap::Args)]
pub(in crate::cli) struct Wish {
    /// An agent of a server, by name or id [default: code_execution alone]
    #[arg(value_name = "AGENT")]
    pub(in crate::cli) agent: Option<String>,

    /// What is wanted, in plain words; --cursor goes on without it, with --allow and --deny or once
    /// somebody has answered
    #[arg(short, long, value_name = "TEXT", required_unless_present = "cursor")]
    pub(in crate::cli) request: Option<String>,

    /// A file that it needs, seen by code in /home/uploaded_files; may be repeated
    #[arg(long = "file", value_name = "PATH")]
    pub(in crate::cli) files: Vec<PathBuf>,

    /// What to keep in mind, such as "use a dark theme"
    #[arg(long, value_name = "TEXT", conflicts_with = "agent")]
    pub(in crate::cli) context: Option<String>,

    /// Go on in this session of a server
    #[arg(long, value_name = "ID", conflicts_with = "agent")]
    pub(in crate::cli) sandbox: Option<String>,

    /// Rounds that it may take [default: two for each step of the plan, and at least 6]
    #[arg(long, value_name = "N", conflicts_with = "agent")]
    pub(in crate::cli) max_rounds: Option<u32>,

    /// Go on from this answer of the agent
    #[arg(long, value_name = "CURSOR", requires = "agent")]
    pub(in crate::cli) cursor: Option<String>,

    /// Let this call run that the answer with that cursor asks about; may be repeated
    #[arg(long, value_name = "ID", requires = "cursor")]
    pub(in crate::cli) allow: Vec<String>,

    /// Refuse this call that the answer with that cursor asks about; may be repeated
    #[arg(long, value_name = "ID", requires = "cursor")]
    pub(in crate::cli) deny: Vec<String>,

    /// Write the files and the charts that the code makes into this directory
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) out: Option<PathBuf>,
}

impl Wish {
    /// To what the agent has asked.
    fn replies(&self) -> Vec<Value> {
        let reply = |id: &String, status: &str| json!({"role": "action", "type": "toolConfirmation", "actionId": id, "status": status});
        let allowed = self.allow.iter().map(|id| reply(id, "ALLOW"));
        allowed.chain(self.deny.iter().map(|id| reply(id, "DENY"))).collect()
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wish: Wish,

    #[command(flatten)]
    models: ModelArgs,

    #[command(flatten)]
    engine: EngineArgs,
}

/// What is asked for, once it is known who is asked.
pub(in crate::cli) struct Task<'a> {
    pub(in crate::cli) client: &'a Client,
    pub(in crate::cli) wish: &'a Wish,
    pub(in crate::cli) json: bool,
}

pub(super) fn main(args: Args, remote: &RemoteArgs) -> Result<ExitCode, Failure> {
    let runtime = setup::runtime()?;
    if remote.is_named() {
        args.models.warn_of_a_server();
        let client = remote.connect()?;
        let task = Task { client: &client, wish: &args.wish, json: remote.json };
        return runtime.block_on(task.run()).map(|result| exit(&result));
    }
    if args.wish.agent.is_some() || args.wish.sandbox.is_some() {
        let message = "agents and sessions are a server's; name one with --server or BELLJAR_URL";
        return Err(Failure::usage(message));
    }
    runtime.block_on(async {
        let own = Own::start(&args.engine, Vec::new(), args.models.settings()?).await?;
        own.service.prepare(progress::show()).await?;
        let client = own.client().await?;
        let ran = Task { client: &client, wish: &args.wish, json: remote.json }.run().await;
        own.service.stop(DRAIN).await;
        ran.map(|result| exit(&result))
    })
}

impl Task<'_> {
    /// Gives what came of it, which is shown already.
    pub(in crate::cli) async fn run(&self) -> Result<Value, Failure> {
        let outcome = OutcomeArgs { out: self.wish.out.clone(), json: self.json };
        let mut shown = Shown::new(&outcome, Stdout::Output)?;
        shown.asks_at_its_end = self.wish.agent.is_some();
        let documents = self.upload().await?;
        let (call, result) = self.call(documents).await?;
        let record = follow(self.client, call, &mut shown).await?;
        let result = self.client.json(Call::get(format!("{result}/{}", record.id))).await?;
        if let Some(out) = &self.wish.out {
            bring(self.client, &result, out).await?;
        }
        if self.json {
            print_json(&result)?;
        } else {
            self.conclude(&mut shown, &result)?;
        }
        Ok(result)
    }

    async fn upload(&self) -> Result<Vec<Value>, Failure> {
        if self.wish.files.is_empty() {
            return Ok(Vec::new());
        }
        let body = Body::Files(self.wish.files.clone());
        let uploaded = self.client.json(Call { body, ..Call::post(DOCUMENTS) }).await?;
        let items = uploaded["items"].as_array().cloned().unwrap_or_default();
        Ok(items.into_iter().map(|document| document["id"].clone()).collect())
    }

    /// The request, and where its result will be.
    async fn call(&self, documents: Vec<Value>) -> Result<(Call, String), Failure> {
        let wish = self.wish;
        let Some(agent) = &wish.agent else {
            let body = json!({
                "request": wish.request,
                "document_ids": documents,
                "context": wish.context,
                "sandbox_id": wish.sandbox,
                "max_rounds": wish.max_rounds,
            });
            return Ok((Call::post(CODE_EXECUTION).json(&body), CODE_EXECUTION.to_owned()));
        };
        let path = self.client.path(Noun::Agent, agent).await?;
        let body = json!({
            "message": wish.request,
            "messages": wish.replies(),
            "document_ids": documents,
            "cursor": wish.cursor,
        });
        Ok((Call::post(format!("{path}/run")).json(&body), format!("{path}/runs")))
    }

    /// The answer on standard output, and everything about it beside it.
    fn conclude(&self, shown: &mut Shown<'_>, result: &Value) -> Result<(), Failure> {
        let answer = result["answer"].as_str().unwrap_or_default();
        shown.screen.note("");
        if !answer.is_empty() {
            print_record(&terminal::for_stdout(answer.trim_end()))?;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(message) = result["error"]["message"].as_str() {
            shown.screen.note(&format!("belljar: {}: {message}", text(&result["error"]["code"])));
        }
        if let Some(hint) = result["error"]["hint"].as_str() {
            shown.screen.note(&format!("belljar: {hint}"));
        }
        for file in made(result) {
            let place = match &self.wish.out {
                Some(out) => format!("in {}", out.display()),
                None => "kept with --out DIR".to_owned(),
            };
            shown.screen.note(&format!("belljar: {} ({place})", file.name));
        }
        self.ask(shown, result);
        let session = result["sandbox_id"].as_str().map(|id| format!(", session {id}"));
        let run = text(&result["execution_id"]);
        shown.screen.note(&format!("belljar: run {run}{}", session.unwrap_or_default()));
        Ok(())
    }

    /// What it asks, and the commands that answer it.
    fn ask(&self, shown: &mut Shown<'_>, result: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let actions = result["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (Some(agent), false) = (&self.wish.agent, actions.is_empty()) else { return };
        let on = format!("belljar agent run {} --cursor {}", word(agent), text(&result["cursor"]));
        let (mut allowed, mut others) = (on.clone(), Vec::new());
        for action in actions {
            let (id, asked) = (text(&action["actionId"]), &action["toolConfirmation"]);
            let (tool, arguments) = (text(&asked["toolName"]), &asked["toolArguments"]);
            shown.screen.note(&format!("belljar: it asks to run {tool} {arguments}: {id}"));
            allowed.push_str(&format!(" --allow {id}"));
            others.push(format!("`belljar approvals allow {id}`"));
        }
        shown
            .screen
            .note(&format!("belljar: let it with `{allowed}`; --deny instead of --allow refuses"));
        shown.screen.note(&format!(
            "belljar: or somebody else does with {}, and it goes on with `{on}`",
            others.join(", ")
        ));
    }
}

/// As a shell reads it as one word.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Whether it was carried out.
pub(in crate::cli) fn exit(result: &Value) -> ExitCode {
    let well = result["status"] == "succeeded";
    if well { ExitCode::SUCCESS } else { ExitCode::from(EXIT_REFUSED) }
}

/// A file of a result: how it is called here, and where its bytes are.
struct MadeFile {
    name: String,
    url: String,
}

fn made(result: &Value) -> Vec<MadeFile> {
    let mut made: Vec<MadeFile> = Vec::new();
    let list = |key: &str| result[key].as_array().into_iter().flatten();
    for file in list("generated_files").chain(list("artifacts")) {
        let text = |key: &str| file[key].as_str().map(str::to_owned);
        let Some(url) = text("url").filter(|url| url.starts_with('/')) else { continue };
        let Some(given) = text("name") else { continue };
        let is_free = |name: &String| made.iter().all(|known| known.name != *name);
        // Two rounds may each have shown a `plot_0.png`, and two tools have written one name.
        let names = [Some(given.clone()), text("asset_filename")].into_iter().flatten();
        let numbered = (1..).map(|number| numbered(&given, number));
        let name = names.chain(numbered).find(is_free);
        made.extend(name.map(|name| MadeFile { name, url }));
    }
    made
}

/// `a/b.csv` is `a/b-1.csv`.
fn numbered(name: &str, number: u32) -> String {
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[last..].rfind('.').filter(|dot| *dot > 0) {
        Some(dot) => format!("{}-{number}{}", &name[..last + dot], &name[last + dot..]),
        None => format!("{name}-{number}"),
    }
}

async fn bring(client: &Client, result: &Value, out: &Path) -> Result<(), Failure> {
    for MadeFile { name, url } in made(result) {
        let answer = client.send(Call::get(url)).await?;
        let broken = |error: reqwest::Error| ClientError::Interrupted { reason: error.to_string() };
        write_out(out, &name, &answer.bytes().await.map_err(broken)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_for_a_shell() {
        let words = [("sales", "sales"), ("my agent", "'my agent'"), ("a'b", r"'a'\''b'")];
        for (name, expected) in words {
            assert_eq!(word(name), expected);
        }
    }

    #[test]
    fn files_of_one_name_are_all_written() {
        let file = |name: &str| json!({"name": name, "url": "/v1/assets/1/x"});
        let shown = json!({"name": "a.png", "asset_filename": "plot_1.png", "url": "/v1/x"});
        let result = json!({
            "generated_files": [file("a/b.csv"), file("a/b.csv"), file("a/b.csv"), file("c"), file("c")],
            "artifacts": [file("a.png"), shown],
        });
        let names: Vec<String> = made(&result).into_iter().map(|file| file.name).collect();
        let all = ["a/b.csv", "a/b-1.csv", "a/b-2.csv", "c", "c-1", "a.png", "plot_1.png"];
        assert_eq!(names, all);
    }
}
