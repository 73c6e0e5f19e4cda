"""A registry at a URL. What is read from it is kept in the user's cache, and used where the registry is not reached."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

from autotune.core.errors import ProfileError
from autotune.store import fetch, layout, places, profiles, signed_files
from autotune.store.cache import Cache
from autotune.store.files import UrlFiles
from autotune.store.signatures import Keys
from autotune.store.signed_files import Stored

TRIES = 4
"""Writes of an index that another writer may have written at the same time."""


class Remote:
    """Reads and writes the profiles at ``url``. Looking never raises; what fails is in `notes`.

    Args:
        url: of the registry.
        cache: the folder of all copies; the user's if None.
        keys: one of them must have signed what is used; nothing needs a signature if None.
    """

    def __init__(self, url: str, cache: Path | None = None, keys: Keys | None = None) -> None:
        self.url, self.shown = url.rstrip("/"), fetch.shown(url)
        self._keys = keys
        self.stored = UrlFiles(self.url)
        self._cache = Cache(self.url, cache if cache is not None else places.cache_folder())
        self._said: list[str] = []
        self._down = ""
        self._copied = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the registry was not reached, or what of it cannot be used."""
        down = f"{self._down}: {'copies of what was read before are used' if self._copied else 'no copy can be used'}"
        problems = self._keys.problems if self._keys is not None else ()
        return tuple(dict.fromkeys([*problems, *([down] if self._down else []), *self._said]))

    def problem(self, path: Path) -> str:
        """Why the copy ``path`` is not to be used; empty where one of the keys signed it, or none is asked for."""
        try:
            name = f"{path.parent.name}/{path.name}"
            signed_files.read(self._cache, name, profiles.MAX_BYTES, self._keys, str(path))
        except ProfileError as error:
            return str(error)
        return ""

    def has(self, _key: str, _names: tuple[str, ...]) -> bool:
        """True: its index says so. Where that is wrong, it must not cost a request for each machine."""
        return True

    def files(self, key: str, names: tuple[str, ...]) -> list[Path]:
        """Copies of the files ``names`` of the machine ``key``, as far as the registry or the cache has them."""
        wanted = [name for name in names if not name.endswith(f".partial{layout.SUFFIX}")]
        found = (self._file(layout.in_registry(key, name)) for name in wanted)
        return [path for path in found if path is not None]

    def source(self, path: Path) -> str:
        """Where ``path`` comes from, for people."""
        return self._cache.source(path) or self.shown

    def keys(self, target: str) -> list[str]:
        """Machines that have a profile of ``target``, by its index; of the cache where the registry is not reached."""
        name = layout.index_name(target)
        found = self._stored(name, fetch.MAX_BYTES, None)
        text = found.content[: fetch.MAX_BYTES].decode("utf-8", "replace") if found is not None else ""
        if text and not self._down:
            with contextlib.suppress(ProfileError):
                self._cache.write(name, text)
        return sorted(layout.index_keys(text))

    def targets(self, key: str) -> list[str]:
        """Nothing: a registry is not listed."""
        return []

    def all_files(self) -> list[Path]:
        """The copies in the cache: a registry is not listed."""
        return self._cache.all_files()

    def put(self, key: str, file: str, text: str, signature: str | None = None) -> str:
        """Write a profile and its signature, and name its machine in the target's index. Returns where it is.

        Raises:
            ProfileError: the registry cannot be reached or written.
        """
        name = layout.in_registry(key, file)
        signed_files.put(self.stored, name, text, signature)
        self._index(layout.target_of(file), layout.safe_name(key), there=True)
        return f"{self.shown}/{name}"

    def check_there(self, key: str, file: str) -> None:
        """Does nothing where the profile is there, whatever it holds.

        Raises:
            ProfileError: it is not, or the registry cannot be reached.
        """
        name = layout.in_registry(key, file)
        if self.stored.read(name, profiles.MAX_BYTES) is None:
            raise ProfileError(f"{self.shown}/{name}: no such profile")

    def take_away(self, key: str, file: str) -> None:
        """Remove a profile and its place in the index.

        Raises:
            ProfileError: it is not there, or the registry cannot be reached or written.
        """
        self.check_there(key, file)
        name = layout.in_registry(key, file)
        self.stored.remove(name)
        signed_files.remove_signatures(self.stored, name)
        self._index(layout.target_of(file), layout.safe_name(key), there=False)

    def _index(self, target: str, key: str, *, there: bool) -> None:
        """Object stores have no locks: what was written is read again, and written again where another was faster."""
        name = layout.index_name(target)
        for turn in range(TRIES):
            if turn:
                time.sleep(random.uniform(0, 0.1 * 2**turn))
            raw = self.stored.read(name, fetch.MAX_BYTES) or b""
            known = layout.index_keys(raw.decode("utf-8", "replace"))
            if (key in known) == there:
                return
            wanted = known | {key} if there else known - {key}
            self.stored.write(name, layout.index_text(wanted))

    def _file(self, name: str) -> Path | None:
        """A copy of the profile ``name``. One that cannot be used never replaces one that can."""
        source = f"{self.shown}/{name}"
        try:
            found = self._stored(name, profiles.MAX_BYTES, self._keys)
            path = self._cache.keep(name, found, source) if found is not None else None
        except ProfileError as error:
            self._said.append(f"skipped {str(error).splitlines()[0]}")
            return None
        self._copied |= path is not None and bool(self._down)
        return path

    def _stored(self, name: str, most: int, keys: Keys | None) -> Stored | None:
        """The file ``name``; the copy where the registry is not reached; None where there is none.

        Raises:
            Untrusted: none of ``keys`` signed it.
        """
        shown = f"{self.shown}/{name}"
        if not self._down:
            try:
                found = signed_files.read(self.stored, name, most, keys, shown)
            except signed_files.Untrusted:
                raise
            except ProfileError as error:
                self._down = str(error)
            else:
                if found is None:
                    self._cache.forget(name)
                return found
        return signed_files.read(self._cache, name, most, keys, f"the copy of {shown}")
