"""Errors: rejected requests, failed executions, and unreachable servers.

Every error of this package is a `BelljarError`. Code that fails in the sandbox is no error of the
call that ran it, except with `raise_for_error` and `tools.call`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._models import Execution, StatementResult


@dataclass(frozen=True, kw_only=True)
class Detail:
    """An error in a field of a request, or in a line of a source."""

    message: str
    path: str | None = None
    """The field of the request, as a JSON pointer."""
    code: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line is not None else self.path
        return f"{place}: {self.message}" if place else self.message


class BelljarError(Exception):
    """A request that failed. `code` is stable, `hint` says what to do."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        status: int | None = None,
        errors: tuple[Detail, ...] = (),
        request_id: str | None = None,
        statements: tuple[StatementResult, ...] = (),
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status
        """The HTTP status of the response; `None` if there was none."""
        self.errors = errors
        self.request_id = request_id
        self.statements = statements
        """Of `sql`: the results of the statements before the error."""

    def __str__(self) -> str:
        first = f"{self.code}: {self.message}"
        if self.hint:
            first += f" ({self.hint})"
        return "\n".join([first, *(f"  {error}" for error in self.errors)])


class Unreachable(BelljarError):
    """There was no response, or one that cannot be read."""


class ApprovalPending(BelljarError):
    """The call requires an approval, which is pending; `approval_id` is its id."""

    def __init__(self, execution: Execution) -> None:
        super().__init__(
            "approval.required",
            f"the call of {execution.tool} requires an approval",
            hint="use approvals.wait for the decision, executions.wait for the result",
        )
        self.execution = execution
        self.approval_id = execution.approval_id or ""


class ExecutionError(BelljarError):
    """The code ran and did not succeed; `execution` is the record."""

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
