"""What is printed for trainers builds them. No network is used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.knobs.knob import Plan
from tests.doubles.plans import ONE, TWO
from tests.processes.cli.test_exported import needs, printed, run, started_here


@pytest.mark.torch
@needs("lightning")
@pytest.mark.parametrize("plan", [ONE, TWO])
def test_lightning_builds_its_trainer(plan: Plan, tmp_path: Path) -> None:
    show = """
from torch.utils.data import DataLoader
loader = DataLoader([1], **loader_arguments)
print(trainer.num_devices, trainer.precision, torch.get_num_threads(), loader.batch_size, loader.prefetch_factor)
"""
    wanted = plan.settings
    precision = "bf16-mixed" if wanted.precision == "bf16" else "32-true"
    shown = run([sys.executable, "-c", f"{printed('lightning', plan)}\n{show}"], tmp_path).splitlines()[-1]
    expected = (wanted.processes, precision, wanted.threads, wanted.batch_size, wanted.prefetch_factor)
    assert shown == " ".join(map(str, expected))


@pytest.mark.torch
@needs("transformers")
@needs("accelerate")
@pytest.mark.parametrize("plan", [ONE, TWO], ids=["one", "two"])
def test_transformers_builds_its_arguments(plan: Plan, tmp_path: Path) -> None:
    show = """
with open(f"rank{arguments.process_index}", "w") as file:
    print(arguments.world_size, arguments.train_batch_size, arguments.bf16, file=file)
    print(arguments.dataloader_prefetch_factor, arguments.device.type, torch.get_num_threads(), file=file)
"""
    (tmp_path / "train.py").write_text(printed("transformers", plan) + show)
    run(["sh", "-euc", started_here(plan.command.replace("python ", f"{sys.executable} "))], tmp_path)
    wanted = plan.settings
    first = f"{wanted.processes} {wanted.batch_size} {wanted.precision == 'bf16'}"
    second = f"{wanted.prefetch_factor} cpu {wanted.threads}"
    for rank in range(wanted.processes):
        assert (tmp_path / f"rank{rank}").read_text() == f"{first}\n{second}\n"
