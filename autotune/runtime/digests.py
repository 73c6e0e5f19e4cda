"""Digests of nested data: batches, samples, and what data sets hold."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Mapping
from mmap import mmap
from types import ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import Dataset

MOST_ITEMS, MOST_BYTES = 20_000, 2**30
"""Items and bytes that are read in all."""
LONGEST = 2**20
"""Characters of a text."""


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
