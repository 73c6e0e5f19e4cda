"""Trials of several processes of a script. Which scripts are offered them stands in `tests/processes/scripts`."""

from pathlib import Path
from typing import Any

import pytest

from autotune.knobs.stated import baseline_settings
from autotune.stats.outcome import Completed
from autotune.trial.messages import TrialReport
from autotune.trial.parent.judge import TrialEnd
from autotune.trial.parent.several_processes import shown
from autotune.trial.parent.trial_bench import TrialBench
from tests.doubles.simulation.simulator import context, inventory
from tests.processes.scripts import corpus
from tests.processes.trial.running_scripts import SCRIPTS, here, running
from tests.unit.trial.test_several_processes import ALONE, ranks

pytestmark = pytest.mark.torch


def test_a_trial_of_two_processes_has_the_global_batch_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running("torchrun_style", tmp_path, monkeypatch) as runner:
        facts = runner.describe()
        assert facts.why_not_several is None
        baseline = baseline_settings(facts, here())
        bench = TrialBench(runner, baseline)
        assert isinstance(bench.measure(baseline, 0.0, runner.deadline), Completed)
        two = baseline.but(processes=2, threads=1, batch_size=baseline.batch_size // 2, num_workers=1)
        outcome = bench.measure(two, 0.0, runner.deadline)
        assert isinstance(outcome, Completed), outcome.reason
        steps = sum(block.steps for block in outcome.measurement.blocks)
        assert sum(block.items for block in outcome.measurement.blocks) == steps * baseline.global_batch
        with bench.start_replicate({"baseline": baseline, "two": two}) as replicate:
            assert set(replicate.round(0.2)) == {"baseline", "two"}


def test_processes_that_part_after_the_first_steps_are_no_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running("ddp_parts_later", tmp_path, monkeypatch) as runner:
        baseline = baseline_settings(runner.describe(), here())
        two = baseline.but(processes=2, threads=1, batch_size=baseline.batch_size // 2)
        outcome = TrialBench(runner, baseline).measure(two, 0.0, runner.deadline)
    assert not outcome.measured
    assert "the weights of the ranks differ at the end of the trial" in outcome.reason


def test_what_comes_before_the_rank_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SCRIPTS["torchrun_style"].text
    before = """    begun_in, first = os.getpid(), [float(x) for (x,) in DataLoader(TensorDataset(torch.arange(2.0)))]
    steps, world"""
    after = """    if world > 1 and (begun_in == os.getpid() or first != [0.0, 1.0]):
        raise RuntimeError("begun again")
    rank = dist"""
    changed = corpus.changed(text, ("    steps, world", before), ("    rank = dist", after))
    with running(changed.replace("int(sys.argv[1])", "100_000"), tmp_path, monkeypatch) as runner:
        baseline = baseline_settings(runner.describe(), here())
        two = baseline.but(processes=2, threads=1, batch_size=baseline.batch_size // 2)
        outcome = TrialBench(runner, baseline).measure(two, 0.0, runner.deadline)
    assert outcome.measured, outcome.reason


def ended(text: str | None = None, timed_out: str | None = None, kind: str = "RuntimeError") -> TrialEnd:
    report = TrialReport(error=text, error_type=kind) if text else None
    return TrialEnd(report, rank_codes=(1,), code=1, timed_out=timed_out, seconds=20.0)


@pytest.mark.parametrize(
    ("alone", "both", "words"),
    [
        (ended("no loss"), None, "as one process: RuntimeError: no loss"),
        (ended("it ended early", kind=""), None, "as one process: it ended early"),
        ([ALONE], ended("no NCCL"), "does: RuntimeError: no NCCL"),
        ([ALONE], ended(timed_out="starting"), "not all of them had trained after 20 s"),
        ([ALONE], ended(), "exit code 1"),
        ([ALONE], ranks({"world": 1}, {}), "no process group"),
    ],
)
def test_what_did_not_show_it_is_the_reason(alone: Any, both: Any, words: str) -> None:
    told, facts = {1: alone, 2: both}, context(inventory(), 32).task
    reason = shown(facts, lambda count: told[count]).why_not_several
    assert words in str(reason)
