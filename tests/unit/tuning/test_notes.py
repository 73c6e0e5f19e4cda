"""Sentences of a run's result."""

from dataclasses import replace

import pytest

from autotune.knobs.settings import Settings
from autotune.probes.cpu_time import Load, Neighbour
from autotune.stats.decide import Answer, Reason
from autotune.stats.proof import IDENTITY, Proof
from autotune.tuning import notes
from autotune.tuning.notes import BUSY
from tests.doubles.simulation.simulator import inventory

PYTHON = Neighbour(123, "python", 0, 0.91)
MAKE = Neighbour(7, "make", 19, 0.3)
FOREIGN = Neighbour(9, "", 0, 0.4)
TAIL = "of 2 CPUs while this was measured: the figures hold for that load"
QUIET = "of 2 CPUs. Measure again when it is quiet"


@pytest.mark.parametrize(
    ("taken", "guests", "neighbours", "words"),
    [
        (0.91, 0.0, (PYTHON,), f"python (pid 123) took 0.9 {TAIL}"),
        (1.21, 0.0, (MAKE, PYTHON), f"{BUSY}: python (pid 123) took 0.9, make (pid 7, nice 19) took 0.3 {QUIET}"),
        (1.31, 0.0, (PYTHON, FOREIGN), f"{BUSY}: python (pid 123) took 0.9, other processes took 0.4 {QUIET}"),
        (1.91, 0.0, (MAKE,), f"{BUSY}: make (pid 7, nice 19) took 0.3, other processes took 1.6 {QUIET}"),
        (0.4, 0.0, (FOREIGN,), f"other processes took 0.4 {TAIL}"),
        (1.9, 0.0, (), f"{BUSY}: other processes took 1.9 {QUIET}"),
        (0.3, 0.0, (PYTHON,), f"other processes took 0.3 {TAIL}"),
        (0.0, 0.25, (), f"the hypervisor's other guests took 0.2 {TAIL}"),
        (0.91, 0.25, (PYTHON,), f"{BUSY}: python (pid 123) took 0.9, the hypervisor's other guests took 0.2 {QUIET}"),
        (0.05, 0.0, (), ""),
    ],
)
def test_the_users_own_are_named_and_the_rest_summed_up(taken, guests, neighbours, words) -> None:
    """Names never exceed what was taken in all: within a CPU quota, those outside may take nothing."""
    assert notes.load_note(Load(taken, guests, neighbours, 2), names=True) == words


def test_the_note_of_a_shared_profile_names_nobody_and_no_services() -> None:
    assert notes.load_note(Load(1.61, 0.0, (PYTHON, MAKE, FOREIGN), 2)) == f"{BUSY}: other processes took 1.6 {QUIET}"
    assert notes.load_note(Load(0.5, threads=64)) == "", "a large machine has services of its own"
    assert notes.load_note(Load(0.7, threads=64))


def answer(reason: Reason, **figures: object) -> Answer:
    return Answer(Settings(), 1.0, IDENTITY, False, reason, **figures)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("high", "words"),
    [(1.6, "1.20x measured, but not proven (0.90 to 1.60)"), (1e9, "repeated runs of these settings differ too much")],
)
def test_a_wide_interval_has_no_figures(high: float, words: str) -> None:
    found = notes.level_note("safe", answer(Reason.UNPROVEN, proof=Proof(1.2, 0.9, high, 0.95, 8)))
    assert found.startswith(words)
    assert found.endswith("; a longer --budget may decide")


def test_every_reason_has_words_at_every_level_and_a_gain_has_none() -> None:
    for reason in Reason:
        for level in ("safe", "amp", "max"):
            note = notes.level_note(level, answer(reason, proof=IDENTITY, failure="x"))
            assert bool(note) == (reason is not Reason.NONE), reason


def test_who_else_is_on_a_gpu_is_said() -> None:
    two = inventory(gpus=2)
    crowded = replace(two, gpus=(two.gpus[0], replace(two.gpus[1], foreign_processes=3)))
    assert notes.on_gpus(two) == notes.on_gpus(inventory()) == []
    assert [each.partition(" when")[0] for each in notes.on_gpus(crowded)] == ["3 other process(es) were on GPU 1"]
