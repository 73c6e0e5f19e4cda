"""Files of a registry, by their names in it: in a folder, or at a URL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from autotune.core.errors import ProfileError
from autotune.store import fetch, plain_file, profiles


class Files(Protocol):
    """What every registry can do with a file."""

    def read(self, name: str, most: int) -> bytes | None:
        """At most ``most`` + 1 bytes of the file ``name``; None where there is none.

        Raises:
            ProfileError: it cannot be read.
        """

    def write(self, name: str, text: str) -> None:
        """Replace the file ``name``.

        Raises:
            ProfileError: it cannot be written.
        """

    def remove(self, name: str) -> None:
        """Remove the file ``name``; nothing where there is none.

        Raises:
            ProfileError: it cannot be removed.
        """


class FolderFiles:
    """`Files` below the folder ``root``. They are replaced in one step."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: str, most: int) -> bytes | None:
        """As `Files.read`."""
        try:
            return plain_file.read(self.root / name, most)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ProfileError(f"{self.root / name}: cannot be read ({error.strerror or error})") from error

    def write(self, name: str, text: str) -> None:
        """As `Files.write`."""
        profiles.write_text(self.root / name, text)

    def remove(self, name: str) -> None:
        """As `Files.remove`."""
        try:
            (self.root / name).unlink(missing_ok=True)
        except OSError as error:
            raise ProfileError(f"{self.root / name}: cannot be removed ({error.strerror or error})") from error


class UrlFiles:
    """`Files` below ``url``. What follows ``?`` in the address of a web server stays behind each name."""

    def __init__(self, url: str) -> None:
        self._base, self._query = _without_query(url)

    def read(self, name: str, most: int) -> bytes | None:
        """As `Files.read`."""
        return fetch.read(self._address(name), most)

    def write(self, name: str, text: str) -> None:
        """As `Files.write`."""
        fetch.write(self._address(name), text.encode())

    def remove(self, name: str) -> None:
        """As `Files.remove`."""
        fetch.remove(self._address(name))

    def _address(self, name: str) -> str:
        return f"{self._base.rstrip('/')}/{name}{self._query}"


def at_url(url: str) -> tuple[Files, str]:
    """The file at ``url``, as its name among the files of its folder."""
    base, query = _without_query(url)
    folder, _, name = base.rpartition("/")
    return UrlFiles(f"{folder}{query}"), name


def _without_query(url: str) -> tuple[str, str]:
    """The address of a file on a web server, and what follows it; other registries have nothing that follows."""
    base = re.split("[?#]", url, maxsplit=1)[0] if url.startswith(("http://", "https://")) else url
    return base, url[len(base) :]
