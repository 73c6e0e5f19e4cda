"""The objects that tuning has compared with plain PyTorch: only that is changed in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fingerprint:
    """Digests of what a training consists of. They hold no names, code or data.

    Attributes:
        models: layers of PyTorch's own, shapes and types of parameters, and which of them share memory.
        optimizers: class and options.
        loaders: classes and code of data set, collate function and sampler.
    """

    models: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    loaders: tuple[str, ...] = ()

    def with_one(self, kind: str, digest: str) -> Fingerprint:
        """Return this with one more digest of ``kind``."""
        known: tuple[str, ...] = getattr(self, kind)
        changed: dict[str, Any] = vars(self) | {kind: known if digest in known else (*known, digest)}
        return Fingerprint(**changed)
