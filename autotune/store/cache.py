"""Copies of what was read from a registry: they are used where it is not reached, and nobody else can replace them."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from pathlib import Path

from autotune.core.errors import ProfileError
from autotune.store import plain_file, profiles, signed_files
from autotune.store.folder import Folder
from autotune.store.signed_files import Stored


class Cache:
    """The copies of the files of one registry. Nobody else can read them.

    Args:
        place: the registry's URL or folder.
        root: the folder of all copies; None where this user has none.
    """

    def __init__(self, place: str, root: Path | None) -> None:
        self.folder = root / hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:16] if root else None
        self._sources: dict[Path, str] = {}

    def read(self, name: str, most: int) -> bytes | None:
        """At most ``most`` + 1 bytes of the copy of ``name``; None where there is none that can be read."""
        try:
            return plain_file.read(self.folder / name, most) if self.folder is not None else None
        except OSError:
            return None

    def write(self, name: str, text: str) -> None:
        """Replace the copy of ``name``.

        Raises:
            ProfileError: it cannot be written.
        """
        if self.folder is None:
            raise ProfileError("this user has no folder for copies")
        if self.read(name, len(text.encode())) != text.encode():
            profiles.write_text(self.folder / name, text, private=True)

    def remove(self, name: str) -> None:
        """Remove the copy of ``name``, where that can be done."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()

    def source(self, path: Path) -> str | None:
        """Where the copy ``path`` comes from, for people; None where it is none that was kept just now."""
        return self._sources.get(path)

    def keep(self, name: str, found: Stored, source: str) -> Path:
        """Keep a profile of the registry, which messages call ``source``, as a copy; without a folder that can be
        written, in a new one of this process. What is no profile replaces none.

        Raises:
            ProfileError: no valid profile, or no folder.
        """
        text = profiles.decoded(found.content, source)
        profiles.parse(text, source)
        path = self._write(name, text, found)
        self._sources[path] = source
        return path

    def _write(self, name: str, text: str, found: Stored) -> Path:
        with contextlib.suppress(ProfileError):
            if found.signature is not None:
                signed_files.put(self, name, text, found.signature.decode())
            else:  # none was asked for: that of an earlier copy may still fit
                self.write(name, text)
            if self.folder is not None:
                return self.folder / name
        try:
            return profiles.write_text(Path(tempfile.mkdtemp(prefix="torch-autotune-")) / name, text, private=True)
        except (ProfileError, OSError) as error:
            raise ProfileError(f"{name}: no folder for a copy can be written") from error

    def forget(self, name: str) -> None:
        """Remove the copy of ``name``: the registry has none."""
        for each in (name, name + signed_files.SUFFIX, name + signed_files.NEXT):
            self.remove(each)

    def all_files(self) -> list[Path]:
        """The copies of profiles."""
        return Folder(self.folder).all_files() if self.folder is not None else []
