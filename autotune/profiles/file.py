"""Profile files: read without trust, written in one step.

What is read is at most 64 KB of plain YAML (`autotune.profiles.strict_yaml`) that keeps every limit of the format. What
cannot be read or written is a `ProfileError`: what happened, in which file, what to do.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import getpass
import os
import platform
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.errors import ProfileError, UsageError
from autotune.profiles import strict_yaml
from autotune.profiles.format import MAX_NAME, SCHEMA, Profile, from_data, look_alike
from autotune.profiles.places import default_path, file_name, user_folder
from autotune.profiles.records import Refused, quote
from autotune.profiles.strict_yaml import MAX_ITEMS, MAX_TEXT, Problem

MAX_BYTES = 64 * 1024
RETUNE = "Tune again to get a fresh one (autotune tune ...)."
ADVICE = "Choose another place: --profile OUT.yaml"
HEADER = """\
# Training settings measured by torch-autotune on one type of machine. Plain data: safe to read and to share.
#   start training with it    autotune run --profile {name} train.py
#   or inside a script        tuned = autotune.load("{name}")
#   look at it                autotune show {name}
"""
LISTS = ("failures", "not_offered", "warnings")
PUBLIC_PATHS = ("/dev/shm", "/proc", "/sys")
"""Paths that are the same on every machine; reasons of failures name them."""
COMMON_NAMES = {"root", "user", "localhost", "home", "cpu", "gpu", "amp", "max", "safe", "torch", "train", "data"}
_PATH = re.compile(r"(?<![\w/.])(?:~|[A-Za-z]:)?[/\\](?:[^\s'\",:;()\[\]<>|]+)")
_UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")


def read(path: Path | str) -> Profile:
    """Return the profile in the file ``path``."""
    try:
        return parse(read_plain(Path(path)), str(path))
    except FileNotFoundError:
        raise ProfileError(f"{path}: no such file. See which profiles there are: autotune profiles list") from None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({reason_of(error)}).") from error


def parse(content: bytes | str, name: str) -> Profile:
    """Return the profile in ``content``; errors call it ``name``."""
    try:
        data, lines = strict_yaml.load(_text(content))
        _check_schema(data)
        return from_data(data)
    except Refused as refused:
        line = lines.get(refused.path) or lines.get(refused.path[:-1])  # if a key is missing, its group's line
        place = f"line {line}: " if line else ""
        raise ProfileError(f"{name}: {place}{refused}\nCorrect the file, or tune again.") from None
    except (Problem, RecursionError) as problem:
        raise ProfileError(f"{name}: {problem}. {RETUNE}") from None


def read_plain(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return at most ``most`` + 1 bytes of the plain file ``path``. Opening a named pipe does not block.

    Raises:
        OSError: it cannot be read, or is no plain file.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a plain file")
        return file.read(most + 1)


def reason_of(error: OSError) -> str:
    """Return what the system says, without the path."""
    return error.strerror or str(error)


def _text(content: bytes | str) -> str:
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    if b"\0" in raw and not raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Problem("is a binary file, not a profile")
    if len(raw) > MAX_BYTES:
        raise Problem(f"is larger than {MAX_BYTES // 1024} KB, which no profile is")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem(f"is not UTF-8 text (byte {error.start})") from None


def _check_schema(data: Any) -> None:
    if not isinstance(data, dict):
        raise Problem("is empty" if data is None else "is not a profile")
    if "schema" not in data:
        raise Problem("has no key 'schema', so it is no profile")
    if data["schema"] != SCHEMA:
        raise Problem(f"schema: {quote(data['schema'])} is not {SCHEMA}: another version of torch-autotune wrote it")


def dump(profile: Profile, name: str = "PROFILE") -> str:
    """Return the file's text, header included. The same profile always gives the same text."""
    header, data = HEADER.format(name=public(name, (), MAX_NAME)), to_data(profile)
    text = header + strict_yaml.dump(data)
    for most in (50, 10, 0):  # the settings matter more than the last of a thousand failures
        if len(text.encode()) <= MAX_BYTES:
            break
        data["evidence"].update({key: data["evidence"][key][:most] for key in LISTS})
        text = header + strict_yaml.dump(data)
    parse(text, name)
    return text


def to_data(profile: Profile) -> dict[str, Any]:
    """Return what the file (and ``--json``) holds: plain data in the file's order, with private names taken out."""
    data, names = profile.as_dict(), private_names()
    name = public(profile.target.name, (), MAX_NAME) or "target"
    data["target"]["name"] = name.encode("ascii", "replace").decode() if look_alike(name) else name
    data["software"] = _public_data(data["software"], names)
    data["evidence"] = _public_data(data["evidence"], names)
    for level in data["levels"].values():
        level["note"] = public(level["note"], names)
    for key in LISTS:
        data["evidence"][key] = data["evidence"][key][:MAX_ITEMS]
    return data


def write(path: Path | str, profile: Profile) -> Path:
    """Write ``profile`` to ``path`` in one step: readers see the old file or the new one, never a part.

    A partial profile (of an interrupted run) only replaces another partial one. Otherwise it is written beside the
    file, to ``NAME.partial.yaml``. Returns where the profile is now.
    """
    path = Path(path)
    while profile.evidence.partial and os.path.lexists(path) and not _is_partial(path):
        path = path.with_name(f"{path.stem}.partial{path.suffix}")
    return write_text(path, dump(profile, path.name))


def write_text(path: Path, text: str, *, private: bool = False) -> Path:
    """Write ``text`` to ``path`` in one step, in a folder that is made if it is missing. Returns ``path``.

    A link, device or pipe is never replaced. If writing fails, the old file stays and nothing is left behind. What is
    ``private`` nobody else may read.
    """
    try:
        _check_replaceable(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o600 if private else 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({reason_of(error)})") from error
    return path


def checked_place(path: Path) -> Path:
    """Return ``path``, in a folder that is there: a run finds out before it begins that it cannot write its profile.

    Raises:
        UsageError: it cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder. Name the profile's file: --profile {path / 'OUT.yaml'}")
    try:
        _check_replaceable(path)
        _check_folder(path.parent)
    except OSError as error:
        raise UsageError(f"{path}: a profile cannot be written there ({reason_of(error)}). {ADVICE}") from error
    return path


def own_place(machine_key: str, target: str) -> Path:
    """Return where the profile of a run belongs: in the project, or in the user's folder if the project is read-only.

    Raises:
        UsageError: neither can be written, or something other than a plain file is there.
    """
    path, own = default_path(machine_key, target), user_folder()
    try:
        _check_folder(path.parent)
    except OSError:
        if own is not None:
            with contextlib.suppress(UsageError):
                return checked_place(default_path(machine_key, target, own))
    return checked_place(path)


def save(path: Path, profile: Profile) -> tuple[Path, str]:
    """Write ``profile`` to ``path``; else to the user's folder, else to the temporary one.

    Returns where it is, and why it is not at ``path`` (empty if it is).
    """
    try:
        return write(path, profile), ""
    except ProfileError as error:
        first = error
    for other in _other_places(profile):
        with contextlib.suppress(ProfileError, OSError):
            return write(other, profile), str(first)
    raise ProfileError(f"{first}. {ADVICE}")


def _other_places(profile: Profile) -> Iterator[Path]:
    target, own = profile.target, user_folder()
    if own is not None:
        yield default_path(profile.key, target.name, own)
    yield Path(tempfile.mkdtemp(prefix="torch-autotune-")) / file_name(target.name)


def _check_folder(folder: Path) -> None:
    """Make ``folder`` if it is missing, and raise `OSError` if no file can be made in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _check_replaceable(path: Path) -> None:
    """Raise `OSError` if something other than a plain file is at ``path``. A link is not followed."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
            raise OSError(errno.EINVAL, f"it is {what}, and only plain files are replaced")


def _is_partial(path: Path) -> bool:
    """Return True if ``path`` is a partial profile. A file that cannot be read is kept."""
    try:
        return read(path).evidence.partial
    except ProfileError:
        return False


def private_names() -> tuple[str, ...]:
    """Return this machine's host name and this user's names, those that are long enough to be recognised in a text."""
    found = {platform.node(), platform.node().split(".")[0]}
    with contextlib.suppress(OSError, KeyError, RuntimeError, ImportError):  # a container's user may have no name
        found |= {getpass.getuser(), Path.home().name}
    names = (name for name in found if len(name) >= 3 and name.lower() not in COMMON_NAMES)
    return tuple(sorted(names, key=len, reverse=True))


def public(text: str, private: tuple[str, ...], most: int = MAX_TEXT) -> str:
    """Return ``text`` on one printable line of up to ``most`` letters, without paths, UUIDs and ``private`` names."""
    text = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    text = _UUID.sub("<uuid>", text)
    text = _PATH.sub(lambda found: found[0] if found[0].startswith(PUBLIC_PATHS) else "<path>", text)
    for name in private:
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "<name>", text)
    return text if len(text) <= most else text[: most - 3] + "..."


def _public_data(value: Any, private: tuple[str, ...]) -> Any:
    """Return ``value`` with every text in it made `public`."""
    if isinstance(value, dict):
        return {key: _public_data(item, private) for key, item in value.items()}
    if isinstance(value, list):
        return [_public_data(item, private) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else public(str(value), private)
