"""Skills of a workspace."""

from __future__ import annotations

import io
import zipfile
from os import PathLike
from pathlib import Path

from .._models import Page, Skill, SkillDetails
from .._plan import Plan, content, delete, get, listed, one, segment
from .files import TRANSFER_SECONDS


def upload(path: str | PathLike[str]) -> Plan[Skill]:
    return _send("POST", "/v1/skills", path)


def replace(skill_id: str, path: str | PathLike[str]) -> Plan[Skill]:
    return _send("PUT", f"/v1/skills/{segment(skill_id)}", path)


def skills() -> Plan[Page[Skill]]:
    return listed("/v1/skills", Skill)


def skill(skill_id: str) -> Plan[SkillDetails]:
    return get(f"/v1/skills/{segment(skill_id)}", one(SkillDetails))


def read_file(skill_id: str, name: str) -> Plan[bytes]:
    path = "/".join(segment(part) for part in name.split("/"))
    return get(f"/v1/skills/{segment(skill_id)}/files/{path}", content)


def delete_skill(skill_id: str) -> Plan[None]:
    return delete(f"/v1/skills/{segment(skill_id)}")


def _send(method: str, url: str, path: str | PathLike[str]) -> Plan[Skill]:
    # Without an Idempotency-Key: the server compares no bodies as large as these.
    return Plan(
        method=method,
        path=url,
        read=one(Skill),
        body=_archive(Path(path)),
        headers={"Content-Type": "application/zip"},
        seconds=TRANSFER_SECONDS,
    )


def _archive(path: Path) -> bytes:
    """The archive, or that of a directory: its regular files, without links."""
    if not path.is_dir():
        return path.read_bytes()
    packed = io.BytesIO()
    root = path.resolve()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*")):
            if file.is_file() and not file.is_symlink():
                archive.write(file, f"{root.name}/{file.relative_to(root).as_posix()}")
    return packed.getvalue()
