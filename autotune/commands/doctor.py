"""``autotune doctor``: what costs speed on this machine, and the command that mends it."""

from __future__ import annotations

import json
import time

from autotune.doctor.findings import Finding, Patient, findings
from autotune.probes import switches
from autotune.probes.inventory import probe
from autotune.probes.system import System
from autotune.report import doctor as words
from autotune.tuning.host_neighbours import Neighbours

FOUND = 6
"""Exit code where something costs speed."""
LOOK_SECONDS = 1.0
"""How long other processes are watched."""


def doctor(as_json: bool) -> int:
    """Print what was found, for people or as one JSON list; returns the exit code."""
    found = examine()
    print(json.dumps([vars(each) for each in found]) if as_json else words.text(found))
    return FOUND if found else 0


def examine() -> tuple[Finding, ...]:
    """Look at this machine, and for a second at its other processes."""
    system = System()
    inventory, switched = probe(system), switches.probe(system)
    neighbours = Neighbours()
    time.sleep(LOOK_SECONDS)
    return findings(Patient(inventory, switched, neighbours.load(inventory.budget.threads)))
