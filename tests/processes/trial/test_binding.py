"""Trials on CPUs of their own, for real: every rank and every worker says where it may run."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.knobs.binding import Affinity, AffinityPlan
from autotune.knobs.settings import Settings
from autotune.stats.outcome import Completed, NotApplied, Outcome
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.judge import judge
from autotune.trial.parent.runner import Runner, Timeouts
from tests.processes.trial.running_scripts import running_task
from tests.slow.harness import MLP

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs: this process may use one, or has no masks"),
]
TIMEOUTS = Timeouts(starting=30.0, stepping=10.0)
SAYS = """
import multiprocessing, os
from pathlib import Path
from torch.utils.data import TensorDataset


class Masks(TensorDataset):
    def __getitem__(self, index):
        if multiprocessing.parent_process() is not None:
            say("worker")
        return super().__getitem__(index)


def say(who):
    rank = os.environ.get("RANK", "0")
    cpus = [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]
    written = OUT.parent / f"{who}{rank}.{os.getpid()}"  # a worker may be ended while it writes
    written.write_text(" ".join(str(cpu) for cpu in sorted(set().union(*cpus))))
    os.replace(written, OUT / f"{who}{rank}")
"""
TASK = SAYS + MLP.replace("    return TensorDataset(", "    return Masks(").replace(
    "batch_size=64, num_workers=0", "num_workers=1"
).replace("    inputs, targets = batch", '    say("rank")\n    inputs, targets = batch')


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("masks")


@pytest.fixture(scope="module")
def runner(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tmp_path_factory.mktemp("task")
    (folder / "masks.py").write_text(f"{TASK}\n\nOUT = Path({str(out)!r})\n")
    with running_task(folder / "masks.py") as runner:
        runner.warm()
        yield runner


def attempt(runner: Runner, settings: Settings, *places: Affinity) -> Outcome:
    runner.setup = replace(runner.setup, binding=lambda _: AffinityPlan(tuple(CPUS), places))
    spec = TrialSpec(settings=settings, min_seconds=0.05, max_seconds=0.1, warmup_seconds=0.2)
    return judge(runner.run(spec, TIMEOUTS))


def masks(out: Path) -> dict[str, str]:
    """What ranks and workers said, and forget it."""
    found = {path.name: path.read_text() for path in out.iterdir()}
    shutil.rmtree(out)
    out.mkdir()
    return found


def test_ranks_have_cpus_of_their_own_with_workers_beside_them_and_the_next_trial_is_free(runner, out) -> None:
    first, second = CPUS[:2]
    wanted = Settings(processes=2, batch_size=4, num_workers=1, binding="cores")
    outcome = attempt(runner, wanted, Affinity((first,), (second,)), Affinity((second,), (first,)))
    assert isinstance(outcome, Completed), outcome
    assert masks(out) == {"rank0": str(first), "worker0": str(second), "rank1": str(second), "worker1": str(first)}
    outcome = attempt(runner, Settings(batch_size=8, num_workers=1))
    assert isinstance(outcome, Completed), outcome
    everywhere = " ".join(map(str, CPUS))
    assert masks(out) == {"rank0": everywhere, "worker0": everywhere}


def test_a_rank_that_does_not_get_its_cpus_is_not_a_result(runner: Runner) -> None:
    wanted = Settings(processes=2, batch_size=4, binding="cores")
    outcome = attempt(runner, wanted, *(Affinity((cpu,), (cpu,)) for cpu in (CPUS[0], 4000)))
    assert isinstance(outcome, NotApplied), outcome
    assert outcome.knob == "binding"
    assert "asked CPUs 4000, threads run on" in outcome.reason
