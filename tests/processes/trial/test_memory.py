"""What a trial holds is measured: what the batch does not change, its peak, and its loader workers."""

from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.judge import judge
from autotune.trial.parent.runner import Timeouts
from tests.processes.trial.running_scripts import running_task
from tests.slow.harness import MLP

pytestmark = pytest.mark.torch
MIB = 2**20
TASK = MLP.replace("    inputs, targets = batch", "    inputs, targets = batch\n    torch.zeros(256, 2**18).fill_(1.0)")


def test_a_peak_within_a_step_is_seen_and_workers_are_counted(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(TASK)
    with running_task(tmp_path / "model.py") as runner:
        spec = TrialSpec(settings=Settings(threads=1, batch_size=64, num_workers=1), max_seconds=0.3)
        measured = judge(runner.run(spec, Timeouts(starting=60.0, stepping=60.0))).measurement
    assert measured is not None
    held = measured.memory
    assert 256 * MIB <= held.peak - held.fixed < 400 * MIB
    assert 5 * MIB < held.workers < 300 * MIB
    assert held.host(2) == 2 * (held.peak + held.workers)
