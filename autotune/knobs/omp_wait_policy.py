"""The wait policy of OpenMP's threads: read when PyTorch is imported, so a running process can only look."""

from __future__ import annotations

import os
from collections.abc import Mapping

from autotune.knobs import exported as to
from autotune.knobs.change import Changed
from autotune.knobs.knob import SERVER_SECONDS, Context, Effect, Knob, Word, unless

OMP_WAIT_POLICY = "OMP_WAIT_POLICY"
WAIT_VARIABLES = (OMP_WAIT_POLICY, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What says how OpenMP's threads wait."""
BESIDE_CPUS = 0.3
"""From so many processors that others keep busy, threads that spin wait for one that does not run."""
PASSIVE_GAIN = 0.5
"""Expected beside a neighbour (docs/decisions/023): 1.5 to 30 times were measured."""


def own_waiting(policy: str, variables: Mapping[str, str]) -> str | None:
    """Return the user's own variable that may let threads wait otherwise than ``policy`` says, or None."""
    same = variables.get(OMP_WAIT_POLICY, "").strip().lower() == policy
    return next((name for name in WAIT_VARIABLES[same:] if name in variables), None)


def _why_not_passive(context: Context) -> str | None:
    own = [f"{name}={value}" for name, value in context.inventory.software.environment if name in WAIT_VARIABLES]
    if own:
        return f"{own[0]} is yours and stays"
    if context.cuda:
        return "training is on the GPU"
    if context.neighbours < BESIDE_CPUS:
        return f"helps if others take {BESIDE_CPUS} CPUs or more; before the search they took {context.neighbours:.1f}"
    return None


def _why_not_waiting(policy: str) -> str | None:
    """Read back: return why threads of this process may wait otherwise, or None."""
    if own := own_waiting(policy, os.environ):
        return f"{own}={os.environ[own]} is yours and stays"
    if OMP_WAIT_POLICY in os.environ:
        return None
    return f"{OMP_WAIT_POLICY} must be {policy} before Python starts; autotune run sets it"


OMP_WAIT = Knob(
    name="omp_wait_policy",
    what="how OpenMP's threads wait for each other",
    words="{} waiting",
    offered="default (they spin), passive (they sleep), if others take 0.3 CPUs or more; CPU training only",
    kind=Word(("default", "passive")),
    neutral="default",
    applied="launch",
    choices=lambda context: unless(_why_not_passive(context), "default", "passive"),
    devices=("cpu",),
    applies=lambda settings: settings.threads > 1,
    why={"passive": "threads sleep beside other processes", "default": "threads that spin go on sooner"},
    effect=Effect(0.3),
    gain=lambda settings, _context: PASSIVE_GAIN * (settings.omp_wait_policy == "passive"),
    first_seconds={"passive": SERVER_SECONDS},
    inherited=True,
    start=lambda value, _training: Changed(read=lambda: _why_not_waiting(value)),
    plain=lambda plan: f"start with {to.before_python(plan, OMP_WAIT_POLICY)}",
    export=to.in_shells(OMP_WAIT_POLICY),
)
