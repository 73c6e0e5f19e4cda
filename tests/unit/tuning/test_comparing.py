"""The comparison of first steps: which knobs are left out, by machines on which some change training."""

from collections.abc import Callable

import pytest

from autotune.knobs.settings import Settings
from autotune.stats.outcome import Compared, Crashed, Outcome, TimedOut
from autotune.tuning.comparing import DRAWS, Comparison, compare_first_steps
from tests.doubles.fake_bench import MACHINE, OWN, SPACES, empty

SEVERAL = OWN.but(num_workers=2, channels_last=True, optimizer_impl="fused", malloc="keep")
DIFFERS = Compared(differences=(("weights", "the weights differ"),))


def comparing(compare: Callable[[Settings], Outcome]) -> tuple[Comparison, list[Settings]]:
    """A comparison whose trials end as ``compare`` says, and what was run."""
    seen: list[Settings] = []

    def run(settings: Settings) -> Outcome:
        seen.append(settings)
        return compare(settings)

    return Comparison(OWN, run, MACHINE.context.inventory), seen


def guilty(knob: str, outcome: Outcome = DIFFERS) -> Callable[[Settings], Outcome]:
    """Training changes with any value of ``knob`` but the baseline's."""
    return lambda settings: outcome if getattr(settings, knob) != getattr(OWN, knob) else Compared()


def test_settings_that_change_nothing_stay_after_one_trial() -> None:
    found, seen = comparing(lambda _: Compared())
    assert found.settle(SEVERAL) == found.settle(SEVERAL) == SEVERAL
    assert (seen, found.left_out) == ([SEVERAL], [])


@pytest.mark.parametrize("knob", ["channels_last", "optimizer_impl", "malloc"])
@pytest.mark.parametrize("outcome", [DIFFERS, Crashed("the weights differ")], ids=lambda each: each.kind)
def test_the_guilty_knob_is_found_by_halving_and_left_out(knob: str, outcome: Outcome) -> None:
    found, seen = comparing(guilty(knob, outcome))
    assert found.settle(SEVERAL) == SEVERAL.but(**{knob: getattr(OWN, knob)})
    assert [(item.knob, item.reason) for item in found.left_out] == [(knob, "the weights differ")]
    count = len(seen)
    assert found.settle(OWN.but(**{knob: getattr(SEVERAL, knob)})) == OWN, "what is known is not tried again"
    assert seen[count:] in ([], [OWN])


def test_two_guilty_knobs_are_both_found() -> None:
    found, _ = comparing(lambda tried: DIFFERS if tried.channels_last or tried.malloc == "keep" else Compared())
    assert found.settle(SEVERAL) == OWN.but(num_workers=2, optimizer_impl="fused")


def test_a_knob_that_follows_another_is_not_blamed_for_it() -> None:
    """Workers differ once, and not again when they are tried alone: to blame their prefetching would change nothing."""
    wrong = iter((DIFFERS, Compared(), Compared()))
    found, seen = comparing(lambda _: next(wrong, DIFFERS))
    assert found.settle(OWN.but(num_workers=2)) == OWN
    assert len(seen) <= 4


def test_a_loader_that_must_not_change_keeps_all_of_its_knobs() -> None:
    found, _ = comparing(guilty("num_workers"))
    assert found.settle(OWN.but(num_workers=2)) == OWN
    other = OWN.but(num_workers=1, prefetch_factor=4)
    assert found.settle(other).num_workers == OWN.num_workers


def test_training_that_cannot_be_compared_is_changed_by_no_knob_that_touches_it() -> None:
    found, _ = comparing(lambda _: TimedOut("no progress"))
    assert found.settle(SEVERAL) == OWN.but(malloc="keep")
    assert {item.reason for item in found.left_out} == {"your first steps could not be compared: no progress"}


@pytest.mark.parametrize("cause", ["", "num_workers"])
def test_training_that_never_repeats_allows_what_it_differs_by_itself(cause: str) -> None:
    repeats: list[Settings] = []

    def compare(settings: Settings) -> Outcome:
        repeats.extend([settings] * (settings == OWN))
        is_cause = bool(cause) and getattr(settings, cause) != getattr(OWN, cause)
        return DIFFERS if settings == OWN or is_cause or not repeats else Compared()

    found, _ = comparing(compare)
    settled = found.settle(SEVERAL)
    assert settled == (SEVERAL.but(num_workers=OWN.num_workers, prefetch_factor=None) if cause else SEVERAL)
    assert len(repeats) == 2
    assert [item.knob for item in found.left_out] == [cause] * bool(cause)


def test_screening_tries_what_changes_the_users_objects() -> None:
    found, seen = comparing(lambda tried: DIFFERS if tried.num_workers or tried.malloc == "keep" else Compared())
    found.screen(SPACES["safe"])
    assert seen[0] == OWN
    assert {item.knob for item in found.left_out} == {"num_workers"}, "malloc is the process's own"


def test_random_draws_are_noted_only_if_loading_moves_to_workers() -> None:
    found, _ = comparing(lambda _: Compared(draws=True))
    found.settle(OWN.but(malloc="keep"))
    assert found.notes([OWN]) == ()
    assert found.notes([OWN.but(num_workers=2)]) == (DRAWS,)


def test_a_level_that_becomes_the_one_below_has_no_candidate() -> None:
    found, _ = comparing(guilty("channels_last"))
    safe, amp = OWN.but(malloc="keep"), OWN.but(malloc="keep", channels_last=True)
    state = empty(chosen={"safe": safe, "amp": amp, "max": amp.but(batch_size=2 * OWN.batch_size)})
    state.settle = found.settle
    assert compare_first_steps(state) == {"safe": safe, "max": safe.but(batch_size=2 * OWN.batch_size)}
