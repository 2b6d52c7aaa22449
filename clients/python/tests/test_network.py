from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator

import pytest

from belljar import AsyncBelljar, Belljar, BelljarError, HeaderInject

from .server import running
from .waiting import until

CANARY = "sk-canary-4711"


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"here")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def read(port: int) -> str:
    url = f"http://site.test:{port}/"
    return f"import urllib.request\nurllib.request.urlopen({url!r}).read().decode()"


def test_code_reaches_what_an_integration_opens_until_it_is_switched_off(site: int) -> None:
    with (
        running("--resolve", "site.test=127.0.0.1") as server,
        Belljar(server.url, server.key) as bj,
    ):
        assert not bj.execute(read(site)).ok
        rule = bj.network_rules.create("site", ["site.test"], comment="of ours")
        values = [f"site.test:{site}", f"127.0.0.1:{site}"]
        rule = bj.network_rules.replace(rule.id, "site", values)
        assert bj.network_rules.get(rule.id) == rule
        assert list(bj.network_rules.list()) == [rule]
        opened = bj.integrations.create("to_site", ["site"])
        run = bj.execute(read(site), integrations=["to_site"])
        assert (run.value, run.network[0].integration) == ("here", "to_site")
        with bj.session(integrations=["to_site"]) as session:
            assert session.info.integrations == ["to_site"]
            assert session.run(read(site)).value == "here"
            assert not bj.integrations.update(opened.id, enabled=False).enabled
            refused = session.run(read(site))
            assert "to_site is disabled" in str(refused.network[0].reason)
        until("the attempt is logged", lambda: bool(list(bj.network_log(execution_id=refused.id))))
        entry = next(bj.network_log(allowed=False, host="site.test"))
        assert (entry.execution_id, entry.port) == (refused.id, site)
        assert all(entry.allowed for entry in bj.network_log(allowed=True))
        with pytest.raises(BelljarError) as raised:
            bj.network_rules.delete(rule.id)
        assert raised.value.code == "object.in_use"
        bj.integrations.delete(opened.id)
        bj.network_rules.delete(rule.id)
        assert [it.name for it in bj.integrations.list()] == ["internet"]


def test_a_secret_is_used_and_never_told(bj: Belljar) -> None:
    secret = bj.secrets.create("TOKEN", CANARY)
    assert (secret.exposed, secret.inject) == (True, {"env": "TOKEN"})
    assert [warning.code for warning in secret.warnings] == ["secret.not_allowed"]
    allowing = bj.integrations.create("allowing", allowed_secrets=["TOKEN"])
    reversed_value = "import os; os.environ.get('TOKEN', '')[::-1]"
    run = bj.execute(reversed_value, integrations=["allowing"])
    assert run.value == CANARY[::-1]
    assert bj.execute(reversed_value).value == ""
    changed = bj.secrets.update(secret.id, value="another-value", comment="of the shop")
    assert (changed.version, changed.comment, changed.warnings) == (2, "of the shop", [])
    assert CANARY not in repr([secret, changed, bj.secrets.get(secret.id), *bj.secrets.list()])
    assert bj.secrets.rotate() >= 1
    with pytest.raises(BelljarError) as raised:
        bj.secrets.update(secret.id, inject={"client": "openai"})
    assert raised.value.errors[0].path == "/value"
    with pytest.raises(BelljarError) as raised:
        bj.secrets.delete(secret.id)
    assert raised.value.code == "object.in_use"
    bj.integrations.delete(allowing.id)
    bj.secrets.delete(secret.id)


def test_it_is_the_same_awaited(abj: AsyncBelljar) -> None:
    async def main() -> None:
        async with abj:
            rule = await abj.network_rules.create("awaited", ["example.com"])
            opened = await abj.integrations.create("to_awaited", ["awaited"])
            header: HeaderInject = {"host": "api.example.com", "name": "X-Api-Key"}
            secret = await abj.secrets.create("shop", CANARY, inject={"header": header})
            assert not secret.exposed
            assert secret.id in [it.id async for it in abj.secrets.list()]
            code = "import socket; socket.create_connection(('other.example', 443))"
            run = await abj.execute(code, integrations=["to_awaited"])
            assert (run.network[0].host, run.network[0].allowed) == ("other.example", False)
            await abj.secrets.delete(secret.id)
            await abj.integrations.delete(opened.id)
            await abj.network_rules.delete(rule.id)

    asyncio.run(main())


def test_statements_in_sql_do_the_same_and_tell_what_ran_before_an_error(
    bj: Belljar, abj: AsyncBelljar
) -> None:
    rule = "CREATE NETWORK RULE by_sql TYPE = HOST_PORT MODE = EGRESS VALUE_LIST = ('a.example')"
    created, shown = bj.sql(f"{rule}; SHOW NETWORK RULES LIKE 'BY\\\\_SQL'")
    assert (created.action, created.statement) == ("created", "CREATE NETWORK RULE")
    assert created.object is not None
    assert bj.network_rules.get(created.object.id).value_list == ["a.example"]
    assert [row["name"] for row in shown.rows or []] == ["by_sql"]
    with pytest.raises(BelljarError) as raised:
        bj.sql("DROP NETWORK RULE by_sql;\n  DROP AGENT missing")
    assert raised.value.code == "object.not_found"
    assert [result.action for result in raised.value.statements] == ["dropped"]
    assert (raised.value.errors[0].line, raised.value.errors[0].column) == (2, 14)

    async def awaited() -> None:
        async with abj:
            assert (await abj.sql("SHOW AGENTS"))[0].action == "shown"

    asyncio.run(awaited())
