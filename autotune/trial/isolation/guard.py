"""An audit hook that stops what a trial may not do, and says which path or address and what helps.

It sees what Python itself does, and the checkpoints that PyTorch writes in C++. What another library does in C, or
another program, it does not see.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune.trial.isolation.private import SHARED_MEMORY, Treatment, below, treatment

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LOCAL_NAMES = (None, "", "localhost", "ip6-localhost", os.uname().nodename)
NETWORK = "a trial has no network: --allow-network permits it"
WRITE = "a trial may not write here: write to a relative path or below $TMPDIR, or make it depend on $AUTOTUNE_TRIAL"
NO_FOLDER, LINK, TARGET = None, False, True
CHANGES = {
    "os.remove": ((0, 1, LINK),),
    "os.rmdir": ((0, 1, LINK),),
    "os.mkdir": ((0, 2, LINK),),
    "os.rename": ((0, 2, LINK), (1, 3, LINK)),
    "os.link": ((1, 3, LINK),),
    "os.symlink": ((1, 2, LINK),),
    "os.truncate": ((0, NO_FOLDER, TARGET),),
    "os.chmod": ((0, 2, TARGET),),
    "os.chown": ((0, 3, TARGET),),
    "os.utime": ((0, 3, TARGET),),
    "os.setxattr": ((0, NO_FOLDER, TARGET),),
}
"""For each audit event, the arguments that hold a path that is changed and the folder that it is relative to, and if a
link is changed or its target."""


def forbid_writes(inside: Path) -> None:
    """From now on, raise `PermissionError` if this process or its forked children would change a file outside
    ``inside``; new shared memory is permitted. It cannot be taken back."""
    taken = frozenset(os.listdir(SHARED_MEMORY)) if os.path.isdir(SHARED_MEMORY) else frozenset()

    def check(place: str) -> None:
        own = os.path.dirname(place) == SHARED_MEMORY and os.path.basename(place) not in taken
        if not (own or below(place, (str(inside),)) or treatment(place) is Treatment.REAL):
            raise PermissionError(errno.EACCES, WRITE, place)

    def opened(path: Any, _mode: Any, flags: int) -> None:
        if flags & WRITES and isinstance(path, (str, bytes)):
            check(os.path.realpath(os.fsdecode(path)))

    def changed(changes: tuple[tuple[int, int | None, bool], ...], *arguments: Any) -> None:
        for path, folder, follows in changes:
            if isinstance(arguments[path], (str, bytes)):
                start = -1 if folder is None else arguments[folder]
                check(_absolute(os.fsdecode(arguments[path]), start, follows))

    _install({"open": opened} | {event: _first(changed, changes) for event, changes in CHANGES.items()})
    _check_checkpoints(check)


def _first(function: Callable[..., None], value: Any) -> Callable[..., None]:
    return lambda *arguments: function(value, *arguments)


def _absolute(path: str, folder: int, follows: bool) -> str:
    start = os.getcwd()
    if folder >= 0:
        with contextlib.suppress(OSError):
            start = os.readlink(f"/proc/self/fd/{folder}")
    head, tail = os.path.split(os.path.join(start, path).rstrip("/"))
    found = os.path.join(os.path.realpath(head), tail)
    return os.path.realpath(found) if follows else found


def _check_checkpoints(check: Callable[[str], None]) -> None:
    """`torch.save` to a name opens the file in C++."""
    if (torch := sys.modules.get("torch")) is None:
        return
    write = torch._C.PyTorchFileWriter

    def checked(target: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(target, (str, bytes, os.PathLike)):
            check(os.path.realpath(os.fsdecode(target)))
        return write(target, *arguments, **options)

    torch._C.PyTorchFileWriter = checked


def forbid_network() -> None:
    """From now on, raise `PermissionError` if this process or its forked children would look up or call another
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
    if name in LOCAL_NAMES:
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
