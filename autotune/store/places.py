"""Where profiles are looked for, nearest first: the project, the script's folder, the user's, the system's, and what
``AUTOTUNE_PROFILES`` names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import site_data_dir, user_cache_dir, user_data_dir

from autotune.store import signatures
from autotune.store.signatures import Keys

APPLICATION = "torch-autotune"
VARIABLE = "AUTOTUNE_PROFILES"
FOLDER = "profiles"

Location = Path | str
"""A folder, or the URL of a registry."""


@dataclass(frozen=True)
class Signed:
    """A place whose profiles are used only where one of ``keys`` signed them."""

    location: Location
    keys: Keys


Place = Location | Signed
_SCHEME = r"[a-z][a-z0-9+.\-]*://"
_ENTRY = re.compile(rf"\s*{_SCHEME}(?:[^:]|:(?!//)(?![/~.]|{_SCHEME}))*|[^:]+")
"""One entry of the variable, within a line and between semicolons."""


def places(environment: Mapping[str, str] | None = None, script: Path | None = None) -> tuple[Place, ...]:
    """All places to look in.

    Args:
        environment: variables; those of this process if None.
        script: the training script; profiles may lie beside it.
    """
    found: dict[str, Place] = {}
    for place in _all(os.environ if environment is None else environment, script):
        same = _same(location_of(place))
        if isinstance(place, Signed) or same not in found:
            found[same] = place
    return tuple(found.values())


def named_places(environment: Mapping[str, str]) -> tuple[Place, ...]:
    """What ``AUTOTUNE_PROFILES`` names: folders and URLs with ``:`` or ``;`` between them. Others write there, so their
    profiles need a signature where ``AUTOTUNE_TRUSTED_KEYS`` asks for one."""
    locations = tuple(map(place, _split(environment.get(VARIABLE, ""))))
    keys = signatures.trusted(environment) if locations else None
    return tuple(with_keys(each, keys) for each in locations)


def not_there(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Folders that ``AUTOTUNE_PROFILES`` names and that are not there: a share that is not mounted, or a slip."""
    named = map(place, _split(environment.get(VARIABLE, "")))
    return tuple(f"{VARIABLE} names {folder}, which is no folder" for folder in missing_folders(named))


def missing_folders(locations: Iterable[Location]) -> tuple[Path, ...]:
    """The folders of ``locations`` that are not there."""
    folders = (location for location in locations if isinstance(location, Path))
    return tuple(folder for folder in folders if not os.path.isdir(os.path.expanduser(folder)))


def with_keys(location: Location, keys: Keys | None) -> Place:
    """``location``, where one of ``keys`` must have signed what is used; where any may, if None."""
    return location if keys is None else Signed(location, keys)


def location_of(place: Place) -> Location:
    """The folder or URL of ``place``."""
    return place.location if isinstance(place, Signed) else place


def place(text: str) -> Location:
    """The folder or registry that ``text`` names."""
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    return text.rstrip("/") if is_url(text) else Path(text)


def is_url(text: str) -> bool:
    """Whether ``text`` is a URL, and no path."""
    return re.match(_SCHEME, text) is not None


def user_folder() -> Path | None:
    """The profiles of this user; None for a user without a home folder."""
    return _absolute(user_data_dir, FOLDER)


def cache_folder() -> Path | None:
    """Copies of what was read from registries; None for a user without a home folder."""
    return _absolute(user_cache_dir, "registries")


def _all(environment: Mapping[str, str], script: Path | None) -> Iterator[Place]:
    yield Path(FOLDER)
    if script is not None:
        yield script.parent / FOLDER
    yield from filter(None, (user_folder(), _absolute(site_data_dir, FOLDER)))
    yield from named_places(environment)


def _absolute(folder: Callable[..., str], name: str) -> Path | None:
    """Without a home, platformdirs raises, or returns a path that begins with ``~``."""
    try:
        found = Path(folder(APPLICATION, appauthor=False)) / name
    except (OSError, KeyError, RuntimeError):
        return None
    return found if found.is_absolute() else None


def _split(text: str) -> Iterator[str]:
    """A colon in a URL ends it only before what is surely a path or another URL: ``https://host:8000/x:/folder``."""
    for part in re.split(r"[;\n]", text):
        yield from filter(None, (entry.strip() for entry in re.findall(_ENTRY, part)))


def _same(location: Location) -> str:
    """Equal for two names of one place."""
    return location if isinstance(location, str) else os.path.realpath(os.path.expanduser(location))
