"""Model runs: requests in natural language, messages to agents, results and traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import httpx

from .._models import ChatResult, CodeResult, Confirmation, Document, Trace, TraceFormat
from .._plan import PREPARATION_SECONDS, Plan, Steps, body, get, one, post_run, segment
from . import files
from .agents import agents
from .names import id_of, is_id

# A document, its id, or the path of a file, which is uploaded first.
Given = str | PathLike[str] | Document
# The maximum time that a server allows for one model run.
MAX_RUN_SECONDS = 3600.0 + PREPARATION_SECONDS


def code_execution(
    request: str,
    documents: Iterable[Given] | None,
    context: str | None,
    sandbox_id: str | None,
    max_rounds: int | None,
    model: str | None,
) -> Steps[CodeResult]:
    payload = body(
        request=request,
        document_ids=(yield from _ids(documents)),
        context=context,
        sandbox_id=sandbox_id,
        max_rounds=max_rounds,
        model=model,
    )
    plan = post_run("/v1/code_execution", one(CodeResult), payload, seconds=MAX_RUN_SECONDS)
    result: CodeResult = yield plan
    return result


def code_execution_result(execution_id: str) -> Plan[CodeResult]:
    return get(f"/v1/code_execution/{segment(execution_id)}", one(CodeResult))


def agent_run(
    agent: str,
    message: str | None,
    cursor: str | None,
    key: str | None,
    documents: Iterable[Given] | None,
    confirmations: Mapping[str, Confirmation] | None,
    model: str | None,
) -> Steps[ChatResult]:
    agent_id = yield from id_of("agent", agent, agents())
    payload = body(
        message=message,
        messages=_replies(confirmations),
        cursor=cursor,
        key=key,
        document_ids=(yield from _ids(documents)),
        model=model,
    )
    path = f"/v1/agents/{segment(agent_id)}/run"
    result: ChatResult = yield post_run(path, one(ChatResult), payload, seconds=MAX_RUN_SECONDS)
    return result


def agent_result(agent: str, execution_id: str) -> Steps[ChatResult]:
    agent_id = yield from id_of("agent", agent, agents())
    path = f"/v1/agents/{segment(agent_id)}/runs/{segment(execution_id)}"
    result: ChatResult = yield get(path, one(ChatResult))
    return result


def trace(execution_id: str, format: TraceFormat) -> Plan[Trace | str]:
    def read(response: httpx.Response) -> Trace | str:
        return one(Trace)(response) if format == "json" else response.text

    return get(f"/v1/executions/{segment(execution_id)}/trace", read, format=format)


def _ids(documents: Iterable[Given] | None) -> Steps[list[str] | None]:
    if documents is None:
        return None
    ids: list[str] = []
    for document in documents:
        if isinstance(document, Document):
            ids.append(document.id)
        elif isinstance(document, str) and is_id(document):
            ids.append(document)
        else:
            uploaded: Document = yield files.upload(Path(document))
            ids.append(uploaded.id)
    return ids


def _replies(confirmations: Mapping[str, Confirmation] | None) -> list[dict[str, Any]] | None:
    if confirmations is None:
        return None
    reply = {"role": "action", "type": "toolConfirmation"}
    return [{**reply, "actionId": id, "status": status} for id, status in confirmations.items()]
