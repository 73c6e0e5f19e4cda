"""Result files: where and when something was recorded, and the raw figures, rewritten whole after every step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "numpy", "torch-autotune")
"""Whose versions must agree where a recording goes on."""


def opened(path: Path, fresh: dict[str, Any]) -> dict[str, Any]:
    """What ``path`` holds already, or ``fresh`` where there is no such file.

    Raises:
        SystemExit: it was recorded elsewhere: another machine, other versions, another baseline.
    """
    if not path.exists():
        return fresh
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    for name in ("machine", "versions", "baseline"):
        if found.get(name) != fresh.get(name):
            raise SystemExit(f"{path}: recorded with {name} {found.get(name)}, here it is {fresh.get(name)}; move it")
    return found


def save(path: Path, data: dict[str, Any]) -> None:
    """Write all of it, one line per raw record; a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part")
    scratch.write_text(_text(data), "utf-8")
    scratch.replace(path)


def _text(data: dict[str, Any]) -> str:
    lines = []
    for name, value in data.items():
        if isinstance(value, list) and value:
            rows = ",\n  ".join(json.dumps(row) for row in value)
            lines.append(f"{json.dumps(name)}: [\n  {rows}\n ]")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"
