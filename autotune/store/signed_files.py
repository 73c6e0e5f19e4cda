"""Profiles with their signatures, ``<target>.yaml.minisig``: two files that no registry replaces in one step.

A signature is first written beside the old one, then the profile, then the signature in its place. Who reads meanwhile
finds one of the two that fits, or reads again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Protocol

from autotune.core.errors import ProfileError
from autotune.store.files import Files
from autotune.store.signatures import MAX_BYTES, Keys, refusal

SUFFIX, NEXT = ".minisig", ".next.minisig"
TURNS = 4
"""How often files that are being replaced are read."""


class Readable(Protocol):
    """The part of `Files` that looking needs."""

    def read(self, name: str, most: int) -> bytes | None:
        """As that of `Files`."""


class Untrusted(ProfileError):
    """No trusted key signed the file."""


@dataclass(frozen=True)
class Stored:
    """A file's content, and its signature; None where there is none, or none was asked for."""

    content: bytes
    signature: bytes | None = None


def read(files: Readable, name: str, most: int, keys: Keys | None, shown: str) -> Stored | None:
    """The file ``name``; None where there is none. ``shown`` is what messages call it.

    Raises:
        Untrusted: none of ``keys`` signed it, or it is too large to be checked.
        ProfileError: it cannot be read.
    """
    why, before = "", ()  # type: str, tuple[bytes | None, ...]
    for _ in range(TURNS):
        content = files.read(name, most)
        if content is None:
            return None
        if keys is None:
            return Stored(content)
        if len(content) > most:
            raise Untrusted(f"{shown}: is larger than {most // 1024} KB, which no profile is")
        found: tuple[bytes | None, ...] = (content,)
        for suffix in (SUFFIX, NEXT):
            signature = files.read(name + suffix, MAX_BYTES)
            refused = refusal(content, signature, keys)
            if not refused:
                return Stored(content, signature)
            why = why if signature is None and why else refused
            found = (*found, signature)
        if found in (before, (content, None, None)):
            break  # nobody replaces them
        before = found
    raise Untrusted(f"{shown}: {why}")


def look(files: Readable, name: str, most: int) -> Stored | None:
    """The file ``name`` with the signature that lies beside it, neither of them checked; None where there is none.

    Raises:
        ProfileError: it cannot be read.
    """
    content = files.read(name, most)
    return Stored(content, files.read(name + SUFFIX, MAX_BYTES)) if content is not None else None


def put(files: Files, name: str, text: str, signature: str | None) -> None:
    """Write a profile and its signature; a signature of what was there before goes where there is no new one.

    Raises:
        ProfileError: it cannot be written.
    """
    if signature is None:
        files.write(name, text)
        remove_signatures(files, name)
        return
    files.write(name + NEXT, signature)
    files.write(name, text)
    files.write(name + SUFFIX, signature)
    with contextlib.suppress(ProfileError):  # not everybody who may write may remove; it does no harm
        files.remove(name + NEXT)


def remove_signatures(files: Files, name: str) -> None:
    """Remove the signatures of ``name``, where there are any.

    Raises:
        ProfileError: they cannot be removed.
    """
    for suffix in (SUFFIX, NEXT):
        if files.read(name + suffix, MAX_BYTES) is not None:
            files.remove(name + suffix)
