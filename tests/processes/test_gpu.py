"""What only a real GPU can show. Skipped where there is none; run wherever there is one."""

from pathlib import Path

import pytest
import torch

from autotune.knobs.settings import Settings
from autotune.probes import inventory
from autotune.stats.outcome import Completed
from autotune.trial.parent.trial_bench import TrialBench
from tests.processes.trial.running_scripts import running_task
from tests.slow.harness import MLP

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

LAYERS = "nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)"
CONVOLUTIONS = (
    MLP.replace("nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)", LAYERS)
    .replace("torch.randn(2048, 32,", "torch.randn(2048, 3, 32, 32,")
    .replace("inputs.argmax(dim=1)", "torch.arange(2048)")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(CONVOLUTIONS)
    return tmp_path


def test_the_probe_agrees_with_torch() -> None:
    gpus = inventory.probe().gpus
    assert len(gpus) == torch.cuda.device_count()
    for gpu in gpus:
        properties = torch.cuda.get_device_properties(gpu.index)
        assert gpu.capability == (properties.major, properties.minor)
        assert abs(gpu.memory_total - properties.total_memory) < 0.05 * properties.total_memory


@pytest.mark.parametrize(
    "settings",
    [
        Settings(threads=1, batch_size=64),
        Settings(threads=1, batch_size=64, pin_memory=True, num_workers=2),
        Settings(threads=1, batch_size=64, channels_last=True, cudnn_benchmark=True, optimizer_impl="fused"),
        Settings(threads=1, batch_size=64, precision="tf32"),
        Settings(threads=1, batch_size=64, precision="bf16"),
        Settings(threads=1, batch_size=64, precision="fp16"),
        Settings(threads=1, batch_size=64, num_workers=2),
    ],
    ids=lambda settings: ",".join(f"{k}={v}" for k, (v, _) in settings.difference(Settings(batch_size=64)).items()),
)
def test_trials_run_forked_on_the_device(folder: Path, settings: Settings) -> None:
    with running_task(folder / "model.py") as runner:
        facts = runner.describe()
        bench = TrialBench(runner, Settings(threads=1, batch_size=64))
        bench.measure(bench.baseline, 0.0, float("inf"))
        outcome = bench.measure(settings, 0.0, float("inf"))
        assert runner.no_fork_reason is None
    assert facts.device == "cuda"
    assert isinstance(outcome, Completed), outcome
