"""Lightning.

Its bars and loggers are kept still by `progress_bars` and `trackers`: with its own switches it refuses callbacks.
"""

from __future__ import annotations

import sys

from autotune.scripts.adapters.adapter import Adapter


def _no_mpi(text: str) -> None:
    """Hide mpi4py: Lightning imports it to see if mpiexec has started it. That starts MPI, and a fork would crash."""
    if "mpi4py" not in text:
        sys.modules.setdefault("mpi4py", None)  # type: ignore[arg-type]


LIGHTNING = Adapter(
    packages=("lightning.pytorch", "pytorch_lightning"),
    before=_no_mpi,
    several_processes="Lightning starts as many as its own Trainer(devices=...) says",
)
