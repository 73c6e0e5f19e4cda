"""The project that a script belongs to, and the name under which its profiles are kept."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARKS = (".git", "pyproject.toml")
"""What marks the top folder of a project, the surest first."""
TABLE = "torch-autotune"
"""Of ``[tool]`` in pyproject.toml."""
MOST_BYTES = 100
"""Of a name: file systems take 255, and endings are added."""


def marked_root(folder: Path) -> Path | None:
    """Return the nearest folder with a mark, from ``folder`` upwards; None if there is none."""
    above = (folder, *folder.parents)
    return next((each for mark in MARKS for each in above if os.path.lexists(each / mark)), None)


def root(script: Path) -> Path:
    """Return the top folder of the project of ``script``, which is absolute; its own folder if nothing marks one."""
    return marked_root(script.parent) or script.parent


def called(script: Path) -> str:
    """Return the name of the project of ``script``: of its top folder; empty if nothing marks that, or it is a home."""
    top = marked_root(Path(os.path.realpath(script)).parent)
    return "" if top is None or str(top) == os.path.realpath(os.path.expanduser("~")) else safe_name(top.name)


def name_of(script: Path) -> str:
    """Return the target's name of a script or task file: ``vision.train`` for ``vision/train.py`` of its project.

    A package that is run by its ``__main__.py`` has its own name.
    """
    script = Path(os.path.realpath(script))
    own = script.parent if script.stem == "__main__" else script.with_suffix("")
    parts = own.relative_to(root(script)).parts if own != root(script) else (own.name,)
    return safe_name(".".join(parts))


def names_of(script: Path) -> tuple[str, ...]:
    """Return `name_of` the script, then its name in earlier versions, unless a script at the top is called so now."""
    script = Path(os.path.realpath(script))
    stem = script.parent.name if script.stem == "__main__" else script.stem
    taken = os.path.lexists(root(script) / f"{stem}{script.suffix}")
    return tuple(dict.fromkeys((name_of(script), *([] if taken else [stem]))))


def safe_name(text: str) -> str:
    """Return ``text`` as one visible file name: letters and digits of any alphabet, ``_``, ``-`` and inner dots.

    Different texts have different names: one that had to be changed ends with a digest of the text.
    """
    plain = re.sub(r"[^\w.\-]+", "-", text).strip(".-") or "unnamed"
    return plain if plain == text and len(plain.encode()) <= MOST_BYTES else with_digest(plain, text)


def with_digest(name: str, text: str) -> str:
    """Return ``name``, cut if it is long, with a digest of ``text``: another file name for every text."""
    import hashlib  # most names are plain

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name.encode()[: MOST_BYTES - 9].decode(errors='ignore')}-{digest}"


def working_folder() -> Path | None:
    """Return the working folder; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def folders(script: Path | None) -> Iterator[Path]:
    """Yield the folders that may hold a project's files: the working folder, then those from the script's upwards.

    The working folder does not count if it is in another project than the ``script``. Without a script, all starts at
    the working folder.
    """
    here = working_folder()
    start = Path(os.path.realpath(script.parent)) if script is not None else here
    if start is None:
        return
    top = marked_root(start) or start
    if here is not None and marked_root(here) in (None, top):
        yield here
    yield from (each for each in (start, *start.parents) if each.is_relative_to(top))


def stated(script: Path | None = None) -> tuple[Path, dict[str, Any]]:
    """Return the nearest pyproject.toml with a table ``[tool.torch-autotune]``, and that table; it may be empty.
    Raise `ValueError` if a file that may have one cannot be read, or is not TOML."""
    for folder in folders(script):
        path = folder / "pyproject.toml"
        try:
            found = _table(path) if stat.S_ISREG(path.stat().st_mode) else {}  # no pipe, no device
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
        if found:
            return path, found
    return Path(), {}


def _table(path: Path) -> dict[str, Any]:
    text = path.read_bytes()
    if TABLE.encode() not in text:
        return {}
    if sys.version_info >= (3, 11):  # few projects have the table: not at the top
        import tomllib
    else:
        import tomli as tomllib
    tools = tomllib.loads(text.decode("utf-8-sig")).get("tool", {})
    found = tools.get(TABLE, {}) if isinstance(tools, dict) else tools
    if not isinstance(found, dict):
        raise ValueError("it is no table")
    return found
