from __future__ import annotations

from unittest import mock

import torch
from autotune.runtime.applier import Training
from autotune.runtime.appliers.cudnn import CudnnBenchmark

GPU = Training(None, None, torch.device("cuda"))


def test_deterministic_mode_keeps_cudnn_from_benchmarking() -> None:
    with mock.patch("torch.are_deterministic_algorithms_enabled", return_value=True):
        assert "deterministic" in (CudnnBenchmark(True, GPU).start() or "")


def test_it_is_put_back() -> None:
    before = torch.backends.cudnn.benchmark
    switch = CudnnBenchmark(True, GPU)
    assert switch.start() is None
    assert torch.backends.cudnn.benchmark
    switch.undo()
    assert torch.backends.cudnn.benchmark is before
