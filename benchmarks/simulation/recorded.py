"""Machines as ``autotune probe --json`` printed them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from autotune.probes.facts import Inventory


def recorded_inventory(data: Mapping[str, Any]) -> Inventory:
    """Read what `autotune.probes.inventory.to_json` wrote; uuids of GPUs, which are never written, are empty."""
    gpus = [{**gpu, "uuid": ""} for gpu in data["gpus"]]
    return TypeAdapter(Inventory).validate_python({**data, "gpus": gpus})
