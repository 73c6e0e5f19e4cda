"""What of MPI can be told without starting it; `test_entry` and `test_two_ranks` run the real thing."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.runtime import mpi


def test_a_missing_mpi_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(RuntimeError, match=r"MPI cannot be loaded: .*pip install torch-autotune\[mpi\]"):
        mpi.start()


def test_ranks_that_disagree_with_mpi_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SimpleNamespace(rank=0, size=1)
    monkeypatch.setattr(mpi, "start", lambda: SimpleNamespace(COMM_WORLD=world))
    options: Any = SimpleNamespace(global_ranks_in_group=[], group_rank=1, group_size=2)
    with pytest.raises(RuntimeError, match="as 0 of 1, RANK and WORLD_SIZE say 1 of 2"):
        mpi._create(options, None)
