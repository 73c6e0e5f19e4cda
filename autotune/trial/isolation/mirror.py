"""The folder that a trial works in: it looks like the user's, and what the trial writes stays in it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MIRROR_ENTRIES = 200
MIRROR_DEPTH = 3
SOURCES = (".py", ".pyi", ".pyc", ".so", ".md", ".toml", ".lock")
MIRROR_FILE_BYTES = 2**20
MIRROR_BYTES = 8 * 2**20
"""Copied at most, per file and in all: copying must not slow a trial's start."""


def mirror(source: Path, target: Path, levels: int = MIRROR_DEPTH) -> None:
    """Make ``target`` look like ``source`` for reading, while new files land in ``target``.

    Folders are real, small files are copies (a trial may overwrite them), large ones symbolic links. Past
    ``levels`` levels or ``MIRROR_ENTRIES`` entries, and for hidden folders and Python packages, the folder itself
    is linked: still readable, and cheap (a link takes up to 0.2 ms).
    """
    target.mkdir(parents=True, exist_ok=True)
    budget, copied = MIRROR_ENTRIES, 0
    pending = [(source, target, 0)]
    while pending:
        folder, copy, depth = pending.pop(0)
        for entry in _entries(folder):
            destination = copy / entry.name
            if destination.exists() or Path(entry.path) in target.parents:
                continue
            budget -= 1
            if depth < levels and budget > 0 and _is_data_folder(entry):
                destination.mkdir()
                pending.append((Path(entry.path), destination, depth + 1))
            elif (size := _small_file(entry)) is not None and copied + size <= MIRROR_BYTES:
                shutil.copyfile(entry.path, destination)
                copied += size
            else:
                destination.symlink_to(entry.path)


def _is_data_folder(entry: os.DirEntry[str]) -> bool:
    """True for a folder that training may write to: neither hidden nor a Python package."""
    if entry.name.startswith((".", "__")) or not entry.is_dir(follow_symlinks=False):
        return False
    return not os.path.exists(f"{entry.path}/__init__.py")


def _small_file(entry: os.DirEntry[str]) -> int | None:
    """Size of a regular file worth copying; None for anything else. Training writes data, not source code."""
    if not entry.is_file(follow_symlinks=False) or entry.name.endswith(SOURCES):
        return None
    size = entry.stat(follow_symlinks=False).st_size
    return size if size <= MIRROR_FILE_BYTES else None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []
