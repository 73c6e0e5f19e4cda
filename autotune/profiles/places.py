"""Where profiles lie: ``<machine key>/<target>.yaml`` in folders and registries, and which of these are looked at."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from platformdirs import site_data_dir, user_cache_dir, user_data_dir

APPLICATION = "torch-autotune"
VARIABLE = "AUTOTUNE_PROFILES"
FOLDER = "profiles"
SUFFIX = ".yaml"

Place = Path | str
"""A folder, or the URL of a registry."""
_SCHEME = r"[a-z][a-z0-9+.\-]*://"
_ENTRY = re.compile(rf"\s*{_SCHEME}(?:[^:]|:(?!//)(?![/~.]|{_SCHEME}))*|[^:]+")
"""One entry of the variable, within a line and between semicolons."""


def default_path(machine_key: str, target: str, root: Path | None = None) -> Path:
    """Return where the profile of ``target`` on this type of machine belongs."""
    return (root or Path(FOLDER)) / safe_name(machine_key) / file_name(target)


def file_name(target: str) -> str:
    """Return the name of a profile's file in the folder of its machine."""
    return safe_name(target) + SUFFIX


def file_names(target: str) -> tuple[str, ...]:
    """Return the names of files that may hold a profile of ``target``, the best first."""
    return tuple(f"{safe_name(target)}{part}{SUFFIX}" for part in ("", ".partial"))


def target_of(name: str) -> str:
    """Return the target of a profile by the name of its file."""
    return re.sub(r"(\.partial)?\.yaml$", "", name.rpartition("/")[2])


def safe_name(text: str) -> str:
    """Return ``text`` as one visible file name: letters, digits, ``_``, ``-`` and inner dots."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text[:100]).strip(".-") or "unnamed"


def places(environment: Mapping[str, str] | None = None, script: Path | None = None) -> tuple[Place, ...]:
    """Return all places to look in, nearest first: the project, the script's folder, the user's, the system's, and what
    ``AUTOTUNE_PROFILES`` names. Each counts once.

    Args:
        environment: variables; those of this process if None.
        script: the training script; profiles may lie beside it.
    """
    found: dict[str, Place] = {}
    for each in _all(os.environ if environment is None else environment, script):
        found.setdefault(each if isinstance(each, str) else os.path.realpath(os.path.expanduser(each)), each)
    return tuple(found.values())


def named_places(environment: Mapping[str, str]) -> tuple[Place, ...]:
    """Return what ``AUTOTUNE_PROFILES`` names: folders and URLs with ``:`` or ``;`` between them."""
    return tuple(map(place, _split(environment.get(VARIABLE, ""))))


def not_there(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each folder that ``AUTOTUNE_PROFILES`` names and that is missing: a share that is not
    mounted, or a slip."""
    missing = missing_folders(named_places(environment))
    return tuple(f"{VARIABLE} names {folder}, which is no folder" for folder in missing)


def missing_folders(found: Iterable[Place]) -> tuple[Path, ...]:
    """Return the folders of ``found`` that are not there."""
    return tuple(each for each in found if isinstance(each, Path) and not os.path.isdir(os.path.expanduser(each)))


def place(text: str) -> Place:
    """Return the folder or registry that ``text`` names."""
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    return text.rstrip("/") if is_url(text) else Path(text)


def is_url(text: str) -> bool:
    """Return True if ``text`` is a URL, and no path."""
    return re.match(_SCHEME, text) is not None


def user_folder() -> Path | None:
    """Return the folder of this user's profiles; None for a user without a home folder."""
    return _absolute(user_data_dir, FOLDER)


def cache_folder() -> Path | None:
    """Return the folder for copies of what was read from registries; None for a user without a home folder."""
    return _absolute(user_cache_dir, "registries")


def _all(environment: Mapping[str, str], script: Path | None) -> Iterator[Place]:
    yield Path(FOLDER)
    if script is not None:
        yield script.parent / FOLDER
    yield from filter(None, (user_folder(), _absolute(site_data_dir, FOLDER)))
    yield from named_places(environment)


def _absolute(folder: Callable[..., str], name: str) -> Path | None:
    """Return a folder of platformdirs; None without a home: it raises then, or its path begins with ``~``."""
    try:
        found = Path(folder(APPLICATION, appauthor=False)) / name
    except (OSError, KeyError, RuntimeError):
        return None
    return found if found.is_absolute() else None


def _split(text: str) -> Iterator[str]:
    """Split at colons. In ``https://host:8000/x:/folder`` only the last one ends the URL: what follows it is a path."""
    for part in re.split(r"[;\n]", text):
        yield from filter(None, (entry.strip() for entry in re.findall(_ENTRY, part)))
