"""Files at URLs, through fsspec: bounded in size and time, and without credentials in any message.

fsspec and the packages of its file systems (s3fs, gcsfs, aiohttp ...) are imported when a URL is used, not before. Who
asks a registry gets an `Unreachable` if that does not answer, and a `ProfileError` if the URL cannot be used.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from autotune.errors import ProfileError
from autotune.near import did_you_mean

SECONDS = 10.0
"""A request that takes longer is given up: training must start."""
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "http": {"max_redirects": 3, "client_kwargs": {"trust_env": True}},
    "s3": {"config_kwargs": {"connect_timeout": 4, "read_timeout": 4, "retries": {"max_attempts": 1}}},
}
READ_ONLY = ("http", "github", "git", "memory")
"""Protocols by which files cannot be written so that others find them."""


class Unreachable(ProfileError):
    """The registry did not answer in time, or not in a way that can be understood."""


def read(url: str, most: int) -> bytes | None:
    """Return the content of ``url``, at most ``most`` + 1 bytes of it; None if there is no such file."""

    def work(files: Any, path: str) -> bytes | None:
        try:
            if protocol(url) != "http":
                return bytes(files.cat_file(path, start=0, end=most + 1))
            with files.open(path, "rb", block_size=0, size=1) as stream:  # a server may send without end
                found = b""
                while len(found) <= most and (part := stream.read(most + 1 - len(found))):
                    found += part
                return found
        except FileNotFoundError:
            return None

    found: bytes | None = _in_time(work, url)
    return found


def write(url: str, content: bytes) -> None:
    """Replace the file at ``url``."""

    def work(files: Any, path: str) -> None:
        if protocol(url) in ("sftp", "ssh", "smb"):
            files.makedirs(path.rpartition("/")[0], exist_ok=True)
        files.pipe_file(path, content)

    check_writable(url)
    _in_time(work, url)


def remove(url: str) -> None:
    """Remove the file at ``url``."""
    check_writable(url)
    _in_time(lambda files, path: files.rm_file(path), url)


def names(url: str) -> list[str]:
    """Return the names of all YAML files one folder below ``url``, relative to it. A web server cannot be listed."""
    if protocol(url) == "http":
        raise ProfileError(f"{shown(url)}: a web server is not listed; autotune profiles match TARGET looks there")
    found = _in_time(lambda files, path: files.glob(f"{path}/*/*.yaml"), url)
    return ["/".join(str(each).split("/")[-2:]) for each in found]


def check_writable(url: str) -> None:
    """Do nothing if others find what is written at ``url``; else raise `ProfileError`."""
    if protocol(url) in READ_ONLY:
        raise ProfileError(f"{shown(url)}: files can only be read there. Name the folder or bucket behind it: --to")


def protocol(url: str) -> str:
    """Return the protocol of ``url``; ``http`` for ``https`` too."""
    return url.partition("://")[0].replace("https", "http")


def shown(url: str) -> str:
    """Return ``url`` without user, password, query and fragment, for messages."""
    text = re.sub(r"[?#].*", "", url)
    text = re.sub(r"://[^/]*@", "://", text) if not text.startswith(("github:", "git:")) else text
    text = re.sub(r"[^\x21-\x7e]", "?", text)
    return text if len(text) <= 200 else text[:200] + "..."


def joined(url: str, name: str) -> str:
    """Return the address of the file ``name`` below ``url``. The query of a web server's address stays behind it."""
    base = re.split("[?#]", url, maxsplit=1)[0] if protocol(url) == "http" else url
    return f"{base.rstrip('/')}/{name}{url[len(base) :]}"


def _in_time(work: Callable[[Any, str], Any], url: str) -> Any:
    """Return what ``work`` does. Its thread is left behind if it takes too long: nothing can end a stuck request."""
    result: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work(*_open(url)))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="autotune-registry", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if thread.is_alive():
        raise Unreachable(f"{shown(url)}: no answer within {SECONDS:g} s")
    if failure:
        raise _without_secrets(failure[0], url)
    return result[0]


def _open(url: str) -> tuple[Any, str]:
    """Return fsspec's file system and path of ``url``."""
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import available_protocols, registry

        known = {*available_protocols(), *registry}
        if protocol(url) not in known:
            hint = did_you_mean(protocol(url), known)
            raise ProfileError(f"{shown(url)}: {protocol(url)}:// is no scheme that fsspec knows{hint}")
        files, path = url_to_fs(url, **OPTIONS.get(protocol(url), {}), use_listings_cache=False)
    except ImportError as error:
        name = error.name or error
        extra = "pip install 'torch-autotune[remote]' brings those of http and s3"
        raise ProfileError(f"{shown(url)}: a package is missing ({name}); {extra}") from None
    return files, path


def _without_secrets(error: BaseException, url: str) -> ProfileError:
    """Return the error by its class and HTTP status alone: texts of libraries quote addresses and keys."""
    if isinstance(error, ProfileError):
        return error
    status = getattr(error, "status", None)
    why = f"HTTP status {status}" if isinstance(status, int) and status >= 400 else type(error).__name__
    return Unreachable(f"{shown(url)}: cannot be read or written ({why})")
