from __future__ import annotations

import pytest

from belljar import Belljar, BelljarError


def test_what_an_agent_can_use_is_added_listed_and_removed(bj: Belljar) -> None:
    agent = bj.agents.create("capable", "instructions: help\n")
    for entry in bj.catalog.list():
        added = bj.agents.add_capability(agent.id, entry.capability)
        assert (added.title, added.state, added.category) == (entry.name, "ready", "Data")
    listed = list(bj.agents.capabilities(agent.id))
    assert [found.name for found in listed] == ["code_execution", "code-interpreter", "dataviz"]
    for found in listed:
        bj.agents.remove_capability(agent.id, found.kind, found.name)
    assert list(bj.agents.capabilities(agent.id)) == []
    with pytest.raises(BelljarError) as raised:
        bj.agents.remove_capability(agent.id, "skill", "a b/c")
    assert raised.value.code == "object.not_found"
    bj.agents.delete(agent.id)
