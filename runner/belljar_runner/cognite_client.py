"""The Cognite SDK as its documentation shows it: `CogniteClient()` without arguments uses the identity that the code
runs for, and an instance read from one view has its properties as attributes.

Project, URL and token are read from the environment when a client is created or used, never earlier: the caller may
change from run to run. The user's own configuration always takes precedence.
"""

from __future__ import annotations

import os
from functools import wraps
from types import ModuleType
from typing import Any, NoReturn

from .after_import import after_import

_environ = os.environ


def install() -> None:
    after_import("cognite.client", _patch)
    after_import("cognite.client.data_classes.data_modeling.instances", _patch_instances)


def _patch(sdk: ModuleType) -> None:
    # It would ask the package index for a newer version, in a thread, in each sandbox.
    sdk.global_config.disable_pypi_version_check = True
    # Before version 8 there was no async client.
    client = getattr(sdk, "AsyncCogniteClient", sdk.CogniteClient)
    make = client.__init__

    @wraps(make)
    def __init__(self: Any, config: Any = None) -> None:
        make(self, config or sdk.global_config.default_client_config or _config(sdk))

    client.__init__ = __init__


def _config(sdk: ModuleType) -> Any:
    from cognite.client.credentials import Token

    return sdk.ClientConfig(
        client_name="belljar",
        project=_required_variable("COGNITE_PROJECT"),
        credentials=Token(lambda: _required_variable("COGNITE_TOKEN")),
        base_url=_required_variable("COGNITE_BASE_URL"),
    )


def _required_variable(variable: str) -> str:
    return _environ.get(variable) or _not_configured()


def _not_configured() -> NoReturn:
    from cognite.client.exceptions import CogniteAuthError

    raise CogniteAuthError(
        "Cognite is not configured: the caller has no secret for the client `cognite`; create one with "
        "`belljar secret set NAME --client cognite --mine`"
    )


def _patch_instances(instances: ModuleType) -> None:
    if not hasattr(instances.Instance, "__getattr__"):
        instances.Instance.__getattr__ = _property_of


def _property_of(self: Any, name: str) -> Any:
    """The SDK itself offers properties as items only."""
    if not name.startswith("_"):
        try:
            return self[name]
        except (AttributeError, KeyError, RuntimeError):
            pass  # there is no such property, or more than one view
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
