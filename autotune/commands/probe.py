"""``autotune probe``: what this machine is."""

from __future__ import annotations

import json

from autotune.probes import inventory
from autotune.profiles.format import machine_type
from autotune.report import machine


def probe(as_json: bool) -> None:
    """Print the facts about this machine, for people or as one JSON object."""
    facts = inventory.probe()
    if as_json:
        print(json.dumps({"key": machine_type(facts).key, **inventory.to_json(facts)}))
    else:
        print(machine.text(facts))
