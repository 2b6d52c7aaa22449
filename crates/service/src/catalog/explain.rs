//! Explains the access of a call, with the same checks as for a call.
//!
//! It runs nothing and writes nothing. The explanation must agree with the outcome of a real call.

use crate::catalog::agents;
use crate::catalog::tool_definition::ToolContract;
use crate::error::{RequestError, invalid_field, not_found};
use crate::identity::caller::Caller;
use crate::network;
use crate::secrets::tool_variables;
use crate::secrets::{self, CodeAuthor, SecretConsumer};
use crate::service::Service;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use types::{
    Agent, AgentId, ApprovalAction, ErrorCode, Integration, Limits, LimitsRequest, ObjectRef,
    Principal, PrincipalId, Privilege, RunAs, Secret, SecretScope, Tool, ToolBinding, ToolId,
    WorkKind, WorkspaceId,
};
use utoipa::{IntoParams, ToSchema};

const FILES: &str = "its own working directory with the input files of the call; no files of the \
                     server, of other sessions or of other callers";

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExplainQuery {
    /// The calling principal; default: the caller.
    pub principal: Option<PrincipalId>,
    /// The called tool; absent for any code of the agent.
    pub tool: Option<ToolId>,
    /// The agent of the call; absent for a call without one.
    pub agent: Option<AgentId>,
}

/// The access of a call, and the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Explanation {
    pub allowed: bool,
    /// The required grants that exist.
    pub because: Vec<String>,
    /// The missing requirements; empty if the call is allowed.
    pub missing: Vec<String>,
    /// The principal whose rights the code would have.
    pub run_as: PrincipalId,
    /// Whether the call would run, be refused, or wait for an approval.
    pub approval: ApprovalAction,
    pub environment: String,
    /// The limits of a call that requests no others.
    pub limits: Limits,
    /// Hosts that the code could reach: values of network rules, and the URLs of services that
    /// secrets are for.
    pub network: Vec<String>,
    /// Names of secrets that the code could read, and of the tool's own variables. Credentials that it
    /// could use and not read are not among them.
    pub secrets: Vec<String>,
    /// Remarks, such as a disabled integration.
    pub notes: Vec<String>,
    /// Files that the code could read.
    pub files: String,
    /// The steps of the call, in order.
    pub steps: Vec<String>,
}

/// The caller and the target of the explained call.
struct ExplainedCall {
    workspace: WorkspaceId,
    requester: Principal,
    tool: Option<Tool>,
    agent: Option<Agent>,
    /// The tools attached to the agent.
    bindings: Vec<ToolBinding>,
    /// The principal whose rights the code would have.
    run_as: Principal,
}

#[derive(Default)]
struct GrantFindings {
    because: Vec<String>,
    missing: Vec<String>,
}

impl Service {
    pub async fn explain(
        &self,
        caller: &Caller,
        query: &ExplainQuery,
    ) -> Result<Explanation, RequestError> {
        if query.tool.is_none() && query.agent.is_none() {
            return Err(invalid_field("query/tool", "is required: pass a tool, an agent, or both"));
        }
        let call = self.explained_call(caller, query).await?;
        let mut findings = self.findings(&call)?;
        findings.missing.extend(call.missing_for_code_execution().await);
        let limits = LimitsRequest::default().resolve(&self.limit_caps(call.workspace)?)?;
        let names = self.egress_integrations(&call).await?;
        findings.missing.extend(self.denied_integrations(&call, &names)?);
        let (workspace, run_as) = (call.workspace, &call.run_as);
        let author = call.author();
        let (integrations, disabled) =
            self.integrations_granted_to_both(workspace, run_as, author, &names)?;
        let disabled = disabled.iter().map(|it| format!("integration {} is disabled", it.name));
        let notes = disabled.collect();
        let network = self.reachable_hosts(&call, &integrations)?;
        let secrets = self.readable_secrets(caller, &call, &integrations)?;
        let environment = self.explained_environment(&call).await;
        let explanation = call.into_explanation(findings, environment, limits);
        Ok(Explanation { network, secrets, notes, ..explanation })
    }

    /// The environment that the call would run in.
    async fn explained_environment(&self, call: &ExplainedCall) -> String {
        match (&call.tool, &call.agent) {
            (Some(tool), _) => tool.environment.clone(),
            (None, Some(agent)) => {
                let read = agents::read_specification(&agent.specification).await;
                let named = read.ok().and_then(|read| read.section.environment);
                self.environment_for(WorkKind::CodeExecution, named)
            }
            (None, None) => self.environment_or_default(None),
        }
    }

    /// Resolves the caller and the target of the explained call. Each object is looked up after
    /// those that it depends on, so that an error never reveals whether an agent or tool exists
    /// that the caller cannot see, or a principal that the caller may not ask about.
    async fn explained_call(
        &self,
        caller: &Caller,
        query: &ExplainQuery,
    ) -> Result<ExplainedCall, RequestError> {
        let workspace = caller.workspace;
        let agent = query.agent.map(|id| self.visible_agent(caller, id)).transpose()?;
        let bindings = match &agent {
            Some(agent) => self.db.read(|rows| rows.tool_bindings(workspace, agent.id))?,
            None => Vec::new(),
        };
        let tool = match query.tool {
            Some(id) => Some(self.explained_tool(caller, id, &bindings).await?),
            None => None,
        };
        let requester = query.principal.unwrap_or_else(|| caller.id());
        if requester != caller.id() {
            let tool = tool.as_ref().map(|tool| ObjectRef::Tool(tool.id));
            let agent = agent.as_ref().map(|agent| ObjectRef::Agent(agent.id));
            for object in tool.into_iter().chain(agent) {
                self.require_privilege(caller, Privilege::Ownership, object)?;
            }
        }
        let requester = self.find_principal(workspace, requester)?;
        let run_as = match &agent {
            Some(agent) => self.nominal_principal(workspace, &requester, agent)?,
            None => requester.clone(),
        };
        Ok(ExplainedCall { workspace, requester, tool, agent, bindings, run_as })
    }

    /// The tool of the call. A tool that the caller cannot see is reported as missing, but a caller
    /// that sees an agent also sees its attached tools.
    async fn explained_tool(
        &self,
        caller: &Caller,
        id: ToolId,
        bindings: &[ToolBinding],
    ) -> Result<Tool, RequestError> {
        let is_attached = bindings.iter().any(|binding| binding.tool_id == id);
        match self.db.tool(caller.workspace, id).await? {
            Some((tool, _)) if is_attached || self.can_see(caller, ObjectRef::Tool(id))? => {
                Ok(tool)
            }
            _ => Err(not_found("tool", id)),
        }
    }

    pub(crate) fn find_principal(
        &self,
        workspace: WorkspaceId,
        id: PrincipalId,
    ) -> Result<Principal, RequestError> {
        let found = self.db.read(|rows| rows.principal(workspace, id))?;
        found.ok_or_else(|| not_found("principal", id))
    }

    /// The principal that code of an agent runs as, even if its owner has not confirmed the
    /// specification.
    fn nominal_principal(
        &self,
        workspace: WorkspaceId,
        requester: &Principal,
        agent: &Agent,
    ) -> Result<Principal, RequestError> {
        match agent.run_as {
            RunAs::Caller => Ok(requester.clone()),
            RunAs::Owner => self.find_principal(workspace, agent.owner),
        }
    }

    fn findings(&self, call: &ExplainedCall) -> Result<GrantFindings, RequestError> {
        let mut findings = GrantFindings::default();
        if let Some(agent) = &call.agent {
            let object = ObjectRef::Agent(agent.id);
            self.check_usage(call.workspace, &call.requester, object, &mut findings)?;
            if agent.run_as == RunAs::Owner
                && let Err(error) = self.check_specification_confirmed(call.workspace, agent)
            {
                findings.missing.push(error.error.message);
            }
        }
        match &call.tool {
            Some(tool) => {
                let object = ObjectRef::Tool(tool.id);
                self.check_usage(call.workspace, &call.run_as, object, &mut findings)?;
            }
            None => findings.because.extend(self.usable_tools(call)?),
        }
        findings.missing.extend(call.not_attached());
        findings.missing.extend(call.denied_by_action());
        Ok(findings)
    }

    /// The integrations that the code would use.
    async fn egress_integrations(&self, call: &ExplainedCall) -> Result<Vec<String>, RequestError> {
        Ok(match (&call.tool, &call.agent) {
            (Some(tool), _) => {
                let (_, contract) = self.checked_tool(call.workspace, tool.id).await?;
                let ToolContract::Python(checked) = contract else { return Ok(Vec::new()) };
                network::tool_integrations(&checked)
            }
            (None, Some(agent)) => {
                let read = agents::read_specification(&agent.specification).await;
                read.map_or_else(|_| Vec::new(), |read| read.section.integrations)
            }
            (None, None) => Vec::new(),
        })
    }

    /// The reasons why a call that uses these integrations would be refused.
    fn denied_integrations(
        &self,
        call: &ExplainedCall,
        names: &[String],
    ) -> Result<Vec<String>, RequestError> {
        let owner = call.tool.as_ref().map(|tool| self.find_principal(call.workspace, tool.owner));
        let owner = owner.transpose()?;
        let author = call.author().principal();
        let author =
            author.map(|author| self.author_principal(call.workspace, author)).transpose()?;
        let mut required = vec![(&call.run_as, "the principal that this code runs as")];
        required.extend(owner.as_ref().map(|owner| (owner, "the owner of the tool")));
        let is_new =
            |author: &&Principal| required.iter().all(|(principal, _)| principal.id != author.id);
        let author = author.as_ref().filter(is_new);
        required.extend(author.map(|author| (author, "the author of this code")));
        let mut messages = Vec::new();
        for principal in required {
            match self.check_integrations(call.workspace, principal, names) {
                Ok(()) => {}
                Err(RequestError { error, .. }) if error.code != ErrorCode::DatabaseUnavailable => {
                    messages.push(error.message);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(messages)
    }

    /// The hosts that the code could reach now.
    fn reachable_hosts(
        &self,
        call: &ExplainedCall,
        integrations: &[Integration],
    ) -> Result<Vec<String>, RequestError> {
        let rules = self.integration_rules(call.workspace, integrations)?;
        let values = rules.iter().flat_map(|rule| &rule.values).map(ToString::to_string);
        let mut reached: Vec<String> = values.collect();
        let consumer = call.secret_consumer(integrations);
        let secrets = self.usable_secrets(consumer)?;
        let token = self.caller_token_grant(consumer, secrets.iter().map(|it| &it.inject));
        let of_token = token.and_then(|token| token.rules()).into_iter();
        reached.extend(of_token.flat_map(|rules| rules.values).map(|host| host.to_string()));
        for secret in secrets {
            let target = secrets::injection_target(&secret.inject);
            if let Some(target) = target
                && self.opens_host(consumer.workspace, consumer.caller, &secret)?
            {
                reached.push(target.origin());
            }
        }
        let mut seen = HashSet::new();
        reached.retain(|host| seen.insert(host.clone()));
        Ok(reached)
    }

    /// The secrets whose values the code could read now. A personal secret is shown only to its
    /// owner.
    fn readable_secrets(
        &self,
        caller: &Caller,
        call: &ExplainedCall,
        integrations: &[Integration],
    ) -> Result<Vec<String>, RequestError> {
        let of_all = |secret: &Secret| secret.scope == SecretScope::Workspace;
        let usable = self.usable_secrets(call.secret_consumer(integrations))?.into_iter();
        let exposed = usable.filter(|it| it.exposed && (of_all(it) || it.owner == caller.id()));
        let of_tool = call.tool.iter().flat_map(tool_variables::variable_names);
        Ok(exposed.map(|secret| secret.name).chain(of_tool).collect())
    }

    /// For each tool that the code of an agent could call, the grant that allows it.
    fn usable_tools(&self, call: &ExplainedCall) -> Result<Vec<String>, RequestError> {
        let mut findings = GrantFindings::default();
        for binding in &call.bindings {
            let object = ObjectRef::Tool(binding.tool_id);
            self.check_usage(call.workspace, &call.run_as, object, &mut findings)?;
        }
        Ok(findings.because)
    }

    /// Records whether a principal has USAGE on an object, and by which grant.
    fn check_usage(
        &self,
        workspace: WorkspaceId,
        principal: &Principal,
        object: ObjectRef,
        findings: &mut GrantFindings,
    ) -> Result<(), RequestError> {
        let Some(permit) = self.permit(workspace, principal, Privilege::Usage, object)? else {
            findings.missing.push(format!("{} needs USAGE on {object}", principal.name));
            return Ok(());
        };
        let grant = permit.grant;
        let holder = match grant.principal == principal.id {
            true => principal.name.clone(),
            false => format!("the role {}", self.find_principal(workspace, grant.principal)?.name),
        };
        findings.because.push(format!(
            "{} has USAGE on {object}: grant {} gives {} on {} to {holder}",
            principal.name, grant.id, grant.privilege, grant.object
        ));
        Ok(())
    }
}

impl ExplainedCall {
    fn secret_consumer<'a>(&'a self, integrations: &'a [Integration]) -> SecretConsumer<'a> {
        let Self { workspace, run_as, requester, .. } = self;
        let author = self.author();
        SecretConsumer { workspace: *workspace, run_as, caller: requester.id, author, integrations }
    }

    fn author(&self) -> CodeAuthor {
        let of_agent = self.agent.as_ref().map(|agent| agent.author);
        match &self.tool {
            Some(tool) => CodeAuthor::Other {
                by: tool.author,
                has_values: !tool_variables::variable_names(tool).is_empty(),
            },
            None => {
                CodeAuthor::Other { by: of_agent.unwrap_or(self.requester.id), has_values: false }
            }
        }
    }

    fn binding(&self) -> Option<&ToolBinding> {
        let tool = self.tool.as_ref()?;
        self.bindings.iter().find(|binding| binding.tool_id == tool.id)
    }

    fn approval(&self) -> ApprovalAction {
        let of_agent = self.binding().map(|binding| binding.approval_action);
        let of_tool = self.tool.as_ref().map(|tool| tool.approval_action);
        policy::effective_action(of_tool.unwrap_or_default(), of_agent)
    }

    fn not_attached(&self) -> Option<String> {
        let (tool, agent) = (self.tool.as_ref()?, self.agent.as_ref()?);
        let attached = self.binding().is_some();
        (!attached).then(|| format!("tool {} must be attached to agent {}", tool.id, agent.id))
    }

    fn denied_by_action(&self) -> Option<String> {
        let denied = self.approval() == ApprovalAction::Deny;
        denied.then(|| "the approval action must not be deny".to_owned())
    }

    /// The reasons why an agent may not run code, if the call is about its own code.
    async fn missing_for_code_execution(&self) -> Vec<String> {
        let Some(agent) = self.agent.as_ref().filter(|_| self.tool.is_none()) else {
            return Vec::new();
        };
        match agents::read_specification(&agent.specification).await {
            Ok(read) => read.code_execution.missing,
            Err(error) => vec![error.error.message],
        }
    }

    fn into_explanation(
        self,
        findings: GrantFindings,
        environment: String,
        limits: Limits,
    ) -> Explanation {
        let allowed = findings.missing.is_empty();
        let approval = self.approval();
        let steps = match allowed {
            true => self.steps(approval, &environment),
            false => vec!["the call is refused, and no sandbox is created".to_owned()],
        };
        Explanation {
            allowed,
            because: findings.because,
            missing: findings.missing,
            run_as: self.run_as.id,
            approval,
            environment,
            limits,
            network: Vec::new(),
            secrets: Vec::new(),
            notes: Vec::new(),
            files: FILES.to_owned(),
            steps,
        }
    }

    fn steps(&self, approval: ApprovalAction, environment: &str) -> Vec<String> {
        let requester = &self.requester.name;
        let mut steps = vec![format!("the grants of {requester} are checked again")];
        if let Some(tool) = &self.tool {
            steps.push(format!("the arguments are checked against the contract of {}", tool.name));
        }
        match approval {
            ApprovalAction::Review => steps.push(format!(
                "a principal other than {requester} must approve exactly this call before it runs"
            )),
            ApprovalAction::Confirm if self.agent.is_some() => {
                steps.push(format!("{requester} must confirm exactly this call before it runs"));
            }
            ApprovalAction::Allow | ApprovalAction::Confirm | ApprovalAction::Deny => {}
        }
        steps.push(format!("a sandbox of the environment {environment} is created"));
        steps.push(format!("the code runs in it with the rights of {}", self.run_as.name));
        steps.push("the record is stored, and the sandbox ends unless it is a session".to_owned());
        steps
    }
}
