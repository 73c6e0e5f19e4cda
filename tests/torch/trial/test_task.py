"""Task files in this process: loading, facts, and functions of a session."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from autotune.trial.child import task as loaded_task
from autotune.trial.child.task import copied_bytes, facts, has_convolutions
from autotune.trial.messages import error_report
from tests.slow.harness import MLP

FAULTS = {
    "import": ("import not_a_module\n" + MLP, "ModuleNotFoundError", "No module named 'not_a_module'", True),
    "exit": ("import sys; sys.exit(0)\n" + MLP, "SystemExit", "0", True),
    "dataset": (
        MLP.replace("torch.randn(2048", "torch.rand_n(2048"),
        "AttributeError",
        "module 'torch' has no attribute 'rand_n'",
        True,
    ),
    "model": (MLP.replace("nn.Linear(64, 10)", "Linear(64, 10)"), "NameError", "name 'Linear' is not defined", True),
    "no model": (
        MLP.replace("return nn.Sequential(", "nn.Sequential("),
        "",
        "build_model() must return a torch.nn.Module, got NoneType",
        False,
    ),
    "no dataset": (
        MLP.replace("return TensorDataset", "TensorDataset"),
        "",
        "build_dataset() must return a Dataset, got NoneType",
        False,
    ),
    "number": (MLP + "\nbuild_optimizer = 5\n", "", "build_optimizer must be a function, got int", False),
    "knob": (MLP.replace("num_workers=0", "workers=0"), "", "CURRENT['workers']: no such knob", False),
}
"""Task file, class and words of the error, and whether it is raised in the user's code."""


@pytest.fixture
def task_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A name that nothing else has; what loading does to this process is undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "a_task_of_loading.py"
    sys.modules.pop("a_task_of_loading", None)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_reported_in_the_users_own_words(task_file: Path, name: str) -> None:
    source, kind, words, in_user_code = FAULTS[name]
    task_file.write_text(source)
    with pytest.raises(BaseException) as error, torch.random.fork_rng():
        facts(loaded_task.load(task_file), seed=0)
    frames = error.value.__traceback__
    report = error_report(error.value.with_traceback(frames.tb_next if frames else None))
    assert report.error_type == kind
    assert words in str(report.error)
    assert (f'File "{task_file}"' in report.traceback) == bool(report.traceback) == in_user_code


@pytest.mark.parametrize(
    ("layer", "on_cpu", "on_cuda"),
    [
        (nn.Conv2d(1, 1, 1), True, True),
        (nn.ConvTranspose2d(1, 1, 1), False, True),
        (nn.Conv3d(1, 1, 1), False, True),
        (nn.Conv1d(1, 1, 1), False, False),
        (nn.Linear(1, 1), False, False),
    ],
)
def test_convolutions_count_where_a_knob_acts_on_them(layer: nn.Module, on_cpu: bool, on_cuda: bool) -> None:
    """Memory layout acts on sequences for images only, cuDNN's choice of algorithms on all."""
    model = nn.Sequential(layer, nn.ReLU())
    assert (has_convolutions(model, "cpu"), has_convolutions(model, "cuda")) == (on_cpu, on_cuda)


@pytest.mark.parametrize(
    ("held", "least", "most"),
    [
        ([f"images/{number}.jpg" for number in range(100_000)], 6.0, 9.0),
        ({number: {"label": str(number)} for number in range(20_000)}, 4.0, 8.0),
        (numpy.array([str(number) for number in range(100_000)], dtype=object), 5.0, 9.0),
        ([numpy.zeros(1000) for _ in range(1000)], 0.0, 0.3),  # what arrays hold stays shared
        (numpy.arange(1_000_000), 0.0, 0.01),
        (torch.zeros(1_000_000), 0.0, 0.01),
    ],
    ids=["list", "dicts", "objects", "list of arrays", "array", "tensor"],
)
def test_objects_of_a_data_set_that_workers_copy(held: Any, least: float, most: float) -> None:
    """In units of a million bytes."""
    assert least <= copied_bytes(SimpleNamespace(samples=held)) / 1e6 <= most
