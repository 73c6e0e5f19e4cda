"""The study on disk, and the search as an Optuna sampler."""

from __future__ import annotations

import optuna
import pytest
from hypothesis import given

from autotune.core.measurement import Block, Measurement
from autotune.core.outcome import Completed, NotApplied, OutOfMemory
from autotune.core.settings import Settings
from autotune.search.protocol import Observation, Proposal
from autotune.search.records import KINDS, outcome_from_dict, outcome_to_dict
from autotune.search.sampler import StagedSampler
from autotune.search.staged import StagedSearch
from autotune.search.study import Study, distributions, open_study, parameters
from autotune.testing import machines
from autotune.testing.simulator import Bench
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
    study.finish(Proposal(observation.settings, "baseline", 0, None, 0.0), observation)
    assert open_study(tmp_path / "study.log").observations() == [observation]


def test_every_outcome_has_a_kind_that_reads_back():
    assert all(outcome_from_dict(outcome_to_dict(kind(reason="why"))) == kind(reason="why") for kind in KINDS.values())


def test_long_details_keep_their_end():
    kept = outcome_to_dict(KINDS["crashed"](detail="x" * 10_000 + "the end"))["detail"]
    assert len(kept) == 2000
    assert kept.endswith("the end")


def test_failures_are_infeasible_values_not_failed_trials():
    study = open_study()
    proposal = Proposal(Settings(batch_size=8), "model", 0, 0.1, 5.0)
    study.begin(proposal, "max")
    study.finish(proposal, Observation(proposal.settings, OutOfMemory("device memory ran out"), "max"))
    (trial,) = study.optuna.trials
    assert trial.state is optuna.trial.TrialState.COMPLETE
    assert trial.value == 0.0
    assert (trial.user_attrs["kind"], trial.user_attrs["reason"]) == ("out-of-memory", "device memory ran out")
    assert (trial.user_attrs["level"], trial.user_attrs["stage"]) == ("max", "model")


def test_killed_in_mid_trial_then_resumed_repeats_nothing(tmp_path):
    """The trial that was running is proposed again, finished ones are not."""
    machine, path = machines.mlp(), tmp_path / "study.log"
    bench, space, start = Bench(machine), machine.space(), machine.context.baseline
    first = StagedSearch(space, open_study(path), start=start)
    for _ in range(4):
        proposal = first.ask()
        first.tell(proposal, bench.run(proposal.settings))
    interrupted = first.ask()

    study = open_study(path)
    assert study.observations() == first.history
    second = StagedSearch(space, study, start=start, history=study.observations())
    assert second.ask() == interrupted
    states = [trial.state.name for trial in study.optuna.trials]
    assert states == ["COMPLETE"] * 4 + ["FAIL", "RUNNING"]


def test_killed_while_a_trial_was_begun_then_resumed(tmp_path):
    """A trial is enqueued first and asked for then: in between, nothing has run."""
    path = tmp_path / "study.log"
    open_study(path).optuna.enqueue_trial(parameters(Settings(batch_size=8)))
    study = open_study(path)
    assert [trial.state.name for trial in study.optuna.trials] == ["FAIL"]
    proposal = Proposal(Settings(batch_size=16), "model", 0, None, 0.0)
    study.begin(proposal, "safe")
    assert study.optuna.trials[-1].params["batch_size"] == 16


@given(any_settings())
def test_settings_are_their_parameters(settings):
    values, kinds = parameters(settings), distributions(settings)
    assert Settings(**values) == settings
    assert values.keys() == kinds.keys()
    assert all(kinds[name]._contains(kinds[name].to_internal_repr(value)) for name, value in values.items())


def test_sampler_drives_an_ordinary_study():
    machine = machines.images()
    bench, space = Bench(machine), machine.space()
    sampler = StagedSampler(space)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    recorded = Study(study)
    for number in range(8):
        trial = study.ask()
        settings = sampler.settings(trial)
        assert settings in space
        recorded.adopt(trial, number, "safe", "model")
        proposal = Proposal(settings, "model", number, None, 0.0)
        recorded.finish(proposal, Observation(settings, bench.run(settings), "safe"))
    rates = [machine.rate(observation.settings) for observation in recorded.observations()]
    assert len({observation.settings for observation in recorded.observations()}) == 8
    assert rates[0] == machine.rate(machine.context.baseline)
    assert max(rates) >= 0.95 * machine.optimum()


def test_sampler_and_search_agree():
    machine = machines.images()
    search = StagedSearch(machine.space(), open_study(), start=machine.context.baseline)
    study = optuna.create_study(direction="maximize", sampler=StagedSampler(machine.space()))
    sampler = study.sampler
    assert isinstance(sampler, StagedSampler)
    assert sampler.settings(study.ask()) == search.ask().settings
