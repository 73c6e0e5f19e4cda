"""Scripts that are written for a launcher: started without one they are started as torchrun starts one process."""

from pathlib import Path

import pytest

from autotune.knobs.stated import baseline_settings
from autotune.stats.outcome import Completed, TimedOut
from autotune.trial.parent.runner import STARTED_AGAIN
from autotune.trial.parent.several_processes import OWN_NUMBER
from autotune.trial.parent.trial_bench import TrialBench
from tests.processes.scripts import corpus
from tests.processes.scripts.corpus import PLAIN, added, changed
from tests.processes.trial.running_scripts import here, running

pytestmark = pytest.mark.torch
DDP = changed(
    corpus.TORCHRUN,
    ('steps, world = int(sys.argv[1]), int(os.environ.get("WORLD_SIZE", "1"))', "steps, world = 10**6, 2\n    {asks}"),
)
SLOW_IF_PASSIVE = changed(
    PLAIN,
    added("import torch\n", "import os\nimport time\ntime.sleep(1000 if 'OMP_WAIT_POLICY' in os.environ else 0)"),
    ("default=200", "default=100_000"),
)


@pytest.mark.parametrize("asks", ['rank = int(os.environ["RANK"])', 'rank = int(os.getenv("LOCAL_RANK"))', ""])
def test_a_script_that_needs_a_rank_is_started_as_torchrun_starts_one(asks, tmp_path, monkeypatch) -> None:
    with running(DDP.format(asks=asks), tmp_path, monkeypatch) as runner:
        facts = runner.describe(steps=False)
        assert facts.ranked
        assert facts.warnings[0] == STARTED_AGAIN
        if "environ" not in asks:
            return
        baseline = baseline_settings(facts, here())
        bench = TrialBench(runner, baseline)
        assert isinstance(bench.measure(baseline, 0.0, runner.deadline), Completed)
        with bench.start_replicate({"one": baseline, "other": baseline}) as replicate:  # two ports at once
            assert set(replicate.round(0.1)) == {"one", "other"}


TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node=2")


@pytest.mark.parametrize(
    ("script", "batch"),
    [(DDP.format(asks='rank = int(os.environ["RANK"])'), 64), ("ddp_shares_batch", 32)],
    ids=["a batch per process", "a batch that is divided"],
)
def test_the_users_launch_line_is_the_baseline(script, batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(script, tmp_path, monkeypatch, launcher=TORCHRUN) as runner:
        facts = runner.describe()
        assert (facts.ranked, facts.why_not_several, facts.warnings) == (True, OWN_NUMBER, ())
        baseline = baseline_settings(facts, here())
        assert (baseline.processes, baseline.threads, baseline.global_batch) == (2, 1, batch)
        assert baseline.backend == "gloo"
        outcome = TrialBench(runner, baseline).measure(baseline, 0.0, runner.deadline)
        assert isinstance(outcome, Completed), outcome.reason
        steps = sum(block.steps for block in outcome.measurement.blocks)
        assert sum(block.items for block in outcome.measurement.blocks) == steps * batch


@pytest.mark.parametrize(
    ("script", "launcher", "words"),
    [
        ("plain_loop", TORCHRUN, "nothing that the script has loaded makes a process group"),
        ("torchrun_style", ("mpiexec", "-n", "2", "python"), "trials do not start processes by mpiexec yet"),
    ],
)
def test_a_line_whose_processes_cannot_be_measured_is_tuned_as_one(
    script: str, launcher: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(script, tmp_path, monkeypatch, launcher=launcher) as runner:
        facts = runner.describe()
    assert facts.warnings[0].startswith(f"your launch line starts 2 processes, but what was measured is one: {words}")
    assert "processes" not in facts.current
    assert facts.why_not_several == OWN_NUMBER


def test_a_start_that_takes_too_long_rejects_that_trial_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process must start with runs the script from its start again, which may take longer."""
    monkeypatch.setattr("autotune.trial.parent.runner.USUAL_PATIENCE", 3.0)
    monkeypatch.setattr("autotune.trial.parent.runner.PATIENCE", 0.0)
    with running(SLOW_IF_PASSIVE, tmp_path, monkeypatch) as runner:
        baseline = baseline_settings(runner.describe(steps=False), here())
        bench = TrialBench(runner, baseline, patience=6.0)
        outcome = bench.measure(baseline.but(omp_wait_policy="passive"), 0.0, runner.deadline)
        assert isinstance(outcome, TimedOut)
        assert "no training step within 6 s" in outcome.detail
        assert isinstance(bench.measure(baseline, 0.0, runner.deadline), Completed)
