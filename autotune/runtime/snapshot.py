"""What a dataset keeps in this process, at one moment: compared before and after a few reads."""

from __future__ import annotations

import functools
import io
import mmap
import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from autotune.runtime.reach import PLAIN, Reached, walk

CHECKED_BYTES = 2**20
"""Larger arrays are compared at the beginning, in the middle and at the end."""
OWN_STREAMS = (torch.default_generator, numpy.random.mtrand._rand, random._inst)
"""Random numbers that loader workers draw by seeds of their own."""


@dataclass(frozen=True)
class Entry:
    """One object, and what could be told of its content."""

    reached: Reached
    content: Any


Snapshot = dict[str, Entry]


def snapshot(roots: Mapping[str, Any]) -> Snapshot:
    """The content of everything reachable from ``roots``."""
    return {found.path: Entry(found, content(found)) for found in walk(roots)}


def changed(before: Snapshot, used: Snapshot, after: Snapshot) -> str | None:
    """What reading samples changed, by its path; or None.

    Args:
        before: any read.
        used: after the first read, when libraries have filled their caches.
        after: all reads.
    """
    for path, entry in after.items():
        earlier = (used if entry.reached.library or _is_cached(entry.reached.value) else before).get(path)
        if earlier is not None and earlier.content != entry.content:
            return next(_changed_parts(earlier, entry), path)
    return None


def _changed_parts(before: Entry, after: Entry) -> Iterator[str]:
    ours, theirs = before.reached.inside, after.reached.inside
    for end in [*theirs, *ours]:
        if _leaf(ours.get(end)) != _leaf(theirs.get(end)) and end[0] == ".":
            yield after.reached.path + end


def _is_cached(value: Any) -> bool:
    return isinstance(value, functools._lru_cache_wrapper)


def content(found: Reached) -> Any:
    """What of an object can be compared later: plain values and random states themselves, arrays by a checksum."""
    value = found.value
    if any(value is stream for stream in OWN_STREAMS):
        return None
    for kinds, told in CONTENTS:
        if isinstance(value, kinds):
            return told(value)
    return _length(value), {end: _leaf(item) for end, item in found.inside.items()}


def _leaf(value: Any) -> Any:
    return (type(value), value) if type(value) in PLAIN else id(value)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, dict | list | set) else 0


def _of_tensor(value: Tensor) -> Any:
    if value.layout is not torch.strided or value.device.type != "cpu" or value.is_inference():
        return tuple(value.shape)
    plain = value.detach().view(torch.uint8) if value.dim() and value.is_contiguous() else None
    return value._version, tuple(value.shape), None if plain is None else _of_array(plain.numpy())


def _of_array(value: numpy.ndarray[Any, Any]) -> Any:
    if value.dtype == object or value.ndim == 0:
        return value.shape, value.tolist() if value.dtype != object else None
    rows = max(1, CHECKED_BYTES // 3 * len(value) // max(1, value.nbytes))
    middle = len(value) // 2
    parts = (value,) if value.nbytes <= CHECKED_BYTES else (value[:rows], value[middle : middle + rows], value[-rows:])
    return value.shape, [zlib.crc32(numpy.ascontiguousarray(part).tobytes()) for part in parts]


def _of_generator(value: Any) -> Any:
    return repr(value.bit_generator.state)


def _of_random_state(value: Any) -> Any:
    state = value.get_state(legacy=False)
    return repr(state), zlib.crc32(state["state"]["key"]) if "key" in state["state"] else 0


CONTENTS: tuple[tuple[Any, Any], ...] = (
    (Tensor, _of_tensor),
    (numpy.ndarray, _of_array),
    (torch.Generator, lambda value: value.get_state().numpy().tobytes()),
    (numpy.random.RandomState, _of_random_state),
    (numpy.random.Generator, _of_generator),
    (random.Random, lambda value: value.getstate()),
    ((io.BytesIO, io.StringIO, mmap.mmap), lambda value: None if value.closed else value.tell()),
    (functools._lru_cache_wrapper, lambda value: value.cache_info().misses),
)
