"""Claims measured again: what runs once, what is printed, how plain trainers are started, what TPE is offered."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from benchmarks.plain import side_by_side
from benchmarks.simulation.simulator import inventory

OWN, FUSED = Settings(threads=2).as_dict(), Settings(threads=2, optimizer_impl="fused").as_dict()


def test_each_rank_has_its_own_variables_and_mpi_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "probe", lambda: inventory(8, 8))
    two = Settings(processes=2, threads=3, backend="gloo")
    ranks = side_by_side.commands(two.as_dict(), Path("folder"))
    assert [own["RANK"] + own["LOCAL_RANK"] + own["WORLD_SIZE"] for _, own in ranks] == ["002", "112"]
    monkeypatch.setattr(side_by_side, "mpiexec", lambda system: None)
    with pytest.raises(side_by_side.Failed, match="no mpiexec here"):
        side_by_side.commands(two.but(backend="mpi").as_dict(), Path("folder"))
    monkeypatch.setattr(side_by_side, "mpiexec", lambda system: "/bin/mpiexec")
    ((line, _own),) = side_by_side.commands(two.but(backend="mpi").as_dict(), Path("folder"))
    assert line[1:5] == ["-launcher", "fork", "-n", "2"]
    assert line[line.index("autotune.runtime.entry") + 1] == "mpi"
