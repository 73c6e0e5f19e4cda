"""Every test leaves the process as it found it: its switches, and PyTorch's own classes and modules."""

import logging
import multiprocessing
import os
import resource
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer, optimizer
from torch.utils.data import DataLoader, _utils

from autotune.knobs import compile as compiling

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # threads of its pool would outlive a test

OURS = ("GLOO_", "NCCL_", "OMP_", "MKL_", "AUTOTUNE_", "PYTORCH_", "CUDA_", "MASTER_", "LD_")
"""Variables that the runtime might be tempted to set; PyTorch sets others by itself."""
OWNERS = (
    *(DataLoader, Optimizer, nn.Module, torch.autograd, torch.jit, dist, dist.distributed_c10d, logging.Logger),
    _utils.fetch._MapDatasetFetcher,
)
FUNCTIONS = ("set_num_threads", "set_num_interop_threads", "compile", "manual_seed", "set_float32_matmul_precision")
"""Of the module `torch`, which imports others on demand."""
PYTORCHS_OWN = {"__abstractmethods__", "__annotations_cache__", "_backend", "_default_pg_init_method"}
"""Names that PyTorch and Python change themselves: a process group that has come and gone leaves traces."""
HOOKS = (
    *(value for value in vars(nn.modules.module).values() if isinstance(value, dict)),
    optimizer._global_optimizer_pre_hooks,
    optimizer._global_optimizer_post_hooks,
)


def process_state() -> dict[str, Any]:
    """Return everything process-wide that the runtime may touch."""
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
        "group": dist.is_initialized(),
        "environment": {k: v for k, v in os.environ.items() if k.startswith(OURS)},
        "hooks": [dict(hooks) for hooks in HOOKS],
        "functions": [getattr(torch, name) for name in FUNCTIONS],
        "warn": warnings.warn,
        "classes": [{n: v for n, v in vars(owner).items() if n != "__doc__"} for owner in OWNERS],
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what differs between two states; names that a module has got meanwhile are those of an import."""
    found = [name for name in before if name != "classes" and before[name] != after[name]]
    for owner, old, new in zip(OWNERS, before["classes"], after["classes"], strict=True):
        added = set(new) - set(old) if isinstance(owner, type) else set()
        changed = {name for name, value in old.items() if new.get(name) is not value}
        found += [f"{owner.__name__}.{name}" for name in sorted((added | changed) - PYTORCHS_OWN)]
    return found


@pytest.fixture(scope="session", autouse=True)
def _compiler_is_there() -> None:
    """PyTorch's compiler changes PyTorch itself when it is first used."""
    torch.compile(nn.Linear(1, 1), backend="eager")(torch.ones(1, 1))
    torch._dynamo.reset()


@pytest.fixture(scope="session", autouse=True)
def _loader_workers_are_forked() -> Iterator[None]:
    """Start loader workers as Python did until 3.14, whose own default imports PyTorch in each: 2 to 4 s a worker."""
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.fixture(autouse=True)
def _no_gpu() -> Iterator[None]:
    """The machines of these tests have none."""
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("CUDA_VISIBLE_DEVICES", "")
        yield


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(_no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has a quick compiler, which has compiled nothing yet."""
    DataLoader([0]).__reduce_ex__(2)  # Python remembers what to copy in the class
    before = process_state()
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    torch._dynamo.reset()
    for name in ("WORLD_SIZE", "RANK", "AUTOTUNE_PROFILE", "AUTOTUNE_LEVEL", "AUTOTUNE_DISABLE", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    yield
    monkeypatch.undo()
    torch._dynamo.reset()
    assert differences(before, process_state()) == []
