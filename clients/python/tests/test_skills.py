from __future__ import annotations

import asyncio
import zipfile
from pathlib import Path

import pytest

from belljar import AsyncBelljar, Belljar, BelljarError

TEXT = "---\nname: {name}\ndescription: How tea is made here.\n---\n\nWarm the pot first.\n"


def folder(tmp_path: Path, name: str) -> Path:
    root = tmp_path / name
    (root / "scripts").mkdir(parents=True)
    (root / "SKILL.md").write_text(TEXT.format(name=name))
    (root / "scripts" / "brew.py").write_text("print('brewed')\n")
    return root


def test_a_skill_is_uploaded_shown_replaced_and_deleted(bj: Belljar, tmp_path: Path) -> None:
    root = folder(tmp_path, "green-tea")
    skill = bj.skills.upload(root)
    assert (skill.name, skill.file_count) == ("green-tea", 2)
    assert skill in list(bj.skills.list())
    shown = bj.skills.get(skill.id)
    assert shown.instructions == "Warm the pot first."
    assert [file.name for file in shown.files] == ["SKILL.md", "scripts/brew.py"]
    assert bj.skills.read(skill.id, "scripts/brew.py") == b"print('brewed')\n"

    packed = tmp_path / "green-tea.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("SKILL.md", TEXT.format(name="green-tea"))
    assert bj.skills.replace(skill.id, packed).file_count == 1
    bj.skills.delete(skill.id)
    with pytest.raises(BelljarError) as raised:
        bj.skills.get(skill.id)
    assert raised.value.status == 404


def test_an_invalid_skill_is_refused_with_its_errors(abj: AsyncBelljar, tmp_path: Path) -> None:
    root = folder(tmp_path, "black-tea")
    (root / "SKILL.md").write_text("no frontmatter")

    async def run() -> None:
        async with abj:
            await abj.skills.upload(root)

    with pytest.raises(BelljarError) as raised:
        asyncio.run(run())
    assert raised.value.code == "args.invalid"
    assert "must start with YAML frontmatter" in str(raised.value)
