"""Where a profile lies in a registry: ``<machine key>/<target>.yaml``, with plain text indexes that `push` writes."""

from __future__ import annotations

import re
from pathlib import Path

from autotune.store.places import FOLDER

SUFFIX = ".yaml"
INDEX = "index"
"""Folder of a registry with a file for each target: the machine keys that have a profile of it."""
INDEX_HEAD = "# machines that have a profile of this target; autotune profiles push writes it"
MOST_KEYS = 20_000
"""Lines of an index that are read."""
_KEY = re.compile(r"[a-z0-9][a-z0-9.\-]{0,199}")


def default_path(machine_key: str, target: str, root: Path | None = None, nnodes: int = 1) -> Path:
    """Where the profile of ``target`` on this type of machine, or ``nnodes`` of them together, belongs."""
    return (root or Path(FOLDER)) / safe_name(machine_key) / file_name(target, nnodes)


def file_name(target: str, nnodes: int = 1) -> str:
    """The name of a profile's file in the folder of its machine."""
    return safe_name(target) + (f".{nnodes}nodes" if nnodes > 1 else "") + SUFFIX


def in_registry(machine_key: str, file: str) -> str:
    """The file ``file`` of a machine, relative to the registry."""
    return f"{safe_name(machine_key)}/{file}"


def file_names(target: str, nnodes: int = 1) -> tuple[str, ...]:
    """Files that may hold a profile of ``target`` for ``nnodes`` machines, the best first; no folder is listed."""
    name = safe_name(target)
    several = (f"{name}.{nnodes}nodes",) if nnodes > 1 else ()
    return tuple(f"{stem}{part}{SUFFIX}" for part in ("", ".partial") for stem in (*several, name))


def target_of(file: str) -> str:
    """The target that a file's name tells."""
    return re.sub(r"(\.\d+nodes)?(\.partial)?\.yaml$", "", file)


def index_name(target: str) -> str:
    """The index of ``target``, relative to the registry."""
    return f"{INDEX}/{safe_name(target)}.txt"


def index_text(keys: set[str]) -> str:
    """An index file: one machine key a line, sorted, so that it merges and can be read."""
    return "".join(f"{line}\n" for line in (INDEX_HEAD, *sorted(keys)))


def index_keys(text: str) -> set[str]:
    """The machine keys of an index; whatever is none is left out."""
    return {line for line in text.splitlines()[:MOST_KEYS] if _KEY.fullmatch(line)}


def safe_name(text: str) -> str:
    """``text`` as one visible file name: letters, digits, ``_``, ``-`` and inner dots."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text[:100]).strip(".-") or "unnamed"
