"""Namespaces, mounts and the loopback interface: thin wrappers of Linux system calls.

Every function raises `OSError` with the name of the call and what it was called with, and so it does elsewhere.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC = 32, 1024, 2048, 4096, 16384
MS_PRIVATE, MS_RELATIME = 1 << 18, 1 << 21
MNT_DETACH = 2
KEPT_FLAGS = {2: MS_NOSUID, 4: MS_NODEV, 8: MS_NOEXEC, 1024: MS_NOATIME, 2048: MS_NODIRATIME, 4096: MS_RELATIME}
"""What `os.statvfs` says of a mount -> what a remount must say again: a user namespace may not take it away."""
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    """Call the C library's ``name``; strings go as file names, numbers as ``unsigned long``."""
    function = getattr(_libc, name, None)
    if function is None:
        raise OSError(errno.ENOSYS, f"{name}: {os.strerror(errno.ENOSYS)}")
    if function(*map(_as_c, arguments)) != 0:
        code = ctypes.get_errno()
        said = ", ".join(str(argument) for argument in arguments if isinstance(argument, (str, Path)))
        raise OSError(code, f"{name}({said}): {os.strerror(code)}")


def _as_c(argument: object) -> object:
    if isinstance(argument, (str, Path)):
        return os.fsencode(argument)
    return argument if argument is None else ctypes.c_ulong(int(str(argument)))


def unshare(flags: int) -> None:
    """Move this process into new namespaces of its own."""
    call("unshare", flags)


def mount(source: str | Path, target: str | Path, kind: str | None, flags: int = 0, options: str | None = None) -> None:
    """``mount(2)``."""
    call("mount", source, target, kind, flags, options)


def bind(source: str | Path, target: str | Path, *, recursive: bool = True) -> None:
    """Show ``source`` at ``target`` too, with the mounts below it."""
    mount(source, target, None, MS_BIND | (MS_REC if recursive else 0))


def make_read_only(target: str | Path) -> None:
    """Forbid writes through the bind mount at ``target``; mounts below it stay as they are."""
    has = os.statvfs(target).f_flag
    kept = sum(flag for said, flag in KEPT_FLAGS.items() if has & said)
    mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def detach(target: str | Path) -> None:
    """Unmount ``target`` with everything below it, also where it is in use."""
    call("umount2", target, MNT_DETACH)


def keep_mounts_private() -> None:
    """Mounts made from now on are seen in this mount namespace only."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def swap_root(root: str, old: str) -> None:
    """Make ``root`` the root folder; the former root appears at ``old``, which is a folder below ``root``."""
    if (number := _PIVOT_ROOT.get(os.uname().machine)) is None:
        raise OSError(errno.ENOSYS, f"pivot_root: unknown on {os.uname().machine}")
    call("syscall", number, root, old)
    os.chdir("/")


_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "s390x": 217, "riscv64": 41, "loongarch64": 41}
"""The number of ``pivot_root``, which the C library does not wrap."""


def own_network() -> None:
    """Leave all networks but a loopback of this process and its children."""
    unshare(CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def map_own_user(uid: int, gid: int) -> None:
    """Give this process its own user and group in the user namespace that it has just made."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
