"""Converts JSON arguments to types that JSON lacks, by a plan that the host sends."""

from __future__ import annotations

from datetime import datetime
from typing import Any

Plan = str | dict[str, Any]

_from_iso = datetime.fromisoformat


def convert(value: Any, plan: Plan, namespace: dict[str, Any]) -> Any:
    """Classes in a plan are those of the namespace. None passes every plan, since each type may be optional."""
    if value is None:
        return None
    if plan == "datetime":
        return _from_iso(value)
    if plan == "node_id":
        return _node_id(value)
    if plan == "cognite_client":
        return _cognite_client()
    if "list" in plan:
        return [convert(item, plan["list"], namespace) for item in value]
    if "values" in plan:
        return {key: convert(item, plan["values"], namespace) for key, item in value.items()}
    fields = convert_named(value, plan["fields"], namespace)
    return _class_named(plan["dataclass"], namespace)(**fields) if "dataclass" in plan else fields


def convert_named(values: dict[str, Any], plans: dict[str, Plan], namespace: dict[str, Any]) -> dict[str, Any]:
    """Returns all values, and converts those that have a plan."""
    return {
        name: convert(value, plans[name], namespace) if name in plans else value for name, value in values.items()
    }


def _node_id(value: dict[str, str]) -> Any:
    # Only a tool that uses the type has the SDK, and importing it takes long.
    from cognite.client.data_classes.data_modeling import NodeId
    return NodeId(space=value["space"], external_id=value["externalId"])


def _cognite_client() -> Any:
    from cognite.client import CogniteClient
    return CogniteClient()


def _class_named(name: str, namespace: dict[str, Any]) -> Any:
    try:
        return namespace[name]
    except KeyError:
        raise NameError(f"name {name!r} is not defined") from None
