"""Other processes beside a run: how they are told, and which rounds decide."""

from __future__ import annotations

import pytest

from autotune.stats.neighbours import QUIET, Load, Neighbour, undisturbed
from autotune.stats.proof import Round

PYTHON = Neighbour(123, "python", 0, 0.91)
MAKE = Neighbour(7, "make", 19, 0.3)
FOREIGN = Neighbour(9, "", 0, 0.4)
TAIL = "of 2 CPUs while this was measured: the figures hold for that load"


@pytest.mark.parametrize(
    ("taken", "stolen", "neighbours", "words"),
    [
        (0.91, 0.0, (PYTHON,), f"python (pid 123) took 0.9 {TAIL}"),
        (1.21, 0.0, (MAKE, PYTHON), f"python (pid 123) took 0.9, make (pid 7, nice 19) took 0.3 {TAIL}"),
        (1.31, 0.0, (PYTHON, FOREIGN), f"python (pid 123) took 0.9, other processes took 0.4 {TAIL}"),
        (1.91, 0.0, (MAKE,), f"make (pid 7, nice 19) took 0.3, other processes took 1.6 {TAIL}"),
        (0.4, 0.0, (FOREIGN,), f"other processes took 0.4 {TAIL}"),
        (1.9, 0.0, (), f"other processes took 1.9 {TAIL}"),
        (0.3, 0.0, (PYTHON,), f"other processes took 0.3 {TAIL}"),
        (0.0, 0.25, (), f"the hypervisor's other guests took 0.2 {TAIL}"),
        (0.91, 0.25, (PYTHON,), f"python (pid 123) took 0.9, the hypervisor's other guests took 0.2 {TAIL}"),
        (0.05, 0.0, (), ""),
    ],
)
def test_the_users_own_are_named_and_the_rest_summed_up(
    taken: float, stolen: float, neighbours: tuple[Neighbour, ...], words: str
) -> None:
    """Names never exceed what was taken in all: within a CPU quota, those outside may take nothing."""
    assert Load(taken, stolen, neighbours, 2).named == words


def test_the_note_of_a_shared_profile_names_nobody() -> None:
    assert Load(1.61, 0.0, (PYTHON, MAKE, FOREIGN), 2).note == f"other processes took 1.6 {TAIL}"


def test_a_quiet_machine_is_not_worth_a_word() -> None:
    assert QUIET.note == QUIET.named == ""


def test_a_large_machines_own_services_are_not_worth_a_word() -> None:
    assert Load(0.5, threads=64).note == ""
    assert Load(0.7, threads=64).note


def rounds(baseline: float, neighbours: float, generations: range) -> list[Round]:
    """Four rounds of each generation, in which ``safe`` makes 500 items/s beside any neighbour."""
    rates = {"baseline": baseline, "safe": 500.0}
    return [Round(number, rates, neighbours) for number in generations for _ in range(4)]


QUIET_ROUNDS = rounds(400.0, 0.05, range(1, 4))


def test_a_baseline_that_collapsed_beside_a_neighbour_is_no_headline() -> None:
    kept, (note,) = undisturbed(QUIET_ROUNDS + rounds(25.0, 1.0, range(4, 6)))
    assert kept == QUIET_ROUNDS
    assert "16.0 times slower than in the quiet rounds, which decide" in note
    assert "safe 20.0x of your settings" in note


@pytest.mark.parametrize(
    "others",
    [
        rounds(350.0, 1.0, range(4, 6)),
        rounds(25.0, 1.0, range(4, 5)),
        rounds(25.0, 0.3, range(4, 6)),
        [],
    ],
    ids=["nothing lost", "too few", "too little", "none"],
)
def test_otherwise_all_rounds_decide(others: list[Round]) -> None:
    assert undisturbed(QUIET_ROUNDS + others) == (QUIET_ROUNDS + others, ())


def test_a_load_that_never_ends_is_what_the_figures_hold_for() -> None:
    busy = rounds(25.0, 1.0, range(1, 4))
    assert undisturbed(busy) == (busy, ())
