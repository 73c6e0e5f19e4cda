"""What frameworks start or write that a trial can do without: a fork would not survive it, or nobody would read it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


def _no_monitor() -> None:
    """The thread that redraws bars which nobody updates; it starts with the first bar."""
    if importlib.util.find_spec("tqdm") is not None:
        importlib.import_module("tqdm").tqdm.monitor_interval = 0


def _no_mpi() -> None:
    """Lightning imports mpi4py to see whether mpiexec has started it. That starts MPI, and a fork would crash it."""
    sys.modules.setdefault("mpi4py", None)  # type: ignore[arg-type]


def _nothing() -> None:
    """For frameworks that variables silence."""


@dataclass(frozen=True)
class Quiet:
    """One framework.

    Attributes:
        name: of its package.
        variables: of the environment that trials run in. What the script says itself wins.
        before: called in the process of the script before that runs.
        unless_named: nothing is called where the script's own text names the package.
    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], None] = _nothing
    unless_named: bool = False


FRAMEWORKS = (
    Quiet(
        "lightning",
        {
            "PL_TRAINER_ENABLE_PROGRESS_BAR": "False",  # a thread that holds a lock ten times a second
            "PL_TRAINER_ENABLE_MODEL_SUMMARY": "False",
            "PL_TRAINER_LOGGER": "False",
        },
    ),
    Quiet("mpi4py", before=_no_mpi, unless_named=True),
    Quiet("tqdm", before=_no_monitor),
)


def variables() -> dict[str, str]:
    """Of all frameworks."""
    return {name: value for framework in FRAMEWORKS for name, value in framework.variables.items()}


def prepare(text: str) -> None:
    """Silence the frameworks in this process.

    Args:
        text: of the script.
    """
    for framework in FRAMEWORKS:
        if not (framework.unless_named and framework.name in text):
            framework.before()
