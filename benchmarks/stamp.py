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
    """When, on what kind of machine and with which versions of ``packages``."""
    return {
        "date": date.today().isoformat(),
        "machine": machine_type(inventory).key,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
    }


def write(name: str, data: Mapping[str, Any]) -> Path:
    """Keep ``data`` as ``benchmarks/results/<name>.json``, stamped."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps({**stamp(probe()), **data}, indent=1) + "\n", "utf-8")
    return path
