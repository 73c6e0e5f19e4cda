"""An audit hook that stops what a trial may not do, and says which path or address and what helps.

It sees what Python itself does. What a library does in C, or another program, it does not see.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.trial.isolation.mounts import SHARED_MEMORY, below

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SYSTEM = ("/dev", "/proc")
LOCAL_NAMES = ("localhost", "ip6-localhost", "")
NETWORK = "a trial has no network: --allow-network permits it"
WRITE = "a trial may not write here: write to a relative path or below $TMPDIR, or make it depend on $AUTOTUNE_TRIAL"


def forbid_writes(inside: Path) -> None:
    """From now on, raise `PermissionError` where this process or its forked children would change a file outside
    ``inside``; new shared memory is permitted. It cannot be taken back."""
    taken = _names(SHARED_MEMORY)

    def permitted(place: str) -> bool:
        if below(place, (SHARED_MEMORY,)) and not below(place, (str(inside),)):
            return os.path.dirname(place) == SHARED_MEMORY and os.path.basename(place) not in taken
        return below(place, (str(inside), *SYSTEM))

    def check(place: str) -> None:
        if not permitted(place):
            raise PermissionError(errno.EACCES, WRITE, place)

    def opened(path: Any, _mode: Any, flags: int) -> None:
        if flags & WRITES and isinstance(path, (str, bytes)):
            check(os.path.realpath(os.fsdecode(path)))

    _install({"open": opened} | {event: _checked(check, changes) for event, changes in CHANGES.items()})


def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


@dataclass(frozen=True)
class Change:
    """Where the arguments of an audit event hold a path that is changed, and the folder that it is relative to.

    Attributes:
        follows: whether it is a link's target that is changed, not the link.
    """

    path: int
    folder: int | None
    follows: bool = False


CHANGES = {
    "os.remove": (Change(0, 1),),
    "os.rmdir": (Change(0, 1),),
    "os.mkdir": (Change(0, 2),),
    "os.rename": (Change(0, 2), Change(1, 3)),
    "os.link": (Change(1, 3),),
    "os.symlink": (Change(1, 2),),
    "os.truncate": (Change(0, None, follows=True),),
    "os.chmod": (Change(0, 2, follows=True),),
    "os.chown": (Change(0, 3, follows=True),),
    "os.utime": (Change(0, 3, follows=True),),
    "os.setxattr": (Change(0, None, follows=True),),
}


def _checked(check: Callable[[str], None], changes: tuple[Change, ...]) -> Callable[..., None]:
    def look(*arguments: Any) -> None:
        for change in changes:
            path, folder = arguments[change.path], -1 if change.folder is None else arguments[change.folder]
            if isinstance(path, (str, bytes)):
                check(_absolute(os.fsdecode(path), folder, change.follows))

    return look


def _absolute(path: str, folder: int, follows: bool) -> str:
    start = os.getcwd()
    if folder >= 0:
        with contextlib.suppress(OSError):
            start = os.readlink(f"/proc/self/fd/{folder}")
    head, tail = os.path.split(os.path.join(start, path).rstrip("/"))
    found = os.path.join(os.path.realpath(head), tail)
    return os.path.realpath(found) if follows else found


def forbid_network() -> None:
    """From now on, raise `PermissionError` where this process or its forked children would look up or call another
    machine. It cannot be taken back."""

    def connected(_socket: Any, address: Any) -> None:
        if isinstance(address, tuple) and not _is_local(address[0]):
            raise PermissionError(errno.EACCES, NETWORK, f"{address[0]}:{address[1]}")

    def looked_up(host: Any, *_: Any) -> None:
        if not _is_local(host):
            raise PermissionError(errno.EACCES, NETWORK, str(host))

    _install({"socket.connect": connected, "socket.sendto": connected, "socket.getaddrinfo": looked_up})


def _is_local(host: Any) -> bool:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name is None or name in (*LOCAL_NAMES, os.uname().nodename):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _install(reactions: Mapping[str, Callable[..., None]]) -> None:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        reaction = reactions.get(event)
        if reaction is not None:
            reaction(*arguments)

    sys.addaudithook(hook)
