"""The objects of the API, as the client reads them.

They have the fields of the response and nothing else. A newer server may send values that the
literals here do not list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar

from . import _display
from ._errors import Detail, ExecutionError

T = TypeVar("T")

Status = Literal[
    "waiting_approval",
    "queued",
    "running",
    "succeeded",
    "failed",
    "denied",
    "cancelled",
    "timed_out",
]
SessionStatus = Literal["ready", "busy", "closed", "expired", "lost"]
ApprovalAction = Literal["allow", "confirm", "review", "deny"]
ApprovalState = Literal["pending", "allowed", "used", "denied", "expired", "void"]
ApprovalScope = Literal["once", "session", "always"]
RunAs = Literal["owner", "caller"]
# The reply to an action of an agent, with the values of the API.
Confirmation = Literal["ALLOW", "DENY"]
TraceFormat = Literal["json", "ipynb", "html", "text"]
PrincipalKind = Literal["user", "role", "service"]
Privilege = Literal["USAGE", "MODIFY", "OWNERSHIP", "INSTALL"]
ObjectKind = Literal[
    "workspace", "tool", "agent", "volume", "secret", "function", "network_rule", "integration"
]
SecretScope = Literal["workspace", "caller"]
# Or the names of secrets.
AllowedSecrets = Literal["all", "none"] | list[str]


class LimitsRequest(TypedDict, total=False):
    """Limits to request; absent ones keep their defaults."""

    wall_ms: int
    cpu_ms: int
    cpu_percent: int
    memory_bytes: int
    processes: int
    open_files: int
    disk_bytes: int
    disk_inodes: int
    output_bytes: int
    result_bytes: int


class FileInput(TypedDict, total=False):
    """A file for the working directory: one of `document_id`, `url`, `text` and `base64`."""

    name: str
    document_id: str
    url: str
    text: str
    base64: str


class HeaderInject(TypedDict, total=False):
    """A header of https requests to one host; `env` is the variable with its placeholder."""

    host: str
    name: str
    prefix: str
    env: str


class Inject(TypedDict, total=False):
    """How code uses a secret: one of `env`, `client` and `header`."""

    env: str
    client: Literal["openai", "anthropic", "gemini", "groq", "cohere", "mistral", "together", "cognite"]
    base_url: str
    project: str
    header: HeaderInject


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    items: list[T]
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    wall_ms: int
    cpu_ms: int
    cpu_percent: int
    memory_bytes: int
    processes: int
    open_files: int
    disk_bytes: int
    disk_inodes: int
    output_bytes: int
    result_bytes: int


@dataclass(frozen=True, kw_only=True)
class Usage:
    wall_ms: int
    cpu_ms: int
    rss_peak_bytes: int
    output_bytes: int


@dataclass(frozen=True, kw_only=True)
class StatusChange:
    """The execution is queued, or it has started."""

    status: Status


@dataclass(frozen=True, kw_only=True)
class Output:
    """A piece of output, at `t` milliseconds after the start."""

    stream: Literal["stdout", "stderr"]
    text: str
    t: int = 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """Display data by MIME type; binary types are base64."""

    data: dict[str, Any]
    main: bool = False
    """The value of the last expression, as opposed to the output of `display` or a chart."""

    @property
    def text(self) -> str:
        return _display.text_of(self.data)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return _display.of_result(self)


@dataclass(kw_only=True)
class File:
    """A file that the code created or changed; load it with `read` or `download` of the client."""

    name: str
    mime: str
    size: int
    sha256: str
    kind: Literal["data", "media"] = "data"
    url: str | None = None
    # Set by the client that can fetch without waiting, so that an image can show itself.
    _load: Callable[[], bytes] | None = field(default=None, repr=False, compare=False)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return _display.of_file(self)


@dataclass(frozen=True, kw_only=True)
class ApprovalAsked:
    """An approval was requested."""

    approval_id: str


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The error of an execution."""

    code: str
    message: str
    type: str | None = None
    """The exception's type for `python.*`."""
    traceback: str | None = None
    hint: str | None = None
    retryable: bool = False


@dataclass(frozen=True, kw_only=True)
class End:
    """The last event: the record is stored and does not change any more."""

    status: Status


Event = StatusChange | Output | Result | File | ApprovalAsked | Fault | End


@dataclass(frozen=True, kw_only=True)
class SkippedFile:
    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Truncated:
    """The number of truncated bytes."""

    output_dropped_bytes: int | None = None
    files: list[SkippedFile] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RunWarning:
    """A problem that did not stop the execution."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class NetworkAttempt:
    """A host that code tried to reach, at `t` milliseconds after the start."""

    host: str
    port: int
    allowed: bool
    t: int = 0
    integration: str | None = None
    """The integration that allowed it, or `secret:` and the name of a secret."""
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Round:
    """Code that a model wrote, and its result."""

    number: int
    step: str
    """The step of the plan that it belongs to."""
    code: str
    status: Status
    stdout: str
    stderr: str
    execution_id: str | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelUse:
    """The model, as `provider/model`, and its token usage."""

    name: str
    requests: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The record of one execution."""

    id: str
    status: Status
    code: str
    environment: str
    entry: str
    generation: int
    limits: Limits
    usage: Usage
    created_at: datetime
    sandbox_id: str | None = None
    principal: str | None = None
    run_as: str | None = None
    agent: str | None = None
    approval_id: str | None = None
    parent: str | None = None
    tool: str | None = None
    function_id: str | None = None
    test_outcome: Literal["passed", "failed", "timed_out"] | None = None
    """How the `test()` of a tool ended."""
    arguments: dict[str, Any] | None = None
    files_in: list[str] = field(default_factory=list)
    value: Any = None
    """The return value of the tool, or the last value of a cell if it is plain JSON."""
    results: list[Result] = field(default_factory=list)
    output: list[Output] = field(default_factory=list)
    truncated: Truncated = field(default_factory=Truncated)
    error: Fault | None = None
    exit_code: int | None = None
    files_out: list[File] = field(default_factory=list)
    plan: list[str] = field(default_factory=list)
    """For a model run, like `rounds` and `model`."""
    rounds: list[Round] = field(default_factory=list)
    model: ModelUse | None = None
    warnings: list[RunWarning] = field(default_factory=list)
    network: list[NetworkAttempt] = field(default_factory=list)
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def ok(self) -> bool:
        return self.status == "succeeded"

    @property
    def text(self) -> str:
        """The value of the last expression, as Python prints it."""
        return next((result.text for result in self.results if result.main), "")

    @property
    def stdout(self) -> str:
        return "".join(piece.text for piece in self.output if piece.stream == "stdout")

    @property
    def stderr(self) -> str:
        return "".join(piece.text for piece in self.output if piece.stream == "stderr")

    @property
    def files(self) -> list[File]:
        """The files that the code created or changed."""
        return self.files_out

    def raise_for_error(self) -> Execution:
        """Return the execution if it has succeeded, else raise `ExecutionError`."""
        if not self.ok:
            raise ExecutionError(self)
        return self

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return _display.of_execution(self)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """An image that the code produced; load it with `read` or `download`."""

    asset_filename: str
    """`plot_0.png`, `plot_1.png`, in order of creation."""
    name: str
    """The name that the code gave it."""
    mime: str
    url: str | None = None


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """The location of a document: its name in `/home/uploaded_files/`."""

    document_id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The trace of a model run, step by step."""

    run: str
    kind: Literal["agent", "code_execution"]
    request: str
    model: str
    steps: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class CodeResult:
    """The result of a request in natural language."""

    execution_id: str
    status: Status
    answer: str
    complete: bool
    """Whether code fulfilled the request; if not, `error` says why."""
    plan: list[str]
    rounds: list[Round]
    total_rounds: int
    max_rounds: int
    logs: str
    artifacts: list[Artifact]
    generated_files: list[File]
    uploaded_files: list[Uploaded]
    sandbox_id: str | None = None
    """Pass it to the next request to continue in the same session."""
    environment: str = ""
    error: Fault | None = None
    model: ModelUse | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ChatResult:
    """The answer of an agent."""

    execution_id: str
    status: Status
    answer: str
    """Empty while `actions` are pending."""
    cursor: str
    """Pass it to the next message to continue from this answer, once."""
    actions: list[dict[str, Any]]
    """Actions that need a reply; each has an `actionId`."""
    rounds: list[Round]
    artifacts: list[Artifact]
    generated_files: list[File]
    warnings: list[RunWarning]
    agent_id: str | None = None
    sandbox_id: str | None = None
    environment: str = ""
    """The environment of the session of its code."""
    error: Fault | None = None
    model: ModelUse | None = None
    trace: Trace | None = None


@dataclass(frozen=True, kw_only=True)
class SessionInfo:
    sandbox_id: str
    owner: str
    environment: str
    status: SessionStatus
    generation: int
    """Increases when the state of the session was lost."""
    limits: Limits
    idle_seconds: int
    created_at: datetime
    updated_at: datetime
    name: str | None = None
    key: str | None = None
    agent: str | None = None
    integrations: list[str] = field(default_factory=list)
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class SessionFile:
    name: str
    size: int


@dataclass(frozen=True, kw_only=True)
class SessionFiles:
    """The files of a working directory, and the entries that cannot be downloaded."""

    files: list[SessionFile]
    skipped: list[SkippedFile] = field(default_factory=list)

    def __iter__(self) -> Iterator[SessionFile]:
        return iter(self.files)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file that was uploaded or fetched."""

    id: str
    name: str
    owner: str
    mime: str
    size: int
    sha256: str
    source: Literal["upload", "url", "code"]
    created_at: datetime
    url: str | None = None
    """Of its content: absolute, signed, and valid for a limited time."""
    source_url: str | None = None
    """The URL that it was fetched from."""
    sandbox_id: str | None = None
    execution_id: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Skill:
    """A skill that was uploaded to the workspace."""

    id: str
    name: str
    description: str
    owner: str
    author: str
    file_count: int
    bytes: int
    sha256: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, kw_only=True)
class SkillFile:
    name: str
    size: int


@dataclass(frozen=True, kw_only=True)
class SkillDetails(Skill):
    """A skill with its instructions and the list of its files."""

    instructions: str
    files: list[SkillFile]


@dataclass(frozen=True, kw_only=True)
class Tool:
    id: str
    name: str
    owner: str
    description: str
    entry: Literal["handle", "run", "function"]
    approval_action: ApprovalAction
    input_schema: dict[str, Any]
    code_sha256: str
    deployment_id: str
    created_at: datetime
    updated_at: datetime
    environment: str = ""
    """Empty for a tool that calls a function, which has its own."""
    configuration: dict[str, Any] = field(default_factory=dict)
    type: str | None = None
    tool_type: str | None = None
    output_schema: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The contract of a tool, or all its errors."""

    valid: bool
    name: str | None = None
    description: str | None = None
    entry: Literal["handle", "run", "function"] | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    errors: list[Detail] = field(default_factory=list)
    warnings: list[Detail] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Binding:
    """A tool of an agent."""

    agent_id: str
    tool_id: str
    tool_name: str
    approval_action: ApprovalAction
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Capability:
    """What an agent can use: code execution, a tool, a function or a skill."""

    kind: str
    name: str
    title: str
    description: str
    category: str
    state: Literal["ready", "unavailable"]
    source: Literal["specification", "attached"]
    reason: str | None = None
    """Why it is unavailable."""
    approval_action: ApprovalAction | None = None
    tool_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class CatalogEntry:
    """What can be added to an agent with `agents.add_capability(agent_id, entry.capability)`."""

    name: str
    type: str
    category: str
    description: str
    capability: dict[str, Any]
    tool: str | None = None
    url: str | None = None
    skill: str | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that can be chosen, or as `provider/*` all models of a provider."""

    name: str
    provider: str
    default: bool
    usable: bool
    supports: list[str] = field(default_factory=list)
    api: str | None = None
    reason: str | None = None
    """What the operator has to set to make it usable."""


@dataclass(frozen=True, kw_only=True)
class CodeExecution:
    enabled: bool
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Agent:
    id: str
    name: str
    owner: str
    author: str
    """The principal who wrote or confirmed the current specification."""
    specification: str
    format: Literal["yaml", "json"]
    run_as: RunAs
    created_at: datetime
    updated_at: datetime
    tools: list[Binding] = field(default_factory=list)
    specification_tools: list[Binding] = field(default_factory=list)
    """The tools of the specification, among them `code_execution`."""
    code_execution: CodeExecution | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Approval:
    """An approval, bound to exactly what will run."""

    id: str
    state: ApprovalState
    execution_id: str
    requester: str
    run_as: str
    tool_id: str
    tool_name: str
    code: str
    arguments: dict[str, Any]
    environment: str
    scope: ApprovalScope
    created_at: datetime
    expires_at: datetime
    files: list[tuple[str, str]] = field(default_factory=list)
    network: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    working_directory: str | None = None
    agent_id: str | None = None
    sandbox_id: str | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Workspace:
    id: str
    name: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Principal:
    id: str
    name: str
    kind: PrincipalKind
    created_at: datetime
    updated_at: datetime
    roles: list[str] = field(default_factory=list)
    preferences: dict[str, str] = field(default_factory=dict)
    external_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Key:
    id: str
    name: str
    principal: str
    created_at: datetime
    created_with: str | None = None
    counted_with: str | None = None
    rate_per_second: int | None = None
    concurrency: int | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    # Only in the response that creates the key. `repr` keeps it out of notebooks and logs.
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class NewWorkspace:
    workspace: Workspace
    principal: Principal
    key: Key


@dataclass(frozen=True, kw_only=True)
class GrantObject:
    kind: ObjectKind
    id: str


@dataclass(frozen=True, kw_only=True)
class Grant:
    id: str
    principal: str
    privilege: Privilege
    object: GrantObject
    granted_by: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class NetworkRule:
    id: str
    name: str
    owner: str
    value_list: list[str]
    created_at: datetime
    updated_at: datetime
    mode: Literal["EGRESS"] = "EGRESS"
    type: Literal["HOST_PORT"] = "HOST_PORT"
    comment: str | None = None


@dataclass(frozen=True, kw_only=True)
class Integration:
    id: str
    name: str
    owner: str
    allowed_network_rules: list[str]
    enabled: bool
    created_at: datetime
    updated_at: datetime
    allowed_secrets: AllowedSecrets = "none"
    comment: str | None = None


@dataclass(frozen=True, kw_only=True)
class Secret:
    """The metadata of a secret, without its value."""

    id: str
    name: str
    owner: str
    scope: SecretScope
    inject: Inject
    exposed: bool
    """Whether code can read the value."""
    version: int
    created_at: datetime
    updated_at: datetime
    comment: str | None = None
    warnings: list[RunWarning] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class NamedObject:
    """The object that a statement in SQL named."""

    kind: str
    id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class StatementResult:
    """The result of one statement in SQL."""

    statement: str
    """The words that it starts with, such as `CREATE NETWORK RULE`."""
    action: Literal["created", "replaced", "dropped", "granted", "revoked", "shown", "unchanged"]
    line: int
    object: NamedObject | None = None
    rows: list[dict[str, Any]] | None = None
    """Of SHOW and DESCRIBE."""
    warnings: list[RunWarning] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class NetworkEntry:
    """An entry of the network log of the workspace."""

    at: datetime
    principal: str
    sandbox_id: str
    host: str
    port: int
    allowed: bool
    execution_id: str | None = None
    integration: str | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    sequence: int
    at: datetime
    action: str
    object: str
    detail: str
    hash: str
    previous_hash: str
    principal: str | None = None
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The access of a call, and the reasons."""

    allowed: bool
    run_as: str
    approval: ApprovalAction
    environment: str
    limits: Limits
    files: str
    because: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    network: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
