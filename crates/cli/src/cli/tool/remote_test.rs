//! `belljar tool test` with a server: tests files that are not saved there, tools of the server, and
//! tools of its agents.

use super::file::ToolUpload;
use super::test::{Args, TestReport};
use crate::cli::api::encode_path_segment;
use crate::cli::one_shot::{ExecutionDisplay, OutcomeArgs, StdoutUse, follow_execution};
use crate::cli::resource_names::ResourceKind;
use crate::cli::{CliError, EXIT_REJECTED};
use crate::client::{ApiClient, ApiRequest};
use serde_json::{Map, Value, json};
use std::path::Path;

pub(super) async fn run(args: &Args) -> Result<Vec<TestReport>, CliError> {
    let client = args.server.connect()?;
    let mut reports = Vec::new();
    for tool in &args.tools {
        let call = request(args, &client, tool).await?;
        let report = test(&client, tool, call).await?;
        args.print(&report)?;
        reports.push(report);
    }
    Ok(reports)
}

/// The test of a file, or of the tool of this name or id.
async fn request(args: &Args, client: &ApiClient, tool: &Path) -> Result<ApiRequest, CliError> {
    let limits = args.request.limits()?;
    let name = tool.to_str().filter(|_| tool.extension().is_none());
    let (agent, name) = match (&args.agent, name) {
        (agent, Some(name)) => (agent, name),
        (None, None) => return unsaved_request(args, tool),
        (Some(_), None) => {
            let message = format!("{}: --agent requires the name of a tool", tool.display());
            return Err(CliError::usage(message));
        }
    };
    let path = match agent {
        Some(agent) => {
            let agent = client.resolve_path(ResourceKind::Agent, agent).await?;
            format!("{agent}/tools/{}", encode_path_segment(name))
        }
        None => client.resolve_path(ResourceKind::Tool, name).await?,
    };
    Ok(ApiRequest::post(format!("{path}/test")).json(&json!({ "limits": limits })))
}

fn unsaved_request(args: &Args, file: &Path) -> Result<ApiRequest, CliError> {
    let mut body = match ToolUpload::read(file)? {
        ToolUpload::Json(tool) => tool,
        ToolUpload::Python { name, source } => {
            let source = String::from_utf8(source)
                .map_err(|_| CliError::usage(format!("{}: not UTF-8 text", file.display())))?;
            let configuration = json!({"pythonCode": source});
            let fields = [
                ("type", json!("runPythonCode")),
                ("name", name.into()),
                ("configuration", configuration),
            ];
            fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>()
        }
    };
    let options = [
        ("environment", json!(args.engine.environment_name)),
        ("extended_annotations", json!(args.strictness.extended.then_some(true))),
        ("limits", json!(args.request.limits()?)),
    ];
    let set = options.into_iter().filter(|(_, value)| !value.is_null());
    body.extend(set.map(|(key, value)| (key.to_owned(), value)));
    Ok(ApiRequest::post(format!("{}/test", ResourceKind::Tool.path())).json(&Value::Object(body)))
}

/// Runs one test to its end. A refusal is the result of this test; other tests can still run.
async fn test(client: &ApiClient, tool: &Path, call: ApiRequest) -> Result<TestReport, CliError> {
    // The report shows all of it at the end.
    let outcome = OutcomeArgs { out: None, json: true };
    let mut display = ExecutionDisplay::new(&outcome, StdoutUse::Value)?;
    match follow_execution(client, call, &mut display).await {
        Ok(execution) => Ok(TestReport::from_execution(tool, execution)),
        Err(refused) if refused.exit == EXIT_REJECTED => {
            Ok(TestReport::from_refusal(tool, &refused))
        }
        Err(failed) => Err(failed),
    }
}
