//! What a call could reach, and why: the same questions that a call asks, with the answers in words.
//!
//! Nothing runs and nothing is written. What is said here must be what a call would find.

use crate::agents;
use crate::caller::Caller;
use crate::definition::Contract;
use crate::network;
use crate::refused::{Refused, invalid, not_found};
use crate::secrets::{self, Author, Borrower};
use crate::service::Service;
use crate::variables;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use types::{
    Agent, AgentId, ApprovalAction, Binding, Code, Integration, Limits, LimitsRequest, Object,
    Principal, PrincipalId, Privilege, RunAs, Secret, SecretScope, Tool, ToolId, WorkspaceId,
};
use utoipa::{IntoParams, ToSchema};

const FILES: &str = "a working directory of its own, with the files that are given to the call; \
                     no file of the server, of other sessions or of other callers";

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExplainQuery {
    /// Who would call; the caller if absent.
    pub principal: Option<PrincipalId>,
    /// What would be called; absent for any code that the agent runs.
    pub tool: Option<ToolId>,
    /// Through which agent; absent for a call without one.
    pub agent: Option<AgentId>,
}

/// What a call could reach, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Explanation {
    pub allowed: bool,
    /// What speaks for it: each grant that is needed and is there.
    pub because: Vec<String>,
    /// What is needed besides; empty if it is allowed.
    pub missing: Vec<String>,
    /// Whose rights the code would have.
    pub run_as: PrincipalId,
    /// Whether it would run, be refused, or wait for a person.
    pub approval: ApprovalAction,
    pub environment: String,
    /// Of a call that asks for no others.
    pub limits: Limits,
    /// Hosts that the code could reach: values of network rules, and the URLs of services that
    /// secrets are for.
    pub network: Vec<String>,
    /// Names of secrets that the code could read, and of the tool's own variables. Credentials that it
    /// could use and not read are not among them.
    pub secrets: Vec<String>,
    /// What may surprise, such as an integration that is switched off.
    pub notes: Vec<String>,
    /// Files that the code could read.
    pub files: String,
    /// What would happen, in order.
    pub steps: Vec<String>,
}

/// Who would call what.
struct Question {
    workspace: WorkspaceId,
    who: Principal,
    tool: Option<Tool>,
    agent: Option<Agent>,
    /// Of the agent.
    bindings: Vec<Binding>,
    /// Whose rights the code would have.
    run_as: Principal,
}

#[derive(Default)]
struct Findings {
    because: Vec<String>,
    missing: Vec<String>,
}

impl Service {
    pub async fn explain(
        &self,
        caller: &Caller,
        query: &ExplainQuery,
    ) -> Result<Explanation, Refused> {
        if query.tool.is_none() && query.agent.is_none() {
            return Err(invalid("query/tool", "is missing: name a tool, an agent, or both"));
        }
        let question = self.question(caller, query)?;
        let mut findings = self.findings(&question)?;
        findings.missing.extend(question.no_code_execution().await);
        let limits = LimitsRequest::default().resolve(&self.caps(question.workspace)?)?;
        let named = self.ways_out(&question).await?;
        findings.missing.extend(self.closed_ways(&question, &named)?);
        let (workspace, run_as) = (question.workspace, &question.run_as);
        let author = question.author();
        let (integrations, off) = self.granted_to_both(workspace, run_as, author, &named)?;
        let off = off.iter().map(|it| format!("the integration {} is switched off", it.name));
        let notes = off.collect();
        let network = self.reached(&question, &integrations)?;
        let secrets = self.readable(caller, &question, &integrations)?;
        let answer = question.answer(findings, self.environment(None), limits);
        Ok(Explanation { network, secrets, notes, ..answer })
    }

    /// Who would call what. Each look-up comes after those that would hide it: by the error nobody learns
    /// whether an agent or a tool that they do not see, or a principal that they may not ask about, exists.
    fn question(&self, caller: &Caller, query: &ExplainQuery) -> Result<Question, Refused> {
        let workspace = caller.workspace;
        let agent = query.agent.map(|id| self.visible_agent(caller, id)).transpose()?;
        let bindings = match &agent {
            Some(agent) => self.store.read(|rows| rows.bindings_of(workspace, agent.id))?,
            None => Vec::new(),
        };
        let tool = query.tool.map(|id| self.explained_tool(caller, id, &bindings)).transpose()?;
        let who = query.principal.unwrap_or_else(|| caller.id());
        if who != caller.id() {
            let tool = tool.as_ref().map(|tool| Object::Tool(tool.id));
            let agent = agent.as_ref().map(|agent| Object::Agent(agent.id));
            for object in tool.into_iter().chain(agent) {
                self.require(caller, Privilege::Ownership, object)?;
            }
        }
        let who = self.known(workspace, who)?;
        let run_as = match &agent {
            Some(agent) => self.explained_rights(workspace, &who, agent)?,
            None => who.clone(),
        };
        Ok(Question { workspace, who, tool, agent, bindings, run_as })
    }

    /// Nobody is told anything about a tool that they do not see. Whoever sees an agent sees the tools that
    /// are attached to it.
    fn explained_tool(
        &self,
        caller: &Caller,
        id: ToolId,
        bindings: &[Binding],
    ) -> Result<Tool, Refused> {
        let is_attached = bindings.iter().any(|binding| binding.tool_id == id);
        match self.store.read(|rows| rows.tool(caller.workspace, id))? {
            Some((tool, _)) if is_attached || self.sees(caller, Object::Tool(id))? => Ok(tool),
            _ => Err(not_found("tool", id)),
        }
    }

    pub(crate) fn known(
        &self,
        workspace: WorkspaceId,
        id: PrincipalId,
    ) -> Result<Principal, Refused> {
        let found = self.store.read(|rows| rows.principal(workspace, id))?;
        found.ok_or_else(|| not_found("principal", id))
    }

    /// The principal that code of an agent runs as, also if its owner has not confirmed it.
    fn explained_rights(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        agent: &Agent,
    ) -> Result<Principal, Refused> {
        match agent.run_as {
            RunAs::Caller => Ok(who.clone()),
            RunAs::Owner => self.known(workspace, agent.owner),
        }
    }

    fn findings(&self, question: &Question) -> Result<Findings, Refused> {
        let mut findings = Findings::default();
        if let Some(agent) = &question.agent {
            let object = Object::Agent(agent.id);
            self.look(question.workspace, &question.who, object, &mut findings)?;
            if agent.run_as == RunAs::Owner
                && let Err(refused) = self.check_confirmed(question.workspace, agent)
            {
                findings.missing.push(refused.fault.message);
            }
        }
        match &question.tool {
            Some(tool) => {
                let object = Object::Tool(tool.id);
                self.look(question.workspace, &question.run_as, object, &mut findings)?;
            }
            None => findings.because.extend(self.reachable(question)?),
        }
        findings.missing.extend(question.not_attached());
        findings.missing.extend(question.closed());
        Ok(findings)
    }

    /// The integrations that the code could leave by.
    async fn ways_out(&self, question: &Question) -> Result<Vec<String>, Refused> {
        Ok(match (&question.tool, &question.agent) {
            (Some(tool), _) => {
                let (_, contract) = self.checked_tool(question.workspace, tool.id).await?;
                let Contract::Python(checked) = contract else { return Ok(Vec::new()) };
                network::of_tool(&checked)
            }
            (None, Some(agent)) => {
                let read = agents::read(&agent.specification).await;
                read.map_or_else(|_| Vec::new(), |read| read.section.integrations)
            }
            (None, None) => Vec::new(),
        })
    }

    /// Why a call would be refused that has to leave by these.
    fn closed_ways(&self, question: &Question, named: &[String]) -> Result<Vec<String>, Refused> {
        let owner = question.tool.as_ref().map(|tool| self.known(question.workspace, tool.owner));
        let owner = owner.transpose()?;
        let author = question.author().principal();
        let author = author.map(|author| self.author(question.workspace, author)).transpose()?;
        let mut needed = vec![(&question.run_as, "as whom this code runs")];
        needed.extend(owner.as_ref().map(|owner| (owner, "who owns the tool")));
        let is_new = |author: &&Principal| needed.iter().all(|(who, _)| who.id != author.id);
        let author = author.as_ref().filter(is_new);
        needed.extend(author.map(|author| (author, "who wrote this code")));
        let mut closed = Vec::new();
        for who in needed {
            match self.check_integrations(question.workspace, who, named) {
                Ok(()) => {}
                Err(Refused { fault, .. }) if fault.code != Code::StoreUnavailable => {
                    closed.push(fault.message);
                }
                Err(refused) => return Err(refused),
            }
        }
        Ok(closed)
    }

    /// The hosts that the code could reach at this moment.
    fn reached(
        &self,
        question: &Question,
        integrations: &[Integration],
    ) -> Result<Vec<String>, Refused> {
        let openings = self.openings(question.workspace, integrations)?;
        let values = openings.iter().flat_map(|opening| &opening.values).map(ToString::to_string);
        let mut reached: Vec<String> = values.collect();
        let borrower = question.borrower(integrations);
        for secret in self.lendable(borrower)? {
            let target = secrets::target(&secret.inject);
            if let Some(target) = target
                && self.opens(borrower.workspace, borrower.caller, &secret)?
            {
                reached.push(target.origin());
            }
        }
        let mut told = HashSet::new();
        reached.retain(|place| told.insert(place.clone()));
        Ok(reached)
    }

    /// The secrets whose values the code has at this moment. What is somebody's own is for them to know.
    fn readable(
        &self,
        caller: &Caller,
        question: &Question,
        integrations: &[Integration],
    ) -> Result<Vec<String>, Refused> {
        let of_all = |secret: &Secret| secret.scope == SecretScope::Workspace;
        let lent = self.lendable(question.borrower(integrations))?.into_iter();
        let exposed = lent.filter(|it| it.exposed && (of_all(it) || it.owner == caller.id()));
        let of_tool = question.tool.iter().flat_map(variables::names);
        Ok(exposed.map(|secret| secret.name).chain(of_tool).collect())
    }

    /// Why the code of an agent could use each of its tools that it could use.
    fn reachable(&self, question: &Question) -> Result<Vec<String>, Refused> {
        let mut findings = Findings::default();
        for binding in &question.bindings {
            let object = Object::Tool(binding.tool_id);
            self.look(question.workspace, &question.run_as, object, &mut findings)?;
        }
        Ok(findings.because)
    }

    /// Whether somebody may use an object, and by which grant.
    fn look(
        &self,
        workspace: WorkspaceId,
        who: &Principal,
        object: Object,
        findings: &mut Findings,
    ) -> Result<(), Refused> {
        let Some(permit) = self.permit(workspace, who, Privilege::Usage, object)? else {
            findings.missing.push(format!("{} needs USAGE on {object}", who.name));
            return Ok(());
        };
        let grant = permit.because;
        let holder = match grant.principal == who.id {
            true => who.name.clone(),
            false => format!("the role {}", self.known(workspace, grant.principal)?.name),
        };
        findings.because.push(format!(
            "{} has USAGE on {object}: grant {} gives {} on {} to {holder}",
            who.name, grant.id, grant.privilege, grant.object
        ));
        Ok(())
    }
}

impl Question {
    fn borrower<'a>(&'a self, integrations: &'a [Integration]) -> Borrower<'a> {
        let Self { workspace, run_as, who, .. } = self;
        let author = self.author();
        Borrower { workspace: *workspace, run_as, caller: who.id, author, integrations }
    }

    fn author(&self) -> Author {
        let of_agent = self.agent.as_ref().map(|agent| agent.author);
        match &self.tool {
            Some(tool) => {
                Author::Other { by: tool.author, has_values: !variables::names(tool).is_empty() }
            }
            None => Author::Other { by: of_agent.unwrap_or(self.who.id), has_values: false },
        }
    }

    fn binding(&self) -> Option<&Binding> {
        let tool = self.tool.as_ref()?;
        self.bindings.iter().find(|binding| binding.tool_id == tool.id)
    }

    fn approval(&self) -> ApprovalAction {
        let of_agent = self.binding().map(|binding| binding.approval_action);
        let of_tool = self.tool.as_ref().map(|tool| tool.approval_action);
        policy::action(of_tool.unwrap_or_default(), of_agent)
    }

    fn not_attached(&self) -> Option<String> {
        let (tool, agent) = (self.tool.as_ref()?, self.agent.as_ref()?);
        let attached = self.binding().is_some();
        (!attached).then(|| format!("tool {} has to be attached to agent {}", tool.id, agent.id))
    }

    fn closed(&self) -> Option<String> {
        let denied = self.approval() == ApprovalAction::Deny;
        denied.then(|| "the approval action has to be another one than deny".to_owned())
    }

    /// What keeps an agent from running code of its own, if that is the question.
    async fn no_code_execution(&self) -> Vec<String> {
        let Some(agent) = self.agent.as_ref().filter(|_| self.tool.is_none()) else {
            return Vec::new();
        };
        match agents::read(&agent.specification).await {
            Ok(read) => read.code_execution.missing,
            Err(refused) => vec![refused.fault.message],
        }
    }

    fn answer(self, findings: Findings, usual: String, limits: Limits) -> Explanation {
        let allowed = findings.missing.is_empty();
        let approval = self.approval();
        let environment = self.tool.as_ref().map_or(usual, |tool| tool.environment.clone());
        let steps = match allowed {
            true => self.steps(approval, &environment),
            false => vec!["it is refused, and no sandbox is made".to_owned()],
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
        let mut steps = vec![format!("the grants of {who} are looked at again")];
        if let Some(tool) = &self.tool {
            steps.push(format!("the arguments are held against the contract of {}", tool.name));
        }
        if approval == ApprovalAction::Review {
            steps.push(format!("somebody else than {who} allows this very call, or it never runs"));
        }
        steps.push(format!("a sandbox of the environment {environment} is made"));
        steps.push(format!("the code runs in it with the rights of {}", self.run_as.name));
        steps.push("the record is kept, and the sandbox ends unless it is a session".to_owned());
        steps
    }
}
