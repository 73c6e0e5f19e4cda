"""The user's task file: loaded, with the defaults filled in, and the facts that the tuner reads from it."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import math
import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy
import torch
import torch.distributed
import torch.nn.parallel
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from autotune import devices
from autotune.knobs import convolutions
from autotune.knobs.compile import tensor_shapes
from autotune.knobs.convolutions import CUDNN_BENCHMARK
from autotune.knobs.optimizer_impl import offered_impls
from autotune.knobs.settings import KNOB_NAMES
from autotune.knobs.stated import DEFAULT_BATCH, LOADER_FACTS, no_knob
from autotune.knobs.task_facts import Fingerprint, TaskFacts
from autotune.runtime import fingerprints
from autotune.runtime.loaders import length
from autotune.runtime.shards import shard
from autotune.runtime.sharing import mover
from autotune.trial.child.first_steps import norm
from autotune.trial.messages import TaskContractError
from autotune.trial.target import FUNCTIONS

LOOKED_AT = 8
"""Samples whose size is read."""
BATCHES, MOST_SAMPLES = 4, 32
LOOKED_INTO, DEEPEST, PAGE = 500, 6, 4096
"""Items of a long container whose size is read, how deep they may lie, and the bytes of a page."""
SECONDS = 3.0
"""A batch is not begun later than this."""
TOLERANCE = 1e-2
"""Relative L2 error of the whole gradient that still counts as the same. Means over samples reach 1e-6 in fp32; a mean
over tokens whose lengths vary by a quarter gives 1.5e-2 and more."""
NOISE_FACTOR = 5.0
"""An error must be more than this many times what other random numbers change."""
CHANGED = (
    "the loss of a batch is not the mean of its samples' losses (split, its gradient is off by {:.0%}): another number"
    " of processes would change training; a mean over samples would not"
)
RANDOM = "the loss draws random numbers, or changes from call to call"
NOTHING = "the gradient is zero or not finite"
UNFINISHED = "the step failed, or takes too long"
UNCHECKED = "not checked whether the loss is a mean over samples, which several processes rely on: {}"

Gradient = list[Tensor | None]


@dataclass
class LoadedTask:
    """The parts of a task file, with the defaults filled in."""

    module: ModuleType
    name: str
    device: str
    dataset: Dataset[Any] | None = None

    def build_dataset(self, seed: int) -> Dataset[Any]:
        """Return the dataset, built once per process and inherited by forked trials."""
        if self.dataset is None:
            seed_everything(seed)
            self.dataset = self.module.build_dataset()
            if not isinstance(self.dataset, Dataset) and not hasattr(self.dataset, "__getitem__"):
                raise TaskContractError(f"build_dataset() must return a Dataset, got {type(self.dataset).__name__}")
        return self.dataset

    def build_model(self, seed: int) -> nn.Module:
        """Return a new model on the trial's device, with the same initial weights for the same seed."""
        seed_everything(seed)
        model = self.module.build_model()
        if not isinstance(model, nn.Module):
            raise TaskContractError(f"build_model() must return a torch.nn.Module, got {type(model).__name__}")
        return model.to(self.device)

    def build_optimizer(self, model: nn.Module) -> Optimizer:
        """Return the user's optimizer, or AdamW(lr=1e-3)."""
        build: Callable[[Any], Any] | None = getattr(self.module, "build_optimizer", None)
        optimizer = build(model.parameters()) if build else torch.optim.AdamW(model.parameters(), lr=1e-3)
        if not isinstance(optimizer, Optimizer):
            raise TaskContractError(f"build_optimizer() must return an Optimizer, got {type(optimizer).__name__}")
        return optimizer

    def build_loader(self, batch_size: int, seed: int, *, workers: bool = True) -> DataLoader[Any]:
        """Return a plain loader of the global batch, shuffled by the process's random numbers. ``workers``: with those
        that the user has today; the runtime changes their number, or reports why not."""
        dataset, current = self.build_dataset(seed), self.current() if workers else {}
        count = current.get("num_workers") or 0
        return DataLoader(
            dataset,
            batch_size=batch_size,
            shuffle=not isinstance(dataset, IterableDataset),
            num_workers=count,
            collate_fn=getattr(self.module, "collate_fn", None),
            persistent_workers=count > 0 and bool(current.get("persistent_workers")),
        )

    @property
    def collate(self) -> Callable[[list[Any]], Any]:
        """Return the function that makes a batch of samples."""
        return getattr(self.module, "collate_fn", None) or default_collate

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """Return the user's loss of one batch."""
        loss = self.module.compute_loss(model, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise TaskContractError(f"compute_loss(model, batch) must return a scalar Tensor, got {shape}")
        return loss

    def counter(self) -> Callable[[Any], int]:
        """Return how many items a batch holds: the user's count, else samples."""
        own: Any = getattr(self.module, "count_items", None)

        def count(batch: Any) -> int:
            items: int = own(batch)
            if items is None or not items >= 0:
                raise TaskContractError(f"count_items(batch) must return a number of items, got {items!r}")
            return items

        return batch_length if own is None else count

    def current(self) -> dict[str, Any]:
        """Return ``CURRENT``, checked for names and plain values."""
        current = getattr(self.module, "CURRENT", {})
        if not isinstance(current, dict):
            raise TaskContractError(f"CURRENT must be a dict, got {type(current).__name__}")
        for key, value in current.items():
            if key not in (*KNOB_NAMES, *LOADER_FACTS):
                raise TaskContractError(no_knob(f"CURRENT[{key!r}]", key))
            if not isinstance(value, bool | int | str | None):
                raise TaskContractError(f"CURRENT[{key!r}] must be a plain value, got {type(value).__name__}")
        return dict(current)


def load(path: Path) -> LoadedTask:
    """Import a task file as ``python FILE`` would see it: its own folder first on the module path."""
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
    for part in FUNCTIONS:
        value = getattr(module, part, None)
        if value is not None and not callable(value):
            raise TaskContractError(f"{part} must be a function, got {type(value).__name__}")
    return LoadedTask(module, path.stem, devices.found().type)


def warm_lazy_imports() -> None:
    """Touch what torch imports for the first optimizer (0.5 s), so that trials do not."""
    weight = torch.zeros(2, requires_grad=True)
    torch.optim.AdamW([weight], lr=0.0)  # its step would start CUDA


def seed_everything(seed: int) -> None:
    """Seed torch, numpy and random alike."""
    torch.manual_seed(seed)
    numpy.random.seed(seed % 2**32)
    random.seed(seed)


def batch_length(batch: Any) -> int:
    """Return samples of a batch: the first dimension of the first tensor found in it."""
    if isinstance(batch, torch.Tensor):
        return batch.size(0) if batch.dim() else 1
    values = list(batch.values()) if isinstance(batch, Mapping) else batch
    if isinstance(values, list | tuple) and values:
        nested = isinstance(values[0], torch.Tensor | list | tuple | Mapping)
        return batch_length(values[0]) if nested else len(values)
    return 1


def facts(task: LoadedTask, seed: int) -> TaskFacts:
    """Read the facts off the real model, optimizer and dataset. Raises whatever the user's code raises."""
    current = task.current()
    dataset = task.build_dataset(seed)
    model = task.build_model(seed)
    optimizer = task.build_optimizer(model)
    reads = fingerprints.of_loader(task.build_loader(1, seed, workers=False))  # before a data set may open its file
    iterable = isinstance(dataset, IterableDataset)
    return TaskFacts(
        name=task.name,
        **trained_facts([model], [optimizer], dataset, [reads], task.device),
        batch_shapes=batch_shapes(dataset, task.collate),
        unit="items" if hasattr(task.module, "count_items") else "samples",
        current=current,
        why_not_several="an iterable dataset cannot be divided equally between processes" if iterable else None,
    )


def trained_facts(
    models: Sequence[nn.Module], optimizers: Sequence[Optimizer], dataset: Any, reads: Sequence[str], device: str
) -> dict[str, Any]:
    """Return the facts of `TaskFacts` that follow from what is trained, whether a task file or a script made it.

    The first optimizer's class counts. ``dataset`` is None if it is not known; ``reads`` are fingerprints of loaders.
    """
    size, variation = sample_size(dataset) if dataset is not None else (0, 1.0)
    first = optimizers[0] if optimizers else None
    return {
        "samples": length(dataset),
        "iterable": isinstance(dataset, IterableDataset),
        "parameters": sum(parameter.numel() for parameter in nn.ModuleList(models).parameters()),
        "has_convolutions": any(has_convolutions(model, device) for model in models),
        "has_batch_norm": any(isinstance(part, _BatchNorm) for model in models for part in model.modules()),
        "optimizer": type(first).__name__ if first is not None else "none",
        "optimizer_impls": offered_impls(first) if first is not None else ("default",),
        "sample_bytes": size,
        "copied_bytes": int(copied_bytes(dataset)),
        "sample_variation": variation,
        "device": device,
        "compared": Fingerprint(
            tuple(dict.fromkeys(map(fingerprints.of_model, models))),
            tuple(dict.fromkeys(map(fingerprints.of_optimizer, optimizers))),
            tuple(reads),
        ),
    }


def has_convolutions(model: nn.Module, device: str) -> bool:
    """Return True if a knob acts on the model's convolutions: memory layout, or cuDNN's search where there is cuDNN."""
    kinds = (nn.Conv2d, nn.ConvTranspose2d, nn.Conv3d)
    searched = not CUDNN_BENCHMARK.idle(devices.of(device)) and any(
        isinstance(module, kinds) for module in model.modules()
    )
    return searched or bool(convolutions.sequences(model))


def sample_size(dataset: Dataset[Any]) -> tuple[int, float]:
    """Return tensor bytes of the largest of a few samples, and how many times that is their median."""
    sizes = sorted(tensor_bytes(sample) for sample in some_samples(dataset))
    median = sizes[len(sizes) // 2] if sizes else 0
    return max(sizes, default=0), max(sizes) / median if median else 1.0


def batch_shapes(dataset: Dataset[Any], collate: Callable[[list[Any]], Any]) -> int:
    """Return how many different shapes batches of two samples have; 1 if that cannot be found out."""
    samples = list(some_samples(dataset))
    pairs = [samples[k : k + 2] for k in range(0, len(samples) - 1, 2)]
    try:
        return max(1, len({tuple(tensor_shapes(collate(pair))) for pair in pairs}))
    except Exception:  # what collating needs is the loader's affair
        return 1


def some_samples(dataset: Dataset[Any]) -> Iterator[Any]:
    """Yield at most `LOOKED_AT` samples from all over ``dataset``."""
    if isinstance(dataset, IterableDataset):
        yield from itertools.islice(dataset, LOOKED_AT)
        return
    count = length(dataset) or 0
    with contextlib.suppress(Exception):  # only its sampler knows what it is asked for
        for index in sorted({k * count // LOOKED_AT for k in range(LOOKED_AT)} if count else ()):
            yield dataset[index]


def tensor_bytes(value: Any) -> int:
    """Return bytes of all tensors and arrays in a nested sample; numbers count 8."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, numpy.ndarray):
        return int(value.nbytes)
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list | tuple):
        return sum(map(tensor_bytes, parts))
    return len(value) if isinstance(value, str | bytes) else 8


def copied_bytes(value: Any, depth: int = 0, seen: set[int] | None = None) -> float:
    """Return about how many bytes of Python objects a data set holds. Loader workers get copies of them in time.

    A reference count that changes copies a page (pytorch/pytorch#13246). Arrays and tensors stay shared. Long
    containers are judged by `LOOKED_INTO` of their items.
    """
    seen = set() if seen is None else seen
    if id(value) in seen or depth > DEEPEST or isinstance(value, type | torch.Tensor):
        return 0.0
    seen.add(id(value))
    own, parts = min(object.__sizeof__(value), PAGE), list[Any]()
    if isinstance(value, numpy.ndarray):
        parts = [value.flat] if value.dtype == object else []
    elif type(value) is dict:
        own, parts = sys.getsizeof(value), [value.keys(), value.values()]
    elif type(value) in (list, tuple, set, frozenset, deque):
        own, parts = sys.getsizeof(value), [value]
    elif not isinstance(value, ModuleType | FunctionType):
        attributes = getattr(value, "__dict__", None)
        parts = [attributes.values()] if isinstance(attributes, dict) else []
    held = float(own)
    for part in parts:
        step = max(1, len(part) // LOOKED_INTO)
        items = [copied_bytes(each, depth + 1, seen) for each in itertools.islice(part, 0, None, step)]
        held += statistics.fmean(items or [0.0]) * len(part)
    return held


def check_split(
    task: LoadedTask, seed: int, clock: Callable[[], float] = time.monotonic
) -> tuple[str | None, str | None]:
    """Return why several processes would change training, and why that could not be found out; each may be None.

    Compared are the gradients of batches whole, and split as processes would share them. Processes weigh their
    gradients by samples. That is exact for a mean over samples, and changes training for any other loss: a mean over
    tokens, a class-weighted mean, a sum, or a loss that compares the samples of a batch.
    """
    try:
        return _check_split(task, seed, clock)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return None, f"{type(error).__name__}: {lines[0]}"[:150]


def _check_split(task: LoadedTask, seed: int, clock: Callable[[], float]) -> tuple[str | None, str | None]:
    dataset = task.build_dataset(seed)
    size = min(MOST_SAMPLES, task.current().get("batch_size", DEFAULT_BATCH))
    if isinstance(dataset, IterableDataset) or size < 4:
        return None, None
    gradients = _Gradients(task, seed)
    started, compared = clock(), 0
    for samples in _batches(dataset, size):
        if compared and clock() - started > SECONDS:
            break
        whole = gradients.of([samples])
        if not 0 < norm(whole) < math.inf:
            continue
        compared += 1
        parts = [[samples[k] for k in shard(range(len(samples)), 2, rank).samples] for rank in range(2)]
        off = _relative_error(gradients.of(parts), whole)
        if off <= TOLERANCE:
            continue
        if off <= NOISE_FACTOR * _relative_error(gradients.of([samples], salt=1), whole):
            return None, RANDOM
        return CHANGED.format(off), None
    return None, None if compared else NOTHING


def with_split(facts: TaskFacts, why_not: str | None, unknown: str | None) -> TaskFacts:
    """Return ``facts`` with what `check_split` has found."""
    if facts.why_not_several is not None:
        return facts
    notes = () if unknown is None else (UNCHECKED.format(unknown),)
    return replace(facts, why_not_several=why_not, warnings=(*facts.warnings, *notes))


def _batches(dataset: Any, size: int) -> Iterator[list[Any]]:
    """Yield batches of samples from all over ``dataset``."""
    count = len(dataset)
    for first in range(BATCHES):
        indices = range(first, count, max(1, count // size))[:size]
        if len(indices) >= 4:
            yield [dataset[index] for index in indices]


class _Gradients:
    """Gradients of a task's loss in training mode, without dropout and with BatchNorm's present statistics."""

    def __init__(self, task: LoadedTask, seed: int) -> None:
        self.task, self.seed = task, seed
        self.model = task.build_model(seed)
        if "torch._dynamo" in sys.modules:  # compiling takes longer than a few steps are worth
            torch.compiler.set_stance("force_eager")
        self.model.train()
        for module in self.model.modules():
            if isinstance(module, _BatchNorm | _DropoutNd):
                module.eval()
            elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
                module.dropout = 0.0
        self.move = mover(torch.device(task.device))

    def of(self, parts: Sequence[Sequence[Any]], salt: int = 0) -> Gradient:
        """Return the gradient over all parts, each weighted by its samples, as several processes take it."""
        count = sum(len(part) for part in parts)
        self.model.zero_grad(set_to_none=True)
        for part in parts:
            seed_everything(self.seed + salt)
            copies = [tree_map_only(Tensor, Tensor.clone, each) for each in part]  # some collate functions change them
            batch = self.task.collate(copies)
            loss = self.task.loss(self.model, batch if self.move is None else self.move(batch))
            if loss.requires_grad:
                torch.autograd.backward(loss * (len(part) / count))
        return [p.grad.clone() if p.grad is not None else None for p in self.model.parameters()]


def _relative_error(found: Gradient, whole: Gradient) -> float:
    pairs = zip(found, whole, strict=True)
    off = [one if other is None else other if one is None else one - other for one, other in pairs]
    return norm(off) / norm(whole)
