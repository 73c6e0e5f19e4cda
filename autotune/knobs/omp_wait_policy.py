"""The wait policy of OpenMP's threads: read when PyTorch is imported, so a running process can only look."""

from __future__ import annotations

import os
from collections.abc import Mapping

from autotune.knobs.exported import before_python, in_environment, in_shells
from autotune.knobs.knob import SERVER_SECONDS, Change, Choices, Context, Effect, Knob, Training, Word

OMP_WAIT_POLICY = "OMP_WAIT_POLICY"
WAIT_VARIABLES = (OMP_WAIT_POLICY, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What says how OpenMP's threads wait."""
BESIDE_CPUS = 0.3
"""From so many processors that others keep busy, threads that spin wait for one that does not run."""
PASSIVE_GAIN = 0.5
"""Expected beside a neighbour (docs/decisions/023): 1.5 to 30 times were measured."""


def own_waiting(policy: str, variables: Mapping[str, str]) -> str | None:
    """The user's own variable that may let threads wait otherwise than ``policy`` says; None if there is none."""
    same = variables.get(OMP_WAIT_POLICY, "").strip().lower() == policy
    return next((name for name in WAIT_VARIABLES[same:] if name in variables), None)


def _omp_wait_policy(context: Context) -> Choices:
    reason = _why_not_passive(context)
    return Choices(("default",), (("passive", reason),)) if reason else Choices(("default", "passive"))


def _why_not_passive(context: Context) -> str | None:
    own = [f"{name}={value}" for name, value in context.inventory.software.environment if name in WAIT_VARIABLES]
    if own:
        return f"{own[0]} is yours and stays"
    if context.cuda:
        return "training is on the GPU"
    if context.neighbours < BESIDE_CPUS:
        return f"helps if others take {BESIDE_CPUS} CPUs or more; before the search they took {context.neighbours:.1f}"
    return None


class _Waiting(Change):
    def __init__(self, value: str) -> None:
        self._value = value

    def why_not(self) -> str | None:
        """Return why this process may wait otherwise, or None."""
        if own := own_waiting(self._value, os.environ):
            return f"{own}={os.environ[own]} is yours and stays"
        if OMP_WAIT_POLICY in os.environ:
            return None
        return f"{OMP_WAIT_POLICY} must be {self._value} before Python starts; autotune run sets it"


def _start(value: str, _training: Training) -> Change | None:
    return None if value == "default" else _Waiting(value)


OMP_WAIT = Knob(
    name="omp_wait_policy",
    what="how OpenMP's threads wait for each other",
    words="{} waiting",
    offered="default (they spin), passive (they sleep), if others take 0.3 CPUs or more; CPU training only",
    kind=Word(("default", "passive")),
    neutral="default",
    applied="launch",
    choices=_omp_wait_policy,
    devices=("cpu",),
    applies=lambda settings: settings.threads > 1,
    why={"passive": "threads sleep beside other processes", "default": "threads that spin go on sooner"},
    effect=Effect(0.3),
    gain=lambda settings, _context: PASSIVE_GAIN * (settings.omp_wait_policy == "passive"),
    first_seconds={"passive": SERVER_SECONDS},
    inherited=True,
    start=_start,
    plain=lambda plan: f"start with {before_python(plan, OMP_WAIT_POLICY)}",
    export=in_shells(in_environment(OMP_WAIT_POLICY)),
)
