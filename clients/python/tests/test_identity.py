from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from belljar import Belljar, BelljarError, Principal

from .server import Server


@pytest.fixture
def ada(bj: Belljar) -> Iterator[Principal]:
    ada = bj.principals.create("ada", external_id="u-1")
    yield ada
    bj.principals.delete(ada.id)


def test_a_principal_is_made_changed_and_found(bj: Belljar, ada: Principal) -> None:
    role = bj.principals.create("analysts", "role")
    changed = bj.principals.update(ada.id, name="ada l.", roles=["analysts"])
    assert (changed.name, changed.roles, changed.external_id) == ("ada l.", ["analysts"], "u-1")
    assert bj.principals.get(ada.id) == changed
    assert bj.principals.me().id in [principal.id for principal in bj.principals.list()]
    bj.principals.update(ada.id, roles=[])
    bj.principals.delete(role.id)


def test_a_key_is_shown_once_and_never_printed(bj: Belljar, server: Server, ada: Principal) -> None:
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    key = bj.keys.create("laptop", principal=ada.id, expires_at=soon)
    assert key.secret is not None
    assert key.secret not in repr(key)
    assert [(known.id, known.secret) for known in bj.keys.list(principal=ada.id)] == [
        (key.id, None)
    ]
    with Belljar(server.url, key.secret) as theirs:
        assert theirs.principals.me().id == ada.id
        assert key.secret not in repr(vars(theirs))
        bj.keys.revoke(key.id)
        with pytest.raises(BelljarError) as raised:
            theirs.principals.me()
    assert raised.value.status == 401


def test_a_grant_allows_a_principal_to_run_code_until_it_is_revoked(
    bj: Belljar, server: Server, ada: Principal
) -> None:
    key = bj.keys.create("laptop", principal=ada.id)
    workspace = next(bj.workspaces.list())
    with Belljar(server.url, key.secret) as theirs:
        with pytest.raises(BelljarError) as raised:
            theirs.execute("1")
        assert (raised.value.code, raised.value.status) == ("grant.missing", 403)
        grant = bj.grants.create(ada.id, "USAGE", "workspace", workspace.id)
        assert list(bj.grants.list(principal=ada.id)) == [grant]
        assert theirs.execute("1").ok
        bj.grants.delete(grant.id)
        with pytest.raises(BelljarError):
            theirs.execute("1")


def test_another_workspace_has_an_owner_of_its_own(bj: Belljar, server: Server) -> None:
    made = bj.workspaces.create("elsewhere")
    with Belljar(server.url, made.key.secret) as theirs:
        assert theirs.principals.me().id == made.principal.id
        assert list(theirs.executions.list()) == []


def test_preferences_are_kept(bj: Belljar) -> None:
    assert bj.preferences.set({"code_model": "gpt-5"}) == {"code_model": "gpt-5"}
    assert bj.preferences.get() == {"code_model": "gpt-5"}
    assert bj.preferences.update({}) == {"code_model": "gpt-5"}
    assert bj.preferences.update({"code_model": "gpt-6"}) == {"code_model": "gpt-6"}
    assert bj.preferences.update({"code_model": None}) == {}


def test_models_are_listed_by_name_and_by_provider(bj: Belljar) -> None:
    names = [model.name for model in bj.models.list()]
    assert {"openai/*", "anthropic/*"} <= set(names)


def test_the_audit_log_says_who_did_what(bj: Belljar, ada: Principal) -> None:
    entry = next(bj.audit(action="principal.create"))
    assert ada.id in entry.object
    assert entry.principal == bj.principals.me().id


def test_a_call_is_explained_before_it_is_made(bj: Belljar, ada: Principal) -> None:
    tool = bj.tools.create(
        'def handle() -> int:\n    """Say one, always."""\n    return 1\n', name="one"
    )
    assert bj.explain(tool_id=tool.id).allowed
    theirs = bj.explain(principal=ada.id, tool_id=tool.id)
    assert not theirs.allowed
    assert theirs.missing
    bj.tools.delete(tool.id)


def test_a_key_that_asks_too_often_waits_as_long_as_it_is_told(bj: Belljar, server: Server) -> None:
    slow = bj.keys.create("slow", rate_per_second=1)
    with Belljar(server.url, slow.secret) as theirs:
        began = time.monotonic()
        assert {theirs.execute(str(number)).value for number in range(4)} == {0, 1, 2, 3}
        assert time.monotonic() - began >= 1.5


def test_what_cannot_be_sent_twice_is_not(bj: Belljar, server: Server) -> None:
    slow = bj.keys.create("slow", rate_per_second=1)
    with bj.session() as session, Belljar(server.url, slow.secret) as theirs:
        mine = theirs.sessions.attach(session.id)
        mine.write("a.txt", "1")
        with pytest.raises(BelljarError) as raised:
            mine.write("a.txt", "2")
        assert raised.value.code == "rate.exceeded"
        assert session.read("a.txt") == b"1"


def test_a_server_that_stays_busy_is_not_asked_forever(bj: Belljar, server: Server) -> None:
    narrow = bj.keys.create("narrow", concurrency=1)
    stream = bj.stream("import time; time.sleep(20)")
    with Belljar(server.url, narrow.secret) as theirs:
        watching = iter(theirs.executions.events(stream.execution_id))
        next(watching)
        began = time.monotonic()
        with pytest.raises(BelljarError) as raised:
            theirs.principals.me()
        assert raised.value.status == 429
        assert 3 < time.monotonic() - began < 15
    stream.cancel()
