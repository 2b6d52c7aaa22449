//! The result of an agent run, as the API returns it.

use crate::chat::{AGENT, ChatOutput};
use crate::code_run::{Artifact, image_artifacts};
use crate::trace::{Trace, TraceAction};
use crate::{Agents, not_a_run_error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use service::{Caller, RequestError};
use types::{
    AgentId, Error, Execution, ExecutionId, ExecutionStatus, FileKind, ModelUsage, OutputFile,
    Round, SandboxId, Warning,
};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ChatResult {
    pub execution_id: ExecutionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    pub status: ExecutionStatus,
    /// The reply as text; empty while `actions` are pending
    pub answer: String,
    /// Send it with the next message to continue from this answer
    pub cursor: String,
    /// The session in which the code of the conversation runs
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<SandboxId>,
    /// The environment of that session
    #[serde(skip_serializing_if = "String::is_empty")]
    pub environment: String,
    /// Calls that need a reply of ALLOW or DENY
    #[schema(value_type = Vec<Object>)]
    pub actions: Vec<Value>,
    pub rounds: Vec<Round>,
    pub generated_files: Vec<OutputFile>,
    pub artifacts: Vec<Artifact>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelUsage>,
    pub warnings: Vec<Warning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    #[serde(rename = "agentExternalId", skip_serializing_if = "Option::is_none")]
    pub agent_external_id: Option<String>,
    pub response: ChatEnvelope,
}

/// The same result in the form that applications of another platform expect
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ChatEnvelope {
    pub cursor: String,
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<Value>,
    /// `result`
    #[serde(rename = "type")]
    pub kind: &'static str,
}

impl Agents {
    /// The result of an agent run that has ended, or its progress.
    pub async fn chat_result(
        &self,
        caller: &Caller,
        execution: Execution,
    ) -> Result<ChatResult, RequestError> {
        if execution.entry != AGENT {
            return Err(not_a_run_error(execution.id));
        }
        let trace = match execution.ended_at {
            Some(_) => self.signed_trace(caller, execution.id).await.ok(),
            None => None,
        };
        let execution = self.service.file_urls(caller).sign_execution(execution);
        Ok(chat_result(execution, trace))
    }

    /// The trace for a caller, with URLs of its files that work.
    pub async fn signed_trace(
        &self,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Trace, RequestError> {
        let mut trace = self.trace(caller, id).await?;
        let urls = self.service.file_urls(caller);
        for step in &mut trace.steps {
            if let TraceAction::Ran { files, .. } = &mut step.action {
                urls.sign_files(files);
            }
        }
        Ok(trace)
    }

    pub async fn trace(&self, caller: &Caller, id: ExecutionId) -> Result<Trace, RequestError> {
        let bytes = self.service.run_trace(caller, id).await?;
        Trace::from_bytes(&bytes).ok_or_else(|| not_a_run_error(id))
    }
}

fn chat_result(execution: Execution, trace: Option<Trace>) -> ChatResult {
    let output: ChatOutput = execution
        .value
        .as_ref()
        .and_then(|value| ChatOutput::deserialize(value).ok())
        .unwrap_or_default();
    let (media, data): (Vec<OutputFile>, Vec<OutputFile>) =
        execution.files_out.into_iter().partition(|file| file.kind == FileKind::Media);
    let cursor = execution.id.to_string();
    let artifacts = image_artifacts(media);
    let message = json!({
        "role": "agent",
        "content": {"type": "text", "text": output.answer},
        "data": artifacts,
        "reasoning": trace.as_ref().map(reasoning).unwrap_or_default(),
        "actions": output.actions,
    });
    let envelope = ChatEnvelope { cursor: cursor.clone(), messages: vec![message], kind: "result" };
    ChatResult {
        execution_id: execution.id,
        agent_id: execution.agent,
        status: execution.status,
        answer: output.answer,
        cursor,
        sandbox_id: execution.sandbox_id,
        environment: execution.environment,
        actions: output.actions,
        rounds: execution.rounds,
        generated_files: data,
        artifacts,
        error: execution.error,
        model: execution.model,
        warnings: execution.warnings,
        trace,
        agent_external_id: output.agent_external_id,
        response: envelope,
    }
}

/// The intermediate texts of the model, and the result of each of its calls.
fn reasoning(trace: &Trace) -> Vec<Value> {
    let call = |id: &str, name: &str, kind: &str, input: &Value, result: &str| {
        let call = json!({
            "id": id, "name": name, "toolType": kind, "input": input, "result": result,
        });
        json!({"content": [], "data": [{"type": "toolCall", "toolCall": call}]})
    };
    let step = |action: &TraceAction| match action {
        TraceAction::Asked { response, calls, .. } if !response.is_empty() && !calls.is_empty() => {
            Some(json!({"content": [{"type": "text", "text": response}], "data": []}))
        }
        TraceAction::Asked { .. } => None,
        TraceAction::Ran { round, .. } => {
            let id = round.execution_id.map(|id| id.to_string()).unwrap_or_default();
            let input = json!({"code": round.code});
            let result = round.error.as_deref().unwrap_or(&round.stdout);
            Some(call(&id, crate::CODE_EXECUTION, crate::CODE_EXECUTION, &input, result))
        }
        TraceAction::Called { tool } => {
            Some(call(&tool.id, &tool.name, &tool.kind, &tool.arguments, &tool.result))
        }
    };
    trace.steps.iter().filter_map(|one| step(&one.action)).collect()
}
