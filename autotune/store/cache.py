"""Copies of what was read from a registry: they are used where it is not reached."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from pathlib import Path

from autotune.core.errors import ProfileError
from autotune.store import profiles
from autotune.store.folder import Folder


class Cache:
    """The copies of the files of one registry. Nobody else can read them.

    Args:
        url: of the registry.
        root: the folder of all copies; None where this user has none.
    """

    def __init__(self, url: str, root: Path | None) -> None:
        self.folder = root / hashlib.sha256(url.encode()).hexdigest()[:16] if root is not None else None

    def read(self, name: str) -> str | None:
        """The copy of ``name``; None where there is none."""
        try:
            return (self.folder / name).read_text("utf-8") if self.folder is not None else None
        except (OSError, UnicodeDecodeError):
            return None

    def keep(self, name: str, text: str) -> Path | None:
        """Write a copy; without a folder that can be written, into a new one of this process; None if neither can."""
        with contextlib.suppress(ProfileError):
            if self.folder is not None:
                return profiles.write_text(self.folder / name, text, private=True)
        try:
            return profiles.write_text(Path(tempfile.mkdtemp(prefix="torch-autotune-")) / name, text, private=True)
        except (ProfileError, OSError):
            return None

    def forget(self, name: str) -> None:
        """Remove the copy of ``name``: the registry has none."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()

    def all_files(self) -> list[Path]:
        """The copies of profiles."""
        return Folder(self.folder).all_files() if self.folder is not None else []
