//! Asking: the question is written down, with everything that is needed once it is answered.

use super::matter::Matter;
use crate::apart::to_the_end;
use crate::caller::Caller;
use crate::calls::{Asked, CallRequest, Route};
use crate::executions::Manner;
use crate::origins::{asker_over, is_asker_over};
use crate::plan::Plan;
use crate::refused::Refused;
use crate::service::Service;
use chrono::{DateTime, TimeDelta, Utc};
use engine::Entry;
use futures_util::StreamExt;
use policy::{Seal, Stage, seal_once};
use std::sync::Arc;
use store::{NewQuestion, RequestKey, Tx};
use types::{Approval, ApprovalId, ApprovalState, Code, Execution, ExecutionId, Fault};
use uuid::Uuid;

/// Of one principal. Each is kept with its code and its files until it is answered.
const OPEN_MAX: u64 = 1_000;

impl Service {
    /// Writes the question down, and everything that is needed once it is answered.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        caller: &Caller,
        route: Route,
        entry: &Entry,
        request: CallRequest,
        manner: Manner,
    ) -> Result<Asked, Refused> {
        let limits = request.limits.resolve(&self.caps(caller.workspace)?)?;
        let files = self.keep_inputs(caller, request.files).await?;
        let working_directory = match request.sandbox_id {
            Some(session) if route.callee.is_sent() => {
                Some(self.engine.directory_digest(session).await?)
            }
            _ => None,
        };
        let plan = Plan {
            tool_id: route.callee.id(),
            agent_id: route.agent,
            sandbox_id: request.sandbox_id,
            arguments: request.arguments,
            files,
            limits: request.limits,
            test: route.callee.is_test(),
            working_directory,
            parent: manner.parent,
        };
        let (workspace, who) = (caller.workspace, &caller.principal);
        let reach =
            self.reach_of_call(workspace, who, &route, &plan.arguments, plan.sandbox_id).await?;
        let matter = Matter::new(route, plan, reach);
        let now = Utc::now();
        let approval = self.new_question(caller, &matter, entry, now);
        let mut record = matter.plan.waiting(&approval, entry, limits);
        record.principal = Some(caller.id());
        record.function_id = matter.route.callee.function_id();
        let bound = matter.bound(caller.workspace, caller.id());
        let once = matter.once(record.id, approval.expires_at);
        let seal = seal_once(&self.seal_key, Stage::Asked, &bound, &once);
        let plan = matter.plan.to_bytes();
        let (service, caller) = (Arc::clone(self), caller.clone());
        to_the_end(async move {
            let running = service.hear(record.id, approval.id);
            running.belongs_to(record.parent);
            let written =
                service.write_question(&caller, &record, &approval, plan, seal, manner.claim);
            if let Err(refused) = written.await {
                service.running().remove(&record.id);
                return Err(refused);
            }
            service.tell_approval(caller.workspace, &approval);
            let live = Some(Arc::clone(&running.live));
            let events = service.listen(live, caller.workspace, record.id, 0).boxed();
            Ok(Asked::Waiting(Box::new(record), events))
        })
        .await
    }

    fn new_question(
        &self,
        caller: &Caller,
        matter: &Matter,
        entry: &Entry,
        now: DateTime<Utc>,
    ) -> Approval {
        let time = TimeDelta::from_std(self.config.approval_time).unwrap_or(TimeDelta::MAX);
        Approval {
            id: ApprovalId::new(Uuid::now_v7()),
            state: ApprovalState::Pending,
            execution_id: ExecutionId::new(Uuid::now_v7()),
            requester: caller.id(),
            run_as: matter.route.run_as,
            tool_id: matter.route.callee.id(),
            tool_name: matter.route.callee.name().to_owned(),
            agent_id: matter.route.agent,
            sandbox_id: matter.plan.sandbox_id,
            code: entry.code().to_owned(),
            arguments: matter.route.callee.shown(&matter.plan.arguments),
            files: matter.files.clone(),
            environment: matter.route.callee.environment().to_owned(),
            network: matter.reach.integrations.clone(),
            secrets: matter.reach.secrets.clone(),
            working_directory: matter.plan.working_directory.clone(),
            created_at: now,
            // As precise as the seal is.
            expires_at: micros(now.checked_add_signed(time).unwrap_or(DateTime::<Utc>::MAX_UTC)),
            decided_by: None,
            decided_at: None,
            reason: None,
            scope: matter.route.good_for,
        }
    }

    async fn write_question(
        &self,
        caller: &Caller,
        record: &Execution,
        approval: &Approval,
        plan: Vec<u8>,
        seal: Seal,
        claim: Option<String>,
    ) -> Result<(), Refused> {
        let workspace = caller.workspace;
        let entry = caller.did("approval.ask", approval.id, &approval.tool_name);
        let claim = claim.map(|key| RequestKey { workspace, principal: caller.id(), key });
        let (record, approval) = (record.clone(), approval.clone());
        let most = self.config.workspace_bytes_max;
        let asker = caller.asker();
        let written = move |tx: &Tx<'_>| {
            if is_asker_over(tx, asker, Utc::now())? {
                return Ok(Err(asker_over()));
            }
            if tx.open_questions_of(workspace, approval.requester)? >= OPEN_MAX {
                return Ok(Err(too_many()));
            }
            tx.insert_execution(workspace, &record, Some(&plan))?;
            let beside = (plan.len() + record.code.len()) as u64;
            let (approval, seal, key) = (&approval, &seal, asker.key);
            tx.insert_approval(workspace, &NewQuestion { approval, seal, key, beside }, most)?;
            if let Some(claim) = &claim {
                tx.link_request(claim, record.id)?;
            }
            tx.audit(&entry)?;
            Ok(Ok(()))
        };
        self.store.write(written).await?
    }
}

fn micros(moment: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(moment.timestamp_micros()).unwrap_or(moment)
}

fn too_many() -> Refused {
    let message = format!("{OPEN_MAX} questions of yours wait for an answer already");
    Fault::new(Code::CapacityExhausted, message)
        .hint("have some answered, or withdraw them, before you ask more")
        .into()
}
