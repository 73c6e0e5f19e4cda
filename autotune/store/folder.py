"""A registry in a folder: of a project, a user, a system, a shared file system, a git clone."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from autotune.core.errors import ProfileError
from autotune.store import atomic, layout, signed_files
from autotune.store.files import FolderFiles

LISTED = 500
"""Files of a folder that are read to list it: a wrong folder must not delay anybody."""


class Folder:
    """Reads and writes the profiles in ``root``. Looking never raises."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser() if str(root).startswith("~") else root
        self.shown = str(root)
        self.stored = FolderFiles(self.root)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing of a lookup; a folder has nothing to say."""
        return ()

    def problem(self, _path: Path) -> str:
        """Why the file ``path`` is not to be used, before it is read; empty where nothing speaks against it."""
        return ""

    def has(self, key: str, names: tuple[str, ...]) -> bool:
        """Whether the machine ``key`` has one of the files ``names``, whatever it holds. No folder is listed."""
        return bool(self._there(key, names))

    def files(self, key: str, names: tuple[str, ...]) -> list[Path]:
        """Those of the files ``names`` that the machine ``key`` has and that may be read."""
        return self._there(key, names)

    def source(self, path: Path) -> str:
        """Where ``path`` comes from, for people."""
        return str(path)

    def keys(self, target: str) -> list[str]:
        """Machines that have profiles, of whatever target."""
        return [entry.name for entry in _entries(self.root) if _is_plain(entry.name) and _is_folder(entry)]

    def targets(self, key: str) -> list[str]:
        """Names of files in the folder of the machine ``key``, without reading them."""
        names = (entry.name for entry in _entries(self.root / layout.safe_name(key)))
        return sorted({layout.target_of(name) for name in names if _is_profile(name)})

    def all_files(self) -> list[Path]:
        """Every profile's file, at most `LISTED`."""
        found: list[Path] = []
        for key in sorted(self.keys("")):
            names = sorted(entry.name for entry in _entries(self.root / key) if _is_profile(entry.name))
            found += [self.root / key / name for name in names]
            if len(found) > LISTED:
                break
        return found[:LISTED]

    def put(self, key: str, file: str, text: str, signature: str | None = None) -> str:
        """Write a profile and its signature, and name its machine in the target's index. Returns where it is.

        Raises:
            ProfileError: the folder cannot be written.
        """
        name = layout.in_registry(key, file)
        signed_files.put(self.stored, name, text, signature)
        self._index(layout.target_of(file), layout.safe_name(key), there=True)
        return str(self.root / name)

    def check_there(self, key: str, file: str) -> None:
        """Does nothing where the profile is there.

        Raises:
            ProfileError: it is not.
        """
        if not self.has(key, (file,)):
            raise ProfileError(f"{self.root / layout.in_registry(key, file)}: no such profile")

    def take_away(self, key: str, file: str) -> None:
        """Remove a profile and its place in the index.

        Raises:
            ProfileError: it is not there, or the folder cannot be written.
        """
        self.check_there(key, file)
        name = layout.in_registry(key, file)
        self.stored.remove(name)
        signed_files.remove_signatures(self.stored, name)
        with contextlib.suppress(OSError):
            (self.root / name).parent.rmdir()
        target = layout.target_of(file)
        if not self.has(key, layout.file_names(target)):
            self._index(target, layout.safe_name(key), there=False)

    def _there(self, key: str, names: tuple[str, ...]) -> list[Path]:
        folder = self.root / layout.safe_name(key)
        return [path for name in names if os.path.lexists(path := folder / name)]

    def _index(self, target: str, key: str, *, there: bool) -> None:
        """Web servers over this folder cannot list it: the index says which machines have the target."""
        path = self.root / layout.index_name(target)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic.locked(path.parent):
                known = layout.index_keys(path.read_text("utf-8", "replace") if path.exists() else "")
                wanted = known | {key} if there else known - {key}
                if wanted != known:
                    atomic.replace(path, layout.index_text(wanted))
        except OSError as error:
            raise ProfileError(f"{path}: cannot be written ({error.strerror or error})") from error


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and entry.name != layout.INDEX
    except OSError:
        return False


def _is_profile(name: str) -> bool:
    return name.endswith(layout.SUFFIX) and _is_plain(name)


def _is_plain(name: str) -> bool:
    """Whether ``name`` may be shown: others' file names can hold anything. Hidden files are no profiles."""
    return re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", name) is not None
