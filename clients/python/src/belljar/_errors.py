"""What goes wrong: refusals of the server, runs that failed, and a server that is not there.

Every error of this package is a `BelljarError`. Code that fails in the sandbox is no error of the
call that ran it; it becomes one only when asked for, by `raise_for_error` and by `tools.call`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._models import Execution


@dataclass(frozen=True, kw_only=True)
class Detail:
    """One thing that is wrong in a request or in a source."""

    message: str
    path: str | None = None
    """In the request, as a JSON pointer."""
    code: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line is not None else self.path
        return f"{place}: {self.message}" if place else self.message


class BelljarError(Exception):
    """A request that was not done. `code` is stable, `hint` says what to do."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        status: int | None = None,
        errors: tuple[Detail, ...] = (),
        request_id: str | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status
        """The status of the answer; `None` if there was none."""
        self.errors = errors
        self.request_id = request_id

    def __str__(self) -> str:
        first = f"{self.code}: {self.message}"
        if self.hint:
            first += f" ({self.hint})"
        return "\n".join([first, *(f"  {error}" for error in self.errors)])


class Unreachable(BelljarError):
    """There was no answer, or one that cannot be understood."""


class ApprovalPending(BelljarError):
    """The call waits for a person; `approval_id` is the question."""

    def __init__(self, execution: Execution) -> None:
        super().__init__(
            "approval.required",
            f"a person has to allow this call of {execution.tool}",
            hint="approvals.wait waits for the answer, executions.wait for the end of the run",
        )
        self.execution = execution
        self.approval_id = execution.approval_id or ""


class ExecutionError(BelljarError):
    """The code ran and did not succeed; `execution` has all that is known of it."""

    def __init__(self, execution: Execution) -> None:
        error = execution.error
        super().__init__(
            error.code if error else f"execution.{execution.status}",
            error.message if error else f"the execution is {execution.status}",
            hint=error.hint if error else None,
        )
        self.execution = execution
        self.traceback = error.traceback if error else None

    def __str__(self) -> str:
        first = super().__str__()
        return f"{first}\n{self.traceback}" if self.traceback else first
