//! The tools with which the model of an agent runs code: their definitions, their arguments, and the
//! object that a request in natural language returns.

use crate::artifacts::Artifacts;
use crate::code_run::{TEXT_BYTES_MAX, image_artifacts};
use crate::interpreter::Interpreter;
use crate::logs::render_logs;
use crate::model::{Message, ToolDefinition};
use crate::observation::truncate_middle;
use crate::runs::RunOutcome;
use serde_json::{Value, json};
use service::{Caller, CodeToolName, FileInput, RequestError, Service};
use types::{FileId, FileKind, OutputFile, Round, SandboxId};

/// As many as in a request of a client.
const FILES_MAX: usize = 100;
/// Limit of the logs that a model reads. The record of the run has all of them.
const LOGS_BYTES_MAX: usize = 16 * 1024;
/// Where code finds the files of the conversation; the names of files may begin with it.
const FILES_ROOTS: [&str; 2] = ["/home/uploaded_files/", "/workspace/"];

/// The arguments of a call that runs code.
#[derive(Debug)]
pub(crate) enum CodeCall {
    Code { code: String, step: Option<usize> },
    Script { code: String, files: Vec<String> },
    Request(CodeTaskCall),
}

/// A request in natural language.
#[derive(Debug)]
pub(crate) struct CodeTaskCall {
    pub(crate) request: String,
    pub(crate) context: Option<String>,
    pub(crate) documents: Vec<FileId>,
}

impl CodeCall {
    /// Parses the arguments of a tool of an agent. `session` is that of the conversation.
    pub(crate) fn parse(
        tool: CodeToolName,
        arguments: &Value,
        session: SandboxId,
    ) -> Result<Self, String> {
        if tool == CodeToolName::ExecutePython {
            let code = text(arguments, "code")?.filter(|code| !code.trim().is_empty());
            let code = code.ok_or("Give `code`, as text: a complete Python script.")?;
            return Ok(Self::Script { code, files: texts(arguments, "files")? });
        }
        check_session(arguments, session)?;
        let documents = documents(arguments)?;
        match (text(arguments, "code")?, text(arguments, "request")?) {
            (Some(code), None) if documents.is_empty() => Ok(Self::Code { code, step: None }),
            (None, Some(request)) if !request.trim().is_empty() => {
                let context = text(arguments, "context")?;
                for text in [Some(&request), context.as_ref()].into_iter().flatten() {
                    if text.len() > TEXT_BYTES_MAX {
                        return Err(format!(
                            "`request` and `context` can have at most {TEXT_BYTES_MAX} bytes each."
                        ));
                    }
                }
                Ok(Self::Request(CodeTaskCall { request, context, documents }))
            }
            (Some(_), None) => Err("`document_ids` are for a `request`.".to_owned()),
            _ => Err("Give exactly one of `code` and `request`, as text.".to_owned()),
        }
    }

    /// Parses the arguments of `run_python`, the tool of a code run.
    pub(crate) fn parse_step(arguments: &Value) -> Result<Self, String> {
        let code = arguments["code"].as_str();
        let code = code.ok_or("`code` is missing: give the code of this step, as text.")?;
        let step = arguments["step"].as_u64().and_then(|step| usize::try_from(step).ok());
        Ok(Self::Code { code: code.to_owned(), step })
    }
}

fn text(arguments: &Value, key: &str) -> Result<Option<String>, String> {
    match &arguments[key] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(format!("`{key}` must be text.")),
    }
}

fn texts(arguments: &Value, key: &str) -> Result<Vec<String>, String> {
    let invalid = || format!("`{key}` must be a list of texts.");
    let list = match &arguments[key] {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list,
        _ => return Err(invalid()),
    };
    if list.len() > FILES_MAX {
        return Err(format!("`{key}` can have at most {FILES_MAX} items."));
    }
    list.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(invalid)).collect()
}

fn documents(arguments: &Value) -> Result<Vec<FileId>, String> {
    let id = |text: String| {
        text.parse().map_err(|_| format!("`document_ids` has {text:?}, which is not a UUID."))
    };
    texts(arguments, "document_ids")?.into_iter().map(id).collect()
}

/// A conversation has one session, and its code reaches no other one.
fn check_session(arguments: &Value, session: SandboxId) -> Result<(), String> {
    match text(arguments, "sandbox_id")? {
        Some(id) if id.parse() != Ok(session) => Err(format!(
            "{id:?} is not the session of this conversation, which is {session}. Leave out \
             `sandbox_id`, or give this one."
        )),
        _ => Ok(()),
    }
}

/// The inputs for the files that a script names: URLs from the user or the author of the agent, ids of
/// documents, and names of files that the session has already.
pub(crate) async fn script_inputs(
    service: &Service,
    caller: &Caller,
    session: SandboxId,
    files: Vec<String>,
    sources: &[&str],
) -> Result<Vec<FileInput>, String> {
    let mut inputs = Vec::new();
    let mut known = None;
    for file in files {
        if file.starts_with("https://") || file.starts_with("http://") {
            inputs.push(url_input(file, sources)?);
        } else if let Ok(id) = file.parse() {
            service.document(caller, id).map_err(|error| error.error.message.clone())?;
            inputs.push(FileInput { document_id: Some(id), ..FileInput::default() });
        } else {
            if known.is_none() {
                known = Some(session_files(service, caller, session).await?);
            }
            check_known(&file, known.as_deref().unwrap_or_default())?;
        }
    }
    Ok(inputs)
}

/// A URL that a model composes could carry away what the model knows, so that only a URL counts which
/// the model was told.
fn url_input(url: String, sources: &[&str]) -> Result<FileInput, String> {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    if path.to_ascii_lowercase().ends_with(".pdf") {
        return Err(format!("{url:?}: PDF is not supported; CSV and Excel files are."));
    }
    if !sources.iter().any(|text| mentions(text, &url)) {
        return Err(format!(
            "{url:?} is in no message of the user, so it is not fetched. Give a URL as the user \
             wrote it."
        ));
    }
    Ok(FileInput { url: Some(url), ..FileInput::default() })
}

/// Whether a text has this URL, and not a longer one that begins with it.
fn mentions(text: &str, url: &str) -> bool {
    let ends = |rest: &str| {
        let rest = rest.trim_start_matches(['.', ',', ';', ':', '!', '?']);
        rest.chars().next().is_none_or(|c| c.is_whitespace() || "\"'`<>()[]{}|".contains(c))
    };
    text.match_indices(url).any(|(at, _)| ends(&text[at + url.len()..]))
}

async fn session_files(
    service: &Service,
    caller: &Caller,
    session: SandboxId,
) -> Result<Vec<String>, String> {
    let listed = service.session_files(caller, session).await;
    let listed = listed.map_err(|error: RequestError| error.error.message.clone())?;
    Ok(listed.files.into_iter().map(|file| file.name).collect())
}

fn check_known(file: &str, known: &[String]) -> Result<(), String> {
    let name = FILES_ROOTS.iter().find_map(|root| file.strip_prefix(root)).unwrap_or(file);
    if known.iter().any(|known| known == name) {
        return Ok(());
    }
    let names = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(format!(
        "{file:?} is neither a URL, nor the id of a document, nor a file of this conversation. Its \
         files are: {names}."
    ))
}

/// The texts that the model was told, from which it may take URLs.
pub(crate) fn url_sources<'a>(system: &'a str, messages: &'a [Message]) -> Vec<&'a str> {
    let of_user = messages.iter().filter_map(|message| match message {
        Message::User { text } => Some(text.as_str()),
        Message::Model { .. } | Message::Tools { .. } => None,
    });
    std::iter::once(system).chain(of_user).collect()
}

/// The object that a request in natural language returns to the model of an agent, with the fields of
/// the tool `code_execution`.
pub(crate) fn task_result(
    interpreter: &Interpreter,
    (first_round, first_file): (usize, usize),
    call_id: &str,
    max_rounds: u32,
    outcome: &RunOutcome,
) -> Value {
    let sandbox_id = interpreter.session.sandbox_id;
    let rounds = numbered(interpreter.rounds.get(first_round..).unwrap_or_default());
    let logs = render_logs(sandbox_id, true, &interpreter.plan, &rounds, max_rounds);
    let mut artifacts = Artifacts::default();
    let files = interpreter.files_out.get(first_file..).unwrap_or_default();
    artifacts.add(files, Some(sandbox_id));
    let (media, data): (Vec<OutputFile>, Vec<OutputFile>) =
        artifacts.into_files().into_iter().partition(|file| file.kind == FileKind::Media);
    json!({
        "sandbox_id": sandbox_id,
        "execution_id": call_id,
        "status": outcome.status,
        "answer": outcome.answer,
        "generated_files": data,
        "artifacts": image_artifacts(media),
        "logs": truncate_middle(&logs, LOGS_BYTES_MAX),
        "plan": interpreter.plan,
        "total_rounds": rounds.len(),
        "error": outcome.error,
    })
}

/// The rounds of a request, counted from one. The run counts them together with its other rounds.
fn numbered(rounds: &[Round]) -> Vec<Round> {
    (1..).zip(rounds).map(|(number, round)| Round { number, ..round.clone() }).collect()
}

/// Of the result of a request, only the answer counts as computed: its logs repeat the code that a
/// model wrote.
pub(crate) fn grounding_text(name: &str, text: &str) -> Option<String> {
    CodeToolName::from_name(name).filter(|tool| tool.takes_requests())?;
    let result: Value = serde_json::from_str(text).ok()?;
    result.get("logs")?;
    Some(result["answer"].as_str()?.to_owned())
}

pub(crate) fn definition(tool: CodeToolName) -> ToolDefinition {
    match tool {
        CodeToolName::CodeExecution | CodeToolName::CodeInterpreter => ToolDefinition {
            name: tool.name().to_owned(),
            description:
                "Run Python in the session of this conversation: `code`, or a `request` in \
                          natural language that is planned and written for you."
                    .to_owned(),
            input_schema: code_execution_schema(),
        },
        CodeToolName::ExecutePython => ToolDefinition {
            name: tool.name().to_owned(),
            description:
                "Run a complete Python script in the session of this conversation and get \
                          its result back. Print the result, or let it be the value of the last \
                          line. Name files in `files` and open them by their names; never paste \
                          their content into the code."
                    .to_owned(),
            input_schema: execute_python_schema(),
        },
    }
}

fn code_execution_schema() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    json!({
        "type": "object",
        "properties": {
            "code": text("Python code to run."),
            "request": text("What the code should do, in natural language."),
            "document_ids": {
                "type": "array",
                "items": {"type": "string", "format": "uuid"},
                "description": "Documents that the request needs; they are in /home/uploaded_files/.",
            },
            "context": text("Additional context of a request."),
            "sandbox_id": text("The session of this conversation, from an earlier result."),
        },
        "additionalProperties": false,
    })
}

fn execute_python_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "A complete Python script."},
            "files": {
                "type": "array",
                "items": {"type": "string"},
                "description": "URLs that the user gave, ids of documents, or names of files of this conversation. Each is in the working directory, under its own name, before the code runs.",
            },
        },
        "required": ["code"],
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn session() -> SandboxId {
        SandboxId::new(Uuid::from_u128(1))
    }

    fn parse(tool: CodeToolName, arguments: Value) -> Result<CodeCall, String> {
        CodeCall::parse(tool, &arguments, session())
    }

    #[test]
    fn arguments_of_another_type_or_another_session_are_refused_by_their_name() {
        let id = session().to_string();
        for (arguments, part) in [
            (json!({}), "exactly one of `code` and `request`"),
            (json!({"code": "1", "request": "2"}), "exactly one"),
            (json!({"request": " "}), "exactly one"),
            (json!({"request": 7}), "`request` must be text"),
            (json!({"request": "a", "document_ids": "b"}), "`document_ids` must be a list"),
            (json!({"request": "a", "document_ids": ["b"]}), "has \"b\", which is not a UUID"),
            (json!({"request": "a", "sandbox_id": "other"}), "\"other\" is not the session"),
            (json!({"code": "1", "document_ids": [id]}), "are for a `request`"),
            (json!({"request": "x".repeat(TEXT_BYTES_MAX + 1)}), "at most"),
        ] {
            let refused = parse(CodeToolName::CodeExecution, arguments.clone()).unwrap_err();
            assert!(refused.contains(part), "{arguments}: {refused}");
        }
        let whole = json!({"request": "a", "context": "b", "document_ids": [id], "sandbox_id": id});
        let Ok(CodeCall::Request(task)) = parse(CodeToolName::CodeInterpreter, whole) else {
            panic!("it is a request")
        };
        assert_eq!((task.request.as_str(), task.documents.len()), ("a", 1));
        assert!(parse(CodeToolName::ExecutePython, json!({"code": "1", "files": ["a"]})).is_ok());
        assert!(parse(CodeToolName::ExecutePython, json!({"request": "a"})).is_err());
        assert!(parse(CodeToolName::ExecutePython, json!({"code": "1", "files": [1]})).is_err());
    }

    #[test]
    fn t250_a_url_counts_only_as_the_user_wrote_it() {
        let sources = ["Read https://a.example/sales.csv, please."];
        assert!(url_input("https://a.example/sales.csv".into(), &sources).is_ok());
        for composed in [
            "https://a.example/sales.csv?secret=1",
            "https://a.example/sales",
            "https://b.example/sales.csv",
            "https://a.example/",
        ] {
            assert!(url_input(composed.into(), &sources).is_err(), "{composed}");
        }
        let refused = url_input("https://a.example/a.PDF?x".into(), &["https://a.example/a.PDF?x"]);
        assert!(refused.unwrap_err().contains("PDF is not supported"));
    }

    #[test]
    fn code_in_the_logs_of_a_request_is_no_ground_for_its_numbers() {
        let result = json!({"answer": "It is 7.", "logs": "GENERATED CODE:\n4711"}).to_string();
        assert_eq!(grounding_text("code_execution", &result).unwrap(), "It is 7.");
        assert_eq!(grounding_text("code_execution", "printed 7"), None);
        assert_eq!(grounding_text("probe", &result), None);
    }
}
