"""Files of a remote registry, through fsspec: bounded in size and time, and without credentials in any message.

fsspec and the packages of its file systems (s3fs, gcsfs, aiohttp ...) are imported when a URL is used, not before.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from autotune.core.errors import ProfileError
from autotune.core.near import did_you_mean

SECONDS = 10.0
"""A request that takes longer is given up: training must start."""
MAX_BYTES = 1 << 20
MAX_REDIRECTS = 3
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "http": {"max_redirects": MAX_REDIRECTS, "client_kwargs": {"trust_env": True}},
    "s3": {"config_kwargs": {"connect_timeout": 4, "read_timeout": 4, "retries": {"max_attempts": 1}}},
}
WRITABLE_NOT = ("http", "https", "github", "git")
"""Protocols by which files are read only."""
OF_THIS_PROCESS = "memory"
"""The protocol of files that end with the process."""


class Unreachable(ProfileError):
    """The registry did not answer in time, or not in a way that can be understood."""


def read(url: str, most: int = MAX_BYTES) -> bytes | None:
    """The content of ``url``, at most ``most`` + 1 bytes of it; None where there is no such file.

    Raises:
        Unreachable: no answer within `SECONDS`, or an error of the registry.
    """

    def work() -> bytes | None:
        files, path = _open(url)
        try:
            if not _protocol(url).startswith("http"):
                return bytes(files.cat_file(path, start=0, end=most + 1))
            with files.open(path, "rb", block_size=0, size=1) as file:
                return _at_most(file, most + 1)
        except FileNotFoundError:
            return None

    found: bytes | None = _in_time(work, url)
    return found


def write(url: str, content: bytes) -> None:
    """Replace the file at ``url``.

    Raises:
        Unreachable: as `read`.
        ProfileError: the registry is read only.
    """
    check_writable(url)

    def work() -> None:
        files, path = _open(url)
        if _protocol(url) in ("sftp", "ssh", "smb", "local"):
            files.makedirs(path.rpartition("/")[0], exist_ok=True)
        files.pipe_file(path, content)

    _in_time(work, url)


def remove(url: str) -> None:
    """Remove the file at ``url``; nothing where there is none.

    Raises:
        Unreachable: as `read`.
        ProfileError: the registry is read only.
    """
    check_writable(url)

    def work() -> None:
        files, path = _open(url)
        try:
            files.rm_file(path)
        except FileNotFoundError:
            return

    _in_time(work, url)


def shown(url: str) -> str:
    """``url`` without user, password, query and fragment, for messages and files."""
    text = re.sub(r"[?#].*", "", url)
    text = re.sub(r"://[^/]*@", "://", text) if not text.startswith(("github:", "git:")) else text
    text = re.sub(r"[^\x21-\x7e]", "?", text)
    return text if len(text) <= 200 else text[:200] + "..."


def _protocol(url: str) -> str:
    return url.partition("://")[0]


def check_writable(url: str) -> None:
    """Does nothing where files may be written at ``url``.

    Raises:
        ProfileError: they may not.
    """
    if _protocol(url) == OF_THIS_PROCESS:
        raise ProfileError(
            f"{shown(url)}: nobody else could read it, and it ends with this command. Name another place"
        )
    if _protocol(url) in WRITABLE_NOT:
        raise ProfileError(
            f"{shown(url)}: files can only be read there. Push to the folder or bucket behind it: profiles push --to"
        )


def _open(url: str) -> tuple[Any, str]:
    """fsspec's file system and path of ``url``."""
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import available_protocols, registry
    except ImportError:
        raise ProfileError("registries at a URL need fsspec: pip install 'torch-autotune[remote]'") from None
    protocol = _protocol(url).replace("https", "http")
    known = {*available_protocols(), *registry}
    if protocol not in known:
        raise ProfileError(f"{shown(url)}: {protocol}:// is no scheme that fsspec knows{did_you_mean(protocol, known)}")
    try:
        files, path = url_to_fs(url, **OPTIONS.get(protocol, {}), use_listings_cache=False)
    except ImportError as error:
        raise ProfileError(f"{shown(url)}: a package is missing ({error.name or error})") from None
    return files, path


def _at_most(file: Any, size: int) -> bytes:
    """What ``file`` holds, at most ``size`` bytes. A stream gives less than is asked for."""
    parts: list[bytes] = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _in_time(work: Callable[[], Any], url: str) -> Any:
    """What ``work`` returns. Its thread is left behind where it takes too long: nothing can end a stuck request."""
    result: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="autotune-registry", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if thread.is_alive():
        raise Unreachable(f"{shown(url)}: no answer within {SECONDS:g} s")
    if failure:
        raise _said(failure[0], url)
    return result[0]


def _said(error: BaseException, url: str) -> ProfileError:
    """The error by its class and HTTP status alone: texts of libraries quote addresses and keys."""
    if isinstance(error, ProfileError):
        return error
    status = getattr(error, "status", None)
    why = f"HTTP status {status}" if isinstance(status, int) and status >= 400 else type(error).__name__
    return Unreachable(f"{shown(url)}: cannot be read or written ({why})")
