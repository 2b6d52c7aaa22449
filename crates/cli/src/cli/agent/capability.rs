//! `belljar agent capability`: lists, adds and removes what an agent can use.

use crate::cli::CliError;
use crate::cli::display::Column;
use crate::cli::remote::Remote;
use crate::cli::resource_names::ResourceKind;
use crate::client::ApiRequest;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

const CATALOG: &str = "/v1/catalog";
const COLUMNS: &[Column] = &[
    ("kind", "/kind"),
    ("name", "/name"),
    ("title", "/title"),
    ("category", "/category"),
    ("state", "/state"),
    ("approval", "/approval_action"),
    ("source", "/source"),
    ("reason", "/reason"),
];
const CATALOG_COLUMNS: &[Column] = &[
    ("name", "/name"),
    ("type", "/type"),
    ("category", "/category"),
    ("description", "/description"),
];

#[derive(Debug, clap::Subcommand)]
pub(super) enum CapabilityCommand {
    /// List the capabilities of an agent, or the catalog
    ///
    /// Use it to see what an agent can use, and why it cannot use something. Without an agent it
    /// lists what can be added.
    #[command(after_help = "Examples:\n  \
        belljar agent capability ls sales\n  \
        belljar agent capability ls")]
    Ls {
        /// Name or id of the agent
        #[arg(value_name = "AGENT")]
        agent: Option<String>,
    },
    /// Add a capability to an agent
    ///
    /// Use it with an entry of the catalog, a tool or a skill. The rest of the specification does
    /// not change.
    #[command(after_help = "Examples:\n  \
        belljar agent capability add sales 'Code Interpreter'\n  \
        belljar agent capability add sales --skill dataviz\n  \
        belljar agent capability add sales --tool media_probe")]
    Add(AddCapabilityArgs),
    /// Remove a capability from an agent
    ///
    /// Use it with a name or title of the list. An attached tool is detached and not deleted; a tool
    /// in the specification is removed from it.
    #[command(after_help = "Examples:\n  \
        belljar agent capability rm sales 'Code Interpreter'\n  \
        belljar agent capability rm sales dataviz")]
    Rm {
        /// Name or id of the agent
        #[arg(value_name = "AGENT")]
        agent: String,

        /// Name or title of the capability
        #[arg(value_name = "CAPABILITY")]
        capability: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct AddCapabilityArgs {
    /// Name or id of the agent
    #[arg(value_name = "AGENT")]
    agent: String,

    /// Name of an entry of the catalog
    #[arg(value_name = "ENTRY", required_unless_present_any = ["tool", "skill"])]
    entry: Option<String>,

    /// Name or id of a tool to attach
    #[arg(long, value_name = "TOOL", conflicts_with_all = ["entry", "skill"])]
    tool: Option<String>,

    /// Name of a skill
    #[arg(long, value_name = "SKILL", conflicts_with = "entry")]
    skill: Option<String>,
}

pub(super) async fn run(remote: &Remote, command: CapabilityCommand) -> Result<(), CliError> {
    match command {
        CapabilityCommand::Ls { agent: None } => {
            remote.table(items(remote, CATALOG).await?, CATALOG_COLUMNS)
        }
        CapabilityCommand::Ls { agent: Some(agent) } => {
            let path = capabilities_path(remote, &agent).await?;
            remote.table(items(remote, &path).await?, COLUMNS)
        }
        CapabilityCommand::Add(args) => {
            let path = capabilities_path(remote, &args.agent).await?;
            let body = new_capability(remote, &args).await?;
            remote.show(ApiRequest::post(path).json(&body)).await
        }
        CapabilityCommand::Rm { agent, capability } => remove(remote, &agent, &capability).await,
    }
}

async fn capabilities_path(remote: &Remote, agent: &str) -> Result<String, CliError> {
    Ok(format!("{}/capabilities", remote.client.resolve_path(ResourceKind::Agent, agent).await?))
}

async fn items(remote: &Remote, path: &str) -> Result<Vec<Value>, CliError> {
    let (items, _) = remote.client.list(path, &[], usize::MAX).await?;
    Ok(items)
}

async fn new_capability(remote: &Remote, args: &AddCapabilityArgs) -> Result<Value, CliError> {
    if let Some(tool) = &args.tool {
        let id = remote.client.resolve_id(ResourceKind::Tool, tool).await?;
        return Ok(json!({"kind": "tool", "tool_id": id}));
    }
    if let Some(skill) = &args.skill {
        return Ok(json!({"kind": "skill", "name": skill}));
    }
    let wanted = args.entry.as_deref().unwrap_or_default();
    let catalog = items(remote, CATALOG).await?;
    let mut found = catalog.into_iter().filter(|entry| entry["name"] == wanted);
    found.next().map(|mut entry| entry["capability"].take()).ok_or_else(|| {
        CliError::rejected(format!(
            "the catalog has no entry {wanted:?} (see `belljar agent capability ls`)"
        ))
    })
}

async fn remove(remote: &Remote, agent: &str, wanted: &str) -> Result<(), CliError> {
    let path = capabilities_path(remote, agent).await?;
    let listed = items(remote, &path).await?;
    let field = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
    let is_wanted = |item: &&Value| item["name"] == wanted || item["title"] == wanted;
    let mut found = listed.iter().filter(is_wanted);
    let item = match (found.next(), found.next()) {
        (Some(item), None) => item,
        (Some(_), Some(_)) => {
            return Err(CliError::rejected(format!(
                "more than one capability of {agent} has the name {wanted:?}; use its title, or \
                 `belljar api call removeAiAgentCapability`"
            )));
        }
        (None, _) => {
            return Err(CliError::rejected(format!(
                "{agent} has no capability {wanted:?} (see `belljar agent capability ls {agent}`)"
            )));
        }
    };
    let name = field(item, "name");
    let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
    let call = ApiRequest::delete(format!("{path}/{}/{name}", field(item, "kind")));
    remote.send_and_report(call, &format!("{wanted} removed from {agent}")).await
}
