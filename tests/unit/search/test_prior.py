"""What is expected of backends before any trial."""

from __future__ import annotations

from autotune.devices import CPU
from autotune.knobs.settings import Settings
from autotune.knobs.space import build
from autotune.search.history import Trial
from autotune.search.prior import Prior
from autotune.search.surrogate import correlations, groups_on
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed
from tests.doubles.simulation.simulator import context, inventory

ALONE = Settings(threads=2, batch_size=64)
BY_GLOO = Settings(processes=2, threads=1, batch_size=32)
BY_MPI = BY_GLOO.but(backend="mpi")


def test_mpi_is_expected_ahead_of_gloo():
    measured = Measurement((Block(64, 0.02, 1),), load_share=0.2)
    own = Trial(ALONE, Completed(measurement=measured), "safe")
    expected = Prior(build(context(inventory(), 64), "safe"), [own])
    assert expected(BY_MPI) > expected(BY_GLOO)


def test_a_usual_backend_is_no_effect_of_its_own():
    group = next(group for group in groups_on(CPU) if group.name == "backend")
    settings = [ALONE, BY_GLOO, BY_MPI, BY_MPI.but(batch_size=16)]
    assert correlations([group], settings, settings)[0].tolist() == [
        [1, 1, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 1],
        [0, 0, 1, 1],
    ]
