//! Explains the access of a call: the same checks as for a call, with their results in words.
//!
//! Nothing runs and nothing is written. What is said here must be what a call would find.

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
    WorkspaceId,
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
    who: Principal,
    tool: Option<Tool>,
    agent: Option<Agent>,
    /// Of the agent.
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
        let question = self.explained_call(caller, query).await?;
        let mut findings = self.findings(&question)?;
        findings.missing.extend(question.missing_for_code_execution().await);
        let limits = LimitsRequest::default().resolve(&self.limit_caps(question.workspace)?)?;
        let named = self.egress_integrations(&question).await?;
        findings.missing.extend(self.denied_integrations(&question, &named)?);
        let (workspace, run_as) = (question.workspace, &question.run_as);
        let author = question.author();
        let (integrations, off) =
            self.integrations_granted_to_both(workspace, run_as, author, &named)?;
        let off = off.iter().map(|it| format!("integration {} is disabled", it.name));
        let notes = off.collect();
        let network = self.reachable_hosts(&question, &integrations)?;
        let secrets = self.readable_secrets(caller, &question, &integrations)?;
        let answer = question.into_explanation(findings, self.environment_or_default(None), limits);
        Ok(Explanation { network, secrets, notes, ..answer })
    }

    /// The caller and the target of the explained call. Each look-up comes after those that would hide it: an error reveals nothing
    /// whether an agent or a tool that they do not see, or a principal that they may not ask about, exists.
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
        let who = query.principal.unwrap_or_else(|| caller.id());
        if who != caller.id() {
            let tool = tool.as_ref().map(|tool| ObjectRef::Tool(tool.id));
            let agent = agent.as_ref().map(|agent| ObjectRef::Agent(agent.id));
            for object in tool.into_iter().chain(agent) {
                self.require_privilege(caller, Privilege::Ownership, object)?;
            }
        }
        let who = self.find_principal(workspace, who)?;
        let run_as = match &agent {
            Some(agent) => self.nominal_principal(workspace, &who, agent)?,
            None => who.clone(),
        };
        Ok(ExplainedCall { workspace, who, tool, agent, bindings, run_as })
    }

    /// A caller learns nothing about a tool that they may not see. A caller who may see an agent sees the tools that
    /// are attached to it.
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

    /// The principal that code of an agent runs as, also if its owner has not confirmed it.
    fn nominal_principal(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        agent: &Agent,
    ) -> Result<Principal, RequestError> {
        match agent.run_as {
            RunAs::Caller => Ok(who.clone()),
            RunAs::Owner => self.find_principal(workspace, agent.owner),
        }
    }

    fn findings(&self, question: &ExplainedCall) -> Result<GrantFindings, RequestError> {
        let mut findings = GrantFindings::default();
        if let Some(agent) = &question.agent {
            let object = ObjectRef::Agent(agent.id);
            self.check_usage(question.workspace, &question.who, object, &mut findings)?;
            if agent.run_as == RunAs::Owner
                && let Err(refused) = self.check_specification_confirmed(question.workspace, agent)
            {
                findings.missing.push(refused.error.message);
            }
        }
        match &question.tool {
            Some(tool) => {
                let object = ObjectRef::Tool(tool.id);
                self.check_usage(question.workspace, &question.run_as, object, &mut findings)?;
            }
            None => findings.because.extend(self.usable_tools(question)?),
        }
        findings.missing.extend(question.not_attached());
        findings.missing.extend(question.denied_by_action());
        Ok(findings)
    }

    /// The integrations that the code could leave by.
    async fn egress_integrations(
        &self,
        question: &ExplainedCall,
    ) -> Result<Vec<String>, RequestError> {
        Ok(match (&question.tool, &question.agent) {
            (Some(tool), _) => {
                let (_, contract) = self.checked_tool(question.workspace, tool.id).await?;
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

    /// Why a call would be refused that has to leave by these.
    fn denied_integrations(
        &self,
        question: &ExplainedCall,
        named: &[String],
    ) -> Result<Vec<String>, RequestError> {
        let owner =
            question.tool.as_ref().map(|tool| self.find_principal(question.workspace, tool.owner));
        let owner = owner.transpose()?;
        let author = question.author().principal();
        let author =
            author.map(|author| self.author_principal(question.workspace, author)).transpose()?;
        let mut needed = vec![(&question.run_as, "the principal that this code runs as")];
        needed.extend(owner.as_ref().map(|owner| (owner, "the owner of the tool")));
        let is_new = |author: &&Principal| needed.iter().all(|(who, _)| who.id != author.id);
        let author = author.as_ref().filter(is_new);
        needed.extend(author.map(|author| (author, "the author of this code")));
        let mut closed = Vec::new();
        for who in needed {
            match self.check_integrations(question.workspace, who, named) {
                Ok(()) => {}
                Err(RequestError { error, .. }) if error.code != ErrorCode::DatabaseUnavailable => {
                    closed.push(error.message);
                }
                Err(refused) => return Err(refused),
            }
        }
        Ok(closed)
    }

    /// The hosts that the code could reach at this moment.
    fn reachable_hosts(
        &self,
        question: &ExplainedCall,
        integrations: &[Integration],
    ) -> Result<Vec<String>, RequestError> {
        let openings = self.integration_rules(question.workspace, integrations)?;
        let values = openings.iter().flat_map(|opening| &opening.values).map(ToString::to_string);
        let mut reached: Vec<String> = values.collect();
        let borrower = question.secret_consumer(integrations);
        for secret in self.usable_secrets(borrower)? {
            let target = secrets::injection_target(&secret.inject);
            if let Some(target) = target
                && self.opens_host(borrower.workspace, borrower.caller, &secret)?
            {
                reached.push(target.origin());
            }
        }
        let mut told = HashSet::new();
        reached.retain(|place| told.insert(place.clone()));
        Ok(reached)
    }

    /// The secrets whose values the code has at this moment. A personal secret is shown only to its owner.
    fn readable_secrets(
        &self,
        caller: &Caller,
        question: &ExplainedCall,
        integrations: &[Integration],
    ) -> Result<Vec<String>, RequestError> {
        let of_all = |secret: &Secret| secret.scope == SecretScope::Workspace;
        let usable = self.usable_secrets(question.secret_consumer(integrations))?.into_iter();
        let exposed = usable.filter(|it| it.exposed && (of_all(it) || it.owner == caller.id()));
        let of_tool = question.tool.iter().flat_map(tool_variables::variable_names);
        Ok(exposed.map(|secret| secret.name).chain(of_tool).collect())
    }

    /// Why the code of an agent could use each of its tools that it could use.
    fn usable_tools(&self, question: &ExplainedCall) -> Result<Vec<String>, RequestError> {
        let mut findings = GrantFindings::default();
        for binding in &question.bindings {
            let object = ObjectRef::Tool(binding.tool_id);
            self.check_usage(question.workspace, &question.run_as, object, &mut findings)?;
        }
        Ok(findings.because)
    }

    /// Whether a principal may use an object, and by which grant.
    fn check_usage(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        object: ObjectRef,
        findings: &mut GrantFindings,
    ) -> Result<(), RequestError> {
        let Some(permit) = self.permit(workspace, who, Privilege::Usage, object)? else {
            findings.missing.push(format!("{} needs USAGE on {object}", who.name));
            return Ok(());
        };
        let grant = permit.grant;
        let holder = match grant.principal == who.id {
            true => who.name.clone(),
            false => format!("the role {}", self.find_principal(workspace, grant.principal)?.name),
        };
        findings.because.push(format!(
            "{} has USAGE on {object}: grant {} gives {} on {} to {holder}",
            who.name, grant.id, grant.privilege, grant.object
        ));
        Ok(())
    }
}

impl ExplainedCall {
    fn secret_consumer<'a>(&'a self, integrations: &'a [Integration]) -> SecretConsumer<'a> {
        let Self { workspace, run_as, who, .. } = self;
        let author = self.author();
        SecretConsumer { workspace: *workspace, run_as, caller: who.id, author, integrations }
    }

    fn author(&self) -> CodeAuthor {
        let of_agent = self.agent.as_ref().map(|agent| agent.author);
        match &self.tool {
            Some(tool) => CodeAuthor::Other {
                by: tool.author,
                has_values: !tool_variables::variable_names(tool).is_empty(),
            },
            None => CodeAuthor::Other { by: of_agent.unwrap_or(self.who.id), has_values: false },
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

    /// The reason why an agent may not run its own code, if the call is about that.
    async fn missing_for_code_execution(&self) -> Vec<String> {
        let Some(agent) = self.agent.as_ref().filter(|_| self.tool.is_none()) else {
            return Vec::new();
        };
        match agents::read_specification(&agent.specification).await {
            Ok(read) => read.code_execution.missing,
            Err(refused) => vec![refused.error.message],
        }
    }

    fn into_explanation(
        self,
        findings: GrantFindings,
        usual: String,
        limits: Limits,
    ) -> Explanation {
        let allowed = findings.missing.is_empty();
        let approval = self.approval();
        let environment = self.tool.as_ref().map_or(usual, |tool| tool.environment.clone());
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
        let who = &self.who.name;
        let mut steps = vec![format!("the grants of {who} are checked again")];
        if let Some(tool) = &self.tool {
            steps.push(format!("the arguments are checked against the contract of {}", tool.name));
        }
        if approval == ApprovalAction::Review {
            steps.push(format!(
                "a principal other than {who} must approve exactly this call before it runs"
            ));
        }
        steps.push(format!("a sandbox of the environment {environment} is created"));
        steps.push(format!("the code runs in it with the rights of {}", self.run_as.name));
        steps.push("the record is stored, and the sandbox ends unless it is a session".to_owned());
        steps
    }
}
