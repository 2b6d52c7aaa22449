//! Tools that stand in the specification of an agent. They are nobody's but the agent's: they come
//! and go with its specification, and are called through it alone.

use crate::agents;
use crate::definition::Contract;
use crate::refused::Refused;
use crate::service::Service;
use crate::specification::Embedded;
use crate::staging::hex;
use sha2::{Digest, Sha256};
use types::{Agent, AgentId, Tool, ToolId, WorkspaceId};
use uuid::Uuid;

/// The same as long as the tool is called the same: a question that is open is about it.
pub(crate) fn id(agent: AgentId, name: &str) -> ToolId {
    let digest = Sha256::digest([agent.uuid().as_bytes(), name.as_bytes()].concat());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    ToolId::new(Uuid::new_v8(bytes))
}

impl Service {
    /// The tool with this id in the specification as it is now.
    pub(crate) async fn embedded_tool(
        &self,
        workspace: WorkspaceId,
        agent: &Agent,
        id: ToolId,
    ) -> Result<Option<(Tool, Contract)>, Refused> {
        let tools = agents::read(&agent.specification).await?.embedded;
        let found = tools.into_iter().find(|tool| self::id(agent.id, &tool.contract.name) == id);
        Ok(found.map(|found| self.as_tool(workspace, agent, found)))
    }

    /// As if it had been made.
    pub(crate) fn as_tool(
        &self,
        workspace: WorkspaceId,
        agent: &Agent,
        embedded: Embedded,
    ) -> (Tool, Contract) {
        let Embedded { contract, definition, environment, approval_action, .. } = embedded;
        let tool = Tool {
            id: id(agent.id, &contract.name),
            name: contract.name.clone(),
            owner: agent.owner,
            author: agent.author,
            description: contract.description.clone().unwrap_or_default(),
            definition,
            entry: "handle".to_owned(),
            environment: self.environment(environment),
            approval_action,
            input_schema: contract.descriptor(),
            output_schema: contract.output_descriptor(),
            code_sha256: hex(&Sha256::digest(contract.source.as_written().as_bytes())),
            deployment_id: workspace,
            created_at: agent.created_at,
            updated_at: agent.updated_at,
        };
        (tool, Contract::Python(contract).taking(self.config.tool_bytes_max))
    }
}
