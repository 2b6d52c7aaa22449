"""Workspaces, principals, keys, grants and preferences."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime

from .._models import (
    Grant,
    Key,
    NewWorkspace,
    ObjectKind,
    Principal,
    PrincipalKind,
    Privilege,
    Workspace,
)
from .._requests import identity
from .transport import AsyncTransport


class AsyncWorkspaces:
    """Workspaces, for the operator of the server only."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, name: str) -> NewWorkspace:
        """Create a workspace. Only this response has the key of its owner."""
        return await self._transport.send(identity.create_workspace(name))

    def list(self) -> AsyncIterator[Workspace]:
        return self._transport.pages(identity.workspaces())


class AsyncPrincipals:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        kind: PrincipalKind = "user",
        *,
        roles: Sequence[str] | None = None,
        external_id: str | None = None,
    ) -> Principal:
        return await self._transport.send(identity.create_principal(name, kind, roles, external_id))

    def list(self) -> AsyncIterator[Principal]:
        return self._transport.pages(identity.principals())

    async def me(self) -> Principal:
        return await self.get("me")

    async def get(self, principal_id: str) -> Principal:
        return await self._transport.send(identity.principal(principal_id))

    async def update(
        self,
        principal_id: str,
        *,
        name: str | None = None,
        roles: Sequence[str] | None = None,
        external_id: str | None = None,
    ) -> Principal:
        plan = identity.update_principal(principal_id, name, roles, external_id)
        return await self._transport.send(plan)

    async def delete(self, principal_id: str) -> None:
        await self._transport.send(identity.delete_principal(principal_id))


class AsyncKeys:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        *,
        principal: str | None = None,
        expires_at: datetime | None = None,
        rate_per_second: int | None = None,
        concurrency: int | None = None,
    ) -> Key:
        """Create a key. Only this response has its `secret`."""
        plan = identity.create_key(name, principal, expires_at, rate_per_second, concurrency)
        return await self._transport.send(plan)

    def list(self, *, principal: str | None = None) -> AsyncIterator[Key]:
        return self._transport.pages(identity.keys(principal))

    async def revoke(self, key_id: str) -> None:
        await self._transport.send(identity.revoke_key(key_id))


class AsyncGrants:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, principal: str, privilege: Privilege, object_kind: ObjectKind, object_id: str
    ) -> Grant:
        """Grant a privilege. `OWNERSHIP`, by an owner of the workspace, replaces the owner."""
        plan = identity.create_grant(principal, privilege, object_kind, object_id)
        return await self._transport.send(plan)

    def list(
        self,
        *,
        principal: str | None = None,
        object_kind: ObjectKind | None = None,
        object_id: str | None = None,
    ) -> AsyncIterator[Grant]:
        return self._transport.pages(identity.grants(principal, object_kind, object_id))

    async def delete(self, grant_id: str) -> None:
        await self._transport.send(identity.delete_grant(grant_id))


class AsyncPreferences:
    """Preferences of the caller."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> dict[str, str]:
        return await self._transport.send(identity.preferences())

    async def set(self, values: Mapping[str, str]) -> dict[str, str]:
        return await self._transport.send(identity.set_preferences(values))

    async def update(self, values: Mapping[str, str | None]) -> dict[str, str]:
        """Set some preferences, and remove those that are None."""
        return await self._transport.send(identity.change_preferences(values))
