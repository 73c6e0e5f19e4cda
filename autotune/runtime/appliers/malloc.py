"""Thresholds of glibc's allocator, set in the running process: workers that it forks inherit them."""

from __future__ import annotations

import ctypes

from autotune.core.knobs.memory import GLIBC_KEEPS
from autotune.runtime.applier import Applier

NUMBERS = {"TRIM_THRESHOLD": -1, "TOP_PAD": -2, "MMAP_THRESHOLD": -3}
"""Parameters of ``mallopt`` (glibc's ``malloc.h``)."""
KEEP = {NUMBERS[name]: size for name, size in GLIBC_KEEPS.items()}
DEFAULT = {NUMBERS["MMAP_THRESHOLD"]: 128 * 1024, NUMBERS["TRIM_THRESHOLD"]: 128 * 1024, NUMBERS["TOP_PAD"]: 0}
"""Where glibc starts; it raises the first two by itself as long as nobody has set them."""


class Malloc(Applier):
    """Lets glibc keep freed memory."""

    _kept = False

    def start(self) -> str | None:
        """Set the thresholds."""
        if self.value == "default":
            return None
        library = ctypes.CDLL(None)
        if not hasattr(library, "gnu_get_libc_version"):
            return "this process does not run on glibc"
        self._kept = True
        refused = [parameter for parameter, size in KEEP.items() if library.mallopt(parameter, size) == 0]
        return f"glibc refused parameter {refused[0]} of mallopt" if refused else None

    def undo(self) -> None:
        """The values that glibc starts with. It no longer changes them by itself."""
        if self._kept:
            for parameter, size in DEFAULT.items():
                ctypes.CDLL(None).mallopt(parameter, size)
