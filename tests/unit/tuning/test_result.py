"""What a run knows becomes its profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.knobs.knob import LEVELS, Context
from autotune.knobs.table import KNOB_NAMES
from autotune.profiles import file as profiles
from autotune.profiles.format import LevelResult, Profile, machine_type
from autotune.search.protocol import Observation
from autotune.stats.decide import SAME, UNREACHED
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed, Outcome
from autotune.stats.proof import Proof, Round
from autotune.tuning import result
from autotune.tuning.options import Options
from autotune.tuning.state import RunState
from benchmarks.simulation.simulator import context, inventory

MACHINE = replace(inventory(4, 4), gpus=())
CONTEXT = context(MACHINE, 32)
OWN = CONTEXT.baseline
OTHER = OWN.but(interop_threads=OWN.interop_threads + 1)


def concluded(
    state: RunState,
    said: Context = CONTEXT,
    level: str | None = None,
    warnings: Sequence[str] = (),
    partial: bool = False,
) -> Profile:
    """The profile of a run that knows ``state``."""
    return result.profile_of(
        state,
        (result.partial_results if partial else result.proven_results)(state, LEVELS),
        said,
        Options().spaces(said)["max"].left_out,
        recommended=level,
        seconds=1.0,
        warnings=warnings,
        partial=partial,
    )


class TestNotes:
    """What is said of a level that has no contender for the proof."""

    def note(self, *rates: float, raced: bool = False) -> str:
        state = RunState(OWN)
        for rate, settings in zip(rates, (OWN, OTHER), strict=False):
            state.add(Observation(settings, _completed(rate), "safe"))
        state.raced = {OWN, OTHER} if raced else set()
        return result.proven_results(state, LEVELS)["safe"].note

    def test_nothing_tried_but_your_own_settings_tells_nothing(self) -> None:
        assert self.note(100.0) == result.OWN_ONLY

    def test_a_level_with_only_your_own_settings_does_not_hide_trials_of_another(self) -> None:
        state = RunState(OWN)
        for rate, settings, level in ((100.0, OWN, "safe"), (90.0, OTHER, "safe"), (99.0, OWN, "amp")):
            state.add(Observation(settings, _completed(rate), level))
        assert result.proven_results(state, LEVELS)["amp"].note == result.NOT_TRIED["amp"]

    @pytest.mark.parametrize(
        ("tried", "note"),
        [
            (lambda: _completed(90.0), "no gain in 1 trial: nothing that was tried is faster than your settings"),
            (lambda: Crashed("SIGSEGV", ""), result.ALL_FAILED),
            (None, result.UNREACHED),
        ],
    )
    def test_trials_of_higher_levels_say_nothing_of_safe(self, tried: Callable[[], Outcome] | None, note: str) -> None:
        state = RunState(OWN)
        state.add(Observation(OWN, _completed(100.0), "safe"))
        if tried is not None:
            state.add(Observation(OTHER, tried(), "safe"))
        state.add(Observation(OTHER.but(precision="bf16"), _completed(300.0), "amp"))
        assert result.proven_results(state, LEVELS)["safe"].note == note

    @pytest.mark.parametrize("rate", [90.0, 101.0, 104.0])
    def test_no_faster_in_trials_is_no_gain_and_says_in_how_many(self, rate: float) -> None:
        assert self.note(100.0, rate) == "no gain in 1 trial: nothing that was tried is faster than your settings"

    def test_faster_in_trials_by_less_than_noise_is_no_answer(self) -> None:
        assert self.note(100.0, 200.0) == result.NOISY

    def test_a_race_tells_more_than_trials(self) -> None:
        assert self.note(100.0, 200.0, raced=True).startswith("no gain in 1 trial and a race: ")

    def test_where_all_failed_nothing_is_known(self) -> None:
        state = RunState(OWN)
        state.add(Observation(OWN, _completed(100.0), "safe"))
        state.add(Observation(OTHER, Crashed("SIGSEGV", ""), "safe"))
        assert result.proven_results(state, LEVELS)["safe"].note == result.ALL_FAILED

    @pytest.mark.parametrize(
        ("proven", "note"), [(1.5, result.NOISY), (2.1, "no gain from mixed precision in 1 trial")]
    )
    def test_a_lucky_trial_of_a_lower_level_hides_no_other_level(self, proven: float, note: str) -> None:
        """The proof shows how fast the lower level really is."""
        state = RunState(OWN, chosen={"safe": OTHER})
        for rate, settings in ((100.0, OWN), (220.0, OTHER), (210.0, OTHER.but(precision="bf16"))):
            state.add(Observation(settings, _completed(rate), "safe" if settings in (OWN, OTHER) else "amp"))
        state.rounds = [Round(each, {"baseline": 100.0, "safe": 100.0 * proven}) for each in (1, 2, 3, 4)]
        assert result.proven_results(state, LEVELS)["amp"].note.startswith(note)

    def test_a_contender_that_only_a_higher_level_has_tried_is_judged_by_its_proof(self) -> None:
        state = RunState(OWN, chosen={"safe": OTHER})
        state.add(Observation(OWN, _completed(100.0), "safe"))
        state.add(Observation(OTHER, _completed(120.0), "amp"))
        state.rounds = [Round(each, {"baseline": 100.0, "safe": 100.0}) for each in (1, 2, 3, 4)]
        assert result.proven_results(state, ["safe"])["safe"].note == SAME["safe"]


class TestProfile:
    def made(self, history: Sequence[Observation] = ()) -> Profile:
        state = RunState(OWN)
        for observation in history:
            state.add(observation)
        return concluded(state, warnings=["the baseline is your settings without loader workers"])

    def test_holds_machine_task_and_baseline(self) -> None:
        made = self.made([Observation(OWN, _completed(100.0), "safe")])
        assert made.key == machine_type(MACHINE).key
        assert made.target.name == "simulated"
        assert (made.baseline, made.baseline_rate) == (OWN, pytest.approx(100.0))
        assert tuple(made.levels) == LEVELS
        assert made.evidence.trials == 1
        assert made.evidence.warnings == ("the baseline is your settings without loader workers",)

    def test_failures_name_what_was_changed(self) -> None:
        changed = OWN.but(compile="default", num_workers=2)
        history = [
            Observation(OWN, _completed(100.0), "safe"),
            Observation(changed, Crashed("SIGSEGV", "long log"), "safe"),
        ]
        (failure,) = self.made(history).evidence.failures
        assert (failure.kind, failure.reason) == ("crashed", "SIGSEGV")
        assert failure.changed == {"compile": "default", "num_workers": 2, "prefetch_factor": 2}

    def test_what_was_not_offered_has_reasons(self) -> None:
        offered = self.made().evidence.not_offered
        assert {item.knob for item in offered} <= set(KNOB_NAMES)
        assert any(item.knob == "pin_memory" and "accelerator" in item.reason for item in offered)
        assert all(item.reason for item in offered)

    @pytest.mark.parametrize(
        ("current", "level", "recommended"),
        [
            ({}, None, "max"),
            ({"batch_size": 32}, None, "amp"),
            ({}, "safe", "safe"),
            ({"batch_size": 32}, "max", "max"),
        ],
    )
    def test_a_stated_batch_size_is_kept_unless_asked_otherwise(
        self, current: dict[str, int], level: str | None, recommended: str
    ) -> None:
        said = replace(CONTEXT, task=replace(CONTEXT.task, current=current))
        assert concluded(RunState(OWN), said, level).recommended == recommended

    def test_what_only_repeats_a_lower_level_is_not_recommended(self) -> None:
        faster = OWN.but(num_workers=2)
        safe = LevelResult(faster, 130.0, Proof(1.3, 1.2, 1.4, 0.95, 5), proven=True)
        results = {"safe": safe, "amp": replace(safe, note=UNREACHED), "max": replace(safe, note=UNREACHED)}
        said = replace(CONTEXT, task=replace(CONTEXT.task, current={"batch_size": 32}))
        made = result.profile_of(
            RunState(OWN), results, said, (), recommended=None, seconds=1.0, warnings=(), partial=False
        )
        assert made.recommended == "safe"

    def test_partial_profiles_can_be_written_and_read(self, tmp_path: Path) -> None:
        """L06: infinity in an unproven interval must not spoil the file."""
        state = RunState(OWN)
        state.add(Observation(OWN, _completed(100.0), "safe"))
        state.add(Observation(OWN.but(num_workers=1), _completed(150.0), "safe"))
        state.chosen["safe"] = OWN.but(num_workers=1)
        made = concluded(state, partial=True)
        path = profiles.write(tmp_path / "partial.yaml", made)
        read = profiles.read(path)
        assert read.evidence.partial
        assert read.level("safe").settings == OWN.but(num_workers=1)
        assert not read.level("safe").proven


class TestCeiling:
    @pytest.mark.parametrize(
        ("gflops", "flops", "expected"),
        [
            ({"fp32": 100.0, "bf16": 400.0}, 1e6, (100.0, 400.0, 1e6)),
            ({"fp32": 100.0}, 1e6, (100.0, 0.0, 1e6)),
            ({"fp32": 100.0}, 0.0, None),
            ({}, 1e6, None),
        ],
    )
    def test_needs_both_the_machines_rate_and_the_tasks_work(
        self, gflops: dict[str, float], flops: float, expected: tuple[float, ...] | None
    ) -> None:
        found = result.ceiling(gflops, flops)
        assert (None if found is None else tuple(vars(found).values())) == expected


class TestBatchNorm:
    @pytest.mark.parametrize(
        ("has", "sizes", "words"),
        [
            (True, [32, 16, 8], "BatchNorm normalises over 8 or 16 samples instead of 32"),
            (True, [32, 32], None),
            (False, [16], None),
        ],
    )
    def test_another_share_of_the_batch_is_said(self, has: bool, sizes: list[int], words: str | None) -> None:
        results = {str(k): SimpleNamespace(settings=OWN.but(batch_size=size)) for k, size in enumerate(sizes)}
        lines = list(result._normalisation(_normalising(has), results))  # type: ignore[arg-type]
        assert [line[: len(words or "")] for line in lines] == ([words] if words else [])

    def test_replicas_share_a_batch_too(self) -> None:
        results = {"safe": SimpleNamespace(settings=OWN.but(batch_size=32, data_parallel=True))}
        (line,) = result._normalisation(_normalising(True), results)  # type: ignore[arg-type]
        assert line.startswith("BatchNorm normalises over 8 samples instead of 32; --fix data_parallel=False")


def test_what_data_parallel_costs_is_said_against_processes_that_are_alike() -> None:
    state = RunState(OWN)
    tried = {
        OWN: 100.0,
        OWN.but(processes=4, batch_size=8, backend="nccl"): 300.0,
        OWN.but(processes=4, batch_size=8, backend="nccl", precision="bf16"): 900.0,
    }
    for settings, rate in tried.items():
        state.add(Observation(settings, _completed(rate), "safe"))
    assert list(result._replication(state)) == []
    state.add(Observation(OWN.but(data_parallel=True, batch_size=32), _completed(150.0), "safe"))
    (line,) = result._replication(state)
    assert line.startswith("torch.nn.DataParallel reached 0.50x of the rate of 4 processes")


def _normalising(has_batch_norm: bool) -> Context:
    """A baseline of 32 samples on four GPUs."""
    found = context(inventory(8, 8, gpus=4), 32)
    return replace(found, task=replace(found.task, has_batch_norm=has_batch_norm))


def _completed(rate: float) -> Completed:
    return Completed(
        measurement=Measurement((Block(round(1000 * rate), 1000.0, max(1, round(1000 * rate / 64))),)), seconds=1.0
    )


@pytest.mark.parametrize(("rate", "doubted"), [(9.0, False), (173.09, True)])
def test_a_gain_above_what_is_possible_is_doubted_aloud(rate: float, doubted: bool) -> None:
    """Seen beside a load of 12 on two CPUs: 173.09x of settings that differ in one knob."""
    rounds = [Round(generation, {"baseline": 100.0, "safe": 100.0 * rate}) for generation in range(12)]
    state = RunState(OWN, chosen={"safe": OTHER}, rounds=rounds)
    state.add(Observation(OWN, _completed(100.0), "safe"))
    state.add(Observation(OTHER, _completed(100.0 * rate), "safe"))
    found = concluded(state)
    assert found.levels["safe"].proven
    assert any("do not believe" in warning for warning in found.evidence.warnings) is doubted
