//! One execution on a server, shown as if it ran here.
//!
//! Whoever goes away before its end ends it: the server sees the stream close. Ctrl-C says so first,
//! since a call that waits for a person would otherwise go on waiting.

use super::{OutcomeArgs, Shown, Stdout, write_out};
use crate::cli::remote::{ServerArgs, print_json};
use crate::cli::{Failure, listing, setup};
use crate::client::{Call, Client, ClientError, Events};
use reqwest::header::{ACCEPT, HeaderName, HeaderValue, LOCATION};
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use types::{Event, Execution};

const EXECUTIONS: &str = "/v1/executions/";
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Of what was cancelled: as long as a sandbox takes to end, and the person at the keyboard waits.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(in crate::cli) fn run_at(
    server: &ServerArgs,
    call: impl AsyncFnOnce(&Client) -> Result<Call, Failure>,
    outcome: &OutcomeArgs,
    stdout: Stdout,
) -> Result<ExitCode, Failure> {
    let mut shown = Shown::new(outcome, stdout)?;
    let client = server.connect()?;
    let execution = setup::runtime()?.block_on(async {
        let call = call(&client).await?;
        let execution = follow(&client, call, &mut shown).await?;
        if let Some(out) = &outcome.out {
            bring(&client, &execution, out).await?;
        }
        Ok::<Execution, Failure>(execution)
    })?;
    // Images are files of the execution there, and named among them.
    shown.conclude(&execution, &[])
}

/// Has it begun, or asked about, and shows what is known of it so far.
pub(in crate::cli) fn begin_at(
    server: &ServerArgs,
    call: impl AsyncFnOnce(&Client) -> Result<Call, Failure>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let client = server.connect()?;
    let record = setup::runtime()?.block_on(async {
        let mut call = call(&client).await?;
        call.headers.insert(PREFER, HeaderValue::from_static("respond-async"));
        Ok::<Value, Failure>(client.json(call).await?)
    })?;
    if json {
        print_json(&record)?
    } else {
        listing::record(&record)?
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows each event, and gives the record that is kept at the end.
pub(in crate::cli) async fn follow(
    client: &Client,
    mut call: Call,
    shown: &mut Shown<'_>,
) -> Result<Execution, Failure> {
    call.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let answer = client.send(call).await?;
    let place = answer.headers().get(LOCATION).and_then(|place| place.to_str().ok());
    let place = place.filter(|place| place.starts_with(EXECUTIONS)).map(str::to_owned);
    let place = place.ok_or_else(|| interrupted("it does not say where the record is"))?;
    let mut events = Events::of(answer).map_err(|_| interrupted("it is not a stream"))?;
    tokio::select! {
        heard = hear(&mut events, shown) => heard?,
        Ok(()) = tokio::signal::ctrl_c() => {
            // A question would stay open without anybody who asks, and run for nobody.
            client.json(Call::post(format!("{place}/cancel"))).await?;
            let _ = tokio::time::timeout(LAST_WORDS, hear(&mut events, shown)).await;
        }
    }
    let record = client.json(Call::get(place)).await?;
    let unknown = |error: serde_json::Error| interrupted(&error.to_string());
    Ok(serde_json::from_value(record).map_err(unknown)?)
}

async fn hear(events: &mut Events, shown: &mut Shown<'_>) -> Result<(), ClientError> {
    while let Some(data) = events.next().await? {
        match serde_json::from_str(&data) {
            // It ends with what it asks, and nothing waits.
            Ok(Event::Approval { .. }) if shown.asks_at_its_end => {}
            Ok(Event::Approval { approval_id: id }) => shown.screen.note(&format!(
                "belljar: this waits for a person: `belljar approvals show {id}` shows what would \
                 run, `belljar approvals allow {id}` lets it run; Ctrl-C withdraws it"
            )),
            Ok(event) => shown.hear(&event),
            // Of a newer server; what counts is in the record as well.
            Err(_) => {}
        }
    }
    Ok(())
}

fn interrupted(reason: &str) -> ClientError {
    ClientError::Interrupted { reason: reason.to_owned() }
}

async fn bring(client: &Client, execution: &Execution, out: &Path) -> Result<(), Failure> {
    for file in &execution.files_out {
        if let Some(url) = file.url.as_ref().filter(|url| url.starts_with('/')) {
            let answer = client.send(Call::get(url)).await?;
            let bytes = answer.bytes().await.map_err(|error| interrupted(&error.to_string()))?;
            write_out(out, &file.name, &bytes)?;
        }
    }
    Ok(())
}
