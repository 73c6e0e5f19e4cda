"""Fingerprints of a model, an optimizer and a data loader, without names and values; and digests of nested data."""

from __future__ import annotations

import enum
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from mmap import mmap
from types import ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

DIGITS = 16
SHAPES = ("kernel_size", "stride", "dilation", "groups", "num_heads", "num_layers", "bidirectional", "output_size")
"""Attributes of PyTorch's own layers that decide speed and that no parameter's shape shows."""
NO_OPTIONS = ("params", "initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr")
"""In a parameter group; schedulers add the others."""
MOST_WRAPPED = 9
"""Data sets that hold one another, such as `torch.utils.data.Subset`."""
MOST_ITEMS, MOST_BYTES = 20_000, 2**30
"""Items and bytes that are read in all."""
LONGEST = 2**20
"""Characters of a text."""


def of_model(model: nn.Module) -> str:
    """Return a digest of the model's layers, and of which parameters share memory.

    Wrappers (DistributedDataParallel, DataParallel, a compiled module) do not count, nor do the user's own names.
    """
    return _digest([list(_layers(model)), _shared(model)])


def of_optimizer(optimizer: Optimizer) -> str:
    """Return a digest of the optimizer's class and of the names of its options, without those that schedulers add."""
    kind = type(optimizer)
    options = [sorted(key for key in group if key not in NO_OPTIONS) for group in optimizer.param_groups]
    return _digest([kind.__module__.startswith("torch."), kind.__qualname__, options])


def of_loader(loader: DataLoader[Any]) -> str:
    """Return a digest of the names of the classes and functions that a batch passes through.

    Code is not looked at: tuning compares the batches that it makes, and whoever changes what a data set does without
    a new name tunes again, as after any change of the training.
    """
    data = [loader.dataset]
    while len(data) < MOST_WRAPPED and (inner := getattr(data[-1], "__dict__", {}).get("dataset")) is not None:
        data.append(inner)
    parts = (*data, loader.collate_fn, loader.worker_init_fn, loader.batch_sampler, loader.sampler, loader)
    return _digest([_name(each) for each in parts])


def _name(value: Any) -> str:
    """Return the name of a function, or of the class of anything else; that of their module differs in a script."""
    while isinstance(value, functools.partial):
        value = value.func
    return str(value.__qualname__ if hasattr(value, "__qualname__") else type(value).__qualname__)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:DIGITS]


def _layers(model: nn.Module) -> Iterator[list[Any]]:
    for module in model.modules():
        if not isinstance(module, DistributedDataParallel | nn.DataParallel) and not hasattr(module, "_orig_mod"):
            parameters = module.parameters(recurse=False)
            yield [
                _kind(module),
                [f"{name}={getattr(module, name)}" for name in SHAPES if _kind(module) and hasattr(module, name)],
                [[str(p.dtype), *((-1,) if is_lazy(p) else p.shape), p.requires_grad] for p in parameters],
            ]


def _kind(module: nn.Module) -> str:
    kind = type(module)
    return kind.__name__ if kind.__module__.startswith("torch.nn.") else ""


def _shared(model: nn.Module) -> list[list[int]]:
    """Return the numbers of each parameter and of the storage that it lies in; empty if none is shared."""
    every = (parameter for _name, parameter in model.named_parameters(remove_duplicate=False))
    parameters = [p for p in every if not is_lazy(p) and p.numel()]
    storages = _numbered(p.untyped_storage().data_ptr() for p in parameters)
    return [_numbered(map(id, parameters)), storages] if len(set(storages)) < len(storages) else []


def _numbered(values: Iterable[int]) -> list[int]:
    numbers: dict[int, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def digest(value: Any, largest: int | None = None) -> str:
    """Return a digest of nested ``value``; of arrays with more than ``largest`` bytes, of their type and shape."""
    return Walk(value, largest).digest


class Walk:
    """A digest of nested data.

    Args:
        value: the data.
        largest: bytes of an array whose content counts; of larger ones, type and shape do. All if None.

    Attributes:
        digest: of all that is in ``value``.
        objects: a class that is no data; empty if there is none.
        places: where the memory of each tensor begins; valid while ``value`` lives.
    """

    def __init__(self, value: Any, largest: int | None = None) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._largest, self._left, self._bytes_left = largest, MOST_ITEMS, MOST_BYTES
        self._seen: set[int] = set()
        self.objects = ""
        self.places: set[int] = set()
        self._add(value)
        self.digest = self._hash.hexdigest()

    def _add(self, value: Any) -> None:
        """Add ``value`` and all that is in it."""
        self._left -= 1
        if self._left < 0:
            return
        if isinstance(value, Tensor) and value.is_nested:
            self._nested(value.unbind())
        elif isinstance(value, Tensor):
            if value.layout is torch.strided and value.numel():
                self.places.add(value.untyped_storage().data_ptr())
            self._array(value.detach().cpu(), str(value.dtype))
        elif isinstance(value, numpy.ndarray):
            self._bytes(str(value.dtype).encode())
            if value.dtype != object:
                self._whole(value.nbytes, lambda: numpy.ascontiguousarray(value).tobytes())
        elif isinstance(value, str | bytes | int | float | complex | bool | enum.Enum | numpy.generic | type(None)):
            self._bytes(repr(value).encode()[:LONGEST])
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            self._nested(value)

    def _nested(self, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                self._add(key)
                self._add(item)
        elif isinstance(value, list | tuple):
            self._bytes(str(len(value)).encode())
            for item in value:
                self._add(item)
        elif isinstance(value, set | frozenset):
            self._bytes(repr(sorted(map(repr, value))).encode())
        else:
            is_data = not (is_handle(value) or callable(value) or isinstance(value, ModuleType))
            own = getattr(value, "__dict__", {}) if is_data else {}
            held = {name: item for name, item in own.items() if item is not None and not is_handle(item)}
            for name, item in held.items():  # opening a file does not change the data
                self._bytes(name.encode())
                self._add(item)
            if not held:
                self._bytes(b"None")
            if not own:
                self.objects = self.objects or type(value).__name__

    def _array(self, tensor: Tensor, kind: str) -> None:
        self._bytes(f"{kind} {tuple(tensor.shape)}".encode())
        if tensor.layout is not torch.strided or tensor.is_quantized:
            tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor.int_repr()
        size = tensor.numel() * tensor.element_size()
        self._whole(size, lambda: tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if size else b"")

    def _whole(self, size: int, content: Callable[[], bytes]) -> None:
        if (self._largest is None or size <= self._largest) and self._bytes_left > 0:
            self._bytes_left -= size
            self._bytes(content())

    def _bytes(self, content: bytes) -> None:
        self._hash.update(content)
        self._hash.update(b"|")


def is_handle(value: Any) -> bool:
    """Return True if ``value`` is a file, archive or database: what workers that are forked would share."""
    if isinstance(value, Dataset | mmap | type | ModuleType) or not callable(getattr(value, "close", None)):
        return False
    return hasattr(value, "fp") or not type(value).__module__.startswith("PIL.")  # images in memory close, too
