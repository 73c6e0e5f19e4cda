"""The random numbers that a script draws: PyTorch's on the CPU, Python's and NumPy's, and a loader's own generator."""

from __future__ import annotations

import pickle
import random
import sys
import zlib
from collections.abc import Callable
from typing import Any

import torch


def read(generator: torch.Generator | None = None) -> bytes:
    """Return the state of all of them."""
    numpy = sys.modules.get("numpy")
    own = None if generator is None else generator.get_state().numpy()
    return pickle.dumps(
        (torch.get_rng_state().numpy(), random.getstate(), numpy.random.get_state() if numpy else None, own),
        protocol=pickle.HIGHEST_PROTOCOL,
    )


def write(state: bytes, generator: torch.Generator | None = None) -> None:
    """Restore ``state``."""
    numpy = sys.modules.get("numpy")
    ours, python, arrays, own = pickle.loads(state)
    torch.set_rng_state(torch.from_numpy(ours.copy()))
    random.setstate(python)
    if numpy is not None and arrays is not None:
        numpy.random.set_state(arrays)
    if generator is not None and own is not None:
        generator.set_state(torch.from_numpy(own.copy()))


def of(source: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """Return what reads and what writes the state of a ``source`` of random numbers; None if it is none."""
    if isinstance(source, torch.Generator):
        return source.get_state, source.set_state
    if isinstance(source, random.Random):
        return source.getstate, source.setstate
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(source, numpy.random.RandomState):
        return source.get_state, source.set_state
    if numpy is not None and isinstance(source, numpy.random.Generator):
        bits = source.bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    return None


class OwnNumbers:
    """Random numbers of PyTorch that differ by process while each works on its part of a batch.

    What is drawn for a batch (dropout masks, noise, time steps of a diffusion model) differs by sample in one process,
    and by process here. All else (new layers, the order of the data, an evaluation) draws the same everywhere. Numbers
    of Python and NumPy, by which scripts decide rather than fill tensors, stay the same.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._common: torch.Tensor | None = None
        self._own = torch.empty(0)

    def begin(self) -> None:
        """Draw numbers of this process's own from now on. They follow from the common ones."""
        self.end()
        self._common = torch.get_rng_state()
        torch.default_generator.manual_seed(zlib.crc32(self._common.numpy().tobytes(), self.rank))
        self._own = torch.get_rng_state()

    def end(self) -> None:
        """Draw the common numbers again. They advance by one draw if anything was drawn meanwhile."""
        if self._common is None:
            return
        drawn = not torch.equal(self._own, torch.get_rng_state())
        torch.set_rng_state(self._common)
        self._common = None
        if drawn:
            torch.empty((), dtype=torch.int64).random_()
