"""What a run knows becomes its profile."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.knobs.knob import Context
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import MemoryUse
from autotune.profiles import file as profiles
from autotune.profiles.format import NO_LEVEL, Profile, machine_type
from autotune.search.history import Trial
from autotune.stats.decide import Answer, Reason
from autotune.stats.outcome import BUDGET_OVER, Crashed, NotApplied, Outcome, TimedOut, WrongNumbers
from autotune.stats.proof import IDENTITY, Proof, Round
from autotune.tuning import result
from autotune.tuning.options import Options
from autotune.tuning.state import RunState
from tests.doubles.fake_bench import completed, empty
from tests.doubles.simulation.simulator import context, inventory

MACHINE = inventory(4, 4)
CONTEXT = context(MACHINE, 32)
OWN = CONTEXT.baseline
OTHER = OWN.but(interop_threads=OWN.interop_threads + 1)


def concluded(state: RunState, said: Context = CONTEXT, level: str | None = None, **evidence: Any) -> Profile:
    """The profile of a run that knows ``state``."""
    answers = (result.partial_answers if evidence.get("partial") else result.proven_answers)(state, LEVELS)
    found = result.evidence_of(state, said, Options().spaces(said)["max"].left_out)
    return result.profile_of(state, answers, said, replace(found, **evidence), recommended=level)


def after(*trials: Trial, **found: Any) -> RunState:
    """A run after ``trials``, when nothing is left that is worth another."""
    state = empty(OWN, **{"exhausted": set(LEVELS), **found})
    state.add(*trials)
    return state


def tried(settings: Settings, rate: float, level: str = "safe") -> Trial:
    return Trial(settings, completed(rate), level)


def failed(settings: Settings, outcome: Outcome, level: str = "amp") -> Trial:
    return Trial(settings, outcome, level)


FAILED = failed(OTHER, Crashed("SIGSEGV", ""), "safe")
CUT = failed(OTHER, TimedOut("", phase=BUDGET_OVER), "safe")
HIGHER = tried(OTHER.but(precision="bf16"), 300.0, "amp")
LOW, PRODUCTS = OWN.but(precision="bf16"), OWN.but(matmul_precision="medium")


class TestReasons:
    """Why a level has no candidate for the proof."""

    @pytest.mark.parametrize(
        ("trials", "level", "reason", "failure"),
        [
            ([HIGHER], "safe", Reason.NOT_TRIED, ""),
            ([tried(OTHER, 90.0)], "safe", Reason.SAME, ""),
            ([tried(OTHER, 104.0)], "safe", Reason.SAME, ""),
            ([tried(OTHER, 200.0)], "safe", Reason.NOISY, ""),
            ([FAILED, CUT], "safe", Reason.ALL_FAILED, "SIGSEGV"),
            ([CUT], "safe", Reason.NOT_REACHED, ""),
            ([tried(OTHER, 90.0), tried(OWN, 99.0, "amp")], "amp", Reason.NOT_TRIED, ""),  # your own precision
            ([tried(PRODUCTS, 100.0, "amp")], "amp", Reason.NOT_TRIED, ""),  # another knob than the precision
            ([failed(LOW, CUT.outcome)], "amp", Reason.NOT_REACHED, ""),
            ([failed(LOW, NotApplied("autocast stays off"))], "amp", Reason.ALL_FAILED, "autocast stays off"),
            ([failed(LOW, WrongNumbers("NaN"))], "amp", Reason.ALL_FAILED, "NaN"),
            ([tried(LOW, 90.0, "amp"), failed(LOW.but(num_workers=2), Crashed("no"))], "amp", Reason.SAME, ""),
            ([tried(PRODUCTS, 100.0, "amp"), failed(LOW, Crashed("oops"))], "amp", Reason.ALL_FAILED, "oops"),
            ([tried(OWN.but(channels_last=True), 100.0, "max")], "max", Reason.NOT_TRIED, ""),  # it is about the batch
        ],
    )
    def test_of_each_level(self, trials: list[Trial], level: str, reason: Reason, failure: str) -> None:
        found = result.proven_answers(after(tried(OWN, 100.0), *trials), LEVELS)[level]
        assert (found.reason, found.failure) == (reason, failure)

    @pytest.mark.parametrize(
        ("trial", "found", "reason"),
        [
            (tried(OWN, 101.0), {"exhausted": set()}, Reason.NOT_REACHED),
            (tried(OTHER, 200.0), {"raced": {OWN, OTHER}}, Reason.SAME),
            (tried(OWN, 300.0), {"raced": {OWN, OTHER}}, Reason.NOISY),
        ],
        ids=["time ended the search", "the race showed it", "the user's own vary"],
    )
    def test_by_how_the_search_ended(self, trial: Trial, found: dict[str, Any], reason: Reason) -> None:
        others = [tried(OTHER, 90.0)] if reason is Reason.NOISY else []
        state = after(tried(OWN, 100.0), trial, *others, **found)
        assert result.proven_answers(state, LEVELS)["safe"].reason is reason

    @pytest.mark.parametrize(("proven", "reason"), [(1.5, Reason.NOISY), (2.1, Reason.SAME)])
    def test_a_lucky_trial_of_a_lower_level_hides_no_other_level(self, proven: float, reason: Reason) -> None:
        """The proof shows how fast the lower level really is."""
        low = tried(OTHER.but(precision="bf16"), 210.0, "amp")
        state = after(tried(OWN, 100.0), tried(OTHER, 220.0), low, chosen={"safe": OTHER})
        state.rounds = [Round(each, {"baseline": 100.0, "safe": 100.0 * proven}) for each in (1, 2, 3, 4)]
        assert result.proven_answers(state, LEVELS)["amp"].reason is reason

    def test_a_candidate_that_only_a_higher_level_has_tried_is_judged_by_its_proof(self) -> None:
        state = after(tried(OWN, 100.0), tried(OTHER, 120.0, "amp"), chosen={"safe": OTHER})
        state.rounds = [Round(each, {"baseline": 100.0, "safe": 100.0}) for each in (1, 2, 3, 4)]
        assert result.proven_answers(state, ["safe"])["safe"].reason is Reason.SAME


class TestProfile:
    def test_holds_machine_task_and_baseline(self) -> None:
        warnings = ("measured on a busy machine",)
        made = concluded(after(tried(OWN, 100.0)), warnings=warnings)
        assert made.key == machine_type(MACHINE).key
        assert made.target.name == "simulated"
        assert (made.baseline, made.baseline_rate) == (OWN, pytest.approx(100.0))
        assert list(made.levels) == list(LEVELS)
        assert made.evidence.trials == 1
        assert made.evidence.warnings == warnings

    def test_failures_name_what_was_changed(self) -> None:
        changed = OWN.but(compile="default", num_workers=2)
        state = after(tried(OWN, 100.0), failed(changed, Crashed("SIGSEGV", "long log")))
        (failure,) = concluded(state).evidence.failures
        assert (failure.kind, failure.reason) == ("crashed", "SIGSEGV")
        assert failure.changed == {"compile": "default", "num_workers": 2, "prefetch_factor": 2}

    @pytest.mark.parametrize(
        ("current", "noise_scale", "level", "proven", "recommended"),
        [
            ({}, 2.0, None, "safe amp max", "max"),
            ({}, None, None, "safe amp max", "amp"),
            ({"batch_size": 32}, 2.0, None, "safe amp max", "amp"),
            ({}, 2.0, "safe", "safe amp max", "safe"),
            ({"batch_size": 32}, None, "max", "safe amp max", "max"),
            ({}, 2.0, None, "safe", "safe"),
            ({"batch_size": 32}, 2.0, None, "", NO_LEVEL),
            ({}, 2.0, "safe", "", NO_LEVEL),
        ],
    )
    def test_the_recommended_level(self, current, noise_scale, level, proven, recommended) -> None:
        """Another batch by its progress and if none is stated; no level that repeats a lower one or was not tried."""
        said = replace(CONTEXT, task=replace(CONTEXT.task, current=current), noise_scale=noise_scale)
        settings, answers = OWN, {}
        for number, name in enumerate(LEVELS):
            if name in proven.split():
                settings = OWN.but(num_workers=number + 1)
            gain = Proof(1.3, 1.2, 1.4, 0.95, 5) if settings != OWN else IDENTITY
            answers[name] = Answer(settings, 130.0, gain, proven=settings != OWN)
        evidence = result.evidence_of(empty(OWN), said, ())
        assert result.profile_of(empty(OWN), answers, said, evidence, recommended=level).recommended == recommended

    def test_partial_profiles_can_be_written_and_read(self, tmp_path: Path) -> None:
        """L06: infinity in an unproven interval must not spoil the file."""
        better = OWN.but(num_workers=1)
        state = after(tried(OWN, 100.0), tried(better, 150.0), chosen={"safe": better})
        read = profiles.read(profiles.write(tmp_path / "partial.yaml", concluded(state, partial=True)))
        assert read.evidence.partial
        assert read.level("safe").settings == better
        assert not read.level("safe").proven


@pytest.mark.parametrize(
    ("has", "sizes", "words"),
    [
        (True, [32, 16, 8], ["BatchNorm normalises over 8 or 16 samples instead of 32"]),
        (True, [32, 32], []),
        (False, [16], []),
    ],
)
def test_another_share_of_the_batch_is_said(has: bool, sizes: list[int], words: list[str]) -> None:
    """The baseline has 32 samples on four GPUs."""
    said = context(inventory(8, 8, gpus=4), 32)
    said = replace(said, task=replace(said.task, has_batch_norm=has))
    results = {str(k): SimpleNamespace(settings=OWN.but(batch_size=size)) for k, size in enumerate(sizes)}
    lines = list(result._batch_norm(said, results))  # type: ignore[arg-type]
    assert [line.partition(";")[0] for line in lines] == words


def test_a_level_says_the_most_that_its_trials_held() -> None:
    trials = [trial_of(OWN, peak) for peak in (5, 9, 7)] + [trial_of(OTHER, 20)]
    assert result.memory_of(trials, OWN) == MemoryUse(peak=9)
    assert result.memory_of([], OWN) == MemoryUse()


def test_a_level_says_how_much_later_its_first_step_is() -> None:
    state = after(*(trial_of(*each) for each in ((OWN, 1, 1.0), (OWN, 1, 0.5), (OTHER, 1, 3.0), (OTHER, 1, 2.0))))
    answers = [Answer(each, 1.0, IDENTITY, False, Reason.SAME) for each in (OWN, OTHER)]
    found = [result._level_result("safe", each, CONTEXT, state).start_seconds for each in answers]
    assert found == [0.0, 1.5]


def trial_of(settings: Settings, peak: int, first: float = 0.0) -> Trial:
    measured = completed(1.0)
    assert measured.measurement is not None
    held = replace(measured.measurement, memory=MemoryUse(peak=peak), first_step_seconds=first)
    return Trial(settings, replace(measured, measurement=held), "safe")
