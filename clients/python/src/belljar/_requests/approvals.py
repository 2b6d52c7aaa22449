"""Approvals: list, decide, wait."""

from __future__ import annotations

from typing import Literal

from .._models import Approval, ApprovalScope, ApprovalState, Page
from .._plan import Pause, Plan, Steps, body, get, listed, one, post, segment

# A person takes seconds at least.
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
    payload = body(decision=decision, scope=scope, reason=reason)
    return post(_path(approval_id), one(Approval), payload)


def wait(approval_id: str, timeout: float | None) -> Steps[Approval]:
    """Ends when the approval is decided or has expired."""
    waited = 0.0
    while True:
        current: Approval = yield approval(approval_id)
        if current.state != "pending":
            return current
        if timeout is not None and waited >= timeout:
            raise TimeoutError(f"approval {approval_id} was not decided within {timeout} s")
        yield Pause(POLL_SECONDS)
        waited += POLL_SECONDS


def _path(approval_id: str) -> str:
    return f"/v1/approvals/{segment(approval_id)}"
