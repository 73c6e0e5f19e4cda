"""The user's task file, loaded: its parts with the defaults filled in."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import torch
import torch.distributed
import torch.nn.parallel
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from autotune.knobs.baseline import LOADER_FACTS, no_knob
from autotune.knobs.table import KNOB_NAMES


class TaskContractError(TypeError):
    """The task file's functions do not return what the contract says."""


@dataclass
class LoadedTask:
    """The parts of a task file, with the defaults filled in."""

    module: ModuleType
    name: str
    device: str
    dataset: Dataset[Any] | None = field(default=None)

    def build_dataset(self, seed: int) -> Dataset[Any]:
        """The dataset, built once per process and inherited by forked trials."""
        if self.dataset is None:
            seed_everything(seed)
            self.dataset = self.module.build_dataset()
            if not isinstance(self.dataset, Dataset) and not hasattr(self.dataset, "__getitem__"):
                raise TaskContractError(f"build_dataset() must return a Dataset, got {type(self.dataset).__name__}")
        return self.dataset

    def build_model(self, seed: int) -> torch.nn.Module:
        """A new model on the trial's device, with the same initial weights for the same seed."""
        seed_everything(seed)
        model = self.module.build_model()
        if not isinstance(model, torch.nn.Module):
            raise TaskContractError(f"build_model() must return a torch.nn.Module, got {type(model).__name__}")
        return model.to(self.device)

    def build_optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """The user's optimizer, or AdamW(lr=1e-3)."""
        build: Callable[[Any], Any] | None = getattr(self.module, "build_optimizer", None)
        optimizer = build(model.parameters()) if build else torch.optim.AdamW(model.parameters(), lr=1e-3)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TaskContractError(f"build_optimizer() must return an Optimizer, got {type(optimizer).__name__}")
        return optimizer

    def build_loader(
        self, batch_size: int, seed: int, num_workers: int = 0, persistent_workers: bool = False
    ) -> DataLoader[Any]:
        """A plain loader of the global batch, shuffled by the process's random numbers.

        Its workers live as long as the user's own: the runtime keeps a loader's ``persistent_workers``.
        """
        dataset = self.build_dataset(seed)
        return DataLoader(
            dataset,
            batch_size=batch_size,
            shuffle=not isinstance(dataset, IterableDataset),
            num_workers=num_workers,
            collate_fn=getattr(self.module, "collate_fn", None),
            persistent_workers=persistent_workers,
        )

    @property
    def collate(self) -> Callable[[list[Any]], Any]:
        """What makes a batch of samples."""
        return getattr(self.module, "collate_fn", None) or default_collate

    def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        """The user's loss of one batch."""
        loss = self.module.compute_loss(model, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise TaskContractError(f"compute_loss(model, batch) must return a scalar Tensor, got {shape}")
        return loss

    def counter(self) -> Callable[[Any], int]:
        """How many items a batch holds: the user's count, else samples."""
        return getattr(self.module, "count_items", None) or batch_length

    def current(self) -> dict[str, Any]:
        """``CURRENT``, checked for names and plain values."""
        current = getattr(self.module, "CURRENT", {})
        if not isinstance(current, dict):
            raise TaskContractError(f"CURRENT must be a dict, got {type(current).__name__}")
        for key, value in current.items():
            if key not in (*KNOB_NAMES, *LOADER_FACTS):
                raise TaskContractError(no_knob(key))
            if not isinstance(value, bool | int | str | None):
                raise TaskContractError(f"CURRENT[{key!r}] must be a plain value, got {type(value).__name__}")
        return dict(current)


def load(path: Path) -> LoadedTask:
    """Import a task file as ``python FILE`` would see it: its own folder first on the module path."""
    warm_lazy_imports()
    sys.path[0] = str(path.parent)
    root = str(Path(__file__).resolve().parents[3])
    if root not in sys.path:
        sys.path.append(root)
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"task_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    device = "cuda" if _has_cuda() else "cpu"
    return LoadedTask(module, path.stem, device)


def _has_cuda() -> bool:
    """Counted through NVML where possible (``PYTORCH_NVML_BASED_CUDA_CHECK``): a context would forbid forking."""
    return torch.cuda.device_count() > 0


def warm_lazy_imports() -> None:
    """Touch what torch imports on first use (an optimizer's step: 0.5 s), so that trials do not."""
    weight = torch.zeros(2, requires_grad=True)
    weight.grad = torch.zeros(2)
    torch.optim.AdamW([weight], lr=0.0).step()


def seed_everything(seed: int) -> None:
    """The same seed for torch, numpy and random."""
    torch.manual_seed(seed)
    numpy.random.seed(seed % 2**32)
    random.seed(seed)


def run_eagerly() -> None:
    """Run what the user's code has compiled as it is written: compiling takes longer than a few steps are worth."""
    if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):  # from torch 2.6 on
        torch.compiler.set_stance("force_eager")


def batch_length(batch: Any) -> int:
    """Samples of a batch: the first dimension of the first tensor found in it."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    values = list(batch.values()) if isinstance(batch, dict) else batch
    if isinstance(values, list | tuple) and values:
        nested = isinstance(values[0], torch.Tensor | list | tuple | dict)
        return batch_length(values[0]) if nested else len(values)
    return 1
