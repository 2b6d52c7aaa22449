//! Tools whose code is part of an agent's specification. They exist as long as the specification
//! has them, and can be called only through the agent.

use crate::catalog::agents;
use crate::catalog::specification::EmbeddedTool;
use crate::catalog::tool_definition::ToolContract;
use crate::data::staging::hex;
use crate::error::RequestError;
use crate::service::Service;
use sha2::{Digest, Sha256};
use types::{Agent, AgentId, Tool, ToolId, WorkKind, WorkspaceId};
use uuid::Uuid;

/// The id of an embedded tool. It depends on the agent and the name only, so that pending approvals
/// of the tool stay valid.
pub(crate) fn embedded_tool_id(agent: AgentId, name: &str) -> ToolId {
    let digest = Sha256::digest([agent.uuid().as_bytes(), name.as_bytes()].concat());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    ToolId::new(Uuid::new_v8(bytes))
}

impl Service {
    /// The tool with this id in the current specification.
    pub(crate) async fn embedded_tool(
        &self,
        workspace: WorkspaceId,
        agent: &Agent,
        id: ToolId,
    ) -> Result<Option<(Tool, ToolContract)>, RequestError> {
        let tools = agents::read_specification(&agent.specification).await?.embedded;
        let found = tools
            .into_iter()
            .find(|tool| self::embedded_tool_id(agent.id, &tool.contract.name) == id);
        Ok(found.map(|found| self.materialize_embedded_tool(workspace, agent, found)))
    }

    /// Converts an embedded tool to the form of a stored one.
    pub(crate) fn materialize_embedded_tool(
        &self,
        workspace: WorkspaceId,
        agent: &Agent,
        embedded: EmbeddedTool,
    ) -> (Tool, ToolContract) {
        let EmbeddedTool { contract, definition, environment, approval_action, .. } = embedded;
        let set_apart = agent.approval_actions.get(&contract.name).copied();
        let approval_action = set_apart.unwrap_or(approval_action);
        let tool = Tool {
            id: embedded_tool_id(agent.id, &contract.name),
            name: contract.name.clone(),
            owner: agent.owner,
            author: agent.author,
            description: contract.description.clone().unwrap_or_default(),
            definition,
            entry: "handle".to_owned(),
            environment: self.environment_for(WorkKind::RunPythonCode, environment),
            approval_action,
            input_schema: contract.descriptor(),
            output_schema: contract.output_descriptor(),
            code_sha256: hex(&Sha256::digest(contract.source.original_text().as_bytes())),
            deployment_id: workspace,
            created_at: agent.created_at,
            updated_at: agent.updated_at,
        };
        (tool, ToolContract::Python(contract).with_input_limit(self.config.tool_bytes_max))
    }
}
