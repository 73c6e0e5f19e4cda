"""The study on disk, and the search as an Optuna sampler."""

from __future__ import annotations

import optuna
import pytest
from hypothesis import given

from autotune.knobs.settings import Settings
from autotune.search.protocol import Observation
from autotune.search.records import KINDS, outcome_from_dict, outcome_to_dict
from autotune.search.sampler import StagedSampler, StagedSearch
from autotune.search.study import Study, distributions, open_study, parameters
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, NotApplied, OutOfMemory
from benchmarks.simulation import machines
from benchmarks.simulation.simulator import Bench
from tests.strategies import settings as any_settings

MEASURED = Completed(
    measurement=Measurement((Block(64, 0.5, 1), Block(64, 0.25, 1, stolen=0.5)), steady=False),
    losses=(1.5, 0.5),
    seconds=2.0,
    notes=("said",),
)


@pytest.mark.parametrize("outcome", [MEASURED, OutOfMemory("r", "d", "shm"), NotApplied("r", "d", "allocator")])
def test_outcomes_survive_the_journal(outcome, tmp_path):
    study = open_study(tmp_path / "study.log")
    observation = Observation(Settings(batch_size=8), outcome, "safe")
    study.record(observation)
    assert open_study(tmp_path / "study.log").observations() == [observation]


def test_every_outcome_has_a_kind_that_reads_back():
    assert all(outcome_from_dict(outcome_to_dict(kind(reason="why"))) == kind(reason="why") for kind in KINDS.values())


def test_long_details_keep_their_end():
    kept = outcome_to_dict(KINDS["crashed"](detail="x" * 10_000 + "the end"))["detail"]
    assert len(kept) == 2000
    assert kept.endswith("the end")


def test_failures_are_infeasible_values_not_failed_trials():
    study, machine = open_study(), machines.mlp()
    search = StagedSearch(study, machine.space("max"), machine.context.baseline)
    search.tell(search.ask(), OutOfMemory("device memory ran out"))
    (trial,) = study.optuna.trials
    assert trial.state is optuna.trial.TrialState.COMPLETE
    assert trial.value == 0.0
    assert (trial.user_attrs["kind"], trial.user_attrs["reason"]) == ("out-of-memory", "device memory ran out")
    assert (trial.user_attrs["level"], trial.user_attrs["stage"]) == ("max", "baseline")


def test_killed_in_mid_trial_then_resumed_repeats_nothing(tmp_path):
    """The trial that was running is proposed again, finished ones are not."""
    machine, path = machines.mlp(), tmp_path / "study.log"
    bench, space, start = Bench(machine), machine.space(), machine.context.baseline
    first = StagedSearch(open_study(path), space, start)
    for _ in range(4):
        proposal = first.ask()
        first.tell(proposal, bench.run(proposal.settings))
    interrupted = first.ask()

    study = open_study(path)
    assert len(study.observations()) == 4
    second = StagedSearch(study, space, start)
    assert second.ask() == interrupted
    states = [trial.state.name for trial in study.optuna.trials]
    assert states == ["COMPLETE"] * 4 + ["FAIL", "RUNNING"]


@given(any_settings())
def test_settings_are_their_parameters(settings):
    values, kinds = parameters(settings), distributions(settings)
    assert Settings(**values) == settings
    assert values.keys() == kinds.keys()
    assert all(kinds[name]._contains(kinds[name].to_internal_repr(value)) for name, value in values.items())


def test_sampler_drives_an_ordinary_study():
    machine = machines.images()
    bench, space = Bench(machine), machine.space()
    sampler = StagedSampler(space, machine.context.baseline)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    recorded = Study(study)
    for _ in range(8):
        proposal = sampler.proposal(study)
        trial = study.ask(distributions(proposal.settings))
        settings = Settings(**trial.params)
        assert settings == proposal.settings
        assert settings in space
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        recorded.record(Observation(settings, bench.run(settings), "safe"))
    tried = [observation.settings for observation in recorded.observations()]
    rates = list(map(machine.rate, tried))
    assert len(set(tried)) == 8
    assert rates[0] == machine.rate(machine.context.baseline)
    assert max(rates) >= 0.95 * machine.optimum()


def test_trials_of_the_search_are_what_the_sampler_gave():
    machine = machines.images()
    study = open_study()
    search = StagedSearch(study, machine.space(), machine.context.baseline)
    for _ in range(4):
        proposal = search.ask()
        (running,) = study.optuna.get_trials(states=(optuna.trial.TrialState.RUNNING,))
        assert Settings(**running.params) == proposal.settings
        assert running.system_attrs == {}, "sampled, not enqueued"
        search.tell(proposal, Bench(machine).run(proposal.settings))
    assert [o.settings for o in study.observations()] == [Settings(**t.params) for t in study.optuna.trials]


def test_without_a_proposal_the_sampler_repeats_the_start():
    machine = machines.images()
    sampler = StagedSampler(machine.space(), machine.context.baseline)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    Study(study).record(Observation(machine.context.baseline, OutOfMemory("full"), "safe"))
    assert sampler.proposal(study) is None
    assert Settings(**study.ask(distributions(machine.context.baseline)).params) == machine.context.baseline
