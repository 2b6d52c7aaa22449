"""Workspaces, principals, keys, grants, preferences and the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from .._models import (
    AuditEntry,
    Explanation,
    Grant,
    Key,
    NewWorkspace,
    ObjectKind,
    Page,
    Principal,
    PrincipalKind,
    Privilege,
    Workspace,
)
from .._plan import Plan, body, delete, get, json_of, listed, one, post, segment, send


def create_workspace(name: str) -> Plan[NewWorkspace]:
    return post("/v1/workspaces", one(NewWorkspace), {"name": name})


def workspaces() -> Plan[Page[Workspace]]:
    return listed("/v1/workspaces", Workspace)


def create_principal(
    name: str, kind: PrincipalKind, roles: Sequence[str] | None, external_id: str | None
) -> Plan[Principal]:
    payload = body(name=name, kind=kind, roles=roles, external_id=external_id)
    return post("/v1/principals", one(Principal), payload)


def principals() -> Plan[Page[Principal]]:
    return listed("/v1/principals", Principal)


def principal(principal_id: str) -> Plan[Principal]:
    return get(f"/v1/principals/{segment(principal_id)}", one(Principal))


def update_principal(
    principal_id: str,
    name: str | None,
    roles: Sequence[str] | None,
    external_id: str | None,
) -> Plan[Principal]:
    changes = body(name=name, roles=roles, external_id=external_id)
    return send("PATCH", f"/v1/principals/{segment(principal_id)}", one(Principal), changes)


def delete_principal(principal_id: str) -> Plan[None]:
    return delete(f"/v1/principals/{segment(principal_id)}")


def create_key(
    name: str,
    principal: str | None,
    expires_at: datetime | None,
    rate_per_second: int | None,
    concurrency: int | None,
) -> Plan[Key]:
    payload = body(
        name=name,
        principal=principal,
        expires_at=expires_at.astimezone().isoformat() if expires_at else None,
        rate_per_second=rate_per_second,
        concurrency=concurrency,
    )
    return post("/v1/keys", one(Key), payload)


def keys(principal: str | None) -> Plan[Page[Key]]:
    return listed("/v1/keys", Key, principal=principal)


def revoke_key(key_id: str) -> Plan[None]:
    return delete(f"/v1/keys/{segment(key_id)}")


def create_grant(
    principal: str, privilege: Privilege, object_kind: ObjectKind, object_id: str
) -> Plan[Grant]:
    granted = {"kind": object_kind, "id": object_id}
    payload = {"principal": principal, "privilege": privilege, "object": granted}
    return post("/v1/grants", one(Grant), payload)


def grants(
    principal: str | None, object_kind: ObjectKind | None, object_id: str | None
) -> Plan[Page[Grant]]:
    filters = {"principal": principal, "object_kind": object_kind, "object_id": object_id}
    return listed("/v1/grants", Grant, **filters)


def delete_grant(grant_id: str) -> Plan[None]:
    return delete(f"/v1/grants/{segment(grant_id)}")


def preferences() -> Plan[dict[str, str]]:
    return get("/v1/preferences", lambda response: cast(dict[str, str], json_of(response)))


def set_preferences(values: Mapping[str, str]) -> Plan[dict[str, str]]:
    read = preferences().read
    return send("PUT", "/v1/preferences", read, dict(values))


def change_preferences(values: Mapping[str, str | None]) -> Plan[dict[str, str]]:
    read = preferences().read
    return send("PATCH", "/v1/preferences", read, dict(values))


def audit(action: str | None, principal: str | None) -> Plan[Page[AuditEntry]]:
    return listed("/v1/audit", AuditEntry, action=action, principal=principal)


def explain(principal: str | None, tool_id: str | None, agent_id: str | None) -> Plan[Explanation]:
    filters = {"principal": principal, "tool": tool_id, "agent": agent_id}
    return get("/v1/explain", one(Explanation), **filters)
