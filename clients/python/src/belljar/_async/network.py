"""Network rules, integrations and secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from .._models import AllowedSecrets, Inject, Integration, NetworkRule, Secret, SecretScope
from .._requests import network
from .transport import AsyncTransport


class AsyncNetworkRules:
    """Named lists of hosts and ports. They allow nothing until an integration uses them."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, name: str, value_list: Sequence[str], *, comment: str | None = None
    ) -> NetworkRule:
        return await self._transport.send(network.create_rule(name, value_list, comment))

    def list(self) -> AsyncIterator[NetworkRule]:
        return self._transport.pages(network.rules())

    async def get(self, network_rule_id: str) -> NetworkRule:
        return await self._transport.send(network.rule(network_rule_id))

    async def replace(
        self,
        network_rule_id: str,
        name: str,
        value_list: Sequence[str],
        *,
        comment: str | None = None,
    ) -> NetworkRule:
        """Replace the rule. It applies to the next connection; the name stays."""
        plan = network.replace_rule(network_rule_id, name, value_list, comment)
        return await self._transport.send(plan)

    async def delete(self, network_rule_id: str) -> None:
        await self._transport.send(network.delete_rule(network_rule_id))


class AsyncIntegrations:
    """Named sets of network rules that executions and sessions can request."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
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
        return await self._transport.send(plan)

    def list(self) -> AsyncIterator[Integration]:
        return self._transport.pages(network.integrations())

    async def get(self, integration_id: str) -> Integration:
        return await self._transport.send(network.integration(integration_id))

    async def update(
        self,
        integration_id: str,
        *,
        allowed_network_rules: Sequence[str] | None = None,
        allowed_secrets: AllowedSecrets | None = None,
        enabled: bool | None = None,
        comment: str | None = None,
    ) -> Integration:
        """Change the given fields, from the next connection on."""
        plan = network.update_integration(
            integration_id, allowed_network_rules, allowed_secrets, enabled, comment
        )
        return await self._transport.send(plan)

    async def delete(self, integration_id: str) -> None:
        await self._transport.send(network.delete_integration(integration_id))


class AsyncSecrets:
    """Secrets. Their values can be written and not read."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        value: str,
        *,
        inject: Inject | None = None,
        scope: SecretScope | None = None,
        comment: str | None = None,
    ) -> Secret:
        """Create a secret. Without `inject` it is an environment variable, which code can read."""
        plan = network.create_secret(name, value, inject, scope, comment)
        return await self._transport.send(plan)

    def list(self) -> AsyncIterator[Secret]:
        return self._transport.pages(network.secrets())

    async def get(self, secret_id: str) -> Secret:
        return await self._transport.send(network.secret(secret_id))

    async def update(
        self,
        secret_id: str,
        *,
        value: str | None = None,
        inject: Inject | None = None,
        comment: str | None = None,
    ) -> Secret:
        """Change a secret. A change of its destination requires the value again."""
        return await self._transport.send(network.update_secret(secret_id, value, inject, comment))

    async def delete(self, secret_id: str) -> None:
        await self._transport.send(network.delete_secret(secret_id))

    async def rotate(self) -> int:
        """Encrypt all values with a new key and return their number. For the operator."""
        return await self._transport.send(network.rotate_secrets())
