"""Questions to people, and their answers."""

from __future__ import annotations

from typing import Literal

from .._models import Approval, ApprovalScope, ApprovalState, Page
from .._plan import Pause, Plan, Steps, body, get, listed, one, post, segment

# A person answers in seconds at best.
POLL_SECONDS = 1.0


def approvals(state: ApprovalState | None) -> Plan[Page[Approval]]:
    return listed("/v1/approvals", Approval, state=state)


def approval(approval_id: str) -> Plan[Approval]:
    return get(_path(approval_id), one(Approval))


def decide(
    approval_id: str,
    decision: Literal["allow", "deny"],
    scope: ApprovalScope | None,
    reason: str | None,
) -> Plan[Approval]:
    asked = body(decision=decision, scope=scope, reason=reason)
    return post(_path(approval_id), one(Approval), asked)


def wait(approval_id: str, timeout: float | None) -> Steps[Approval]:
    """Ends when the question is answered or has expired."""
    waited = 0.0
    while True:
        asked: Approval = yield approval(approval_id)
        if asked.state != "pending":
            return asked
        if timeout is not None and waited >= timeout:
            raise TimeoutError(f"approval {approval_id} was not decided within {timeout} s")
        yield Pause(POLL_SECONDS)
        waited += POLL_SECONDS


def _path(approval_id: str) -> str:
    return f"/v1/approvals/{segment(approval_id)}"
