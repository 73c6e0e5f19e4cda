"""What the tuner learns of the user's task, read off the real model, optimizer and dataset."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import Dataset, IterableDataset
from torch.utils.flop_counter import FlopCounterMode

from autotune.knobs.channels_last import has_image_convolutions
from autotune.knobs.compile import tensor_shapes
from autotune.knobs.fingerprint import Fingerprint
from autotune.knobs.optimizer_impl import OPTIMIZER_IMPLS
from autotune.knobs.task import TaskFacts
from autotune.runtime import fingerprints
from autotune.runtime.sharing import mover
from autotune.trial.child.loaded_task import LoadedTask, run_eagerly

LOOKED_AT = 8
"""Samples whose size is read."""


def facts(task: LoadedTask, seed: int) -> TaskFacts:
    """Read the facts off the real model, optimizer and dataset. Raises whatever the user's code raises."""
    current = task.current()
    dataset = task.build_dataset(seed)
    model = task.build_model(seed)
    optimizer = task.build_optimizer(model)
    iterable = isinstance(dataset, IterableDataset)
    size, variation = sample_size(dataset)
    return TaskFacts(
        name=task.name,
        samples=dataset_length(dataset),
        iterable=iterable,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        has_convolutions=has_convolutions(model, task.device),
        has_batch_norm=any(isinstance(module, _BatchNorm) for module in model.modules()),
        optimizer=type(optimizer).__name__,
        optimizer_impls=optimizer_impls(optimizer, task.device),
        sample_bytes=size,
        sample_variation=variation,
        batch_shapes=batch_shapes(dataset, task.collate),
        unit="items" if hasattr(task.module, "count_items") else "samples",
        device=task.device,
        current=current,
        why_not_several="an iterable dataset cannot be divided equally between processes" if iterable else None,
        compared=Fingerprint(
            (fingerprints.of_model(model),),
            (fingerprints.of_optimizer(optimizer),),
            (fingerprints.of_loader(task.build_loader(1, seed)),),
        ),
    )


def flops_per_item(task: LoadedTask, seed: int) -> float:
    """Operations of one small batch's forward and backward, per item; 0 where they cannot be counted."""
    try:
        model = task.build_model(seed)
        run_eagerly()
        move = mover(torch.device(task.device), non_blocking=False)
        batch = next(iter(task.build_loader(2, seed)))
        batch = move(batch) if move is not None else batch
        counter = FlopCounterMode(display=False)
        with counter:
            torch.autograd.backward(task.loss(model, batch))
        return counter.get_total_flops() / max(1, task.counter()(batch))
    except Exception:
        return 0.0


def has_convolutions(model: torch.nn.Module, device: str) -> bool:
    """Whether a knob acts on the model's convolutions: memory layout on those of images, cuDNN on volumes too."""
    volumes = any(isinstance(module, torch.nn.Conv3d) for module in model.modules())
    return has_image_convolutions(model) or (volumes and device == "cuda")


def dataset_length(dataset: Dataset[Any]) -> int | None:
    """``len(dataset)``, or None where it has none."""
    try:
        return len(dataset)  # type: ignore[arg-type]
    except TypeError:
        return None


def sample_size(dataset: Dataset[Any]) -> tuple[int, float]:
    """Tensor bytes of the largest of a few samples, and how many times that is their median."""
    sizes = sorted(tensor_bytes(sample) for sample in some_samples(dataset))
    median = sizes[len(sizes) // 2] if sizes else 0
    return max(sizes, default=0), max(sizes) / median if median else 1.0


def batch_shapes(dataset: Dataset[Any], collate: Callable[[list[Any]], Any]) -> int:
    """How many different shapes batches of two samples have; 1 where that cannot be told."""
    samples = list(some_samples(dataset))
    pairs = [samples[k : k + 2] for k in range(0, len(samples) - 1, 2)]
    try:
        return max(1, len({tuple(tensor_shapes(collate(pair))) for pair in pairs}))
    except Exception:  # what collating needs is the loader's affair
        return 1


def some_samples(dataset: Dataset[Any]) -> Iterator[Any]:
    """At most `LOOKED_AT` samples from all over ``dataset``."""
    if isinstance(dataset, IterableDataset):
        yield from itertools.islice(dataset, LOOKED_AT)
        return
    length = dataset_length(dataset) or 0
    for index in sorted({k * length // LOOKED_AT for k in range(LOOKED_AT)} if length else ()):
        yield dataset[index]


def optimizer_impls(optimizer: torch.optim.Optimizer, device: str) -> tuple[str, ...]:
    """The implementations that the optimizer's class accepts on this device, found by trying."""
    kind: Callable[..., Any] = type(optimizer)
    accepted = inspect.signature(kind).parameters
    offered = ["default"]
    for impl in OPTIMIZER_IMPLS[1:]:
        if impl not in accepted:
            continue
        try:
            kind([torch.zeros(1, device=device, requires_grad=True)], lr=1e-3, **{impl: True})
        except Exception:
            continue
        offered.append(impl)
    return tuple(offered)


def tensor_bytes(value: Any) -> int:
    """Bytes of all tensors and arrays in a nested sample; numbers count 8."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, numpy.ndarray):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(tensor_bytes(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return sum(tensor_bytes(inner) for inner in value)
    return len(value) if isinstance(value, str | bytes) else 8
