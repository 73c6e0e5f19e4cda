"""Isolates a process in the better of the two ways that this system permits."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from threadpoolctl import ThreadpoolController

from autotune import linux
from autotune.scripts import adapters
from autotune.trial.isolation import overlays, redirected
from autotune.trial.isolation.private import KERNEL, SERVICES, Nest, below, default_bytes

NEW_NETWORK = 0x40000000
SET_FLAGS, UP = 0x8914, 1
NOBODY = "http://127.0.0.1:9"
"""An address without a proxy: programs that use it as theirs reach no other machine."""
PROGRAMS_CALL = (
    "in trials, programs that the script starts and libraries in C can reach the network without a proxy ({})"
)
FIRST_FILE = 3
"""Standard input, output and error stay what they are."""


@dataclass(frozen=True)
class Isolation:
    """The isolation of this process and its children from the user's files and the network.

    Attributes:
        way: name of the way taken.
        gaps: what is not kept inside. No names of this machine are in there.
    """

    way: str
    gaps: tuple[str, ...]
    _nest: Nest = field(repr=False)
    _own_network: bool = field(repr=False)

    def nest(self, folder: Path) -> None:
        """Isolate a forked child: it sees what was written before the fork, and no other child sees what it writes.

        Args:
            folder: the trial's own inside the study's scratch; it is made if it is missing.

        Raises:
            OSError: what the process itself could do is refused to its child.
        """
        ThreadpoolController()  # finds by path what is loaded, and keeps it: paths lead elsewhere afterwards
        folder.mkdir(parents=True, exist_ok=True)
        if self._own_network:
            _leave_network()  # trials that run side by side may use the same port
        reopen_files(self._nest(folder.resolve()))


def isolate(scratch: Path, *, network: bool = False) -> Isolation:
    """Keep what this process and its children write from now on away from the user's files.

    Call it in a process of one thread that is not the tuner's, in the user's working folder, before the user's code
    runs. It works there afterwards, or in a folder that looks like it. Everything but ``scratch`` is gone with the last
    child.

    Args:
        scratch: the study's folder; it stays the real one, so that the tuner sees what is written there.
        network: True if other machines may be reached.
    """
    ThreadpoolController()  # finds by path what is loaded, and keeps it: paths lead elsewhere afterwards
    scratch, origin = scratch.resolve(), Path.cwd()
    try:
        way, entered = overlays.NAME, overlays.enter(scratch, origin, default_bytes())
    except OSError:
        way, entered = redirected.NAME, redirected.enter(scratch, origin)
    nest, gaps = entered
    os.environ.update(adapters.variables(scratch / "trackers", network=network))
    tempfile.tempdir = None
    own_network = False
    if not network:
        try:
            _leave_network()
            own_network = True
        except OSError as error:
            gaps += (PROGRAMS_CALL.format(os.strerror(error.errno or 0)),)
            proxies = dict.fromkeys(("http_proxy", "https_proxy", "ftp_proxy", "all_proxy"), NOBODY)
            proxies["no_proxy"] = "localhost,127.0.0.1,::1"
            os.environ.update(proxies | {name.upper(): value for name, value in proxies.items()})
            redirected.forbid_network()
    return Isolation(way, gaps, nest, own_network)


def _leave_network() -> None:
    """Leave all networks but a loopback of this process and its children. Raise `OSError` if that is not permitted."""
    linux.call("unshare", NEW_NETWORK)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", UP))


def reopen_files(name_of: Callable[[str], str | None] = lambda path: path) -> None:
    """Open regular files of the script again, by their names and at their positions: descriptors that a fork copies
    share one, so that the first trial would move it for the next; and writes through one of the fork server go to its
    file. ``name_of`` returns the name that a file has now, from the one that it had; None leaves it alone."""
    for fd in map(int, os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ()):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{fd}")
            if fd < FIRST_FILE or not stat.S_ISREG(os.fstat(fd).st_mode) or below(path, (*KERNEL, *SERVICES)):
                continue
            if (now := name_of(path)) is not None:
                _reopen(fd, now)


def _reopen(fd: int, path: str) -> None:
    position, inheritable = os.lseek(fd, 0, os.SEEK_CUR), os.get_inheritable(fd)
    again = os.open(path, fcntl.fcntl(fd, fcntl.F_GETFL))  # these do not say that it was created or emptied
    os.lseek(again, position, os.SEEK_SET)
    os.dup2(again, fd, inheritable=inheritable)
    os.close(again)
