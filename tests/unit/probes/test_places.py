"""Probes and planner together: where recorded machines would put training processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.knobs.affinity import plan, why_not, why_not_offered
from autotune.knobs.settings import Settings
from autotune.probes import budget, cpu
from autotune.probes.facts import Inventory
from benchmarks.simulation.simulator import inventory
from tests.doubles.machines import Machine, laptop, pod_v2, server, slurm_step


def probed(machine: Machine, folder: Path) -> Inventory:
    """The CPUs of a recorded machine, everything else plain."""
    system = machine.at(folder)
    processors = cpu.probe(system)
    return replace(inventory(), cpu=processors, budget=budget.probe(system, processors))


@pytest.mark.parametrize(
    ("machine", "wanted", "places"),
    [
        (laptop(), Settings(threads=6, num_workers=4, binding="cores"), "0,2,4,6,8,10/1,3,5,7,9,11-19"),
        (laptop(), Settings(threads=12, num_workers=4, binding="cores"), "0-11/12-19"),
        (
            server(),
            Settings(processes=4, threads=16, binding="numa"),
            "0-15,64-79/0-15,64-79@0 16-31,80-95/16-31,80-95@0 "
            "32-47,96-111/32-47,96-111@2 48-63,112-127/48-63,112-127@3",
        ),
        (server(), Settings(processes=2, threads=32, num_workers=8, binding="cores"), "0-31/64-95 32-63/96-127"),
        (
            server().having(affinity=(1, 5, 65, 69, 33, 34, 40, 97)),
            Settings(processes=2, threads=2, num_workers=1, binding="cores"),
            "1,5/65,69 33-34/40,97",
        ),
    ],
    ids=["P-cores", "P-cores with siblings", "a node without memory", "sockets", "a cpuset with holes"],
)
def test_places(machine: Machine, wanted: Settings, places: str, tmp_path: Path) -> None:
    here = probed(machine, tmp_path)
    assert why_not(wanted, here) is None
    assert plan(wanted, here).text.partition(" ")[2] == places


@pytest.mark.parametrize(
    ("machine", "reason"),
    [(pod_v2(), "a CPU quota of 2 moves over 64 CPUs"), (slurm_step(), "the budget is one CPU")],
    ids=["pod", "slurm step"],
)
def test_no_places(machine: Machine, reason: str, tmp_path: Path) -> None:
    found = why_not_offered(probed(machine, tmp_path))
    assert set(found) == {"cores", "numa"}
    assert all(reason in text for text in found.values())
