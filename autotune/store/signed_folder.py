"""A registry in a folder that others write to, where profiles need a signature."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.core.errors import ProfileError
from autotune.store import places, profiles, signed_files
from autotune.store.cache import Cache
from autotune.store.folder import Folder
from autotune.store.signatures import Keys


class SignedFolder(Folder):
    """The profiles in ``root`` that one of ``keys`` signed.

    What is used is a copy of this user's own. Training reads it again when it starts: meanwhile, others could replace
    what was checked.
    """

    def __init__(self, root: Path, keys: Keys, cache: Path | None = None) -> None:
        super().__init__(root)
        self._keys = keys
        self._copies = Cache(os.path.realpath(self.root), cache if cache is not None else places.cache_folder())
        self._said: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Names of keys that are none, and what no key signed."""
        return tuple(dict.fromkeys([*self._keys.problems, *self._said]))

    def problem(self, path: Path) -> str:
        """Why the file ``path`` is not to be used; empty where one of the keys signed it."""
        try:
            self._checked(path)
        except ProfileError as error:
            return str(error)
        return ""

    def files(self, key: str, names: tuple[str, ...]) -> list[Path]:
        """Copies of those of the files ``names`` of the machine ``key`` that one of the keys signed."""
        return [copy for path in self._there(key, names) if (copy := self._copy(path)) is not None]

    def source(self, path: Path) -> str:
        """Where ``path`` comes from, for people."""
        return self._copies.source(path) or str(path)

    def _copy(self, path: Path) -> Path | None:
        try:
            return self._copies.keep(str(path.relative_to(self.root)), self._checked(path), str(path))
        except ProfileError as error:
            self._said.append(f"skipped {str(error).splitlines()[0]}")
            return None

    def _checked(self, path: Path) -> signed_files.Stored:
        name = str(path.relative_to(self.root))
        found = signed_files.read(self.stored, name, profiles.MAX_BYTES, self._keys, str(path))
        if found is None:
            raise ProfileError(f"{path}: no such file")
        return found
