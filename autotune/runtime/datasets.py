"""What can be told of a dataset without reading it: whether it keeps state, and whether two processes hold the same."""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import Dataset

READS = ("__getitem__", "__getitems__")
STORES = frozenset({"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL"})
HASHED_BYTES = 2**16
DEPTH = 4


def keeps_state(dataset: object) -> str | None:
    """Why code that reads ``dataset`` may leave something behind, which copies in workers would keep; or None.

    What a few reads do not show counts too: see `autotune.runtime.worker_check` for those.
    """
    kinds = (type(part) for part in _parts(dataset))
    changing = (kind for kind in kinds if not kind.__module__.startswith("torch.") and _writes(kind))
    return next((f"{kind.__name__} changes itself when it is read" for kind in changing), None)


def _writes(kind: type) -> bool:
    """True where the methods that read a sample, or methods that they name, assign to attributes or globals."""
    methods = {name: code for owner in reversed(kind.__mro__) for name, code in _codes(owner)}
    waiting, seen = [name for name in READS if name in methods], set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        code = methods[name]
        if any(instruction.opname in STORES for instruction in dis.get_instructions(code)):
            return True
        waiting += [other for other in code.co_names if other in methods and other not in seen]
    return False


def _codes(owner: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(owner).items():
        code = getattr(getattr(value, "fget", value), "__code__", None)
        if code is not None:
            yield name, code


def fingerprint(dataset: object) -> int:
    """A number of what ``dataset`` holds: lengths, and the beginnings of its arrays, lists and indices."""
    digest = hashlib.blake2b(digest_size=7)
    for part in _parts(dataset):
        digest.update(type(part).__qualname__.encode())
        for name, value in sorted(_attributes(part).items()):
            digest.update(name.encode() + _content(value))
    return int.from_bytes(digest.digest(), "big")


def _parts(value: object, depth: int = DEPTH) -> Iterator[object]:
    """``value`` and the datasets inside it."""
    yield value
    if depth == 0:
        return
    for inner in _attributes(value).values():
        candidates = inner if isinstance(inner, list | tuple) and len(inner) < 1000 else (inner,)
        for candidate in candidates:
            if isinstance(candidate, Dataset):
                yield from _parts(candidate, depth - 1)


def _attributes(value: object) -> dict[str, Any]:
    if isinstance(value, list | tuple | Tensor | numpy.ndarray):
        return {"": value}
    return getattr(value, "__dict__", {})


def _content(value: Any) -> bytes:
    """The beginning of what ``value`` holds; nothing of what cannot be compared between processes."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_meta:
            return str(tuple(value.shape)).encode()
        some = value.detach().flatten()[: HASHED_BYTES // value.element_size()].cpu().contiguous()
        return str(tuple(value.shape)).encode() + some.view(torch.uint8).numpy().tobytes()
    if isinstance(value, numpy.ndarray) and value.dtype != object:
        return str(value.shape).encode() + value.reshape(-1)[: HASHED_BYTES // max(1, value.itemsize)].tobytes()
    if isinstance(value, bool | int | float | str | None):
        return repr(value).encode()
    if isinstance(value, list | tuple | range):
        head = b"".join(_content(item) for item in value[:1000])
        return str(len(value)).encode() + head[:HASHED_BYTES]
    return b""
