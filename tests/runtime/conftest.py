"""Every runtime test leaves the process as it found it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from typing import Any

import pytest
import torch

OURS = ("GLOO_", "NCCL_", "OMP_", "MKL_", "AUTOTUNE_", "PYTORCH_", "CUDA_", "MASTER_", "LD_")
"""Variables that the runtime might be tempted to set; PyTorch sets others by itself."""


def process_state() -> dict[str, Any]:
    """Everything process-wide that the runtime may touch."""
    return {
        "threads": torch.get_num_threads(),
        "matmul": torch.get_float32_matmul_precision(),
        "matmul tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn tf32": torch.backends.cudnn.allow_tf32,
        "cudnn benchmark": torch.backends.cudnn.benchmark,
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast type": torch.get_autocast_dtype("cpu"),
        "default type": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "grad": torch.is_grad_enabled(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "group": torch.distributed.is_initialized(),
        "environment": {k: v for k, v in os.environ.items() if k.startswith(OURS)},
    }


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = process_state()
    for name in ("WORLD_SIZE", "RANK", "AUTOTUNE_PROFILE", "AUTOTUNE_LEVEL", "AUTOTUNE_DISABLE", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    yield
    monkeypatch.undo()
    assert process_state() == before
