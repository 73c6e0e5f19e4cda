"""Result files: what was measured, with date, machine and versions."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.profiles.format import machine_type

FOLDER = Path(__file__).parent / "results"
PACKAGES = ("torch-autotune", "torch", "numpy", "optuna")


def stamp(inventory: Inventory, packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Return when, on what kind of machine and with which versions of ``packages`` something is measured."""
    return {
        "date": date.today().isoformat(),
        "machine": machine_type(inventory).key,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
    }


def write(name: str, data: Mapping[str, Any]) -> Path:
    """Write ``data`` to ``benchmarks/results/<name>.json``, stamped; return the path."""
    path = FOLDER / f"{name}.json"
    save(path, {**stamp(probe()), **data})
    return path


def save(path: Path, data: Mapping[str, Any]) -> None:
    """Write all of ``data``, one line for each raw record; a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part")
    scratch.write_text(_text(data), "utf-8")
    scratch.replace(path)


def opened(path: Path, fresh: dict[str, Any]) -> dict[str, Any]:
    """Return what ``path`` holds already, or ``fresh`` if there is no such file.

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


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of equal keys as a Markdown table; empty if there are none."""
    if not rows:
        return ""
    head = [name.replace("_", " ") for name in rows[0]]
    cells = [[_cell(value) for value in row.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *cells])


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _text(data: Mapping[str, Any]) -> str:
    lines = []
    for name, value in data.items():
        if isinstance(value, list) and value:
            rows = ",\n  ".join(json.dumps(row, default=str) for row in value)
            lines.append(f"{json.dumps(name)}: [\n  {rows}\n ]")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value, default=str)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"
