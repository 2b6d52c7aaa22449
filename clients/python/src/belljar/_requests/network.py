"""Network rules, integrations, secrets and the network log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._models import (
    AllowedSecrets,
    Inject,
    Integration,
    NetworkEntry,
    NetworkRule,
    Page,
    Secret,
    SecretScope,
)
from .._plan import Plan, body, delete, get, json_of, listed, one, post, segment, send


def create_rule(name: str, value_list: Sequence[str], comment: str | None) -> Plan[NetworkRule]:
    payload = body(name=name, value_list=value_list, comment=comment)
    return post("/v1/network-rules", one(NetworkRule), payload)


def rules() -> Plan[Page[NetworkRule]]:
    return listed("/v1/network-rules", NetworkRule)


def rule(network_rule_id: str) -> Plan[NetworkRule]:
    return get(_rule(network_rule_id), one(NetworkRule))


def replace_rule(
    network_rule_id: str, name: str, value_list: Sequence[str], comment: str | None
) -> Plan[NetworkRule]:
    payload = body(name=name, value_list=value_list, comment=comment)
    return send("PUT", _rule(network_rule_id), one(NetworkRule), payload)


def delete_rule(network_rule_id: str) -> Plan[None]:
    return delete(_rule(network_rule_id))


def create_integration(
    name: str,
    allowed_network_rules: Sequence[str],
    allowed_secrets: AllowedSecrets | None,
    enabled: bool | None,
    comment: str | None,
) -> Plan[Integration]:
    payload = body(
        name=name,
        allowed_network_rules=allowed_network_rules,
        allowed_secrets=allowed_secrets,
        enabled=enabled,
        comment=comment,
    )
    return post("/v1/integrations", one(Integration), payload)


def integrations() -> Plan[Page[Integration]]:
    return listed("/v1/integrations", Integration)


def integration(integration_id: str) -> Plan[Integration]:
    return get(_integration(integration_id), one(Integration))


def update_integration(
    integration_id: str,
    allowed_network_rules: Sequence[str] | None,
    allowed_secrets: AllowedSecrets | None,
    enabled: bool | None,
    comment: str | None,
) -> Plan[Integration]:
    changes = body(
        allowed_network_rules=allowed_network_rules,
        allowed_secrets=allowed_secrets,
        enabled=enabled,
        comment=comment,
    )
    return send("PATCH", _integration(integration_id), one(Integration), changes)


def delete_integration(integration_id: str) -> Plan[None]:
    return delete(_integration(integration_id))


def create_secret(
    name: str,
    value: str,
    inject: Inject | None,
    scope: SecretScope | None,
    comment: str | None,
) -> Plan[Secret]:
    payload = body(name=name, value=value, inject=inject, scope=scope, comment=comment)
    return post("/v1/secrets", one(Secret), payload)


def secrets() -> Plan[Page[Secret]]:
    return listed("/v1/secrets", Secret)


def secret(secret_id: str) -> Plan[Secret]:
    return get(_secret(secret_id), one(Secret))


def update_secret(
    secret_id: str, value: str | None, inject: Inject | None, comment: str | None
) -> Plan[Secret]:
    changes = body(value=value, inject=inject, comment=comment)
    return send("PATCH", _secret(secret_id), one(Secret), changes)


def delete_secret(secret_id: str) -> Plan[None]:
    return delete(_secret(secret_id))


def rotate_secrets() -> Plan[int]:
    return post("/v1/secrets/rotate", lambda response: int(json_of(response)["values"]))


def log(
    execution_id: str | None, sandbox_id: str | None, host: str | None, allowed: bool | None
) -> Plan[Page[NetworkEntry]]:
    filters: dict[str, Any] = {"execution_id": execution_id, "sandbox_id": sandbox_id, "host": host}
    if allowed is not None:
        filters["allowed"] = "true" if allowed else "false"
    return listed("/v1/network/log", NetworkEntry, **filters)


def _rule(network_rule_id: str) -> str:
    return f"/v1/network-rules/{segment(network_rule_id)}"


def _integration(integration_id: str) -> str:
    return f"/v1/integrations/{segment(integration_id)}"


def _secret(secret_id: str) -> str:
    return f"/v1/secrets/{segment(secret_id)}"
