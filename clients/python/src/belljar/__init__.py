"""Run Python that you did not write: the client of a Belljar server.

`Belljar` waits for its answers, `AsyncBelljar` is awaited. They have the same methods.
"""

from ._async.client import AsyncBelljar
from ._async.session import AsyncSession
from ._async.stream import AsyncStream
from ._errors import ApprovalPending, BelljarError, Detail, ExecutionError, Unreachable
from ._models import (
    Agent,
    Approval,
    ApprovalAsked,
    AuditEntry,
    Binding,
    Document,
    End,
    Event,
    Execution,
    Explanation,
    Fault,
    File,
    FileInput,
    Grant,
    Key,
    Limits,
    LimitsRequest,
    NewWorkspace,
    Output,
    Principal,
    Result,
    SessionFile,
    SessionFiles,
    SessionInfo,
    StatusChange,
    Tool,
    Usage,
    Validation,
    Workspace,
)
from ._sync.client import Belljar
from ._sync.session import Session
from ._sync.stream import Stream

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "Approval",
    "ApprovalAsked",
    "ApprovalPending",
    "AsyncBelljar",
    "AsyncSession",
    "AsyncStream",
    "AuditEntry",
    "Belljar",
    "BelljarError",
    "Binding",
    "Detail",
    "Document",
    "End",
    "Event",
    "Execution",
    "ExecutionError",
    "Explanation",
    "Fault",
    "File",
    "FileInput",
    "Grant",
    "Key",
    "Limits",
    "LimitsRequest",
    "NewWorkspace",
    "Output",
    "Principal",
    "Result",
    "Session",
    "SessionFile",
    "SessionFiles",
    "SessionInfo",
    "StatusChange",
    "Stream",
    "Tool",
    "Unreachable",
    "Usage",
    "Validation",
    "Workspace",
]
