"""Whom code may talk to, and as whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .._models import AllowedSecrets, Inject, Integration, NetworkRule, Secret, SecretScope
from .._requests import network
from .transport import Transport


class NetworkRules:
    """Named lists of hosts and ports, which open nothing until an integration has them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, name: str, value_list: Sequence[str], *, comment: str | None = None
    ) -> NetworkRule:
        return self._transport.send(network.create_rule(name, value_list, comment))

    def list(self) -> Iterator[NetworkRule]:
        return self._transport.pages(network.rules())

    def get(self, network_rule_id: str) -> NetworkRule:
        return self._transport.send(network.rule(network_rule_id))

    def replace(
        self,
        network_rule_id: str,
        name: str,
        value_list: Sequence[str],
        *,
        comment: str | None = None,
    ) -> NetworkRule:
        """Felt by the next connection; the name stays."""
        plan = network.replace_rule(network_rule_id, name, value_list, comment)
        return self._transport.send(plan)

    def delete(self, network_rule_id: str) -> None:
        self._transport.send(network.delete_rule(network_rule_id))


class Integrations:
    """Permissions to leave a sandbox, made of rules, for code that names them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        allowed_network_rules: Sequence[str] = (),
        *,
        allowed_secrets: AllowedSecrets | None = None,
        enabled: bool | None = None,
        comment: str | None = None,
    ) -> Integration:
        plan = network.create_integration(
            name, allowed_network_rules, allowed_secrets, enabled, comment
        )
        return self._transport.send(plan)

    def list(self) -> Iterator[Integration]:
        return self._transport.pages(network.integrations())

    def get(self, integration_id: str) -> Integration:
        return self._transport.send(network.integration(integration_id))

    def update(
        self,
        integration_id: str,
        *,
        allowed_network_rules: Sequence[str] | None = None,
        allowed_secrets: AllowedSecrets | None = None,
        enabled: bool | None = None,
        comment: str | None = None,
    ) -> Integration:
        """Felt by the next connection; what is left out stays as it is."""
        plan = network.update_integration(
            integration_id, allowed_network_rules, allowed_secrets, enabled, comment
        )
        return self._transport.send(plan)

    def delete(self, integration_id: str) -> None:
        self._transport.send(network.delete_integration(integration_id))


class Secrets:
    """Values that are written and never read again."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        value: str,
        *,
        inject: Inject | None = None,
        scope: SecretScope | None = None,
        comment: str | None = None,
    ) -> Secret:
        """Without `inject`, a variable of that name, which code can read."""
        plan = network.create_secret(name, value, inject, scope, comment)
        return self._transport.send(plan)

    def list(self) -> Iterator[Secret]:
        return self._transport.pages(network.secrets())

    def get(self, secret_id: str) -> Secret:
        return self._transport.send(network.secret(secret_id))

    def update(
        self,
        secret_id: str,
        *,
        value: str | None = None,
        inject: Inject | None = None,
        comment: str | None = None,
    ) -> Secret:
        """A change of the place that the value is for needs the value again."""
        return self._transport.send(network.update_secret(secret_id, value, inject, comment))

    def delete(self, secret_id: str) -> None:
        self._transport.send(network.delete_secret(secret_id))

    def rotate(self) -> int:
        """For the operator: seals all values with a new key, and tells how many they are."""
        return self._transport.send(network.rotate_secrets())
