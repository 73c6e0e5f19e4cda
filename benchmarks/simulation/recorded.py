"""Machines as ``autotune probe --json`` printed them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from autotune.probes.facts import Inventory


def recorded_inventory(data: Mapping[str, Any]) -> Inventory:
    """Read an `Inventory` that was written as plain data; facts that no longer exist are left out."""
    return TypeAdapter(Inventory).validate_python(data)
