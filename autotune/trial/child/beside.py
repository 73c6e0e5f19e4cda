"""What reading samples changes beside the data set: in a loader worker, the script would never see it."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from autotune.runtime.fingerprints import digest
from autotune.runtime.reading import is_of_library, objects

COLLATE = "what the collate function holds"
LARGEST = 2**14
"""Bytes of an array whose content is compared."""
NOT_READ = (ModuleType, nn.Module, Optimizer, DataLoader, Dataset)
"""What reading a sample does not change, or what is compared in other ways."""


def is_users(frame: FrameType) -> bool:
    """Return True if ``frame`` runs the user's own code: none of a library, of Python or of this package."""
    return not is_of_library(frame.f_code.co_filename)


def above(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield ``frame`` and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def state_of(dataset: Any, collate: Any) -> dict[str, str]:
    """Return digests of what reading may change: by its name for people."""
    found = {}
    for name, value in _names_of_script():
        with suppress(Exception):  # a class of the user's that cannot be looked at
            found[name] = digest(_content(value), LARGEST)
    for each in objects([dataset, collate]):
        if isinstance(each, sqlite3.Connection):
            found["the database that samples come from"] = str(_content(each))
        elif callable(each) and not isinstance(each, type | nn.Module) and hasattr(each, "__dict__"):
            name = f"the state of {getattr(each, '__qualname__', type(each).__qualname__)}"
            found[name] = digest([found.get(name), vars(each)], LARGEST)
    for each in objects([collate]):
        if isinstance(each, list | dict | set):
            found[COLLATE] = digest([found.get(COLLATE), each], LARGEST)
    return found


def _names_of_script() -> Iterator[tuple[str, Any]]:
    """Yield the globals of the user's own modules, and the attributes of their classes."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or is_of_library(file):
            continue
        for name, value in list(vars(module).items()):
            if isinstance(value, type):
                if value.__module__ == module.__name__:
                    held = ((f"{value.__qualname__}.{key}", vars(value)[key]) for key in list(vars(value)))
                    yield from (each for each in held if "__" not in each[0])
            elif not name.startswith("__"):
                yield f"{name} ({Path(file).name})", value


def _content(value: Any) -> Any:
    """Return what of ``value`` is compared: of a function with a cache how often it was used, of a connection to a
    database how many rows it has changed."""
    if callable(getattr(value, "cache_info", None)):
        return list(value.cache_info())
    if isinstance(value, sqlite3.Connection):
        with suppress(sqlite3.Error):  # closed, or another thread's
            return value.total_changes
    if callable(getattr(value, "writable", None)):
        with suppress(Exception):  # closed, or no file
            return value.tell() if value.writable() else None
    return None if isinstance(value, NOT_READ) or callable(value) else value
