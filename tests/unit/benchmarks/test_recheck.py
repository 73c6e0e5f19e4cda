"""Claims measured again: what runs once, what is printed, how plain trainers are started, what TPE is offered."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.knobs.space import build
from benchmarks.plain import side_by_side, tpe
from benchmarks.recheck import BASELINE, distinct, profiled, report
from benchmarks.simulation.simulator import GIB, context, inventory

OWN, FUSED = Settings(threads=2).as_dict(), Settings(threads=2, optimizer_impl="fused").as_dict()
CLAIM = {"value": 1.5, "low": 1.4, "high": 1.6}
PROFILE = {
    "baseline": {"settings": OWN},
    "levels": {
        "safe": {"settings": OWN, "speedup": {"value": 1.0, "low": 1.0, "high": 1.0}},
        "amp": {"settings": FUSED, "speedup": CLAIM},
        "max": {"settings": FUSED, "speedup": CLAIM},
    },
}


def test_settings_that_several_levels_share_run_once() -> None:
    assert distinct(profiled(PROFILE)) == {BASELINE: BASELINE, "safe": BASELINE, "amp": "amp", "max": "amp"}


def test_each_claim_is_printed_beside_what_was_measured() -> None:
    choices = profiled(PROFILE) | {"amp grid": FUSED}
    turns = [{BASELINE: 100.0, "safe": 100.0, "amp": 150.0, "max": 150.0}] * 2
    assert report(PROFILE, choices, turns) == [
        "safe: the user's own settings",
        "amp: claimed 1.50x (1.40 to 1.60), measured 1.50x (1.50 to 1.50)",
        "max: claimed 1.50x (1.40 to 1.60), measured 1.50x (1.50 to 1.50)",
        "amp grid: measured never: it failed",
    ]


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


def test_the_environment_has_threads_and_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    found = side_by_side.environment(OWN | {"omp_wait_policy": "passive"})
    assert (found["OMP_NUM_THREADS"], found["OMP_WAIT_POLICY"]) == ("2", "passive")
    monkeypatch.setattr(side_by_side.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(side_by_side.Failed, match="jemalloc is not installed here"):
        side_by_side.environment(OWN | {"allocator": "jemalloc"})


class Pick:
    """A trial that draws the same position of every dimension, or what it is given."""

    def __init__(self, position: int = 0, given: dict[str, int] | None = None) -> None:
        self.position, self.given = position, given or {}

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return self.given.get(name, min(high, low + self.position))

    def suggest_categorical(self, name: str, choices: tuple[int, ...]) -> int:
        return self.given.get(name, choices[min(len(choices) - 1, self.position)])


@pytest.mark.parametrize("level", ["safe", "amp", "max"])
def test_tpe_is_offered_the_same_values_and_starts_from_the_users_settings(level: str) -> None:
    space = build(context(inventory(4, 4, memory=64 * GIB), 64, convolutions=True), level)
    offered, own = tpe.dimensions(space), space.context.baseline
    assert tpe.suggested(Pick(99, tpe.positions(own, offered)), offered, own) == own  # type: ignore[arg-type]
    for position in range(4):
        found = tpe.suggested(Pick(position), offered, own)  # type: ignore[arg-type]
        assert all(getattr(found, name) in space.values[name] for name in tpe.FLAGS)
        assert found.global_batch in space.global_batches
