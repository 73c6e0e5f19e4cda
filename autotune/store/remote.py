"""A registry at a URL. What is read from it is kept in the user's cache, and used where the registry is not reached."""

from __future__ import annotations

import random
import time
from pathlib import Path

from autotune.core.errors import ProfileError
from autotune.store import fetch, layout, places, profiles
from autotune.store.cache import Cache

TRIES = 4
"""Writes of an index that another writer may have written at the same time."""


class Remote:
    """Reads and writes the profiles at ``url``. Looking never raises; what fails is in `notes`."""

    def __init__(self, url: str, cache: Path | None = None) -> None:
        self.url, self.shown = url.rstrip("/"), fetch.shown(url)
        self._cache = Cache(self.url, cache if cache is not None else places.cache_folder())
        self._said: list[str] = []
        self._down = ""
        self._copied = False
        self._sources: dict[Path, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the registry was not reached, or what of it cannot be used."""
        down = f"{self._down}: {'copies of what was read before are used' if self._copied else 'no copy is here'}"
        return tuple(dict.fromkeys([*([down] if self._down else []), *self._said]))

    def files(self, key: str, names: tuple[str, ...]) -> list[Path]:
        """Copies of the files ``names`` of the machine ``key``, as far as the registry or the cache has them."""
        wanted = [name for name in names if not name.endswith(f".partial{layout.SUFFIX}")]
        found = (self._file(f"{layout.safe_name(key)}/{name}") for name in wanted)
        return [path for path in found if path is not None]

    def source(self, path: Path) -> str:
        """Where ``path`` comes from, for people."""
        return self._sources.get(path, self.shown)

    def keys(self, target: str) -> list[str]:
        """Machines that have a profile of ``target``, by its index; of the cache where the registry is not reached."""
        text = self._read(layout.index_name(target), fetch.MAX_BYTES)
        return sorted(layout.index_keys(text)) if text is not None else []

    def targets(self, key: str) -> list[str]:
        """Nothing: a registry is not listed."""
        return []

    def all_files(self) -> list[Path]:
        """The copies in the cache: a registry is not listed."""
        return self._cache.all_files()

    def put(self, key: str, file: str, text: str) -> str:
        """Write a profile's ``text``, and name its machine in the target's index. Returns where it is.

        Raises:
            ProfileError: the registry cannot be reached or written.
        """
        name = f"{layout.safe_name(key)}/{file}"
        fetch.write(f"{self.url}/{name}", text.encode())
        self._index(layout.target_of(file), layout.safe_name(key), there=True)
        return f"{self.shown}/{name}"

    def check_there(self, key: str, file: str) -> None:
        """Does nothing where the profile is there, whatever it holds.

        Raises:
            ProfileError: it is not, or the registry cannot be reached.
        """
        name = f"{layout.safe_name(key)}/{file}"
        if fetch.read(f"{self.url}/{name}", profiles.MAX_BYTES) is None:
            raise ProfileError(f"{self.shown}/{name}: no such profile")

    def take_away(self, key: str, file: str) -> None:
        """Remove a profile and its place in the index.

        Raises:
            ProfileError: it is not there, or the registry cannot be reached or written.
        """
        self.check_there(key, file)
        name = f"{layout.safe_name(key)}/{file}"
        fetch.remove(f"{self.url}/{name}")
        self._index(layout.target_of(file), layout.safe_name(key), there=False)

    def _index(self, target: str, key: str, *, there: bool) -> None:
        """Object stores have no locks: what was written is read again, and written again where another was faster."""
        name = layout.index_name(target)
        for turn in range(TRIES):
            if turn:
                time.sleep(random.uniform(0, 0.1 * 2**turn))
            raw = fetch.read(f"{self.url}/{name}") or b""
            known = layout.index_keys(raw.decode("utf-8", "replace"))
            if (key in known) == there:
                return
            wanted = known | {key} if there else known - {key}
            fetch.write(f"{self.url}/{name}", layout.index_text(wanted).encode())

    def _file(self, name: str) -> Path | None:
        """A copy of the profile ``name``. One that cannot be read never replaces one that can."""
        text = self._read(name, profiles.MAX_BYTES)
        if text is None:
            return None
        source = f"{self.shown}/{name}"
        try:
            profiles.parse(text, source)
        except ProfileError as error:
            self._said.append(f"skipped {str(error).splitlines()[0]}")
            return None
        path = self._cache.keep(name, text)
        if path is None:
            self._said.append(f"{source}: no folder for a copy can be written")
        else:
            self._sources[path] = source
            self._copied |= bool(self._down)
        return path

    def _read(self, name: str, most: int) -> str | None:
        """The text of ``name``; the copy where the registry is not reached; None where there is none."""
        if not self._down:
            try:
                raw = fetch.read(f"{self.url}/{name}", most)
            except ProfileError as error:
                self._down = str(error)
            else:
                return self._text(name, raw, most)
        return self._cache.read(name)

    def _text(self, name: str, raw: bytes | None, most: int) -> str | None:
        if raw is None:
            self._cache.forget(name)
            return None
        if len(raw) > most:
            self._said.append(f"skipped {self.shown}/{name}: is larger than {most // 1024} KB")
            return None
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            self._said.append(f"skipped {self.shown}/{name}: is not UTF-8 text")
            return None
        if name.startswith(f"{layout.INDEX}/"):
            self._cache.keep(name, text)
        return text
