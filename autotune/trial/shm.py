"""Shared memory that a killed trial leaves behind."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FOLDER = Path("/dev/shm")
OWN_PREFIXES = ("torch_", "psm_", "sem.mp-", "wnsm_", "__KMP_REGISTERED_LIB_", "mpich_shm_")
"""Names that torch, multiprocessing and MPICH give; anything else in the folder is nobody's business here."""


def remove_leftovers(since: float) -> None:
    """Delete this user's shared memory made after ``since`` (seconds of epoch) that no living process holds."""
    found = _candidates(since)
    held = _held() if found else set()
    for entry in (entry for entry in found if entry.name not in held):
        with contextlib.suppress(OSError):
            entry.unlink()


def _candidates(since: float) -> list[Path]:
    found = []
    with contextlib.suppress(OSError):
        for entry in FOLDER.iterdir():
            with contextlib.suppress(OSError):
                info = entry.stat()
                if entry.name.startswith(OWN_PREFIXES) and info.st_uid == os.getuid() and info.st_ctime >= since:
                    found.append(entry)
    return found


def _held() -> set[str]:
    """Names in the folder that some process has mapped or open."""
    names: set[str] = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for line in (process / "maps").read_text().splitlines():
                _, _, name = line.partition(f"{FOLDER}/")
                names.add(name.removesuffix(" (deleted)"))
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    names.add(os.readlink(descriptor).removeprefix(f"{FOLDER}/"))
    return names
