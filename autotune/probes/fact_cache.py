"""Facts that are slow to find, kept in a private folder of the user."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Facts = dict[str, Any]
CACHE_ENTRIES = 64
"""Most files in the cache; older ones are deleted."""


class FactCache:
    """Slow facts by name and key, in the user's cache folder."""

    def cache_folder(self) -> Path | None:
        """A private, writable folder for cached facts: the user's cache folder, else a temporary one."""
        import platformdirs

        temporary = Path(tempfile.gettempdir()) / f"torch-autotune-{os.geteuid()}"
        for folder in (platformdirs.user_cache_path("torch-autotune", appauthor=False), temporary):
            if _is_private(folder):
                return folder
        return None

    def remember(self, name: str, key: object, compute: Callable[[], Facts]) -> Facts:
        """``compute()``, or its cached result for an equal ``key``. An exception is not cached."""
        folder = self.cache_folder()
        if folder is None:
            return compute()
        path = folder / _file(name, key)
        found = _load(path)
        if found is None:
            found = compute()
            _save(path, found)
        return found

    def lowest(self, name: str, key: object, values: Mapping[str, float]) -> dict[str, float]:
        """For each name the lowest of ``values`` so far, for an equal ``key``."""
        folder = self.cache_folder()
        known = (_load(folder / _file(name, key)) if folder else None) or {}
        found = {**known, **{each: min(value, float(known.get(each, value))) for each, value in values.items()}}
        if folder is not None and found != known:
            _save(folder / _file(name, key), found)
        return found


def _is_private(folder: Path) -> bool:
    """Create the folder if needed. True where only this user can write to it: others could plant facts."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022 and os.access(folder, os.W_OK)


def _file(name: str, key: object) -> str:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()[:20]
    return f"{name}-{digest}.json"


def _load(path: Path) -> Facts | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _save(path: Path, facts: Facts) -> None:
    """Write atomically. A failure is ignored: the facts are computed again next time."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
            json.dump(facts, file)
        os.replace(file.name, path)
        newest_first = sorted(path.parent.glob("*.json"), key=lambda found: found.stat().st_mtime, reverse=True)
        for old in newest_first[CACHE_ENTRIES:]:
            old.unlink()
    except OSError:
        pass
