"""Keeps hosts, users, paths and serial numbers out of files that people share."""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PUBLIC_PATHS = ("/dev/shm", "/proc", "/sys")
"""Paths that are the same on every machine; reasons of failures name them."""
_PATH = re.compile(r"(?<![\w/.])(?:~|[A-Za-z]:)?[/\\](?:[^\s'\",:;()\[\]<>|]+)")
_UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_SPACES = re.compile(r"\s+")


def private_names() -> tuple[str, ...]:
    """This machine's host name and this user's names, where long enough to be recognised in a text."""
    found = {platform.node(), platform.node().split(".")[0], *_user()}
    common = {"root", "user", "localhost", "home", "cpu", "gpu", "amp", "max", "safe", "torch", "train", "data"}
    return tuple(sorted((name for name in found if len(name) >= 3 and name.lower() not in common), key=len)[::-1])


def _user() -> tuple[str, ...]:
    try:
        return getpass.getuser(), Path.home().name
    except (OSError, KeyError, RuntimeError, ImportError):  # a container may run under an id without a name
        return ()


def redact(text: str, private: Iterable[str], most: int) -> str:
    """``text`` on one line, printable, at most ``most`` characters, without paths, uuids and ``private`` names."""
    text = _SPACES.sub(" ", text).strip()
    text = "".join(character if character.isprintable() else "?" for character in text)
    text = _UUID.sub("<uuid>", text)
    text = _PATH.sub(lambda match: match[0] if match[0].startswith(PUBLIC_PATHS) else "<path>", text)
    for name in private:
        text = re.sub(rf"(?<![\w]){re.escape(name)}(?![\w])", "<name>", text)
    return text if len(text) <= most else text[: most - 3] + "..."


def redact_value(value: Any, private: Iterable[str], most: int) -> Any:
    """``value`` where it is a plain number, word or null; its cleaned text otherwise."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return redact(str(value), private, most)
