"""How fast this machine is, measured and remembered by the probes, and what of it the user should know."""

from __future__ import annotations

from autotune.probes import software
from autotune.probes.system import System
from autotune.trial.parent.trial_bench import TrialBench

STOOD_STILL = (
    "the run stood still for {:.0f} s in all: the machine was suspended, its processes stopped, or its clock jumped;"
    " what that hit was measured again"
)


def matrix_rates() -> dict[str, float]:
    """Return the rate of large matrix products by precision, in 1e9 operations per second; empty if it failed."""
    return software.matrix_rates(System())


def machine_notes(bench: TrialBench) -> list[str]:
    """What the user should know of the machine during the run."""
    notes = [f"trials ran as fresh processes, slower to start: {bench.no_fork_reason}"] if bench.no_fork_reason else []
    if bench.stood_still:
        notes.append(STOOD_STILL.format(bench.stood_still))
    return notes
