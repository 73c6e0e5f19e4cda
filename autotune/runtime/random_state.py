"""The random numbers that a script draws: PyTorch's on the CPU, Python's and NumPy's, and a loader's own generator."""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
import zlib
from collections.abc import Iterator

import torch


def read(generator: torch.Generator | None = None) -> bytes:
    """Where all of them stand."""
    numpy = sys.modules.get("numpy")
    own = None if generator is None else generator.get_state().numpy()
    return pickle.dumps(
        (torch.get_rng_state().numpy(), random.getstate(), numpy.random.get_state() if numpy else None, own),
        protocol=pickle.HIGHEST_PROTOCOL,
    )


def write(state: bytes, generator: torch.Generator | None = None) -> None:
    """Go on from ``state``."""
    numpy = sys.modules.get("numpy")
    ours, python, arrays, own = pickle.loads(state)
    torch.set_rng_state(torch.from_numpy(ours.copy()))
    random.setstate(python)
    if numpy is not None and arrays is not None:
        numpy.random.set_state(arrays)
    if generator is not None and own is not None:
        generator.set_state(torch.from_numpy(own.copy()))


@contextlib.contextmanager
def apart(rank: int) -> Iterator[None]:
    """Random numbers of PyTorch on the CPU that differ by ``rank`` while inside; outside all ranks draw the same ones.

    They follow from where the common numbers stand, which go on by one draw where anything was drawn inside.
    """
    common = torch.get_rng_state()
    torch.default_generator.manual_seed(zlib.crc32(common.numpy().tobytes(), rank))
    own = torch.get_rng_state()
    try:
        yield
    finally:
        drawn = not torch.equal(own, torch.get_rng_state())
        torch.set_rng_state(common)
        if drawn:
            torch.empty((), dtype=torch.int64).random_()
